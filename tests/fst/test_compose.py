"""Composition: all pairs of strings, trimming, and the libraries' compositions."""

import numpy as np
import pytest
from fst_tools import all_pairs, random_fst, size

from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.engine import to_kaldifst
from wfstdec.fst.openfst import FstContent, format_fst
from wfstdec.fst.operations import compose

INF = np.inf


def joined(left, right):
    """{(input, output): least cost} by joining all pairs of strings."""
    by_input, found = {}, {}
    for (middle, output), cost in all_pairs(right).items():
        by_input.setdefault(middle, []).append((output, cost))
    for (string, middle), cost in all_pairs(left).items():
        for output, more in by_input.get(middle, []):
            total = min(cost + more, found.get((string, output), INF))
            found[string, output] = total
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.share(keep=12)
def test_all_pairs_of_strings_are_joined(seed):
    rng = np.random.default_rng(seed)
    left, right = random_fst(rng), random_fst(rng, epsilons=False)
    composed = compose(left, right)
    expected = joined(left, right)
    if composed.num_states == 0:
        assert not expected
    else:
        assert all_pairs(composed) == pytest.approx(expected, abs=1e-6)


def test_by_hand():
    """`ab` to `x` with `x` to `Y`, where a second `x` leads nowhere."""
    first = arcs_of([0, 1], [1, 2], [0, 7], [1, 2], [0.5, 0.25])
    second = arcs_of([0, 0], 7, [8, 9], [1, 2], [2.0, 3.0])
    left = fst_of([first], 0, [INF, INF, 1])
    right = fst_of([second], 0, [INF, 0.5, INF])
    found = compose(left, right)
    assert (found.num_states, found.start) == (3, 0)
    assert found.state_arc_splits.tolist() == [0, 1, 2, 2]
    assert (found.ilabel.tolist(), found.olabel.tolist()) == ([1, 2], [0, 8])
    assert found.cost.tolist() == [0.5, 2.25]
    assert found.final_cost.tolist() == [INF, INF, 1.5]


def test_nothing_in_common_leaves_no_states():
    left = fst_of([arcs_of(0, 1, 1, 1)], 0, [INF, 0])
    right = fst_of([arcs_of(0, 2, 2, 1)], 0, [INF, 0])
    found = compose(left, right)
    assert (found.num_states, found.num_arcs) == (0, 0)
    assert found.state_arc_splits.tolist() == [0]


def test_long_rows_and_many_states():
    """Beyond the first sizes of all tables: 20,000 words, every third of them in G."""
    n = 20_000
    words = np.arange(1, n + 1)
    chains = arcs_of(0, words, words, words)
    back = arcs_of(words, n + words, 0, 0)
    left = fst_of([chains, back], 0, [0.0] + [INF] * n)
    right = fst_of([arcs_of(0, words[::3], words[::3], 0, 0.5)], 0, [0.0])
    found = compose(left, right)
    third = len(words[::3])
    assert (found.num_states, found.num_arcs) == (1 + third, 2 * third)
    assert sorted(found.olabel[found.olabel > 0].tolist()) == words[::3].tolist()


def size_by_kaldifst(left, right):
    kaldifst = pytest.importorskip("kaldifst")
    left, right = to_kaldifst(left), to_kaldifst(right)
    kaldifst.arcsort(left, sort_type="olabel")
    kaldifst.arcsort(right, sort_type="ilabel")
    found = kaldifst.compose(left, right)
    return found.num_states, sum(map(found.num_arcs, range(found.num_states)))


def size_by_pynini(left, right):
    pynini = pytest.importorskip("pynini")
    left, right = (
        pynini.Fst.read_from_string(format_fst(FstContent(fst), "vector"))
        for fst in (left, right)
    )
    found = pynini.compose(left.arcsort("olabel"), right.arcsort("ilabel"))
    return found.num_states(), sum(map(found.num_arcs, found.states()))


@pytest.mark.parametrize(
    "peer", [size_by_kaldifst, pytest.param(size_by_pynini, marks=pytest.mark.peers)]
)
def test_the_libraries_compose_to_the_same_sizes(peer):
    sizes = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        left = random_fst(rng, cyclic=True)
        right = random_fst(rng, epsilons=False, cyclic=True)
        ours = compose(left, right)
        assert peer(left, right) == size(ours)
        sizes.add(ours.num_states)
    assert len(sizes) > 10
