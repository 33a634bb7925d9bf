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

While a search goes on, the extra cost of an entry of the frontier may yet come to
anything from 0 on. Where all that is kept at 0 goes through one state in some frame,
so does the best path, in the end as well, and the extra cost of that state is 0: what
is kept before it can no longer change. There segments are cut:

    segments   from the start, or the end of the segment before, to the first frame with
               one state that is `shortest` frames on or more

So segments do not depend on when somebody asks for them, and one after the other they
are the lattice, arc for arc.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from wfstdec.graph.packed import PackedGraph
from wfstdec.graph.tables import GraphTables
from wfstdec.lattice.arrays import Lattice, LatticeScales
from wfstdec.search.lattices import RecordingSearch
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath


class Recorded(NamedTuple):
    """What is kept of a search, sorted as lattices are.

    Attributes:
        best: The best path.
        states: `STATE` [S].
        arcs: `ARC` [A].
    """

    best: BestPath
    states: np.ndarray
    arcs: np.ndarray


class Segment(NamedTuple):
    """What is kept of a settled part of a search, sorted as lattices are.

    Attributes:
        states: `STATE` [S], the last one of which is the only end.
        arcs: `ARC` [A].
    """

    states: np.ndarray
    arcs: np.ndarray

    @classmethod
    def closed(cls, states: np.ndarray, arcs: np.ndarray) -> Segment:
        """One whose last state becomes its end; the states are written to."""
        states["final_excess"][-1] = states["final_cost"][-1] = 0.0
        return cls(states, arcs)


def cuts_of(num_states: np.ndarray, shortest: int) -> list[int]:
    """The frames that segments end at.

    Args:
        num_states: Of each frame, the first one that of the start, how many states may
            be part of the lattice, as far as is known, int64 [T + 1].
        shortest: The fewest frames of a segment, at least 1.
    """
    cuts, last = [], 0
    for frame in np.flatnonzero(num_states == 1).tolist():
        if frame >= last + shortest:
            cuts.append(frame)
            last = frame
    return cuts


class SettlingSearch(RecordingSearch, Protocol):
    """One utterance under way, whose settled parts can be had."""

    def settle(self, shortest: int) -> list[Segment]:
        """The segments that are settled since the last call; they are forgotten.

        `shortest`: the fewest frames of a segment.
        """


def lattice_of(
    graph: PackedGraph,
    options: WfstOptions,
    recorded: Recorded,
    frame_shift_s: float,
    tables: GraphTables | None = None,
) -> Lattice:
    """The lattice of what was recorded.

    Args:
        graph: What was searched.
        options: Of the search.
        recorded: What is kept.
        frame_shift_s: Seconds per frame.
        tables: Of the graph with the words that are added; None where none are.
    """
    best, first = recorded.best, int(recorded.states["frame"][0])
    lattice = Lattice(
        states=recorded.states,
        arcs=recorded.arcs,
        tables=tables or graph.tables,
        scales=LatticeScales(
            options.acoustic_scale, options.lm_scale, options.word_insertion
        ),
        lattice_beam=float(options.beam_of_lattice),
        search_cost=best.search_cost,
        reached_final=best.reached_final,
        num_frames=best.num_frames - first,
        died_at_frame=best.died_at_frame if best.died_at_frame >= 0 else None,
        frame_shift_s=frame_shift_s,
    )
    return _with_own_cost(lattice) if first else lattice


def segment_lattice(
    graph: PackedGraph,
    options: WfstOptions,
    segment: Segment,
    frame_shift_s: float,
    tables: GraphTables | None = None,
) -> Lattice:
    """The lattice of a segment; arguments as of `lattice_of`."""
    first, last = segment.states["frame"][[0, -1]].tolist()
    lattice = Lattice(
        states=segment.states,
        arcs=segment.arcs,
        tables=tables or graph.tables,
        scales=LatticeScales(
            options.acoustic_scale, options.lm_scale, options.word_insertion
        ),
        lattice_beam=float(options.beam_of_lattice),
        search_cost=0.0,
        reached_final=False,
        num_frames=last - first,
        frame_shift_s=frame_shift_s,
    )
    return _with_own_cost(lattice)


def _with_own_cost(lattice: Lattice) -> Lattice:
    """Of a part of an utterance: what its best path costs from its first state on."""
    costs = lattice.arc_costs()[lattice.best_arcs()]
    end = lattice.final_costs()[lattice.best_end]
    found = replace(lattice, search_cost=float(costs.sum() + end))
    found.__dict__["arcs_into"] = lattice.arcs_into  # made already
    return found
