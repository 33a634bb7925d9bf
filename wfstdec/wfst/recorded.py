"""What a search recorded for a lattice, and the lattice of it.

The rule, the same for every backend; costs are those before a frame is re-based:

    recorded   an arc from an entry that the frame goes on from, or an epsilon arc of a
               closed frontier, if the candidate that it makes is within the cutoff
    excess     of an arc: candidate - cost of the entry that it leads to, float32
               of an end: its cost with the final cost and the boosts' rest, less that
               of the best end
    extra      of a state: the least of excess + extra(next state), float32, over its
               arcs; of the last frontier's states the excess of their ends
    kept       arcs with excess + extra(next state) <= lattice_beam, and their states;
               ends with excess <= lattice_beam
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import CARRIES_WORD, NO_ARCS
from wfstdec.graph.packed import PackedGraph
from wfstdec.graph.tables import GraphTables
from wfstdec.jit import jit
from wfstdec.lattice.arrays import ARC, STATE, Lattice, LatticeScales
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath


class RecordedArcs(NamedTuple):
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


class Recorded(NamedTuple):
    """What is kept of a search, its states numbered as the search pleased.

    Attributes:
        best: The best path.
        frame: int32 [N], frames passed at each state.
        graph_state: uint32 [N].
        boost_state: uint32 [N].
        final_excess: float32 [N], `inf` where no path may end.
        final_boost_cost: float32 [N], the boosts' rest.
        arcs: Between them.
        added: ARC [A'], the arcs that numbers from A on stand for, of added words.
    """

    best: BestPath
    frame: np.ndarray
    graph_state: np.ndarray
    boost_state: np.ndarray
    final_excess: np.ndarray
    final_boost_cost: np.ndarray
    arcs: RecordedArcs
    added: np.ndarray = NO_ARCS


def lattice_of(
    graph: PackedGraph,
    options: WfstOptions,
    recorded: Recorded,
    frame_shift_s: float,
    tables: GraphTables | None = None,
) -> Lattice:
    """The lattice of what was recorded: sorted, with the costs of graph and insertion.

    Args:
        graph: What was searched.
        options: Of the search.
        recorded: What is kept.
        frame_shift_s: Seconds per frame.
        tables: Of the graph with the words that are added; None where none are.
    """
    best = recorded.best
    order = _state_order(recorded)
    number = np.empty(len(order), np.uint32)
    number[order] = np.arange(len(order), dtype=np.uint32)
    key = _wide(number[recorded.arcs.state], recorded.arcs.arc)
    arcs = _fill_arcs(
        recorded.arcs,
        number,
        np.argsort(key),
        graph.arcs,
        recorded.added,
        np.float32(options.word_insertion),
    )
    return Lattice(
        states=_states(graph, recorded, order),
        arcs=arcs,
        tables=tables or graph.tables,
        scales=LatticeScales(
            options.acoustic_scale, options.lm_scale, options.word_insertion
        ),
        lattice_beam=float(options.beam_of_lattice),
        search_cost=best.search_cost,
        reached_final=best.reached_final,
        num_frames=best.num_frames,
        died_at_frame=best.died_at_frame if best.died_at_frame >= 0 else None,
        frame_shift_s=frame_shift_s,
    )


def _wide(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two numbers of 32 bits as one of 64."""
    return high.astype(np.uint64) << np.uint64(32) | low


def _state_order(recorded: Recorded) -> np.ndarray:
    """The states by frame, graph state and boost state."""
    key = _wide(recorded.frame, recorded.graph_state)
    if recorded.boost_state.any():
        return np.lexsort((recorded.boost_state, key))
    return np.argsort(key)


def _states(graph: PackedGraph, recorded: Recorded, order: np.ndarray) -> np.ndarray:
    """The states in their order."""
    states = np.zeros(len(order), STATE)
    for name in ("frame", "graph_state", "boost_state", "final_excess"):
        states[name] = getattr(recorded, name)[order]
    states["final_cost"] = np.inf
    ends = np.flatnonzero(states["final_excess"] < np.inf)
    states["final_cost"][ends] = 0
    if recorded.best.reached_final:
        final_cost = graph.final_cost[states["graph_state"][ends]]
        states["final_cost"][ends] = final_cost
    states["final_boost_cost"][ends] = recorded.final_boost_cost[order[ends]]
    return states


@jit
def _fill_arcs(recorded, number, order, graph_arcs, added_arcs, word_insertion):
    """The arcs in their order, between states by number."""
    arcs = np.empty(len(order), ARC)
    for i in range(len(order)):
        a, one = order[i], arcs[i]
        beyond = np.int64(recorded.arc[a]) - len(graph_arcs)
        if beyond < 0:
            of_graph = graph_arcs[recorded.arc[a]]
        else:
            of_graph = added_arcs[beyond]
        one.state = number[recorded.state[a]]
        one.nextstate = number[recorded.nextstate[a]]
        one.ilabel, one.olabel = of_graph.ilabel, of_graph.olabel
        one.arc, one.graph_cost = recorded.arc[a], of_graph.cost
        one.acoustic_cost = recorded.acoustic_cost[a]
        one.insertion_cost = np.float32(0)
        if of_graph.ilabel & np.uint32(CARRIES_WORD):
            one.insertion_cost = word_insertion
        one.boost_cost, one.excess = recorded.boost_cost[a], recorded.excess[a]
    return arcs
