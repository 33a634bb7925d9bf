"""One utterance in the CPU search, whole or in chunks, and the memory it borrows.

    search = CpuSearch(rule, inputs, memory)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a Path

Blanks and repeats are not in the trace: their costs are read from the log-probs when
the trace is folded into its tips. The log-probs since the last fold are kept, up to
`KEPT` bytes. `search_rows` decodes whole utterances in one call, and chunks: a second
kernel with the same search in it would be as long to compile.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import int64, uint32, uint64

from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.jit import inlined, jit, kernel
from wfstdec.jit.handles import Handle, float_rows, opened
from wfstdec.jit.records import Pool, record
from wfstdec.search.logprobs import penalised
from wfstdec.search.paths.tokens import PATH_END, PartialPath, Path
from wfstdec.search.paths.traceback import STEP, History, Rule
from wfstdec.wfst.cpu.arrays import (
    EPSILON_ARC,
    FROM_TOKEN,
    GROW_ENTRIES,
    GROW_NODES,
    GROW_NOTES,
    NEW,
    NONE,
    OF_CANDIDATES,
    OF_ENDS,
    OF_ENTRIES,
    OF_STATE,
    OK,
    RowScratch,
    RowState,
    Search,
    new_scratch,
    new_state,
    twice,
)
from wfstdec.wfst.cpu.entries import (
    acoustic_cost,
    arc_at,
    drop_nodes,
    epsilon_at,
    spread,
    token_at,
)
from wfstdec.wfst.cpu.frame import advance, restart
from wfstdec.wfst.cpu.lattice_arcs import RowLattice, new_lattice
from wfstdec.wfst.cpu.lattice_record import LatticeRecord, new_notes
from wfstdec.wfst.cpu.oov import RowOverlay
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, RowArrays
from wfstdec.wfst.cpu.traceback import end_of, fold_paths
from wfstdec.wfst.options import SearchParams

CANDIDATES_PER_ENTRY, NODES_PER_ENTRY = 4, 16
"""Initial capacity for candidates and trace nodes."""
FIRST_NOTES = 1 << 14
"""Initial capacity for recorded arcs of a lattice."""


class RowMemory:
    """Pools of arrays, by handle: scratch, states, lattices of utterances."""

    def __init__(self, rows: RowArrays, first_capacity: int) -> None:
        def first_scratch(entries: int) -> Handle[RowScratch]:
            entries = max(entries, first_capacity)
            return Handle(new_scratch(rows, entries, CANDIDATES_PER_ENTRY * entries))

        def first_state() -> Handle[RowState]:
            return Handle(new_state(first_capacity, NODES_PER_ENTRY * first_capacity))

        def first_recording() -> tuple[Handle[LatticeRecord], Handle[RowLattice]]:
            return Handle(new_notes(FIRST_NOTES)), Handle(new_lattice())

        self.scratches = Pool(first_scratch, fits=_fits)
        self.states = Pool(first_state, beside=self.scratches)
        self.recordings = Pool(first_recording, beside=self.scratches)


def _fits(scratch: Handle[RowScratch], entries: int) -> bool:
    return len(scratch.value.waiting) >= entries


def grown(
    status: int, scratch: Handle[RowScratch], state: Handle[RowState]
) -> tuple[Handle[RowScratch], Handle[RowState]]:
    """Enlarge what the kernel reported as too small."""
    if status in (OK, GROW_NOTES):  # a `RecordingSearch` enlarges these
        return scratch, state
    arrays = state.value
    if status == GROW_NODES:
        drop_nodes(arrays)
        # A frame adds at most one per entry.
        made = int(arrays.progress["nodes"][0])
        while len(arrays.nodes) < 2 * (made + len(arrays.record)):
            arrays = arrays._replace(nodes=twice(arrays.nodes))
        return scratch, Handle(arrays)
    names = ["candidates", *(OF_CANDIDATES.names or ())]
    if status == GROW_ENTRIES:
        names = ["ends", *(OF_ENTRIES.names or ()), *(OF_ENDS.names or ())]
        arrays = arrays._replace(
            **{name: twice(getattr(arrays, name)) for name in OF_STATE.names or ()}
        )
        while len(arrays.nodes) < 2 * len(arrays.record):  # two costs per entry
            arrays = arrays._replace(nodes=twice(arrays.nodes))
        state = Handle(arrays)
        if _fits(scratch, len(arrays.record)):  # an earlier state was as large
            return scratch, state
    larger = {name: twice(getattr(scratch.value, name)) for name in names}
    return Handle(scratch.value._replace(**larger)), state


KEPT = 1 << 19
"""Most bytes of log-probs that are kept, if that is at least `FIRST_FRAMES` frames."""
FIRST_FRAMES = 128
"""Initial capacity in frames."""
_FLOAT = 4


class Inputs(NamedTuple):
    """Graph, options and boosts of a search, in one handle for kernels."""

    # `phrases`: for phrases and bonuses above an instalment, else None. `oov`: for OOV
    # words, with memory of this search, else None.

    rows: RowArrays
    params: SearchParams
    words: ListedWords
    phrases: PhraseRows | None
    oov: RowOverlay | None


@inlined
def searching(inputs, scratch, state, record):
    """The arguments of kernels, from handles; `record` may be None."""
    rows, params, words, phrases, oov = opened(inputs)
    memory = opened(scratch), opened(state), opened(record)
    return Search(rows, params, words, phrases, oov, *memory)


@jit
def fold(inputs, scratch, state, history, chunk, ends):
    """`fold_paths`, by handles."""
    return fold_paths(searching(inputs, scratch, state, None), history, chunk, ends)


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    _record: Handle[LatticeRecord] | None = None

    def __init__(self, rule: Rule, inputs: Handle[Inputs], memory: RowMemory) -> None:
        self._inputs, self._memory = inputs, memory
        self._state = memory.states.take()
        restart(self._state.value)
        progress = self._state.value.progress
        self._frames, self._died = progress["frames"], progress["died"]  # int64 [1]
        self._history = History(rule)
        num_tokens = len(inputs.value.rows.repeat_arc)
        self._kept = np.empty((0, num_tokens), np.float32)
        self._most = max(FIRST_FRAMES, KEPT // (_FLOAT * num_tokens))
        self._first, self._last = 0, 0  # frames: at the last fold, and now

    @property
    def counts(self) -> dict[str, int]:
        """Frames done, and the sum of active states over them."""
        progress = self._state.value.progress[0]
        return {name: int(progress[name]) for name in ("frames", "active")}

    def advance(self, logprobs: np.ndarray) -> None:
        """Search a chunk, float32 [T, V], C order."""
        first = 0
        while first < len(logprobs) and self._died[0] < 0:
            if self._last - self._first == self._most:
                self._fold()
            part = logprobs[first : first + self._most - (self._last - self._first)]
            self._search(part)
            first += len(part)

    def finish(self) -> Path:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        _, cost, final_cost = self._fold(ends=True)
        end, final = np.zeros(1, PATH_END), bool(final_cost < np.inf)
        end["reached_final"], end["graph_cost"] = final, final_cost if final else 0.0
        end["search_cost"] = self._state.value.progress["base"] + cost
        end["num_frames"], end["died_at_frame"] = self._frames, self._died
        path = self._history.read(0, end)
        self._memory.states.give(self._state)
        return path

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """The best path so far but its first tokens and words; it can continue."""
        self._begin()
        at, cost, ended = self._fold()
        return self._history.look(at, since, int(self._frames[0]), ended - cost)

    def _begin(self) -> None:
        """Insert the start state, if no frame has been searched."""
        if self._state.value.progress["phase"][0] == NEW:
            self._search(self._kept[:0])

    def _search(self, part: np.ndarray) -> None:
        """Search some frames, and keep them for the next fold."""
        scratches = self._memory.scratches
        scratch = scratches.take(len(self._state.value.record))
        try:
            status, frame = self._advance(OK, scratch, part, 0)
            while status != OK:
                scratch, self._state = grown(status, scratch, self._state)
                status, frame = self._advance(status, scratch, part, frame)
        finally:
            scratches.give(scratch)
        kept, passed = self._last - self._first, int(self._frames[0])
        new, self._last = passed - self._last, passed
        if kept + new > len(self._kept):
            room = max(FIRST_FRAMES, 2 * kept, kept + new)
            longer = np.empty((min(room, self._most), self._kept.shape[1]), np.float32)
            longer[:kept] = self._kept[:kept]
            self._kept = longer
        self._kept[kept : kept + new] = part[:new]

    def _advance(
        self,
        status: int,
        scratch: Handle[RowScratch],
        part: np.ndarray,
        frame: int,
    ) -> tuple[int, int]:
        """Call the kernel once; `status` says what the call before found too small."""
        handles = self._inputs, scratch, self._state, self._record
        return search_rows(*handles, part, frame, _NO_GROUP)

    def _fold(self, *, ends: bool = False) -> tuple[int, float, float]:
        """Fold the trace; the best entry and its costs, as of `fold_paths`."""
        scratches = self._memory.scratches
        scratch = scratches.take(len(self._state.value.record))
        try:
            best, tips, events = fold(
                *(self._inputs, scratch, self._state),
                *(self._history.state, (self._kept, self._first), ends),
            )
        finally:
            scratches.give(scratch)
        self._history.go_on_from(tips, events, last=ends)
        self._first = self._last
        return best


STEPS_PER_FRAME = 2
"""Initial capacity for the arcs of paths, per frame."""
GROW_STEPS = -1
"""Further status of `search_rows`: no room for a path."""
AT = record("i8 utterance frame steps left")
"""Where a group is: utterance and frame to continue at, steps so far, frames that the
call may still search."""


class Group(NamedTuple):
    """Whole utterances, and room for their results."""

    utterances: np.ndarray  # int64 [B, 3]: address and shape of each one's log-probs
    ends: np.ndarray  # PATH_END [B], graph costs being those of final states
    steps: np.ndarray  # STEP [M], of each path the last one first
    at: np.ndarray  # AT [1]


def new_group(utterances: Sequence[np.ndarray]) -> Group:
    """A group of log-probs, float32 [T, V], C order, which must stay where they are."""
    assert all(x.flags.c_contiguous and x.dtype == np.float32 for x in utterances)
    placed = [(one.__array_interface__["data"][0], *one.shape) for one in utterances]
    return Group(
        np.array(placed, np.int64).reshape(-1, 3),
        np.zeros(len(placed), PATH_END),
        np.empty(STEPS_PER_FRAME * sum(map(len, utterances)) + 1, STEP),
        np.zeros(1, AT),
    )


_NO_GROUP = Handle(new_group([]))
_ZERO = uint64(0)


@kernel
def search_rows(inputs, scratch, state, record, logprobs, first, group):
    """Search the frames `first` and on of a chunk; or of a group, if it has utterances.

    Returns OK or the array to grow, and the frame to resume at.
    """
    search = searching(inputs, scratch, state, record)
    utterances, ends, steps, ats = opened(group)
    whole, at, length = len(ends) > 0, ats[0], int64(0)
    while True:
        if whole:
            if at.utterance == len(ends):
                return OK, first
            logprobs, first = float_rows(utterances[at.utterance]), at.frame
            length = int64(len(logprobs))
            logprobs = logprobs[: first + at.left]
            if first == 0:
                restart(search.state)
        status, frame = advance(search, logprobs, first)
        if not whole:
            return status, frame
        at.left -= frame - first
        at.frame = frame
        if status != OK or frame < length:
            return status, frame
        end = ends[at.utterance]
        if not _end(search, logprobs, end, steps, at.steps):
            return GROW_STEPS, frame
        at.utterance, at.frame, at.steps = at.utterance + 1, 0, at.steps + end.count


@inlined
def _end(search, logprobs, end, steps, first):
    """Write the path of an utterance to `steps`, from `first` on; False without room.

    Blanks and repeats are inserted between trace nodes. The state is unchanged, so that
    the search can continue afterwards.
    """
    rows, params, oov = search.rows, search.params, search.oov
    scratch, state = search.scratch, search.state
    progress = state.progress[0]
    entries = scratch.ends[: spread(search)]
    best, cost, final = end_of(search, entries)
    flagged, node = entries[best].arc, entries[best].node
    frame = int64(progress.frames)
    behind = frame + 1  # blanks from this frame on
    if flagged & FROM_TOKEN == uint32(0):
        behind = int64(state.ended[uint64(flagged)])
    length = first
    while True:
        one = state.nodes[uint64(node)]
        label, repeat = _repeated(rows, oov, state, node)
        while frame > int64(one.frame):
            if length == len(steps):
                return False
            step = steps[length]
            if frame >= behind:
                blank = logprobs[frame - 1, rows.blank]
                step.arc = rows.blank_arc
                step.acoustic = -penalised(params.pricing, blank)
            else:
                step.arc = repeat
                step.acoustic = -logprobs[frame - 1, label]
            length, frame = length + 1, frame - 1
        if one.arc == NONE:
            break
        if length == len(steps):
            return False
        step = steps[length]
        if one.arc & EPSILON_ARC:
            step.arc = epsilon_at(rows, oov, uint64(one.arc & ~EPSILON_ARC))
            step.acoustic, behind = np.float32(0), int64(one.ended)
        else:
            step.arc = arc_at(rows, oov, one.arc)
            step.acoustic = acoustic_cost(rows, params, logprobs, frame - 1, label)
            frame, behind = frame - 1, int64(one.ended)
        length, node = length + 1, one.before
    end.search_cost = progress.base + np.float64(cost)
    end.graph_cost = 0.0
    if final:
        end.graph_cost = np.float64(rows.final_cost[entries[best].state])
    end.first, end.count = first, length - first
    end.num_frames, end.died_at_frame = progress.frames, progress.died
    end.reached_final = int64(final)
    return True


@inlined
def _repeated(rows, oov, state, node):
    """Token of a node, or of the last token arc before it; an arc that repeats it."""
    one = state.nodes[uint64(node)]
    while one.arc & EPSILON_ARC and one.arc != NONE:
        one = state.nodes[uint64(one.before)]
    if one.arc == NONE:
        return _ZERO, rows.repeat_arc[_ZERO]
    token = token_at(rows, oov, one.arc)
    if oov is not None and one.arc >= uint32(len(rows.arcs)):
        a = uint64(one.arc) - uint64(len(rows.arcs))
        if oov.next[a] & ADDED:  # the graph may have no word with this token
            return token, oov.repeat_arc[uint64(oov.next[a] & RECORDS)]
    return token, rows.repeat_arc[token]
