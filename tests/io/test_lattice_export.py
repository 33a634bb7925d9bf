"""Lattices as other tools read them: the same best path, the same paths."""

import numpy as np
import pytest
from lattice_cases import random_lattice
from text_graphs import text_graph

from wfstdec import WfstDecoder
from wfstdec.io import write_lattice_fst
from wfstdec.io.lattices import lattice_fst

TWO_WAYS = "0 1 a A 1\n0 2 a B 1.5\n1 3 b - 0\n2 3 b' - 0.25\n3 0.5"


def test_by_hand():
    decoder = WfstDecoder(text_graph(TWO_WAYS), backend="cpu")
    x = np.full((2, 3), -0.5, np.float32)
    (lattice,) = decoder.decode_lattice([x])
    assert lattice_fst(lattice).cost.tolist() == [1.5, 2.0, 0.5, 0.75]


@pytest.mark.peers
def test_openfst_finds_the_best_path_of_a_file(tmp_path):
    pynini = pytest.importorskip("pynini")
    for seed in range(40):
        lattice = random_lattice(seed)
        write_lattice_fst(lattice, tmp_path / "one.fst")
        fst = pynini.Fst.read(str(tmp_path / "one.fst"))
        assert (fst.num_states(), fst.start()) == (lattice.num_states, 0)
        total = float(pynini.shortestdistance(fst, reverse=True)[0])
        assert total == pytest.approx(lattice.search_cost, abs=1e-4)


@pytest.mark.peers
def test_kaldifst_reads_the_same_file(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    lattice = random_lattice(3)
    write_lattice_fst(lattice, tmp_path / "one.fst")
    fst = kaldifst.StdVectorFst.read(str(tmp_path / "one.fst"))
    assert fst.num_states == lattice.num_states
    best = kaldifst.get_linear_symbol_sequence(kaldifst.shortest_path(fst))
    ok, _, words, weight = best
    assert ok and weight.value == pytest.approx(lattice.search_cost, abs=1e-4)
    assert tuple(words) == lattice.word_ids(lattice.best_arcs())
