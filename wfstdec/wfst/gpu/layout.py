"""The records of `kernels/layout.cuh` as NumPy types, and the search's `Program`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.compiling import Macros, Program
from wfstdec.gpu.device import ScratchLayout
from wfstdec.gpu.records import NONE, read_structs
from wfstdec.graph import arcs
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.tokens import TokenTable
from wfstdec.wfst.options import SearchParams

KERNELS = Path(__file__).parent / "kernels"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS = range(6)
"""Values of `UTTERANCE.status` after a launch."""
PHASES = ("keep", "bound", "emit", "recombine", "close", "settle", "other")
"""Phases of a frame, timed by kernels compiled for it."""
OWN_BYTES = 6 * 1024
"""Shared memory of a block's variables, at most."""

STRUCTS = read_structs(KERNELS / "layout.cuh", **logprobs.STRUCTS, **boosts.STRUCTS)
"""The records that host and kernels share, by their names there."""
ENTRY, NODE, UTTERANCE = STRUCTS["Entry"], STRUCTS["Node"], STRUCTS["Utterance"]
LINK, OVERLAY, STEP = STRUCTS["Link"], STRUCTS["Overlay"], STRUCTS["Step"]
STATE_ARCS = STRUCTS["StateArcs"]

COUNTS = ("frames", "active", "arcs", "looked", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: active states, arcs within the beam, arcs inspected,
entries built, frames with the table in shared memory, frames that left it."""

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
ENTRY_ARRAYS: dict[str, np.dtype] = {
    "new_entries": STRUCTS["NewEntry"],
    "entry_slots": _U4,
    "tie_breaks": _U4,
    "epsilon_entries": _U4,
}
"""Scratch of a block: fields of `TASK` that point to `entry_capacity` of these,"""
CANDIDATE_ARRAYS: dict[str, np.dtype] = {
    "candidates": STRUCTS["Candidate"],
    "candidate_boosts": _U4,
    "candidate_slots": _U4,
}
"""to `candidate_capacity`,"""
TABLE_ARRAYS: dict[str, np.dtype] = {
    "table_keys": _U8,
    "table_best": _U8,
    "table_entries": _U4,
}
"""and to `table_slots`."""
SLOT_BYTES = sum(dtype.itemsize for dtype in TABLE_ARRAYS.values())
"""Size of a slot of a table."""


def table_bytes(room: int) -> int:
    """Size of the largest table that fits, bytes."""
    return max(0, room) // SLOT_BYTES * SLOT_BYTES


class Variant(NamedTuple):
    """What the kernels of a launch are compiled for: the least that will do.

    Code that is left out makes the rest fit into the instruction cache.

    Attributes:
        phrases: Whether any utterance has phrases.
        min_active: Whether it is above 0.
        logprob_type: Of all chunks, or `MIXED`.
        times: Whether phases are timed.
        lattices: Whether arcs are recorded for lattices.
        oov: Whether any utterance has OOV words.
    """

    phrases: bool = True
    min_active: bool = True
    logprob_type: int = logprobs.MIXED
    times: bool = False
    lattices: bool = False
    oov: bool = False

    @property
    def macros(self) -> Macros:
        """Macros for the compiler."""
        flags = (
            ("PHRASES", int(self.phrases)),
            ("MIN_ACTIVE", int(self.min_active)),
            ("LOGPROB_TYPE", self.logprob_type),
        )
        more = (("TIMES", 1),) * self.times + (("LATTICES", 1),) * self.lattices
        return flags + more + (("ADDED", 1),) * self.oov


PLAIN = Variant(phrases=False, min_active=False, logprob_type=logprobs.FLOAT32)
"""The most common variant."""


PROGRAM = Program(
    "search.cu",
    KERNELS,
    kernels=("search_chunk", "best_paths"),
    own_bytes=OWN_BYTES,
    shared_bytes=table_bytes,
    structs=STRUCTS | {"Arc": arcs.ARC},
    constants=logprobs.CONSTANTS
    | {
        "OK": OK,
        "GROW_SCRATCH": GROW_SCRATCH,
        "GROW_FRONTIER": GROW_FRONTIER,
        "GROW_TRACE": GROW_TRACE,
        "FULL_TRACE": FULL_TRACE,
        "GROW_LINKS": GROW_LINKS,
        "NUM_PHASES": len(PHASES),
        "LABEL_MASK": arcs.LABEL_MASK,
        "CARRIES_WORD": arcs.CARRIES_WORD,
        "LEADS_TO_EPSILON": arcs.LEADS_TO_EPSILON,
        "REPEAT": arcs.REPEAT,
    },
    block_threads=(512, 256, 128),
)
"""The kernels of the search."""


def state_arcs_of(graph: PackedGraph) -> np.ndarray:
    """STATE_ARCS [S]."""
    states = np.zeros(graph.num_states, STATE_ARCS)
    states["begin"] = graph.state_arc_splits[:-1]
    states["emit"] = graph.state_arc_splits[:-1] + graph.state_num_epsilons
    states["end"] = graph.state_arc_splits[1:]
    states["rank"] = graph.epsilon_rank
    return states


def task_of(scales: SearchParams, tokens: TokenTable) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, STRUCTS["Task"])
    task["blank"], task["num_tokens"] = tokens.blank, len(tokens)
    for name in ("max_active", "min_active"):
        task[name] = min(int(getattr(scales, name)), NONE)
    for name in ("beam_delta", "lm_scale", "word_insertion", "instalment"):
        task[name] = getattr(scales, name)
    for name, value in scales.pricing._asdict().items():
        task[name] = value
    task["beam"] = scales.beam + np.float32(0)  # no -0.0: kernels compare integers
    return task


CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""Size of an utterance's trace above which it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers that a trace has room for, if their number is unknown."""
LINKS_PER_NODE = 2
_MIN_FRAMES = 4
NARROWER = "lower max_active or the beam"
"""Advice in the error for too little memory."""


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """Nodes of a trace, for frontiers of `entries` entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // NODE.itemsize
    return max(min(frames * entries, most), _MIN_FRAMES * entries)


def link_count(nodes: int) -> int:
    """Lattice arcs to allocate at first for a trace of `nodes` nodes."""
    return LINKS_PER_NODE * nodes


def utterance_bytes(
    entries: int, num_frames: int | None, lattices: bool = False
) -> int:
    """Bytes of an utterance, for frontiers of `entries` entries."""
    nodes = trace_nodes(entries, num_frames)
    links = link_count(nodes) * LINK.itemsize if lattices else 0
    trace = nodes * NODE.itemsize
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    return frontiers * entries * ENTRY.itemsize + trace + links


def _counts(entries: int) -> dict[str, int]:
    """Entries, candidates and slots of a block; the table is at most half full."""
    return {
        "entry_capacity": entries,
        "candidate_capacity": CANDIDATES_PER_ENTRY * entries,
        "table_slots": 2 * entries,
    }


def _arrays(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    groups = (ENTRY_ARRAYS, CANDIDATE_ARRAYS, TABLE_ARRAYS)
    counted = zip(groups, _counts(entries).values(), strict=True)
    return [(name, n, dtype) for group, n in counted for name, dtype in group.items()]


SCRATCH = ScratchLayout(_arrays, _counts)
"""The scratch of a block."""
