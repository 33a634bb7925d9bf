"""Arrays of the CPU search: the state of an utterance, and scratch memory of a thread.

An entry of the frontier represents a record of `rows.py`: two states of the packed
graph that share a row of arcs, "after a blank" and "after the token", each with its own
cost (infinite if inactive). Entries keep their positions from frame to frame, so that
blanks and repeats change costs in place. Of the entries of one row, the first holds the
cost after a blank. Where boosts have states, an entry is a pair (record, boost state).
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.boost.tables import ListedWords
from wfstdec.jit.records import longer, record
from wfstdec.jit.vectors import LANES
from wfstdec.search.paths.traceback import Events, Rule, new_events
from wfstdec.wfst.cpu.rows import RowArrays
from wfstdec.wfst.options import SearchParams

CANDIDATE = record("f4 cost", "u4 record arc before ended source")
"""Arc within the beam: cost at its destination; destination record with flags; arc;
trace node before it; first frame after the previous token; source entry."""
NODE = record("u4 before arc frame ended")
"""Trace node of a token arc or epsilon arc: node before it; arc (a position in
`RowArrays`); frames passed with it; frames passed with the first blank after the
previous token. A root has no arc, and its tip's number in place of `before`."""
ENTRY = record("f4 cost", "u4 state node arc")
"""Active state of the packed graph: cost and trace node; its entry with flags."""
EPSILON_ARC = uint32(1 << 31)
"""Flag in `NODE.arc`: an epsilon arc."""
FROM_TOKEN = uint32(1 << 31)
"""Flag in `CANDIDATE.source`: leaves the state after the token, not after a blank."""
NONE = uint32(0xFFFFFFFF)
"""No arc, no entry."""
LEVELS = 16
"""Cost levels within the beam, each with its set of tokens that can survive."""

PROGRESS = record(
    "i8 entries nodes chained frames died phase passes waiting at fresh alive active",
    "i8 owner folded",
    "f8 base",
    "f4 best beam cutoff lowest top_credit",
)
"""Counts: entries; nodes; entries that are not the first of their row; frames done;
frame without survivors, or -1; phase; frames done once epsilon arcs are followed (0 at
the start); entries whose epsilon arcs are pending, and the position among them or the
rank; first node of the frame; live entries; sum of active states over frames; a number
that identifies the owner of scratch memory; frames at the last fold. Costs: sum of what
re-basing subtracted; best cost, subtracted from all at the next frame; beam of the next
frame; cutoff of this frame, its lowest cost before epsilon arcs; upper bound of all
entries' `credit`."""
NEW, PASSING, RANKS, BETWEEN = range(4)
"""Phases: not started; following epsilon arcs of rank 0, then of higher ranks; between
frames."""
HASHED = 1 << 15
"""Slots of the hash table of entries whose boost state is not the initial one."""

OK, GROW_ENTRIES, GROW_CANDIDATES, GROW_NODES, GROW_NOTES = range(5)
"""Status of a kernel: done, or the array that is too small."""


class RowState(NamedTuple):
    """State of an utterance between frames; F entries, padded by a vector."""

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
    credit: np.ndarray  # float32 [F]: the most that a step is credited there
    nodes: np.ndarray  # NODE [N]
    progress: np.ndarray  # PROGRESS [1]
    history: Events  # its paths up to the roots of the trace


class RowScratch(NamedTuple):
    """Scratch of a thread; `slots` to `owner` last between frames."""

    slots: np.ndarray  # uint32 [R]: entry of each record, or first entry of each row
    exact: np.ndarray  # uint32 [records]: entry of each record of a shared row
    tails: np.ndarray  # uint32 [R]: last entry of each shared row
    hashed: np.ndarray  # uint32 [HASHED]: the same by hash of (row, boost state)
    owner: np.ndarray  # int64 [1]: owner of the entries in `slots`
    waiting: np.ndarray  # uint32 [F]: entries whose epsilon arcs are pending
    links: np.ndarray  # uint32 [F]: linked lists of these, by rank
    heads: np.ndarray  # uint32 [ranks]
    winner: np.ndarray  # uint32 [F]: the candidate that led to an entry in this frame
    repeats: np.ndarray  # float32 [F]: cost after a repeat of the token
    listed: np.ndarray  # uint32 [F]: entries with an arc that may survive
    live: np.ndarray  # uint64 [F]: the tokens of such arcs
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
    begun: np.ndarray  # float32 [V and more]: minus the credit for beginning a phrase
    classes: np.ndarray  # float32 [64]: the least of tokens, modulo 64
    begun_classes: np.ndarray  # float32 [64]: that of `begun`
    live_sets: np.ndarray  # uint64 [3 LEVELS]: tokens, modulo 64, that can survive


class Search(NamedTuple):
    """Arguments of kernels; numba drops the branches for members that are None."""

    rows: RowArrays
    params: SearchParams
    words: ListedWords
    phrases: Any  # `PhraseRows`, or None if boosts have no states
    oov: Any  # `RowOverlay`, or None without OOV words
    rule: Rule  # for reading its paths
    scratch: RowScratch
    state: RowState
    record: Any = None  # `LatticeRecord`, or None without a lattice


_states = itertools.count(1)
"""Owner numbers of utterance states."""


OF_STATE = record(
    "f4 blank token",
    "u4 again",
    "f4 least",
    "u4 record first",
    "u8 labels",
    "u4 blank_node token_node ended chain boost",
    "f4 credit",
)
OF_ENTRIES = record("u4 waiting links winner listed", "f4 repeats", "u8 live")
OF_CANDIDATES = record("u4 goals at of", "u1 by")
OF_ENDS = record("u4 end_boosts", "u8 keys")
"""Arrays with one element per entry of a state; per entry, per candidate, and two per
entry, of scratch. `candidates` and `ends` come in addition."""


def new_state(entries: int, nodes: int) -> RowState:
    """Allocate the state of an utterance."""
    some = _Spread()
    arrays, progress = some.all_of(OF_STATE, entries), np.zeros(1, PROGRESS)
    progress["owner"] = next(_states) << 32
    history = new_events(nodes, 2 * entries)
    return RowState(
        **arrays, nodes=some.zeros(nodes, NODE), progress=progress, history=history
    )


def new_scratch(rows: RowArrays, entries: int, candidates: int) -> RowScratch:
    """Allocate scratch memory for searches of a graph."""
    some = _Spread()
    costs = np.full((len(rows.repeat_arc) // 64 + 1) * 64, np.inf, np.float32)
    return RowScratch(
        **some.all_of(OF_ENTRIES, entries),
        **some.all_of(OF_CANDIDATES, candidates),
        **some.all_of(OF_ENDS, 2 * entries),
        candidates=some.zeros(candidates, CANDIDATE),
        ends=some.zeros(2 * entries, ENTRY),
        slots=np.zeros(int(rows.num_rows), np.uint32),
        exact=np.zeros(len(rows.records), np.uint32),
        tails=np.zeros(int(rows.num_rows), np.uint32),
        hashed=np.zeros(HASHED, np.uint32),
        owner=np.zeros(1, np.int64),
        heads=np.zeros(int(rows.num_ranks), np.uint32),
        bins=np.zeros(1024, np.uint32),
        costs=costs,
        begun=costs.copy(),
        classes=np.zeros(64, np.float32),
        begun_classes=np.zeros(64, np.float32),
        live_sets=np.zeros(3 * LEVELS, np.uint64),
    )


def twice(array: np.ndarray) -> np.ndarray:
    """Copy into an array of twice the size; the new half is 0."""
    return longer(array, 2 * len(array))


class _Spread:
    """Allocator with staggered addresses: equal ones compete for cache sets."""

    def __init__(self) -> None:
        self._turn = 0

    def zeros(self, size: int, kind: np.dtype | type) -> np.ndarray:
        self._turn += 1
        skipped = self._turn * 11 % 61 * 64 // np.dtype(kind).itemsize
        return np.zeros(size + skipped + LANES, kind)[skipped:]

    def all_of(self, fields: np.dtype, size: int) -> dict[str, Any]:
        return {name: self.zeros(size, fields[name]) for name in fields.names or ()}
