"""FAR archives: what pynini writes is read, and damaged files are refused."""

import struct

import numpy as np
import pytest

from wfstdec.errors import FormatError
from wfstdec.fst.far import STLIST_MAGIC, read_far
from wfstdec.fst.openfst import format_fst, parse_fst

pynini = pytest.importorskip("pynini")
COLUMNS = ("final_cost", "state_arc_splits", "ilabel", "olabel", "nextstate", "cost")
RULES = {
    "A": lambda: pynini.cross("one", "1"),
    "b": lambda: pynini.union("x", pynini.accep("yy", weight=0.5)).optimize(),
    "long name": lambda: pynini.accep("abc").closure(),
}


@pytest.fixture(params=["sttable", "stlist"])
def written(request, tmp_path):
    path = tmp_path / "rules.far"
    with pynini.Far(str(path), "w", far_type=request.param) as far:
        for name, rule in RULES.items():
            far.add(name, rule())
    return path


def test_rules_are_those_that_pynini_wrote(written):
    found = read_far(written)
    assert list(found) == list(RULES)
    for name, rule in RULES.items():
        expected = parse_fst(rule().write_to_string(), name).fst
        assert found[name].fst.start == expected.start
        for column in COLUMNS:
            mine, theirs = getattr(found[name].fst, column), getattr(expected, column)
            np.testing.assert_array_equal(mine, theirs)


def test_const_rules_are_read(tmp_path):
    content = parse_fst(RULES["b"]().write_to_string(), "b")
    rules = [struct.pack("<i1s", 1, key) + format_fst(content) for key in (b"c", b"d")]
    path = tmp_path / "const.far"
    head = struct.pack("<ii", STLIST_MAGIC, 1)
    path.write_bytes(b"".join([head, *rules, struct.pack("<i", 0)]))
    for read in read_far(path).values():
        np.testing.assert_array_equal(read.fst.ilabel, content.fst.ilabel)


def test_damaged_files_are_refused_by_name(written, tmp_path):
    data = written.read_bytes()
    path = tmp_path / "damaged.far"
    for cut in (*range(0, len(data) - 1, 7), len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(FormatError, match=r"damaged\.far"):
            read_far(path)
