"""The records of `kernels/layout.cuh` as NumPy types, and the source of the kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wfstdec.graph.packed import PackedGraph
from wfstdec.lm.automaton import Automaton
from wfstdec.text.symbols import TokenTable
from wfstdec.wfst.scales import Scales

NONE = 0xFFFFFFFF
"""No node, no arc, no frame, no state."""
OK, GROW_WORK, GROW_FRONTIER, GROW_TRACE = range(4)
"""What a launch leaves in `UTTERANCE.status`."""

FLOAT32, FLOAT16, BFLOAT16 = range(3)
"""`UTTERANCE.logprob_type`."""

KERNELS = Path(__file__).parent / "kernels"
WARP = 32
MOST_THREADS = 512
"""Threads of a block, at most; a multiple of `WARP`."""
BLOCKS_AT_HOME = 2
"""Blocks that a multiprocessor has room for."""


def _record(text: str) -> np.dtype:
    """A C struct from lines `type name name ...`."""
    fields = []
    for line in text.strip().splitlines():
        kind, *names = line.split()
        fields += [(name, kind) for name in names]
    return np.dtype(fields, align=True)


ROW = _record("u4 begin emit end rank")
ENTRY = _record("""
    f4 cost
    u4 state node boost
""")
NEW_ENTRY = _record("""
    f4 cost
    u4 state source note
""")
CANDIDATE = NEW_ENTRY
NODE = _record("""
    u4 previous arc
    f4 acoustic
    u4 renumbered
""")
STEP = _record("""
    u4 arc
    f4 acoustic
""")
AUTOMATON = _record("""
    u8 state_arc_splits arc_label arc_next arc_cost backoff_state backoff_cost
    u8 final_cost label_alias
    u4 num_labels
    f4 default_cost
    u4 start of_tokens
""")
UTTERANCE = _record("""
    u8 logprobs frontier trace boost_keys boost_bonuses phrases path
    f8 base
    u4 boost_mask logprob_type frame_stride num_frames chunk_frame frontier_capacity
    u4 trace_capacity frontier_count trace_count within best frames died status
    u4 bad_frame path_capacity path_length reached_final end_state
    f4 end_cost
    u8 active arcs looked entries shared spilled
""")
TASK = _record("""
    u8 arcs rows final_cost utterances order drawn next next_slots ties waiting
    u8 candidates boosts landed table_keys table_best table_entries
    u4 num_utterances entry_capacity candidate_capacity table_size shared_size
    u4 num_tokens blank max_active min_active
    f4 beam beam_delta acoustic_scale lm_scale word_insertion blank_penalty
    f4 blank_skip_logprob
""")
COUNTS = ("frames", "active", "arcs", "looked", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: entries gone on from, arcs that may survive, arcs
looked at, entries made, frames with the table in shared memory, frames that left it."""

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
OF_ENTRIES: dict[str, np.dtype] = {
    "next": NEW_ENTRY,
    "next_slots": _U4,
    "ties": _U4,
    "waiting": _U4,
}
OF_CANDIDATES: dict[str, np.dtype] = {
    "candidates": CANDIDATE,
    "boosts": _U4,
    "landed": _U4,
}
OF_TABLE: dict[str, np.dtype] = {
    "table_keys": _U8,
    "table_best": _U8,
    "table_entries": _U4,
}
"""The scratch of a block: arrays in `TASK`, by what their length follows."""
SLOT_BYTES = sum(dtype.itemsize for dtype in OF_TABLE.values())
"""What a slot of a table takes."""
ALIGNMENT = 16
"""Of the records in a packet."""


def rows_of(graph: PackedGraph) -> np.ndarray:
    """ROW [S]."""
    rows = np.zeros(graph.num_states, ROW)
    rows["begin"] = graph.state_arc_splits[:-1]
    rows["emit"] = graph.state_arc_splits[:-1] + graph.state_num_epsilons
    rows["end"] = graph.state_arc_splits[1:]
    rows["rank"] = graph.epsilon_rank
    return rows


def automaton_arrays(automaton: Automaton) -> dict[str, np.ndarray]:
    """The arrays of `AUTOMATON`, of an automaton of one model."""
    names = ("arc_cost", "backoff_cost", "final_cost")
    arrays = {name: getattr(automaton, name) for name in names}
    for name in ("state_arc_splits", "arc_label", "arc_next", "backoff_state"):
        arrays[name] = getattr(automaton, name).astype(np.int64).astype(np.uint32)
    return arrays | {"label_alias": automaton.label_alias.astype(np.uint32)}


def task_of(scales: Scales, tokens: TokenTable) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, TASK)
    task["blank"], task["num_tokens"] = tokens.blank, len(tokens)
    for name in ("max_active", "min_active"):
        task[name] = min(int(getattr(scales, name)), NONE)
    for name in ("beam_delta", "lm_scale", "word_insertion"):
        task[name] = getattr(scales, name)
    for name, value in scales.pricing._asdict().items():
        task[name] = value
    task["beam"] = scales.beam + np.float32(0)  # no -0.0: kernels compare integers
    return task


def kernel_source(name: str = "search.cu") -> str:
    """A kernel file with the files it includes put in: one text for any compiler."""
    done: set[str] = set()

    def read(file: str) -> str:
        done.add(file)
        lines = []
        for number, line in enumerate((KERNELS / file).read_text().splitlines(), 1):
            if line.startswith('#include "'):
                other = line.split('"')[1]
                body = "" if other in done else read(other)
                line = f'{body}#line {number + 1} "{file}"'
            lines.append("" if line == "#pragma once" else line)
        return f'#line 1 "{file}"\n' + "\n".join(lines) + "\n"

    return read(name)
