"""What a search kept for a lattice, in any order, put in that of lattices.

states, arcs = arranged(graph, options, kept, reached_final)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import CARRIES_WORD, NO_ARCS
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.wfst.options import WfstOptions


class KeptArcs(NamedTuple):
    """The arcs that are kept, in any order.

    Attributes:
        state: int64 [M], the state that each leaves.
        nextstate: int64 [M].
        arc: uint32 [M], the graph's arc.
        excess: float32 [M].
        acoustic_cost: float32 [M], before the scale.
        boost_cost: float32 [M].
    """

    state: np.ndarray
    nextstate: np.ndarray
    arc: np.ndarray
    excess: np.ndarray
    acoustic_cost: np.ndarray
    boost_cost: np.ndarray


class Kept(NamedTuple):
    """What is kept of a search, its states numbered as the search pleased.

    Attributes:
        frame: int32 [N], frames passed at each state.
        graph_state: uint32 [N].
        boost_state: uint32 [N].
        final_excess: float32 [N], `inf` where no path may end.
        final_boost_cost: float32 [N], the boosts' rest.
        arcs: Between them.
        added: ARC [A'], the arcs that numbers from A on stand for, of added words.
    """

    frame: np.ndarray
    graph_state: np.ndarray
    boost_state: np.ndarray
    final_excess: np.ndarray
    final_boost_cost: np.ndarray
    arcs: KeptArcs
    added: np.ndarray = NO_ARCS


def arranged(
    graph: PackedGraph, options: WfstOptions, kept: Kept, reached_final: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The states and arcs of a lattice, with the costs of graph and insertion.

    Args:
        graph: What was searched.
        options: Of the search.
        kept: What is kept.
        reached_final: Whether the ends are final states of the graph.

    Returns:
        (`STATE` [N], `ARC` [M]).
    """
    order = _state_order(kept)
    number = np.empty(len(order), np.uint32)
    number[order] = np.arange(len(order), dtype=np.uint32)
    key = _wide(number[kept.arcs.state], kept.arcs.arc)
    insertion = np.float32(options.word_insertion)
    by_key = np.argsort(key)
    arcs = _fill_arcs(kept.arcs, number, by_key, graph.arcs, kept.added, insertion)
    return _states(graph, kept, order, reached_final), arcs


def _wide(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two numbers of 32 bits as one of 64."""
    return high.astype(np.uint64) << np.uint64(32) | low


def _state_order(kept: Kept) -> np.ndarray:
    """The states by frame, graph state and boost state."""
    key = _wide(kept.frame, kept.graph_state)
    if kept.boost_state.any():
        return np.lexsort((kept.boost_state, key))
    return np.argsort(key)


def _states(
    graph: PackedGraph, kept: Kept, order: np.ndarray, reached_final: bool
) -> np.ndarray:
    """The states in their order."""
    states = np.zeros(len(order), STATE)
    for name in ("frame", "graph_state", "boost_state", "final_excess"):
        states[name] = getattr(kept, name)[order]
    states["final_cost"] = np.inf
    ends = np.flatnonzero(states["final_excess"] < np.inf)
    states["final_cost"][ends] = 0
    if reached_final:
        final_cost = graph.final_cost[states["graph_state"][ends]]
        states["final_cost"][ends] = final_cost
    states["final_boost_cost"][ends] = kept.final_boost_cost[order[ends]]
    return states


@jit
def _fill_arcs(kept, number, order, graph_arcs, added_arcs, word_insertion):
    """The arcs in their order, between states by number."""
    arcs = np.empty(len(order), ARC)
    for i in range(len(order)):
        a, one = order[i], arcs[i]
        beyond = np.int64(kept.arc[a]) - len(graph_arcs)
        if beyond < 0:
            of_graph = graph_arcs[kept.arc[a]]
        else:
            of_graph = added_arcs[beyond]
        one.state = number[kept.state[a]]
        one.nextstate = number[kept.nextstate[a]]
        one.ilabel, one.olabel = of_graph.ilabel, of_graph.olabel
        one.arc, one.graph_cost = kept.arc[a], of_graph.cost
        one.acoustic_cost = kept.acoustic_cost[a]
        one.insertion_cost = np.float32(0)
        if of_graph.ilabel & np.uint32(CARRIES_WORD):
            one.insertion_cost = word_insertion
        one.boost_cost, one.excess = kept.boost_cost[a], kept.excess[a]
    return arcs
