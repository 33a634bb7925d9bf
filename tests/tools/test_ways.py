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


def test_lines_of_code_are_those_with_code(tmp_path):
    text = '"""Head."""\n\nX = (\n    1  # one\n)\n"""Meaning."""\n# nothing\n'
    assert ways.code_lines(text) == 3
    for name in ("wfstdec/lm/a.py", "wfstdec/b.pyi", "tests/c.py", "notebooks/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    rooms = {"wfstdec": 6, "  lm": 3, "  b": 3, "tests": 3}
    assert ways.room_lines(tmp_path) == rooms


def test_two_checkouts_stand_side_by_side(capsys):
    assert ways.main(["--files", "--checkout", str(ROOT), str(ROOT)]) == 0
    told = capsys.readouterr().out
    assert "frame of the WFST" in told and "wfst/cpu/frame.py" in told
    assert " - " not in told and " + " not in told


def test_what_does_not_count():
    files = ["jit/sorting.py", "cli/flags.py", "lm/__init__.py", "cli/decode.py"]
    assert ways.kept(files) == ["cli/decode.py"]
