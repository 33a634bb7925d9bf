"""The engines: each operation by hand, what is missing."""

import sys

import numpy as np
import pytest
from fst_tools import ENGINE_NAMES, label_space, outputs_of

from wfstdec.errors import BackendError, GraphError
from wfstdec.fst import topology
from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.engine import get_engine

INF = np.inf


@pytest.fixture(params=ENGINE_NAMES)
def engine(request):
    if request.param != "kaldifst":
        pytest.importorskip(request.param)
    return get_engine(request.param)


def test_arrays_go_in_and_out(engine):
    fst = fst_of(
        [arcs_of([2, 0, 2], [1, 2, 3], [0, 7, 1], [0, 1, 1], [0.5, -1.25, 3])],
        start=2,
        final_cost=[INF, 0.125, INF],
    )
    back = engine.unload(engine.load(fst))
    assert back.start == 2
    for name in ("final_cost", "state_arc_splits", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(back, name), getattr(fst, name))
    np.testing.assert_array_equal(back.cost, fst.cost)
    assert (back.num_states, back.num_arcs) == (3, 3)


@pytest.mark.parametrize("log", [True, False])
def test_determinizing_keeps_a_function_and_removes_epsilons(engine, log):
    a, b, x, y = 1, 2, 7, 8
    fst = fst_of(
        [
            arcs_of(0, [a, a, 0], [x, y, 0], [1, 2, 3], [0.5, 1.0, 0.25]),
            arcs_of([1, 2], [a, b], 0, 4, [0.125, 2.0]),
            arcs_of(3, b, y, 4, 0.0),
        ],
        start=0,
        final_cost=[INF, INF, INF, INF, 0.0],
    )
    found = engine.determinize(fst, 100, log=log)
    assert outputs_of(found, (a, a)) == pytest.approx({(x,): 0.625})
    assert outputs_of(found, (a, b)) == pytest.approx({(y,): 3.0})
    assert outputs_of(found, (b,)) == pytest.approx({(y,): 0.25})
    leaving = found.ilabel[: found.state_arc_splits[1]]
    assert len(set(leaving.tolist())) == len(leaving)


def test_the_log_semiring_looks_ahead_to_all_continuations(engine):
    fst = fst_of(
        [
            arcs_of(0, 1, 0, [1, 2], [1.0, 2.0]),
            arcs_of([1, 2], [2, 3], 0, 3, [0.5, 0.0]),
        ],
        start=0,
        final_cost=[INF, INF, INF, 0.0],
    )
    for log, first in ((True, -np.logaddexp(-1.0, -2.0)), (False, 1.0)):
        found = engine.determinize(fst, 100, log=log)
        assert found.cost[0] == pytest.approx(first, abs=1e-6)
        assert outputs_of(found, (1, 2)) == pytest.approx({(): 1.5})


@pytest.mark.parametrize(
    ("name", "command"),
    [("kaldifst", "pip install kaldifst"), ("pynini", "pip install pynini")],
)
def test_an_engine_that_is_not_installed(monkeypatch, name, command):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendError, match=f"'{name}' needs {name}.*{command}$"):
        get_engine(name)


def test_determinizing_that_would_not_end_raises_and_keeps_nothing():
    """At its limit kaldifst has a partial graph; it must never be used."""
    drifting = fst_of(
        [arcs_of([0, 0], 1, 0, [1, 2]), arcs_of([1, 2], 2, 0, [1, 2], [1.0, 2.0])],
        start=0,
        final_cost=[INF, 0.0, 0.0],
    )
    engine = get_engine("kaldifst")
    with pytest.raises(GraphError, match="more than 50 states, expected fewer"):
        engine.determinize(drifting, 50)


def test_determinizing_what_is_no_function():
    """`compact` reads one string in two ways."""
    compact = topology.build_topology("compact", label_space("_ a b"))
    engine = get_engine("kaldifst")
    with pytest.raises(GraphError, match="some string has two outputs, expected one"):
        engine.determinize(compact, 50)
