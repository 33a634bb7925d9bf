"""Search of one utterance on the CPU, whole or in chunks, and its memory pools.

    search = CpuSearch(inputs, memory)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a Path

Blanks and repeats are not in the trace: their costs are read from the log-probs when
the trace is folded into its tips. The log-probs since the last fold are kept, up to
`KEPT` bytes. `search_rows` decodes both whole utterances and chunks: a second kernel
with the same search would double the compile time.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import int64, uint32, uint64

from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.jit import inlined, jit, kernel
from wfstdec.jit.arrays import copy_rows, longer
from wfstdec.jit.handles import Handle, at_address, float_rows, opened
from wfstdec.jit.records import Pool, record
from wfstdec.search.logprobs import penalised
from wfstdec.search.paths.tokens import (
    PATH_END,
    PartialPath,
    Path,
    Paths,
    PathTokens,
)
from wfstdec.search.paths.traceback import (
    NO_STEPS,
    Rule,
    clear,
    new_steps,
    read_from,
    read_histories,
    room_needed,
    settle_events,
    with_room,
)
from wfstdec.search.paths.words import NO_SPLITS, Cutter, Words, cut_partial, new_words
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
        self.states = Pool(first_state, peers=self.scratches)
        self.recordings = Pool(first_recording, peers=self.scratches)


def _fits(scratch: Handle[RowScratch], entries: int) -> bool:
    return len(scratch.value.waiting) >= entries


def grown(
    status: int, scratch: Handle[RowScratch], state: Handle[RowState]
) -> tuple[Handle[RowScratch], Handle[RowState]]:
    """Enlarge the arrays that the kernel reported as too small."""
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
        of_state: Any = {n: twice(getattr(arrays, n)) for n in OF_STATE.names or ()}
        arrays = arrays._replace(**of_state)
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
MANY = 1 << 40
"""Larger than any number of tokens."""
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
    rule: Rule


@inlined
def searching(inputs, scratch, state, record):
    """Return the arguments of kernels, from handles; `record` may be None."""
    rows, params, words, phrases, oov, rule = opened(inputs)
    memory = opened(scratch), opened(state), opened(record)
    return Search(rows, params, words, phrases, oov, rule, *memory)


@jit
def look_at_path(inputs, scratch, state, kept, since):
    """Fold the trace; return the best path and the rest of a `PartialPath`."""
    return _look(searching(inputs, scratch, state, None), kept, since)


@jit
def _look(search, kept, since):
    (best, cost, ended), tips, count = fold_paths(search, kept, False)
    state = search.state
    settle_events(state.history, tips, count)
    path, whole, labels = read_from(since, search.rule, state.history, best)
    return path, whole, labels, state.progress[0].frames, ended - cost


@jit
def end_path(inputs, scratch, state, kept, end):
    """Read the best path, as `read_histories`; write its end, PATH_END [1]."""
    search = searching(inputs, scratch, state, None)
    (_, cost, final), tips, _ = fold_paths(search, kept, True)
    progress, history, last = search.state.progress[0], search.state.history, end[0]
    last.search_cost, last.graph_cost = progress.base + cost, 0.0
    if final < np.inf:
        last.reached_final, last.graph_cost = 1, final
    last.num_frames, last.died_at_frame = progress.frames, progress.died
    settled, steps = history.settled[: history.progress[0].settled], new_steps(0)
    return read_histories(
        search.rule, settled, history.events, tips, steps, end, (0, 0)
    )


LOOK = record("i8 words settled labels frames end", "f8 final_cost")
"""Partial result: its words since the last one, and the number of settled ones; settled
labels, frames, the end of the last word's last token, and the cost of ending here."""


@jit
def look_at_words(inputs, scratch, state, tables, shift, places):
    """Fold the traces of a group and cut the words since the last look."""
    # Returns (WORD, their tokens, LOOK [B], -1). If an utterance lacks room for events,
    # nothing changes, and the last is its number.
    looks, rows = np.empty(len(places), LOOK), new_words(8)
    tokens = np.empty(32, np.int32)
    num_rows, num_tokens = np.int64(0), np.int64(0)
    for u in range(len(places)):
        one = opened(at_address(state, places[u, AT_STATE]))
        now, past = one.progress[0], one.history
        a, b, c = room_needed(past, now.nodes, 2 * now.entries)
        if a > len(past.settled) or b > len(past.events) or c > len(past.tips):
            return rows[:0], tokens[:0], looks, u
    for u in range(len(places)):
        place, look = places[u], looks[u]
        search = searching(
            *(at_address(inputs, place[AT_INPUTS]), scratch),
            *(at_address(state, place[AT_STATE]), None),
        )
        now, kept = search.state.history.progress[0], float_rows(place[AT_KEPT:])
        since = now.cut_tokens, now.cut_labels
        path, whole, labels, look.frames, look.final_cost = _look(search, kept, since)
        found, hold, taken, now.cut_cost, lost, look.end = cut_partial(
            *(tables, path, (whole, labels - since[1]), path[3], path[3], shift),
            (False, now.cut_cost, now.lost != 0),
        )
        now.cut_tokens, now.cut_labels = since[0] + taken, since[1] + hold
        now.lost = np.int64(lost)
        look.words, look.settled, look.labels = len(found), hold, labels
        if num_rows + len(found) > len(rows):
            rows = longer(rows, num_rows + len(found))
        if num_tokens + len(path[0]) > len(tokens):
            tokens = longer(tokens, num_tokens + len(path[0]))
        for i in range(len(found)):
            found[i].first_token += num_tokens
            found[i].last_token += num_tokens
        copy_rows(found, rows[num_rows:])
        copy_rows(path[0], tokens[num_tokens:])
        num_rows, num_tokens = num_rows + len(found), num_tokens + len(path[0])
    return rows[:num_rows], tokens[:num_tokens], looks, -1


AT_INPUTS, AT_STATE, AT_RECORD, AT_KEPT, PLACE = 3, 4, 5, 6, 9
"""Columns of an utterance's place, int64: address and shape of its log-probs; the
addresses of its handles; address and shape of the kept log-probs; their number."""


class UtteranceMemory:
    """The state of an utterance, and the record of its lattice, if any."""

    state: Handle[RowState]
    record: Handle[LatticeRecord] | None

    def __init__(self, inputs: Handle[Inputs], memory: RowMemory) -> None:
        self.inputs, self.memory = inputs, memory
        self.place = np.zeros((1, PLACE), np.int64)
        self.place[0, AT_INPUTS] = inputs.address
        self.use(memory.states.take())

    def use(
        self, state: Handle[RowState], record: Handle[LatticeRecord] | None = None
    ) -> None:
        """Use this memory from now on."""
        self.state, self.record, place = state, record, self.place[0]
        place[AT_STATE] = state.address
        place[AT_RECORD] = 0 if record is None else record.address

    def make_room(
        self, status: int, scratch: Handle[RowScratch], frames: int
    ) -> Handle[RowScratch]:
        """Enlarge the arrays that the kernel reported as too small."""
        scratch, state = grown(status, scratch, self.state)
        self.use(state, self.record)
        return scratch


class CpuSearch(UtteranceMemory):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, inputs: Handle[Inputs], memory: RowMemory) -> None:
        super().__init__(inputs, memory)
        self.kind = inputs._numba_type_
        restart(self.state.value)
        clear(self.state.value.history, inputs.value.rule.blank, 0)
        progress = self.state.value.progress
        self._frames, self._died = progress["frames"], progress["died"]  # int64 [1]
        self._folded = progress["folded"]
        num_tokens = len(inputs.value.rows.repeat_arc)
        self._kept = np.empty((0, num_tokens), np.float32)
        self._most = max(FIRST_FRAMES, KEPT // (_FLOAT * num_tokens))
        self._keep(0)

    @property
    def counts(self) -> dict[str, int]:
        """Frames done, and the sum of active states over them."""
        progress = self.state.value.progress[0]
        return {name: int(progress[name]) for name in ("frames", "active")}

    def has_room(self, frames: int) -> bool:
        """Return whether `search_chunks` may search some frames before a fold."""
        kept = self._frames.item() - self._folded.item() + frames
        if kept > len(self._kept) and kept <= self._most:
            self._keep(min(max(FIRST_FRAMES, 2 * kept), self._most))
        return kept <= self._most and self._died.item() < 0

    def _keep(self, frames: int) -> None:
        kept = np.empty((frames, self._kept.shape[1]), np.float32)
        kept[: len(self._kept)], self._kept = self._kept, kept
        self.place[0, AT_KEPT:] = address_of(self._kept), *self._kept.shape

    def advance(self, logprobs: np.ndarray) -> None:
        """Search a chunk, float32 [T, V], C order."""
        first = 0
        while first < len(logprobs) and self._died[0] < 0:
            if not self.has_room(1):
                self.look((MANY, MANY))
            room = self._most - int(self._frames[0] - self._folded[0])
            part = logprobs[first : first + room]
            self.has_room(len(part))
            search_chunks([self], [part], CallBudget(len(part) + 1))
            first += len(part)

    def finish(self) -> Path:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        self.make_room_to_look()
        end = np.zeros(1, PATH_END)
        path = Paths(end, *self._with_scratch(end_path, end))[0]
        self.memory.states.give(self.state)
        return path

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the best path so far, without its first tokens and words."""
        self.begin_look()
        self.make_room_to_look()
        path, *others = self._with_scratch(look_at_path, since)
        return PartialPath(PathTokens(*path), *others)

    @staticmethod
    def look_together(
        searches: Sequence[Any], cutter: Cutter, frame_shift_s: float
    ) -> tuple[Words, np.ndarray]:
        """Return words of searches of one kind since their last look, and LOOK [B]."""
        for search in searches:
            search.begin_look()
        memory, places, one = searches[0].memory, places_of(searches), searches[0]
        scratch = memory.scratches.take(
            max(len(x.state.value.record) for x in searches)
        )
        try:
            short = 0
            while short >= 0:
                rows, tokens, looks, short = look_at_words(
                    *(one.inputs, scratch, one.state, cutter.handle),
                    *(frame_shift_s, places),
                )
                if short >= 0:
                    searches[short].make_room_to_look()
                    places[short] = searches[short].place[0]
        finally:
            memory.scratches.give(scratch)
        return Words(tokens, tokens, rows, NO_SPLITS), looks

    def begin_look(self) -> None:
        """Prepare for a look."""
        self._begin()

    def make_room_to_look(self) -> None:
        """Enlarge arrays for the events of the trace."""
        state, progress = self.state.value, self.state.value.progress[0]
        nodes, entries = int(progress["nodes"]), int(progress["entries"])
        history = with_room(state.history, nodes, 2 * entries)
        if history is not state.history:
            self.use(Handle(state._replace(history=history)), self.record)

    def _begin(self) -> None:
        if self.state.value.progress["phase"][0] == NEW:
            search_chunks([self], [self._kept[:0]], CallBudget())

    def _with_scratch(self, kernel: Any, given: Any) -> Any:
        scratches = self.memory.scratches
        scratch = scratches.take(len(self.state.value.record))
        try:
            return kernel(self.inputs, scratch, self.state, self._kept, given)
        finally:
            scratches.give(scratch)


STEPS_PER_FRAME = 2
"""Initial capacity for the arcs of paths, per frame."""
GROW_STEPS = -1
"""Further status of `search_rows`: no room for a path."""
AT = record("i8 utterance frame steps left")
"""Progress of a group: utterance and frame to continue at, steps so far, frames that
the call may still search."""


class Group(NamedTuple):
    """Chunks of several utterances; or whole ones, with their results."""

    places: np.ndarray  # int64 [B, PLACE]
    ends: np.ndarray  # PATH_END [B], graph costs being those of final states; or [0]
    steps: np.ndarray  # STEP [M], each path from last to first
    at: np.ndarray  # AT [1]


_NO_ENDS = np.zeros(0, PATH_END)


def new_group(
    searches: Sequence[UtteranceMemory], chunks: Sequence[np.ndarray]
) -> Group:
    """Return a group of log-probs, float32 [T, V], C order, which must not move."""
    places = places_of(searches)
    for place, chunk in zip(places, chunks, strict=True):
        assert chunk.flags.c_contiguous and chunk.dtype == np.float32
        place[:AT_INPUTS] = address_of(chunk), *chunk.shape
    return Group(places, _NO_ENDS, NO_STEPS, np.zeros(1, AT))


def places_of(searches: Sequence[UtteranceMemory]) -> np.ndarray:
    """Return places of utterances, int64 [B, PLACE]; a view for a single one."""
    if len(searches) == 1:
        return searches[0].place
    return np.concatenate([search.place for search in searches])


def search_group(
    searches: Sequence[UtteranceMemory], group: Group, pace: CallBudget
) -> Group:
    """Search all chunks; a group with ends uses one search for one after another."""
    # Inputs are of one type. Returns the group, with the steps.
    memory, at, u, status = searches[0].memory, group.at[0], 0, OK
    scratch = memory.scratches.take(max([len(x.state.value.record) for x in searches]))
    try:
        while u < len(searches):
            search = searches[u]
            if status == GROW_STEPS:
                group = group._replace(steps=twice(group.steps))
            elif status != OK or search.record is not None:
                frames = min(int(group.places[u, 1] - at["frame"]), pace.frames)
                scratch = search.make_room(status, scratch, frames)
                own = group.places if len(group.ends) else group.places[u : u + 1]
                own[:, AT_INPUTS:] = search.place[:, AT_INPUTS:]
            at["left"], began = pace.frames, time.perf_counter()
            status = search_rows(
                search.inputs, scratch, search.state, search.record, group
            )
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
    """Search a chunk of each search; each must have room."""
    search_group(searches, new_group(searches, chunks), pace)


_ZERO = uint64(0)


@kernel
def address_of(rows):
    """Return the address of an array; `ctypes` takes five times as long."""
    return rows.ctypes.data


@kernel
def search_rows(inputs, scratch, state, record, group):
    """Continue with the chunks of a group; return OK or the array to grow."""
    # `inputs`, `state`, `record`: of any of its utterances, for their types.
    places, ends, steps, ats = group
    whole, at = len(ends) > 0, ats[0]
    while at.utterance < len(places):
        place = places[at.utterance]
        search = searching(
            *(at_address(inputs, place[AT_INPUTS]), scratch),
            *(at_address(state, place[AT_STATE]), at_address(record, place[AT_RECORD])),
        )
        progress, logprobs, first = (
            search.state.progress[0],
            float_rows(place),
            at.frame,
        )
        length = int64(len(logprobs))
        logprobs = logprobs[: first + at.left]
        if whole and first == 0:
            restart(search.state)
        before = progress.frames
        status, frame = advance(search, logprobs, first)
        if place[AT_KEPT] != 0:  # the next fold reads the costs of these frames
            kept = float_rows(place[AT_KEPT:])
            for t in range(progress.frames - before):
                copy_rows(logprobs[first + t], kept[before - progress.folded + t])
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
    """Write the path of an utterance to `steps` from `first`; False if too small."""
    # Blanks and repeats are inserted between trace nodes. The state is unchanged, so
    # that the search can continue afterwards.
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
