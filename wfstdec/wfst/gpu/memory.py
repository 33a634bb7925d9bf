"""Memory of the search on a device: sizes of scratch, traces and frontiers.

An utterance's trace has `TRACE_BYTES`. Where it is full, the nodes that the frontier
cannot reach are dropped; it grows only where that leaves more than half of it in use.
"""

from __future__ import annotations

import numpy as np

from wfstdec.gpu.scratch import ScratchLayout
from wfstdec.wfst.gpu import layout as d

CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""What the trace of an utterance may take before it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers that a trace has room for where their number is unknown."""
LINKS_PER_NODE = 2
_MIN_FRAMES = 4
NARROWER = "lower max_active or the beam"
"""The advice where scratch and traces take too much."""


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """The nodes of a trace, for frontiers of so many entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // d.NODE.itemsize
    return max(min(frames * entries, most), _MIN_FRAMES * entries)


def link_count(nodes: int) -> int:
    """The arcs that are noted beside a trace of so many nodes, at first."""
    return LINKS_PER_NODE * nodes


def utterance_bytes(
    entries: int, num_frames: int | None, lattices: bool = False
) -> int:
    """Bytes of an utterance, for frontiers of so many entries."""
    nodes = trace_nodes(entries, num_frames)
    links = link_count(nodes) * d.LINK.itemsize if lattices else 0
    trace = nodes * d.NODE.itemsize
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    return frontiers * entries * d.ENTRY.itemsize + trace + links


def _counts(entries: int) -> dict[str, int]:
    """Entries, candidates and slots of a block; the table is at most half full."""
    return {
        "entry_capacity": entries,
        "candidate_capacity": CANDIDATES_PER_ENTRY * entries,
        "table_slots": 2 * entries,
    }


def _arrays(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    groups = (d.ENTRY_ARRAYS, d.CANDIDATE_ARRAYS, d.TABLE_ARRAYS)
    counted = zip(groups, _counts(entries).values(), strict=True)
    return [(name, n, dtype) for group, n in counted for name, dtype in group.items()]


SCRATCH = ScratchLayout(_arrays, _counts)
"""The scratch of a block."""
