"""The arrays that the CPU kernels work on.

Records of 16 bytes and unsigned indices everywhere: this is what brings numba to the
speed of tuned C++ (signed indices and separate arrays are 2.6 times slower).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit.records import record

ROW = record("u8 labels plain", "u4 begin emit rank", align=True)
"""A state's row, 32 bytes: the set of its labels, with phrases that of labels on whose
arcs they do not step, its first arc, its first emitting arc, its epsilon rank."""
ENTRY = record("f4 cost", "u4 state node arc")
"""A frontier entry. While it is made, `node` is its source's and `arc` has flags."""
SIDE_ENTRY = np.dtype([*ENTRY.descr, ("boost", "<u4"), ("source_boost", "<u4")])
"""A candidate with boost states of its own: where it leads to, and that of its source.
"""
NEXT_BOOSTS = record("u4 boost source_boost")
"""The boost states of an entry that is made: its own, and its source's."""
BOOST = record("u4 boost", "f4 credit")
"""The boost state of a frontier entry, and the most that a step from it is paid."""
ENTRY_ARC = record("u4 entry arc")
"""An arc to follow, from an entry of the frontier."""
NODE = record("u4 previous arc", "f4 acoustic")
"""A trace node: the node before, the arc taken, the unscaled acoustic cost."""

NONE = 0xFFFFFFFF
"""No node, no arc."""
EPSILON_ARC = 1 << 31
"""Set in the arc of an entry that an epsilon arc made: it loses ties."""
HAS_EPSILONS = 1
"""Set in the arc of an entry whose state has epsilon arcs; the id stands above it."""

NOTED = record("u4 state nextstate arc", "f4 excess acoustic")
"""An arc noted for a lattice: the trace nodes that it leads from and to, the graph's
arc, its excess (see `lattice_pack.py`), the unscaled acoustic cost."""

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, GROW_ADDED, GROW_NOTED = range(6)
"""What a kernel returns: done, or which arrays are too small for the next frame."""

FRONTIER, TRACE, FRAMES, DIED, ACTIVE, ARCS, WITHIN, BEST, GRAPH = range(9)
"""Positions in `UtteranceState.counts`: entries, nodes, frames done, the frame that
nothing survived or -1, sums of active states and of arcs, entries within the beam, the
position of the best entry, and how many entries are of the graph's own states (the
first ones)."""


class GraphArrays(NamedTuple):
    """The graph, read only: shared by all threads."""

    arcs: np.ndarray  # ARC [A]
    rows: np.ndarray  # ROW [S + 1]; `plain` is of one unit of phrases
    final_cost: np.ndarray  # float32 [S]
    by_label: bool  # whether `ROW.labels` is filled
    num_ranks: np.uint64
    blank: np.uint64
    blank_label: np.uint32  # its ilabel
    least_cost: np.float32  # the least arc cost, at most 0


class UtteranceState(NamedTuple):
    """Arrays of an utterance that last from frame to frame."""

    frontier: np.ndarray  # ENTRY [F]
    boosts: np.ndarray  # BOOST [F], where boosts have states
    trace: np.ndarray  # NODE [N]
    counts: np.ndarray  # int64 [9]
    base: np.ndarray  # float64 [1]: what re-basing took off
    beam: np.ndarray  # float32 [1]: of the next frame
    top_credit: np.ndarray  # float32 [1]: the largest of the frontier


class Record(NamedTuple):
    """Notes of a search for its lattice, whose states are the nodes of the trace."""

    arcs: np.ndarray  # NOTED [M], a frame after the other; see `lattice_kernels.py`
    boosts: np.ndarray  # uint32 [N], of the trace's nodes, where boosts have states
    extra: np.ndarray  # float32 [N], of the trace's nodes: scratch
    number: np.ndarray  # int32 [N], the same
    kept: np.ndarray  # int32 [N], the same
    frames: np.ndarray  # int64 [T, 2]: nodes and arcs so far, behind each frame
    counts: np.ndarray  # int64 [3]: arcs noted; the same with those of this frame; T
    limit: np.float32  # the most excess that is noted


class Scratch(NamedTuple):
    """Scratch of one thread; its content between frames means nothing.

    Where boosts have states, `hashed` has the entries that are not in `slots`: the last
    entry of each slot in the lower half.
    """

    next: np.ndarray  # ENTRY [F]: the frontier being made
    next_boosts: np.ndarray  # NEXT_BOOSTS [F]
    candidates: np.ndarray  # ENTRY [C]: arcs that may survive, from their node
    side: np.ndarray  # SIDE_ENTRY [C]: those that are not between quiet entries
    chain: np.ndarray  # uint32 [F]: the entry before in the same slot of `hashed`
    listed: np.ndarray  # ENTRY_ARC [BLOCK_ARCS]; of three kinds with boost states
    slots: np.ndarray  # uint32 [S]: where a state stands in `next`, if it does
    hashed: np.ndarray  # uint64 [a power of two]
    table: np.ndarray  # uint64 [2]: the upper half of slots of `hashed` in use; how
    # many slots are, less 1
    rank_heads: np.ndarray  # uint32 [R]: linked lists of entries to close, by rank
    links: np.ndarray  # uint32 [F]
    waiting: np.ndarray  # uint32 [F + 1]: entries with epsilon arcs
    bins: np.ndarray  # uint32 [1024]
    keys: np.ndarray  # uint64 [F]
    unscaled: np.ndarray  # float32 [V + 1], by ilabel: -logprob after the penalty
    token_costs: np.ndarray  # float32 [V + 1], by ilabel: scaled
    live_sets: np.ndarray  # uint64 [LEVELS + CREDIT_LEVELS]: labels that can survive


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """A copy with room for more."""
    copy = np.empty(size, array.dtype)
    copy[: len(array)] = array
    return copy
