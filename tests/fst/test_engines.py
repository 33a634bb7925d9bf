"""Determinization of grammars: by hand, where it has no end, what is missing."""

import sys

import numpy as np
import pytest
from fst_tools import outputs_of

from wfstdec.errors import BackendError, GraphError
from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.engine import ENGINES, determinize, from_kaldifst, to_kaldifst

INF = np.inf


def test_arrays_go_in_and_out():
    fst = fst_of(
        [arcs_of([2, 0, 2], [1, 2, 3], [0, 7, 1], [0, 1, 1], [0.5, -1.25, 3])],
        start=2,
        final_cost=[INF, 0.125, INF],
    )
    back = from_kaldifst(to_kaldifst(fst))
    assert back.start == 2
    for name in ("final_cost", "state_arc_splits", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(back, name), getattr(fst, name))
    np.testing.assert_array_equal(back.cost, fst.cost)
    assert (back.num_states, back.num_arcs) == (3, 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_determinizing_keeps_costs_and_removes_epsilons(engine):
    pytest.importorskip(engine)
    a, b = 1, 2
    fst = fst_of(
        [
            arcs_of(0, [a, a, 0], 0, [1, 2, 3], [0.5, 1.0, 0.25]),
            arcs_of([1, 2], [a, b], 0, 4, [0.125, 2.0]),
            arcs_of(3, b, 0, 4, 0.0),
        ],
        start=0,
        final_cost=[INF, INF, INF, INF, 0.0],
    )
    found = determinize(fst, 100, engine)
    for string, cost in {(a, a): 0.625, (a, b): 3.0, (b,): 0.25}.items():
        assert outputs_of(found, string) == pytest.approx({(): cost})
    leaving = found.ilabel[: found.state_arc_splits[1]]
    assert len(set(leaving.tolist())) == len(leaving)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_is_not_installed(monkeypatch, engine):
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(BackendError, match=f"needs {engine}.*pip install {engine}$"):
        determinize(fst_of([arcs_of(0, 1, 1, 0)], 0, [0.0]), 10, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_determinizing_that_would_not_end_raises_and_keeps_nothing(engine):
    """At its limit kaldifst has a partial graph; it must never be used."""
    pytest.importorskip(engine)
    drifting = fst_of(
        [arcs_of([0, 0], 1, 0, [1, 2]), arcs_of([1, 2], 2, 0, [1, 2], [1.0, 2.0])],
        start=0,
        final_cost=[INF, 0.0, 0.0],
    )
    with pytest.raises(GraphError, match="more than 50 states, expected fewer"):
        determinize(drifting, 50, engine)
