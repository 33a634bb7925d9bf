"""One utterance in the CPU search, whole or in chunks, and the memory it borrows.

    search = CpuSearch(rule, inputs, memory)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a Path

Blanks and repeats are not in the trace: their costs are read from the log-probs when
the trace is folded into its tips. The log-probs since the last fold are kept, up to
`KEPT` bytes. `search_rows` decodes whole utterances in one call, and chunks: a second
kernel with the same search in it would be as long to compile.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import int64, uint32, uint64

from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.jit import inlined, jit, kernel
from wfstdec.jit.handles import Handle, at_address, float_rows, opened
from wfstdec.jit.records import Pool, record
from wfstdec.search.logprobs import penalised
from wfstdec.search.paths.tokens import PATH_END, PartialPath, Path
from wfstdec.search.paths.traceback import NO_STEPS, History, Rule
from wfstdec.search.threads import CallBudget, check
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


class UtteranceMemory:
    """The state of an utterance, and the record of its lattice, if any."""

    record: Handle[LatticeRecord] | None = None

    def __init__(self, memory: RowMemory) -> None:
        self.memory, self.state = memory, memory.states.take()

    def make_room(
        self, status: int, scratch: Handle[RowScratch], frames: int
    ) -> Handle[RowScratch]:
        """Enlarge what the kernel found too small for some frames."""
        scratch, self.state = grown(status, scratch, self.state)
        return scratch


class CpuSearch(UtteranceMemory):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, rule: Rule, inputs: Handle[Inputs], memory: RowMemory) -> None:
        super().__init__(memory)
        self.inputs = inputs
        restart(self.state.value)
        progress = self.state.value.progress
        self._frames, self._died = progress["frames"], progress["died"]  # int64 [1]
        self._history = History(rule)
        num_tokens = len(inputs.value.rows.repeat_arc)
        self._kept = np.empty((0, num_tokens), np.float32)
        self._most = max(FIRST_FRAMES, KEPT // (_FLOAT * num_tokens))
        self._first, self._last = 0, 0  # frames: at the last fold, and now

    @property
    def counts(self) -> dict[str, int]:
        """Frames done, and the sum of active states over them."""
        progress = self.state.value.progress[0]
        return {name: int(progress[name]) for name in ("frames", "active")}

    @property
    def room(self) -> int:
        """Frames that `search_chunks` may search before a fold."""
        return 0 if self._died[0] >= 0 else self._most - (self._last - self._first)

    def advance(self, logprobs: np.ndarray) -> None:
        """Search a chunk, float32 [T, V], C order."""
        first = 0
        while first < len(logprobs) and self._died[0] < 0:
            if not self.room:
                self._fold()
            part = logprobs[first : first + self.room]
            search_chunks([self], [part], CallBudget(len(part) + 1))
            first += len(part)

    def finish(self) -> Path:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        _, cost, final_cost = self._fold(ends=True)
        end, final = np.zeros(1, PATH_END), bool(final_cost < np.inf)
        end["reached_final"], end["graph_cost"] = final, final_cost if final else 0.0
        end["search_cost"] = self.state.value.progress["base"] + cost
        end["num_frames"], end["died_at_frame"] = self._frames, self._died
        path = self._history.read(0, end)
        self.memory.states.give(self.state)
        return path

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """The best path so far but its first tokens and words; it can continue."""
        self._begin()
        at, cost, ended = self._fold()
        return self._history.look(at, since, int(self._frames[0]), ended - cost)

    def _begin(self) -> None:
        """Insert the start state, if no frame has been searched."""
        if self.state.value.progress["phase"][0] == NEW:
            search_chunks([self], [self._kept[:0]], CallBudget())

    def keep(self, part: np.ndarray) -> None:
        """Keep frames that were searched for the next fold."""
        kept, last = self._last - self._first, int(self._frames[0])
        now, self._last = last - self._first, last
        if now > len(self._kept):
            room = min(max(FIRST_FRAMES, 2 * kept, now), self._most)
            longer = np.empty((room, self._kept.shape[1]), np.float32)
            longer[:kept] = self._kept[:kept]
            self._kept = longer
        self._kept[kept:now] = part[: now - kept]

    def _fold(self, *, ends: bool = False) -> tuple[int, float, float]:
        """Fold the trace; the best entry and its costs, as of `fold_paths`."""
        scratches = self.memory.scratches
        scratch = scratches.take(len(self.state.value.record))
        try:
            best, tips, events = fold(
                *(self.inputs, scratch, self.state),
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
    """Chunks of utterances under way; or whole ones, and room for their results."""

    # int64 [B, 6], of each address and shape of the log-probs, and the addresses of
    # inputs, state and record
    chunks: np.ndarray
    ends: np.ndarray  # PATH_END [B], graph costs being those of final states; or [0]
    steps: np.ndarray  # STEP [M], of each path the last one first
    at: np.ndarray  # AT [1]


def _addresses(search: UtteranceMemory) -> tuple[int, int]:
    record = search.record
    return search.state.address, 0 if record is None else record.address


_NO_ENDS = np.zeros(0, PATH_END)


def new_group(
    searches: Sequence[UtteranceMemory],
    inputs: Sequence[Handle[Inputs]],
    chunks: Sequence[np.ndarray],
) -> Group:
    """A group of log-probs, float32 [T, V], C order, which must stay where they are."""
    assert all(x.flags.c_contiguous and x.dtype == np.float32 for x in chunks)
    placed = [
        (chunk.ctypes.data, *chunk.shape, given.address, *_addresses(one))
        for one, given, chunk in zip(searches, inputs, chunks, strict=True)
    ]
    return Group(np.array(placed, np.int64), _NO_ENDS, NO_STEPS, np.zeros(1, AT))


def search_group(
    searches: Sequence[UtteranceMemory], inputs: Any, group: Group, pace: CallBudget
) -> Group:
    """Search all chunks; those of a group with ends belong to one search after another.

    `inputs`: of the first one; all are of one type. Returns the group, with the steps.
    """
    memory, at, u, status = searches[0].memory, group.at[0], 0, OK
    scratch = memory.scratches.take(max(len(x.state.value.record) for x in searches))
    try:
        while u < len(searches):
            search = searches[u]
            if status == GROW_STEPS:
                group = group._replace(steps=twice(group.steps))
            elif status != OK or search.record is not None:
                frames = min(int(group.chunks[u, 1] - at["frame"]), pace.frames)
                scratch = search.make_room(status, scratch, frames)
                own = group.chunks if len(group.ends) else group.chunks[u : u + 1]
                own[:, -2:] = _addresses(search)
            at["left"], began = pace.frames, time.perf_counter()
            status = search_rows(inputs, scratch, search.state, search.record, group)
            u, _, _, left = at.item()
            if status == OK:
                pace.note(pace.frames - left, time.perf_counter() - began)
                if u < len(searches):
                    # Signals are handled between calls, whose duration `pace` limits.
                    check()
        return group
    finally:
        memory.scratches.give(scratch)


def search_chunks(
    searches: Sequence[CpuSearch], chunks: Sequence[np.ndarray], pace: CallBudget
) -> None:
    """Search a chunk of each, of no more frames than it has room for."""
    inputs = [search.inputs for search in searches]
    try:
        search_group(searches, inputs[0], new_group(searches, inputs, chunks), pace)
    finally:  # where it was left, some have searched their chunks
        for search, chunk in zip(searches, chunks, strict=True):
            search.keep(chunk)


_ZERO = uint64(0)


@kernel
def search_rows(inputs, scratch, state, record, group):
    """Search the chunks of a group, from where it is; OK or the array to grow.

    `inputs`, `state`, `record`: of any of its utterances, for their types.
    """
    chunks, ends, steps, ats = group
    whole, at = len(ends) > 0, ats[0]
    while at.utterance < len(chunks):
        given = chunks[at.utterance]
        search = searching(
            *(at_address(inputs, given[3]), scratch),
            *(at_address(state, given[4]), at_address(record, given[5])),
        )
        logprobs, first = float_rows(given), at.frame
        length = int64(len(logprobs))
        logprobs = logprobs[: first + at.left]
        if whole and first == 0:
            restart(search.state)
        status, frame = advance(search, logprobs, first)
        at.left -= frame - first
        at.frame = frame
        if status != OK or frame < length:
            return status
        if whole:
            end = ends[at.utterance]
            if not _end(search, logprobs, end, steps, at.steps):
                return GROW_STEPS
            at.steps += end.count
        at.utterance, at.frame = at.utterance + 1, 0
    return OK


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
