"""The lattice of a search's records.

The rule is the same for every backend; costs are those before a frame is re-based:

    recorded   an arc from an active state, or an epsilon arc of a closed frontier, if
               its candidate is within the cutoff
    excess     of an arc: candidate - cost of its destination, float32
               of an end: its cost with the final cost and boosts, less the best end's
    extra      of a state: the least of excess + extra(next state), float32, over its
               arcs; in the last frontier the excess of its end
    kept       arcs with excess + extra(next state) <= lattice_beam, and their states;
               ends with excess <= lattice_beam

While the search continues, the extra cost of an active state may become anything from 0
on. If everything kept at 0 passes through one state of some frame, then the best path
passes through it too, also in the end: its extra cost is 0, and nothing before it can
change. There segments are cut:

    segments   from the start, or the end of the last segment, to the first frame with
               one state, at least `shortest` frames later

So segments do not depend on when they are asked for, and together they are the lattice,
arc for arc.

Recorded arcs are in order of frames: emitting arcs, then the epsilon arcs of the frame
that they lead to, by rank. One backward pass thus sees all arcs from a state before
those into it. States are the nodes of the search's trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, uint32

from wfstdec.boost.kernels import cost_at_end
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.lattice.arrays import ARC, STATE, Lattice, LatticeScales
from wfstdec.search.paths.tokens import BestPath
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.wfst.options import WfstOptions

_LABEL = uint32(LABEL_MASK)
_NO_ARC = uint32(0xFFFFFFFF)


class SurvivingArcs(NamedTuple):
    """Arcs that are kept, in any order.

    Attributes:
        state: int64 [M], the state that each leaves.
        nextstate: int64 [M].
        arc: uint32 [M], the graph's arc.
        excess: float32 [M].
        acoustic_cost: float32 [M], unscaled.
        boost_cost: float32 [M].
    """

    state: np.ndarray
    nextstate: np.ndarray
    arc: np.ndarray
    excess: np.ndarray
    acoustic_cost: np.ndarray
    boost_cost: np.ndarray


class SurvivingStates(NamedTuple):
    """States and arcs that are kept, in any order.

    Attributes:
        frame: int32 [N], frames passed at each state.
        graph_state: uint32 [N].
        boost_state: uint32 [N].
        final_excess: float32 [N], infinite where no path may end.
        final_boost_cost: float32 [N], the credit still to pay or refund.
        arcs: Between them.
        oov: ARC [A'], arcs of OOV words, numbered after the graph's.
    """

    frame: np.ndarray
    graph_state: np.ndarray
    boost_state: np.ndarray
    final_excess: np.ndarray
    final_boost_cost: np.ndarray
    arcs: SurvivingArcs
    oov: np.ndarray = NO_ARCS


def arranged(
    graph: PackedGraph, options: WfstOptions, kept: SurvivingStates, reached_final: bool
) -> tuple[np.ndarray, np.ndarray]:
    """States and arcs of a lattice, with the costs of graph and insertion.

    Returns (`STATE` [N], `ARC` [M]).
    """
    order = _state_order(kept)
    number = np.empty(len(order), np.uint32)
    number[order] = np.arange(len(order), dtype=np.uint32)
    key = _wide(number[kept.arcs.state], kept.arcs.arc)
    insertion = np.float32(options.word_insertion)
    by_key = np.argsort(key)
    arcs = _fill_arcs(kept.arcs, number, by_key, graph.arcs, kept.oov, insertion)
    return _states(graph, kept, order, reached_final), arcs


def _wide(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two numbers of 32 bits as one of 64."""
    return high.astype(np.uint64) << np.uint64(32) | low


def _state_order(kept: SurvivingStates) -> np.ndarray:
    """Order of the states by frame, graph state and boost state."""
    key = _wide(kept.frame, kept.graph_state)
    if kept.boost_state.any():
        return np.lexsort((kept.boost_state, key))
    return np.argsort(key)


def _states(
    graph: PackedGraph, kept: SurvivingStates, order: np.ndarray, reached_final: bool
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
def _fill_arcs(kept, number, order, graph_arcs, oov_arcs, word_insertion):
    """The arcs in their order, between states by number."""
    arcs = np.empty(len(order), ARC)
    for i in range(len(order)):
        a, one = order[i], arcs[i]
        beyond = np.int64(kept.arc[a]) - len(graph_arcs)
        if beyond < 0:
            of_graph = graph_arcs[kept.arc[a]]
        else:
            of_graph = oov_arcs[beyond]
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


@jit
def ends(entries, boosts, final_cost, lm_scale, best, is_final):
    """Excess of ending at each entry over the best end, and the boosts' rest.

    `boosts`: as of `best_end`. Returns two float32 [F]; infinite where no path may end.
    """
    excess = np.full(len(entries), np.inf, np.float32)
    rest = np.zeros(len(entries), np.float32)
    for i in range(len(entries)):
        cost = entries[i].cost
        if is_final:
            if entries[i].state >= len(final_cost):
                continue  # within an OOV word
            final = final_cost[entries[i].state]
            if not final < np.inf:
                continue
            cost = float32(cost + float32(lm_scale * final))
        if boosts is not None:
            states, refund, size = boosts
            rest[i] = cost_at_end(refund, states[i], size)
        # Rounded as in `best_end`, so that the best end has exactly 0.
        excess[i] = float32(float32(cost + rest[i]) - best)
    return excess, rest


@jit
def spread(frontier, end_excess, num_nodes, arcs, limit):
    """Find the extra cost of nodes, float32 [N]; arcs above the limit get arc NONE.

    `frontier`: entries with `node`, [F]. `end_excess`: float32 [F], excess of ending at
    each. `limit`: the lattice's beam, float32.
    """
    extra = np.full(num_nodes, np.inf, np.float32)
    for i in range(len(frontier)):
        if end_excess[i] <= limit:
            extra[frontier[i].node] = end_excess[i]
    for a in range(len(arcs) - 1, -1, -1):
        one = arcs[a]
        through = float32(one.excess + extra[one.nextstate])
        if through <= limit and through < np.inf:
            if through < extra[one.state]:
                extra[one.state] = through
        else:
            one.arc = _NO_ARC
    return extra


@jit
def frames_of(graph_arcs, oov_arcs, arcs, num_nodes):
    """The frames passed at each node, int32 [N]."""
    frames = np.zeros(num_nodes, np.int32)
    for a in range(len(arcs)):
        one, beyond = arcs[a], np.int64(arcs[a].arc) - len(graph_arcs)
        if beyond < 0:
            ilabel = graph_arcs[one.arc].ilabel
        else:
            ilabel = oov_arcs[beyond].ilabel
        takes = np.int32((ilabel & _LABEL) != uint32(0))
        frames[one.nextstate] = frames[one.state] + takes
    return frames


def nextstates(
    graph_arcs: np.ndarray, oov_arcs: np.ndarray, arcs: np.ndarray
) -> np.ndarray:
    """Destinations of arcs, uint32; those of the overlay follow the graph's."""
    found = np.empty(len(arcs), np.uint32)
    own = arcs < len(graph_arcs)
    found[own] = graph_arcs["nextstate"][arcs[own]]
    found[~own] = oov_arcs["nextstate"][arcs[~own] - np.uint32(len(graph_arcs))]
    return found


class RecordedLattice(NamedTuple):
    """Records of a search, sorted as lattices are.

    Attributes:
        best: The best path.
        states: `STATE` [S].
        arcs: `ARC` [A].
    """

    best: BestPath
    states: np.ndarray
    arcs: np.ndarray


class Segment(NamedTuple):
    """Records of a settled part of a search, sorted as lattices are.

    Attributes:
        states: `STATE` [S], the last one of which is the only end.
        arcs: `ARC` [A].
    """

    states: np.ndarray
    arcs: np.ndarray

    @classmethod
    def closed(cls, states: np.ndarray, arcs: np.ndarray) -> Segment:
        """Close a segment: its last state becomes final; writes to `states`."""
        states["final_excess"][-1] = states["final_cost"][-1] = 0.0
        return cls(states, arcs)


def cuts_of(num_states: np.ndarray, shortest: int) -> list[int]:
    """Frames at which segments end.

    `num_states`: states that may be part of the lattice, of the start and of each
    frame, int64 [T + 1]. `shortest`: fewest frames of a segment, at least 1.
    """
    cuts, last = [], 0
    for frame in np.flatnonzero(num_states == 1).tolist():
        if frame >= last + shortest:
            cuts.append(frame)
            last = frame
    return cuts


def lattice_of(
    graph: PackedGraph,
    options: WfstOptions,
    recorded: RecordedLattice,
    frame_shift_s: float,
    vocabulary: Vocabulary | None = None,
) -> Lattice:
    """The lattice of a search's records.

    `vocabulary`: of the graph and OOV words; None without OOV words.
    """
    best, first = recorded.best, int(recorded.states["frame"][0])
    lattice = Lattice(
        **_shared(graph, options, frame_shift_s, vocabulary),
        states=recorded.states,
        arcs=recorded.arcs,
        search_cost=best.search_cost,
        reached_final=best.reached_final,
        num_frames=best.num_frames - first,
        died_at_frame=best.died_at_frame if best.died_at_frame >= 0 else None,
    )
    # It begins later: the last segment of a session.
    return _with_own_cost(lattice) if first else lattice


def segment_lattice(
    graph: PackedGraph,
    options: WfstOptions,
    segment: Segment,
    frame_shift_s: float,
    vocabulary: Vocabulary | None = None,
) -> Lattice:
    """The lattice of a segment; arguments as of `lattice_of`."""
    first, last = segment.states["frame"][[0, -1]].tolist()
    lattice = Lattice(
        **_shared(graph, options, frame_shift_s, vocabulary),
        states=segment.states,
        arcs=segment.arcs,
        search_cost=0.0,
        reached_final=False,
        num_frames=last - first,
    )
    # The cost of a segment is that of its part of the path, without the session before.
    return _with_own_cost(lattice)


def _shared(
    graph: PackedGraph,
    options: WfstOptions,
    frame_shift_s: float,
    vocabulary: Vocabulary | None,
) -> dict[str, Any]:
    """Fields that all lattices of a search have."""
    scales = options.acoustic_scale, options.lm_scale, options.word_insertion
    return {
        "vocabulary": vocabulary or graph.vocabulary,
        "scales": LatticeScales(*scales),
        "lattice_beam": float(options.beam_of_lattice),
        "frame_shift_s": frame_shift_s,
        "info": graph.info,
    }


def _with_own_cost(lattice: Lattice) -> Lattice:
    """Give a part of an utterance the cost of its best path from its first state."""
    costs = lattice.arc_costs()[lattice.best_arcs()]
    end = lattice.final_costs()[lattice.best_end]
    found = replace(lattice, search_cost=float(costs.sum() + end))
    found.__dict__["arcs_into"] = lattice.arcs_into  # already built
    return found
