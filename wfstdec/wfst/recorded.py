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

from wfstdec.graph.arcs import CARRIES_WORD
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import ARC, STATE, Lattice, LatticeScales
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath


class Recorded(NamedTuple):
    """What is kept of a search, numbered as the search pleased; state 0 may be any.

    Attributes:
        best: The best path.
        frame: int32 [N], frames passed at each state.
        graph_state: uint32 [N].
        boost_state: uint32 [N].
        final_excess: float32 [N], `inf` where no path may end.
        final_boost_cost: float32 [N], the boosts' rest.
        state: int64 [M], the state that each arc leaves.
        nextstate: int64 [M].
        arc: uint32 [M], the graph's arc.
        excess: float32 [M].
        acoustic_cost: float32 [M], before the scale.
        boost_cost: float32 [M].
    """

    best: BestPath
    frame: np.ndarray
    graph_state: np.ndarray
    boost_state: np.ndarray
    final_excess: np.ndarray
    final_boost_cost: np.ndarray
    state: np.ndarray
    nextstate: np.ndarray
    arc: np.ndarray
    excess: np.ndarray
    acoustic_cost: np.ndarray
    boost_cost: np.ndarray


def lattice_of(
    graph: PackedGraph, options: WfstOptions, recorded: Recorded, frame_shift_s: float
) -> Lattice:
    """The lattice of what was recorded: sorted, with the costs of graph and insertion.

    Args:
        graph: What was searched.
        options: Of the search.
        recorded: What is kept.
        frame_shift_s: Seconds per frame.
    """
    best = recorded.best
    states, number = _states(graph, recorded)
    return Lattice(
        states=states,
        arcs=_arcs(graph, options, recorded, number),
        tables=graph.tables,
        scales=LatticeScales(
            options.acoustic_scale, options.lm_scale, options.word_insertion
        ),
        lattice_beam=options.beam_of_lattice,
        search_cost=best.search_cost,
        reached_final=best.reached_final,
        num_frames=best.num_frames,
        died_at_frame=best.died_at_frame if best.died_at_frame >= 0 else None,
        frame_shift_s=frame_shift_s,
    )


def _states(graph: PackedGraph, recorded: Recorded) -> tuple[np.ndarray, np.ndarray]:
    """The states, sorted, and the number of each in this order, uint32 [N]."""
    order = np.lexsort((recorded.boost_state, recorded.graph_state, recorded.frame))
    states = np.zeros(len(order), STATE)
    for name in ("frame", "graph_state", "boost_state", "final_excess"):
        states[name] = getattr(recorded, name)[order]
    ends = states["final_excess"] < np.inf
    states["final_cost"] = np.inf
    final_cost = graph.final_cost[states["graph_state"][ends]]
    states["final_cost"][ends] = final_cost if recorded.best.reached_final else 0
    states["final_boost_cost"][ends] = recorded.final_boost_cost[order][ends]
    number = np.empty(len(order), np.uint32)
    number[order] = np.arange(len(order))
    return states, number


def _arcs(
    graph: PackedGraph, options: WfstOptions, recorded: Recorded, number: np.ndarray
) -> np.ndarray:
    """The arcs, sorted by the states' numbers."""
    state, nextstate = number[recorded.state], number[recorded.nextstate]
    order = np.lexsort((recorded.arc, state))
    arcs = np.zeros(len(order), ARC)
    arcs["state"], arcs["nextstate"] = state[order], nextstate[order]
    for name in ("arc", "excess", "acoustic_cost", "boost_cost"):
        arcs[name] = getattr(recorded, name)[order]
    of_graph = graph.arcs[arcs["arc"]]
    arcs["ilabel"], arcs["olabel"] = of_graph["ilabel"], of_graph["olabel"]
    arcs["graph_cost"] = of_graph["cost"]
    has_word = (of_graph["ilabel"] & CARRIES_WORD) != 0
    arcs["insertion_cost"][has_word] = options.word_insertion
    return arcs
