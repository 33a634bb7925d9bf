"""T: its arcs by hand and by number, its language against the oracle, its traps."""

import itertools
from dataclasses import replace

import naive
import numpy as np
import pytest
from fst_tools import outputs_of, rows_of

from wfstdec import token_table
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.topology import TOPOLOGIES, build_topology
from wfstdec.text.tokens import ilabel_of

INPUTS = {0: "-", 1: "b", 2: "x", 3: "y", 5: "x'", 6: "y'"}
CALLS = {7: "call", 9: "call-x", 10: "call-y", 13: "return-x", 14: "return-y"}
OUTPUTS = {0: "-", 2: "x", 3: "y", 4: "C", 5: "#0"}
"""Labels where the tokens are b x y, the first the blank, and #0 the only symbol."""


def space(blank=0, num_tokens=3, num_disambig=1, calls=False):
    names = [f"t{i}" for i in range(num_tokens)]
    return LabelSpace(token_table(names, blank), ("<eps>",), num_disambig, calls)


def rows(name, calls=False):
    fst = build_topology(name, space(calls=calls))
    return [row.removesuffix(" 0") for row in rows_of(fst, INPUTS | CALLS, OUTPUTS)]


def lines(text):
    return sorted(line.strip() for line in text.strip().splitlines())


def test_normal_by_hand():
    assert rows("normal") == lines("""
        1
        1 0 b -
        1 2 x x
        1 3 y y
        1 1 - #0
        0
        0 0 b -
        0 2 x x
        0 3 y y
        2
        2 2 x' -
        2 3 y y
        2 0 b -
        2 2 - #0
        3
        3 3 y' -
        3 2 x x
        3 0 b -
        3 3 - #0
    """)


CALLED = {
    "normal": """
        0 4 call C
        1 4 call C
        2 4 call-x C
        3 4 call-y C
        4 2 return-x -
        4 3 return-y -
    """,
    "compact": """
        0 3 call C
        3 1 return-x -
        3 2 return-y -
    """,
    "minimal": """
        0 1 call C
        1 0 return-x -
        1 0 return-y -
    """,
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_calls_stand_beside_what_there_is(name):
    called = lines(CALLED[name.partition("-")[0]])
    assert sorted(rows(name, calls=True)) == sorted([*rows(name), *called])


def test_compact_by_hand():
    assert rows("compact") == lines("""
        0
        0 0 b -
        0 1 x x
        0 2 y y
        0 0 - #0
        1 1 x' -
        1 0 - -
        2 2 y' -
        2 0 - -
    """)


def test_minimal_by_hand():
    assert rows("minimal") == lines("""
        0
        0 0 b -
        0 0 x x
        0 0 y y
        0 0 - #0
    """)


@pytest.mark.parametrize("blank", [0, 1, 2])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_alignment_reads_as_the_oracle_says(name, blank):
    labels = space(blank)
    fst = build_topology(name, labels)
    for num_frames in range(5):
        for alignment in itertools.product(range(3), repeat=num_frames):
            expected = {
                tuple(ilabel_of(span.token) for span in way)
                for way in naive.readings(name, alignment, blank)
            }
            assert readings(fst, labels, alignment) == expected, alignment


def readings(fst, labels, alignment):
    """Outputs without symbols, repeats taken for tokens."""
    fst = replace(fst, ilabel=labels.split_repeats(fst.ilabel)[0])
    ilabels = [ilabel_of(token) for token in alignment]
    outputs = outputs_of(fst, ilabels, most_outputs=len(ilabels) + 1)
    top = len(labels.tokens)
    return {tuple(label for label in output if label <= top) for output in outputs}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_frame_is_a_repeat_only_behind_its_own_token(name):
    labels = space()
    fst = build_topology(name, labels)
    ilabel, repeat = labels.split_repeats(fst.ilabel)
    assert repeat.any() == (name in ("normal", "compact"))
    assert not np.isin(ilabel[repeat], [0, labels.blank]).any()
    np.testing.assert_array_equal(fst.arc_state()[repeat], fst.nextstate[repeat])
    entered = {
        (int(n), int(i))
        for n, i, r in zip(fst.nextstate, ilabel, repeat, strict=True)
        if not r and i != 0 and n in fst.nextstate[repeat]
    }
    assert entered == set(zip(fst.nextstate[repeat], ilabel[repeat], strict=True))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_symbols_pass_at_the_start_and_behind_every_token(name):
    """Without them at the start, no sentence begins with a back-off."""
    labels = space(num_disambig=2)
    fst = build_topology(name, labels)
    b, x, y = 1, 2, 3
    first, second = labels.disambig(0), labels.disambig(1)
    for frames in [(x, y), (b, x, y), (x, b, y), (x, y, b), (b, x, b, b, y, b)]:
        found = outputs_of(fst, frames, most_outputs=7)
        for output in [
            (x, y),
            (first, x, y),
            (first, second, x, y),
            (x, second, first, y),
            (x, y, first),
            (first, x, first, y, second, first),
        ]:
            assert found[output] == 0.0, (frames, output)
