"""The arrays of a search on rows: what an utterance keeps, and what a thread lends it.

An entry is a record with two costs, after a blank and after its token; either may be
infinite. It stays where it is from frame to frame: blanks and repeats change its costs
in place. Of a row that several records share, the first of its entries has the cost
after a blank. Where boosts have states, an entry is one of a record and a boost state:
blanks and repeats leave that as it is.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from wfstdec.jit.records import record
from wfstdec.jit.vectors import LANES
from wfstdec.wfst.cpu.arrays import ENTRY
from wfstdec.wfst.cpu.rows import RowArrays

CANDIDATE = record("f4 cost", "u4 record arc before ended source")
"""An arc that may survive: what it costs to get there; the record with flags; the node
before; the first frame behind the token before; the entry that it leaves."""
NODE = record("u4 before arc frame ended")
"""A trace node: that of the token or epsilon arc before; an arc of `RowArrays`; frames
passed with it; frames passed with the first behind the token before that is none of it.
A root has no arc, and the number of its tip in the place of the node before."""
EPSILON_ARC = 1 << 31
"""Set in the arc of a node that an epsilon arc made."""
FROM_TOKEN = 1 << 31
"""Set in the source of a candidate that goes on after the token, not a blank."""
NONE = 0xFFFFFFFF
"""No arc, no entry."""
LEVELS = 16
"""Cost levels up to the beam, each with its own set of live tokens."""

(ENTRIES, NODES, CHAINED, FRAMES, DIED, PHASE) = range(6)
(PASSES, WAITING, AT, FRESH, ALIVE, ACTIVE) = range(6, 12)
"""Positions in `RowState.counts`: entries; nodes; entries that are not the first of
their row; frames done; the frame that nothing survived or -1; see below; frames done
once epsilon arcs are followed, 0 at the beginning; the entries that wait for that; how
many of them were passed, or the rank; the first node of the frame; entries that went on
in place; the sum of states that frames went on from."""
NEW, PASSING, RANKS, BETWEEN = range(4)
"""`PHASE`: nothing is there yet; epsilon arcs are followed, those of entries that wait,
and those of higher ranks; a frame is done."""
BEST, BEAM, CUTOFF, LOWEST, CREDIT = range(5)
"""Positions in `RowState.costs`: what costs are to be less by, the next frame's beam,
the cutoff of the frame under way and its least cost before epsilon arcs; no less than
any entry's `credit`."""
HASHED = 1 << 15
"""Slots for entries with boost states of their own."""

OK, GROW_ENTRIES, GROW_CANDIDATES, GROW_NODES, GROW_NOTES = range(5)
"""What the kernel returns: done, or what is too small."""


class RowState(NamedTuple):
    """Arrays of an utterance between frames; F entries, and room for a vector."""

    blank: np.ndarray  # float32 [F]: the cost after a blank
    token: np.ndarray  # float32 [F]: the cost after the token
    again: np.ndarray  # uint32 [F]: the token
    least: np.ndarray  # float32 [F]: the least scaled cost of the row's arcs
    record: np.ndarray  # uint32 [F], with flags
    first: np.ndarray  # uint32 [F]: the row's first arc
    labels: np.ndarray  # uint64 [F]: tokens of the row, modulo 64
    blank_node: np.ndarray  # uint32 [F]
    token_node: np.ndarray  # uint32 [F]
    ended: np.ndarray  # uint32 [F]: as of a node, of the token before the blank
    chain: np.ndarray  # uint32 [F]: the row's next entry, or that of its slot
    boost: np.ndarray  # uint32 [F]: where boosts have states
    credit: np.ndarray  # float32 [F]: the most that a step is paid there
    nodes: np.ndarray  # NODE [N]
    counts: np.ndarray  # int64 [12]
    costs: np.ndarray  # float32 [5]
    base: np.ndarray  # float64 [1]: what re-basing took off
    turn: np.ndarray  # int64 [1]: of no other state's, and of none before


class RowScratch(NamedTuple):
    """Scratch of a thread.

    Between frames `slots`, `hashed` and `turn` alone mean anything.
    """

    slots: np.ndarray  # uint32 [R]: where a record, or a row's first entry, may stand
    hashed: np.ndarray  # uint32 [HASHED]: where those with boost states may
    turn: np.ndarray  # int64 [1]: that of the state whose entries are found there
    waiting: np.ndarray  # uint32 [F]: entries whose epsilon arcs are to be followed
    links: np.ndarray  # uint32 [F]: linked lists of these, by rank
    heads: np.ndarray  # uint32 [ranks]
    winner: np.ndarray  # uint32 [F]: the candidate that made an entry in this frame
    repeats: np.ndarray  # float32 [F]: the cost after the token, said again
    reached: np.ndarray  # float32 [F]: the least cost after the token; `min_active`
    listed: np.ndarray  # uint32 [F]: entries that may lead on
    live: np.ndarray  # uint64 [F]: the tokens by which they do
    candidates: np.ndarray  # CANDIDATE [C]
    goals: np.ndarray  # uint32 [C]: the boost states that candidates lead to
    at: np.ndarray  # uint32 [C]: arcs to follow
    of: np.ndarray  # uint32 [C]: the entries that they leave
    by: np.ndarray  # uint8 [C]: their tokens
    ends: np.ndarray  # ENTRY [2 F]: states of the packed graph, of entries
    end_boosts: np.ndarray  # uint32 [2 F]: their boost states
    keys: np.ndarray  # uint64 [2 F]
    bins: np.ndarray  # uint32 [1024]
    costs: np.ndarray  # float32 [V and more]: of tokens, infinite from V on
    begun: np.ndarray  # float32 [V and more]: less what beginning a phrase is paid
    classes: np.ndarray  # float32 [64]: the least of tokens, modulo 64
    begun_classes: np.ndarray  # float32 [64]: that of `begun`
    live_sets: np.ndarray  # uint64 [3 LEVELS]: tokens, modulo 64, that can survive


_states = itertools.count(1)
"""Numbers of states."""


def new_state(entries: int, nodes: int) -> RowState:
    """Make room for an utterance."""
    some = _Spread()
    f, u = np.float32, np.uint32
    kinds = f, f, u, f, u, u, np.uint64, u, u, u, u, u, f
    named = zip(OF_STATE_ENTRIES, kinds, strict=True)
    arrays: dict[str, Any] = {name: some.zeros(entries, kind) for name, kind in named}
    return RowState(
        **arrays,
        nodes=some.zeros(nodes, NODE),
        counts=np.zeros(12, np.int64),
        costs=np.zeros(5, f),
        base=np.zeros(1),
        turn=np.array([next(_states) << 32]),
    )


def new_scratch(rows: RowArrays, entries: int, candidates: int) -> RowScratch:
    """Make scratch for searches of a graph."""
    some = _Spread()
    costs = np.full((len(rows.repeat_arc) // 64 + 1) * 64, np.inf, np.float32)
    return RowScratch(
        slots=np.zeros(int(rows.num_rows), np.uint32),
        hashed=np.zeros(HASHED, np.uint32),
        turn=np.zeros(1, np.int64),
        waiting=some.zeros(entries, np.uint32),
        links=some.zeros(entries, np.uint32),
        heads=np.zeros(int(rows.num_ranks), np.uint32),
        winner=some.zeros(entries, np.uint32),
        repeats=some.zeros(entries, np.float32),
        reached=some.zeros(entries, np.float32),
        listed=some.zeros(entries, np.uint32),
        live=some.zeros(entries, np.uint64),
        candidates=some.zeros(candidates, CANDIDATE),
        goals=some.zeros(candidates, np.uint32),
        at=some.zeros(candidates, np.uint32),
        of=some.zeros(candidates, np.uint32),
        by=some.zeros(candidates, np.uint8),
        ends=some.zeros(2 * entries, ENTRY),
        end_boosts=some.zeros(2 * entries, np.uint32),
        keys=some.zeros(2 * entries, np.uint64),
        bins=np.zeros(1024, np.uint32),
        costs=costs,
        begun=costs.copy(),
        classes=np.zeros(64, np.float32),
        begun_classes=np.zeros(64, np.float32),
        live_sets=np.zeros(3 * LEVELS, np.uint64),
    )


OF_STATE_ENTRIES = RowState._fields[: RowState._fields.index("nodes")]
OF_SCRATCH_ENTRIES = tuple(
    "waiting links winner repeats reached listed live ends end_boosts keys".split()
)
OF_CANDIDATES = "candidates", "goals", "at", "of", "by"
"""What has the length of entries, in a state and in scratch, and that of candidates."""


def twice(array: np.ndarray) -> np.ndarray:
    """A copy with twice the room; entries behind the last are those of no token."""
    larger = np.zeros(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


class _Spread:
    """Arrays that do not begin alike: those of one size would fight for cache lines."""

    def __init__(self) -> None:
        self._turn = 0

    def zeros(self, size: int, kind: np.dtype | type) -> np.ndarray:
        """Make room for so many, and a vector behind them."""
        self._turn += 1
        skipped = self._turn * 11 % 61 * 64 // np.dtype(kind).itemsize
        return np.zeros(size + skipped + LANES, kind)[skipped:]
