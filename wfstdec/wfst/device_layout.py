"""The records of `kernels/layout.cuh` as NumPy types, and the source of the kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wfstdec.graph import PackedGraph
from wfstdec.wfst.kernel_types import Scales

NONE = 0xFFFFFFFF
"""No node, no arc, no frame."""
OK, GROW_WORK, GROW_FRONTIER, GROW_TRACE = range(4)
"""What a launch leaves in `UTTERANCE.status`."""

KERNELS = Path(__file__).parent / "kernels"
WARP = 32
MOST_THREADS = 512
"""Threads of a block, at most; a multiple of `WARP`."""


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
    u4 state node note
""")
CANDIDATE = _record("""
    f4 cost
    u4 state source note
""")
NODE = _record("""
    u4 previous arc
    f4 acoustic
    u4 renumbered
""")
UTTERANCE = _record("""
    u8 logprobs frontier trace boost_keys boost_bonuses path_arcs path_acoustic
    f8 base
    u4 boost_mask frame_stride num_frames chunk_frame frontier_capacity
    u4 trace_capacity frontier_count trace_count within best frames died status
    u4 path_length reached_final end_state
    f4 end_cost
    u4 unused
    u8 active arcs
""")
TASK = _record("""
    u8 arcs rows final_cost utterances order drawn next next_slots waiting candidates
    u8 landed table_states table_best table_entries
    u4 num_utterances entry_capacity candidate_capacity table_size
    u4 blank max_active min_active
    f4 beam beam_delta acoustic_scale lm_scale word_insertion blank_penalty
    f4 blank_skip_logprob
""")

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
OF_ENTRIES: dict[str, np.dtype] = {"next": ENTRY, "next_slots": _U4, "waiting": _U4}
OF_CANDIDATES: dict[str, np.dtype] = {"candidates": CANDIDATE, "landed": _U4}
OF_TABLE: dict[str, np.dtype] = {
    "table_states": _U4,
    "table_best": _U8,
    "table_entries": _U4,
}
"""The scratch of a block: arrays in `TASK`, by what their length follows."""


def rows_of(graph: PackedGraph) -> np.ndarray:
    """ROW [S]."""
    rows = np.zeros(graph.num_states, ROW)
    rows["begin"] = graph.state_arc_splits[:-1]
    rows["emit"] = graph.state_arc_splits[:-1] + graph.state_num_epsilons
    rows["end"] = graph.state_arc_splits[1:]
    rows["rank"] = graph.epsilon_rank
    return rows


def task_of(scales: Scales, blank: int) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, TASK)
    task["blank"] = blank
    for name in ("max_active", "min_active"):
        task[name] = min(int(getattr(scales, name)), NONE)
    for name in ("beam_delta", "acoustic_scale", "lm_scale", "word_insertion"):
        task[name] = getattr(scales, name)
    for name in ("blank_penalty", "blank_skip_logprob"):
        task[name] = getattr(scales, name)
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
