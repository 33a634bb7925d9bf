"""Minimization: by hand, the same language in fewer states, peers, chains."""

import numpy as np
import pytest
from fst_tools import all_pairs, random_fst, size

from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.operations import ROUNDING, minimize

INF = np.inf


def test_equal_continuations_become_one():
    fst = fst_of(
        [
            arcs_of(1, [1, 2], [7, 8], [0, 2], [0.5, 1.0]),
            arcs_of([0, 2], 3, 0, [3, 4], 0.25),
        ],
        start=1,
        final_cost=[INF, INF, INF, 0.0, 0.0],
    )
    found = minimize(fst)
    assert (size(found), found.start) == ((3, 3), 1)
    assert found.nextstate.tolist() == [2, 0, 0]  # the first of each set stays
    assert found.olabel.tolist() == [0, 7, 8]
    assert all_pairs(found) == all_pairs(fst)


@pytest.mark.parametrize(
    ("arc", "merged"),
    [
        ((3, 0, 0.25), True),
        ((4, 0, 0.25), False),
        ((3, 1, 0.25), False),
        ((3, 0, 0.26), False),
        ((3, 0, 0.25 + ROUNDING / 10), True),
    ],
)
def test_what_tells_states_apart(arc, merged):
    ilabel, olabel, cost = arc
    fst = fst_of(
        [
            arcs_of(0, [1, 2], 0, [1, 2]),
            arcs_of([1, 2], [3, ilabel], [0, olabel], 3, [0.25, cost]),
        ],
        start=0,
        final_cost=[INF, INF, INF, 0.0],
    )
    assert minimize(fst).num_states == (3 if merged else 4)


def test_final_costs_tell_states_apart():
    arcs = [arcs_of(0, [1, 2, 3], 0, [1, 2, 3])]
    for costs, states in (([1, 1, 1], 2), ([1, 2, 1], 3), ([1, 1, INF], 3)):
        assert minimize(fst_of(arcs, 0, [INF, *costs])).num_states == states


def test_cycles_that_say_the_same_are_one():
    two = fst_of([arcs_of([0, 1], 1, 0, [1, 0], 0.5)], 0, [0.0, 0.0])
    assert size(minimize(two)) == (1, 1)
    other = fst_of([arcs_of([0, 1], 1, 0, [1, 0], 0.5)], 0, [0.0, INF])
    assert size(minimize(other)) == (2, 2)


def test_costs_keep_their_values():
    costs = np.random.default_rng(0).random(40).astype(np.float32)
    state = np.arange(40)
    fst = fst_of([arcs_of(state, 1, 0, state + 1, costs)], 0, [*[INF] * 40, 0.0])
    found = minimize(fst)
    np.testing.assert_array_equal(found.cost, costs)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=10)
def test_the_language_stays_and_nothing_more_can_go(seed):
    rng = np.random.default_rng(seed)
    fst = coarse(random_fst(rng, num_states=12, num_labels=2))
    found = minimize(fst)
    assert all_pairs(found, 2) == pytest.approx(all_pairs(fst, 2), abs=1e-6)
    assert size(minimize(found)) == size(found)
    assert found.num_states == len(equivalence_classes(fst))


def coarse(fst):
    """Costs of 0 and 1/2 only, so that states are alike."""
    halves = np.round(fst.cost).astype(np.float32) / 2
    final = np.where(np.isinf(fst.final_cost), INF, 0.5).astype(np.float32)
    return type(fst)(**(vars(fst) | {"cost": halves, "final_cost": final}))


def equivalence_classes(fst):
    """Classes of states by the slow textbook way: split until nothing splits."""
    state = fst.arc_state()
    classes = [int(np.isfinite(cost)) for cost in fst.final_cost]
    while True:
        rows = [
            (
                classes[s],
                frozenset(
                    (fst.ilabel[a], fst.olabel[a], fst.cost[a], classes[d], count)
                    for a, d, count in counted(fst, np.flatnonzero(state == s), classes)
                ),
            )
            for s in range(fst.num_states)
        ]
        index = {row: i for i, row in enumerate(dict.fromkeys(rows))}
        finer = [index[row] for row in rows]
        if len(index) == len(set(classes)):
            return set(finer)
        classes = finer


def counted(fst, arcs, classes):
    """Arcs, next states, and how many arcs of the row are alike."""
    alike = [
        (fst.ilabel[a], fst.olabel[a], fst.cost[a], classes[fst.nextstate[a]])
        for a in arcs
    ]
    return [
        (a, fst.nextstate[a], alike.count(key))
        for a, key in zip(arcs, alike, strict=True)
    ]


def test_a_long_chain_takes_no_longer_than_its_length():
    """Each state differs from the next only by how far the end is."""
    n = 200_000
    ends = [*[INF] * n, 0.0]
    chain = fst_of([arcs_of(np.arange(n), 1, 1, np.arange(1, n + 1))], 0, ends)
    assert minimize(chain).num_states == n + 1
