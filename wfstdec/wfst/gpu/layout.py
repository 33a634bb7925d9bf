"""The records of `kernels/layout.cuh` as NumPy types, and the search's `Program`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.program import Program
from wfstdec.gpu.records import NONE, read_struct
from wfstdec.graph import arcs
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.symbols import TokenTable
from wfstdec.wfst.scales import Scales

KERNELS = Path(__file__).parent / "kernels"
_LAYOUT = KERNELS / "layout.cuh"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE = range(4)
"""What a launch leaves in `UTTERANCE.status`."""

STATE_ARCS = read_struct(_LAYOUT, "StateArcs")
ENTRY = read_struct(_LAYOUT, "Entry")
NEW_ENTRY = read_struct(_LAYOUT, "NewEntry")
CANDIDATE = read_struct(_LAYOUT, "Candidate")
NODE = read_struct(_LAYOUT, "Node")
STEP = read_struct(_LAYOUT, "Step")
UTTERANCE = read_struct(
    _LAYOUT,
    "Utterance",
    Logprobs=logprobs.LOGPROBS,
    WordBonuses=boosts.WORD_BONUSES,
)
TASK = read_struct(_LAYOUT, "Task")

COUNTS = ("frames", "active", "arcs", "looked", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: entries gone on from, arcs that may survive, arcs
looked at, entries made, frames with the table in shared memory, frames that left it."""

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
ENTRY_ARRAYS: dict[str, np.dtype] = {
    "new_entries": NEW_ENTRY,
    "entry_slots": _U4,
    "tie_breaks": _U4,
    "epsilon_entries": _U4,
}
"""The scratch of a block: fields of `TASK` that point to `entry_capacity` of these,"""
CANDIDATE_ARRAYS: dict[str, np.dtype] = {
    "candidates": CANDIDATE,
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
"""What a slot of a table takes."""


def table_bytes(room: int) -> int:
    """The bytes of the largest table, a power of two of slots, in so many bytes."""
    slots = room // SLOT_BYTES
    return SLOT_BYTES << (slots.bit_length() - 1) if slots > 0 else 0


PROGRAM = Program(
    "search.cu",
    KERNELS,
    kernels=("search_chunk", "best_paths", logprobs.CHECK_KERNEL),
    shared_bytes=table_bytes,
    structs=logprobs.STRUCTS
    | boosts.STRUCTS
    | {
        "Arc": arcs.ARC,
        "StateArcs": STATE_ARCS,
        "Entry": ENTRY,
        "NewEntry": NEW_ENTRY,
        "Candidate": CANDIDATE,
        "Node": NODE,
        "Step": STEP,
        "Utterance": UTTERANCE,
        "Task": TASK,
    },
    constants=logprobs.CONSTANTS
    | {
        "OK": OK,
        "GROW_SCRATCH": GROW_SCRATCH,
        "GROW_FRONTIER": GROW_FRONTIER,
        "GROW_TRACE": GROW_TRACE,
        "LABEL_MASK": arcs.LABEL_MASK,
        "CARRIES_WORD": arcs.CARRIES_WORD,
        "LEADS_TO_EPSILON": arcs.LEADS_TO_EPSILON,
        "REPEAT": arcs.REPEAT,
    },
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


def task_of(scales: Scales, tokens: TokenTable) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, TASK)
    task["blank"] = tokens.blank
    for name in ("max_active", "min_active"):
        task[name] = min(int(getattr(scales, name)), NONE)
    for name in ("beam_delta", "lm_scale", "word_insertion", "instalment"):
        task[name] = getattr(scales, name)
    for name, value in scales.pricing._asdict().items():
        task[name] = value
    task["beam"] = scales.beam + np.float32(0)  # no -0.0: kernels compare integers
    return task
