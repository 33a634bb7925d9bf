"""FSTs as arrays: made from arcs in any order, changed as a whole, never arc by arc.

    arcs = arcs_of(state=0, ilabel=labels, olabel=labels, nextstate=0)
    fst = fst_of([arcs, more_arcs], start=0, final_cost=[0.0])
    least_final_costs(fst, label)[0]

Infinite costs are no arcs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wfstdec.errors import GrammarError
from wfstdec.graph.arcs import FstArrays


class Arcs(NamedTuple):
    """Columns of equal length, one row per arc, in any order."""

    state: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    nextstate: np.ndarray
    cost: np.ndarray


def arcs_of(
    state: ArrayLike,
    ilabel: ArrayLike,
    olabel: ArrayLike,
    nextstate: ArrayLike,
    cost: ArrayLike = 0.0,
) -> Arcs:
    """Arcs from arrays and numbers; a number stands for all arcs."""
    columns = (state, ilabel, olabel, nextstate, cost)
    return Arcs(*np.broadcast_arrays(*map(np.atleast_1d, columns)))


def fst_of(parts: Sequence[Arcs], start: int, final_cost: ArrayLike) -> FstArrays:
    """The FST with these arcs; those of a state keep their order.

    Args:
        parts: All arcs. Arcs of infinite cost are left out.
        start: The start state.
        final_cost: [S], `inf` where a state is not final.
    """
    arcs = Arcs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    final_cost = np.asarray(final_cost, np.float32)
    # Stable: graphs, and ties between arcs, must not depend on NumPy's choice of sort.
    order = np.argsort(arcs.state, kind="stable")
    order = order[arcs.cost[order] < np.inf]
    splits = np.zeros(len(final_cost) + 1, np.int64)
    np.cumsum(np.bincount(arcs.state[order], minlength=len(final_cost)), out=splits[1:])
    return FstArrays(
        start,
        final_cost,
        splits,
        ilabel=arcs.ilabel[order].astype(np.int32),
        olabel=arcs.olabel[order].astype(np.int32),
        nextstate=arcs.nextstate[order].astype(np.int32),
        cost=arcs.cost[order].astype(np.float32),
    )


def least_final_costs(fst: FstArrays, label: int) -> np.ndarray:
    """Least costs to end from each state over arcs with one input label.

        cost[s] = min(final_cost[s], arc.cost + cost[arc.nextstate] over such arcs)

    With these as final costs of a grammar, no back-off (`label`) is ever needed at the
    end of a sentence, at the same least cost.

    Returns:
        float32 [S].

    Raises:
        GrammarError: The arcs form a cycle of negative cost.
    """
    arc = np.flatnonzero(fst.ilabel == label)
    state, nextstate, cost = fst.arc_state()[arc], fst.nextstate[arc], fst.cost[arc]
    least = fst.final_cost.astype(np.float64)
    for _ in range(fst.num_states + 1):
        over_arc = cost + least[nextstate]
        better = over_arc < least[state]
        if not better.any():
            return least.astype(np.float32)
        np.minimum.at(least, state[better], over_arc[better])
    raise GrammarError(
        "the grammar has a cycle without words whose cost is negative, expected none: "
        "its sentences would have no least cost"
    )
