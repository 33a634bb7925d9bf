"""Counts of the files of a frame, by the sources."""

from pathlib import Path

import pytest

from tools import ways

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def library():
    return ways.Library(ROOT)


def test_a_frame_is_followed_through_imports(library):
    frame = library.frame("WFST")
    assert {("wfst.cpu.frame", "advance"), ("search.acoustics", "price")} <= frame
    assert ("boost.words", "find_bonus") in frame  # three calls below
    assert not any(module.startswith(("trie", "greedy")) for module, _ in frame)


def test_a_choice_by_class_is_followed_to_all_classes(library):
    """`lm.kernels.step` is an automaton's, or that of a model asked on demand."""
    files = ways.static_rows(library)["frame of the trie"]
    assert {"lm/kernels.py", "lm/on_demand_table.py"} <= set(files)


def test_lines_of_code_are_those_with_code():
    text = '"""Head."""\n\nX = (\n    1  # one\n)\n"""Meaning."""\n# nothing\n'
    assert ways.code_lines(text) == 3
    assert ways.room_lines(ROOT)["wfstdec"] > 1000


def test_small_modules_name_the_one_that_needs_them(library):
    assert library.small()["cli.posterior_scale"] == "cli.tune"


def test_two_checkouts_stand_side_by_side(capsys):
    assert ways.main(["--files", "--checkout", str(ROOT), str(ROOT)]) == 0
    told = capsys.readouterr().out
    assert "frame of the WFST" in told and "wfst/cpu/frame.py" in told
    assert " - " not in told and " + " not in told


def test_what_does_not_count():
    files = ["jit/sorting.py", "cli/flags.py", "lm/__init__.py", "cli/decode.py"]
    assert ways.kept(files) == ["cli/decode.py"]
