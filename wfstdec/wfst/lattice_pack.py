"""Lattices from search records.

The rule is the same for every backend; costs are those before a frame is re-based:

    recorded   an arc from an active state, or an epsilon arc of a closed frontier, if
               its candidate is within the cutoff
    excess     of an arc: candidate - cost of its destination, float32
               of an end: its cost with the final cost and boosts, minus the best end's
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

So segments do not depend on the time of the calls, and together they are the lattice,
arc for arc.

Recorded arcs are in order of frames: emitting arcs, then the epsilon arcs of the frame
that they lead to, by rank. One backward pass thus sees all arcs from a state before
those into it. States are the nodes of the search's trace.
"""

from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy import float32, uint32

from wfstdec.boost.kernels import cost_at_end
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice, LatticeScales, pass_back
from wfstdec.search.paths.tokens import Path
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.wfst.options import WfstOptions

_LABEL = uint32(LABEL_MASK)


def arcs_of(graph: PackedGraph, oov: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return arcs by number, `ARC` of graphs [M]; those of `oov` follow the graph's."""
    own = numbers < graph.num_arcs
    found = np.empty(len(numbers), graph.arcs.dtype)
    found[own] = graph.arcs[numbers[own]]
    found[~own] = oov[numbers[~own] - np.uint32(graph.num_arcs)]
    return found


def arranged(
    graph: PackedGraph,
    options: WfstOptions,
    states: np.ndarray,
    arcs: np.ndarray,
    of_graph: np.ndarray,
    reached_final: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Sort the kept states and arcs; fill in costs of graph and insertion.

    `states`: `STATE` [N], without `final_cost`. `arcs`: `ARC` [M] between these, with
    number, excess, and costs of acoustics and boosts. `of_graph`: their `arcs_of`.
    """
    key = _wide(states["frame"], states["graph_state"])
    order = np.lexsort((states["boost_state"], key))
    states, number = states[order], np.empty(len(order), np.uint32)
    number[order] = np.arange(len(order), dtype=np.uint32)
    ends = np.flatnonzero(states["final_excess"] < np.inf)
    states["final_cost"] = np.inf
    states["final_cost"][ends] = 0
    if reached_final:
        final_cost = graph.final_cost[states["graph_state"][ends]]
        states["final_cost"][ends] = final_cost
    for name in ("state", "nextstate"):
        arcs[name] = number[arcs[name]]
    for name in ("ilabel", "olabel"):
        arcs[name] = of_graph[name]
    arcs["graph_cost"] = of_graph["cost"]
    has_word = of_graph["ilabel"] & np.uint32(CARRIES_WORD) != 0
    insertion = np.float32(options.word_insertion)
    arcs["insertion_cost"] = np.where(has_word, insertion, np.float32(0))
    return states, arcs[np.argsort(_wide(arcs["state"], arcs["arc"]))]


def _wide(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return high.astype(np.uint64) << np.uint64(32) | low


@jit
def ends(entries, boosts, final_cost, lm_scale, best, is_final):
    """Return each entry's excess over the best end, and the rest of its boosts."""
    # `boosts`: as in `best_end`. Returns two float32 [F]; infinite where no path may
    # end.
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
    """Return nodes' extra costs, float32 [N]; arcs above the limit get excess inf."""
    # `frontier`: entries with `node`, [F]. `end_excess`: float32 [F], excess of ending
    # at each. `limit`: the lattice's beam, float32.
    extra = np.full(num_nodes, np.inf, np.float32)
    for i in range(len(frontier)):
        if end_excess[i] <= limit and end_excess[i] < np.inf:  # both may be inf
            extra[frontier[i].node] = end_excess[i]
    pass_back(arcs, extra, limit)
    return extra


@jit
def frames_of(arcs, of_graph, num_nodes):
    """Return the frames passed at each node, int32 [N]; `of_graph`: their `arcs_of`."""
    frames = np.zeros(num_nodes, np.int32)
    for a in range(len(arcs)):
        takes = np.int32((of_graph[a].ilabel & _LABEL) != uint32(0))
        frames[arcs[a].nextstate] = frames[arcs[a].state] + takes
    return frames


class RecordedLattice(NamedTuple):
    """Records of a search or a segment of it, sorted as lattices are."""

    best: Path | None  # the best path; None of a segment, whose last state is its end
    states: np.ndarray  # `STATE` [S]
    arcs: np.ndarray  # `ARC` [A]

    @classmethod
    def segment(cls, states: np.ndarray, arcs: np.ndarray) -> Self:
        """Close a segment: its last state becomes final; writes to `states`."""
        states["final_excess"][-1] = states["final_cost"][-1] = 0.0
        return cls(None, states, arcs)


def cuts_of(num_states: np.ndarray, shortest: int) -> list[int]:
    """Return frames at which segments end.

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
    vocabulary: Vocabulary,
    frame_shift_s: float,
    recorded: RecordedLattice,
) -> Lattice:
    """Return the lattice of a search's records; `vocabulary` includes OOV words."""
    best, states, arcs = recorded
    first, last = states["frame"][[0, -1]].tolist()
    died = -1 if best is None else best.died_at_frame
    lattice = Lattice(
        states=states,
        arcs=arcs,
        vocabulary=vocabulary,
        scales=LatticeScales(
            options.acoustic_scale, options.lm_scale, options.word_insertion
        ),
        lattice_beam=float(options.beam_of_lattice),
        search_cost=0.0 if best is None else best.search_cost,
        reached_final=best is not None and best.reached_final,
        num_frames=(last if best is None else best.num_frames) - first,
        died_at_frame=died if died >= 0 else None,
        frame_shift_s=frame_shift_s,
        info=graph.info,
    )
    if best is not None and not first:
        return lattice
    # The cost of a segment is that of the best path from its first state on.
    costs = lattice.arc_costs()[lattice.best_arcs()]
    end = lattice.final_costs()[lattice.best_end]
    found = replace(lattice, search_cost=float(costs.sum() + end))
    found.__dict__["arcs_into"] = lattice.arcs_into  # already built
    return found
