"""Searches of the trie on the CPU, of whole utterances and of chunks.

    search = CpuSearch(memory, inputs)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    paths = search.finish()                       # `Path`s, best first

    found = CpuSearch(memory, inputs).decode(utterances, pace, names)    # paths of each

`search_utterances` decodes whole utterances, a few in one call, and chunks: a second
kernel with the same search in it would be as long to compile. Arrays grow when it
reports that they are too small; the frame is then repeated, so that growth never
changes a result.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from wfstdec.errors import naming
from wfstdec.jit import inlined, kernel
from wfstdec.jit.handles import Handle, opened
from wfstdec.jit.records import Pool, longer
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.tokens import (
    OPEN_PRON,
    PartialPath,
    Path,
    Settled,
    path_of_rows,
    paths_of_rows,
)
from wfstdec.search.threads import CallBudget, check, filled_up, stretch
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.final import end, endings_of, settle_trace, trace_back
from wfstdec.trie.cpu.frame import advance
from wfstdec.trie.cpu.lattice_kernels import gather, prune
from wfstdec.trie.cpu.nodes import num_word_ends, word_end
from wfstdec.trie.lattice_pack import RecordedArcs, RecordedEntries, RecordedFrames
from wfstdec.trie.oov_trie import OovTrie, build_oov_trie, least_label_costs
from wfstdec.trie.search_space import NONE, SearchSpace, WordEnd

FRAMES_PER_ROW = 4
"""Frames per row of tokens, at first."""
_Found = TypeVar("_Found")
Inputs = tuple[Handle[arrays.Search], LmArrays]
"""The tables of a search, and its language model."""


@kernel
def search_utterances(
    search, scratch, utterance, record, logprobs, num_whole, outcomes, paths, rows, at
):
    """Search utterances one after the other; end the first `num_whole`.

    The first one has begun. `at` says where to begin or resume; see `arrays`. Returns
    OK, or what must grow.
    """
    search, scratch = opened(search), opened(scratch)
    for i in range(at[arrays.NEXT_UTTERANCE], min(num_whole + 1, len(outcomes))):
        if i > 0 and at[arrays.NEXT_FRAME] == 0:
            begin(search, utterance)
        status, frame = advance(
            search, scratch, utterance, record, logprobs[i], at[arrays.NEXT_FRAME]
        )
        at[arrays.NEXT_UTTERANCE], at[arrays.NEXT_FRAME] = i, frame
        if record is None:  # a lattice is read first
            if status == arrays.OK and i < num_whole:
                status = end(search, scratch, utterance, outcomes[i], paths, rows, at)
                if status == arrays.OK:
                    at[arrays.NEXT_UTTERANCE], at[arrays.NEXT_FRAME] = i + 1, 0
        if status != arrays.OK:
            return status
    return arrays.OK


@inlined
def begin(search, utterance):
    """Begin an utterance."""
    counts = utterance.counts
    utterance.frontier[0] = search.first[0]
    utterance.base[0] = search.first_base
    counts[:] = 0
    counts[arrays.FRONTIER], counts[arrays.DIED] = 1, -1


class SearchMemory:
    """A pool of scratch, and how large it is made at first."""

    def __init__(self, space: SearchSpace, capacity: int) -> None:
        self.space, self.capacity = space, capacity
        self._most_words = int(np.diff(space.trie.node_pron_splits).max(initial=1))
        self._least_costs: np.ndarray | None = None
        self._scratches: Pool[Handle[arrays.Scratch]] = Pool(_new_scratch, fits=_fits)

    def lay_out_oov(self, oov: OovWords) -> OovTrie:
        """The second trie of a list, for which scratch is made large enough."""
        if self._least_costs is None:
            costs = least_label_costs(self.space.automaton, oov.num_known)
            self._least_costs = costs
        laid_out = build_oov_trie(oov, self.space, self._least_costs)
        most = int(np.diff(laid_out.trie.node_pron_splits).max(initial=1))
        self._most_words = max(self._most_words, most)
        return laid_out

    def take(self, entries: int) -> Handle[arrays.Scratch]:
        """Borrow scratch for a number of entries."""
        sizes = entries, max(self.capacity, 4 * entries)
        return self._scratches.take(self.space.num_tokens, *sizes, self._most_words)

    def give(self, scratch: Handle[arrays.Scratch]) -> None:
        """Put scratch back."""
        self._scratches.give(scratch)

    def larger(self, entries: int, candidates: int) -> Handle[arrays.Scratch]:
        """Scratch for numbers of entries and candidates."""
        sizes = entries, candidates, self._most_words
        return _new_scratch(self.space.num_tokens, *sizes)


def _new_scratch(*sizes: int) -> Handle[arrays.Scratch]:
    return Handle(arrays.new_scratch(*sizes))


def _fits(
    scratch: Handle[arrays.Scratch], _tokens: int, entries: int, _: int, most_words: int
) -> bool:
    room = len(scratch.value.sources), len(scratch.value.word_ends)
    return room[0] >= entries and room[1] >= most_words


class FoundPaths(NamedTuple):
    """Room for the paths of utterances, which kernels write."""

    outcomes: np.ndarray  # OUTCOME [B]
    paths: np.ndarray  # PATH_END [P]
    rows: np.ndarray  # int32 [N, 4], tokens of all paths
    at: np.ndarray  # int64 [4], see `arrays`

    @classmethod
    def room_for(cls, num_utterances: int, num_paths: int, num_frames: int) -> Self:
        """Make room for utterances: `num_paths` each, `num_frames` in all."""
        return cls(
            np.zeros(num_utterances, arrays.OUTCOME),
            np.zeros(num_utterances * num_paths, arrays.PATH_END),
            np.empty((num_frames // FRAMES_PER_ROW + 1, 4), np.int32),
            np.zeros(4, np.int64),
        )

    def read(
        self, settled: defaultdict[int, Settled], *, sums: bool
    ) -> list[list[Path]]:
        """Read the paths of each utterance, best first."""
        ends, found = self.paths[: self.at[arrays.NUM_PATHS]], []
        splits = np.append(ends["first"], self.at[arrays.NUM_ROWS])
        read = paths_of_rows(self.rows, splits, ends["pron"].astype(np.int64))
        given = iter(zip(read, ends.tolist(), strict=True))
        for i, outcome in enumerate(self.outcomes.tolist()):
            base, _, count, frames, died, complete = outcome
            paths = []
            for path, (cost, _, acoustic, *_, before) in islice(given, count):
                path = settled[i].followed_by(path, before)
                costs = 0.0, math.nan if sums else acoustic, base + cost
                paths.append(Path(path, *costs, bool(complete), frames, died))
            found.append(paths)
        return found


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`.

    Or of whole ones: `decode`.
    """

    _record: arrays.Record | None = None

    def __init__(self, memory: SearchMemory, inputs: Inputs) -> None:
        self._memory, (self._search, self._lm) = memory, inputs
        self._params = self._search.value.params
        self.state = arrays.new_state(memory.capacity, self._params.beam_size)
        begin(self._search.value, self.state)
        self._settled: defaultdict[int, Settled] = defaultdict(Settled)
        self._found = FoundPaths.room_for(1, 1, 0)

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        places = arrays.FRAMES, arrays.ACTIVE, arrays.CANDIDATES
        counts = self.state.counts[list(places)].tolist()
        return dict(zip(("frames", "active", "candidates"), counts, strict=True))

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        self._found.at[:] = 0
        self._run(filled_up([logprobs]), 0)

    def finish(self) -> list[Path]:
        """End the utterance; the search cannot be used afterwards."""
        if self._params.by_text:  # the order of sums
            self.state = self._in_order()
        num_frames = int(self.state.counts[arrays.FRAMES])
        self._found = FoundPaths.room_for(1, self._params.nbest, num_frames)
        self._run(filled_up([]), 1)
        return self._found.read(self._settled, sums=self._params.sums)[0]

    def decode(
        self, utterances: Sequence[np.ndarray], pace: CallBudget, names: Sequence[int]
    ) -> list[list[Path]]:
        """Decode whole utterances, at most `GROUP`; `names` are those in errors."""
        given, num, params = filled_up(utterances), len(utterances), self._params
        num_frames = sum(map(len, utterances))
        self._found = FoundPaths.room_for(num, params.nbest, num_frames)
        at = self._found.at
        while at[arrays.NEXT_UTTERANCE] < num:
            part, behind, cut, frames = stretch(given, num, at, pace.frames)
            began = time.perf_counter()
            try:
                self._run(part, behind - int(cut > 0))
            except Exception:
                with naming(names[at[arrays.NEXT_UTTERANCE]]):
                    raise
            pace.note(frames, time.perf_counter() - began)
            check()  # Ctrl-C is handled between calls
        return self._found.read(self._settled, sums=params.sums)

    def _run(self, given: tuple[np.ndarray, ...], num_whole: int) -> None:
        """Call the kernel until it is done: arrays grow, the language model answers."""
        scratch, status = self._memory.take(len(self.state.frontier)), -1
        try:
            with self._lm:
                while status != arrays.OK:
                    self._search = with_model(self._search, self._lm)
                    status = search_utterances(
                        *(self._search, scratch, self.state, self._record),
                        *(given, num_whole, *self._found),
                    )
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        check()  # a user's model may be slow
        finally:
            self._memory.give(scratch)

    def _grow(
        self, status: int, scratch: Handle[arrays.Scratch]
    ) -> Handle[arrays.Scratch]:
        """Enlarge what the kernel found too small; the scratch to go on with."""
        state, found = self.state, self._found
        entries, candidates = len(state.frontier), len(scratch.value.candidates)
        if status == arrays.GROW_CANDIDATES:
            return self._memory.larger(len(scratch.value.sources), 2 * candidates)
        if status == arrays.GROW_FRONTIER:
            self.state = state._replace(frontier=longer(state.frontier, 2 * entries))
            return self._memory.larger(2 * entries, candidates)
        if status == arrays.GROW_TRACE:
            self.settle_trace()
            kept, most = int(state.counts[arrays.TRACE]), 2 * candidates
            if 2 * (kept + most) > len(state.trace):
                trace = longer(state.trace, 2 * (len(state.trace) + most))
                self.state = state._replace(trace=trace)
        elif status == arrays.GROW_PATHS:
            longer_paths = longer(found.paths, 2 * len(found.paths) + 1)
            self._found = found._replace(paths=longer_paths)
        elif status == arrays.GROW_ROWS:
            self._found = found._replace(rows=longer(found.rows, 2 * len(found.rows)))
        return scratch

    def _answered(self, find: Callable[[arrays.Search], _Found]) -> _Found:
        """Call kernels until the language model has answered what they ask."""
        with self._lm:
            while True:
                self._search = with_model(self._search, self._lm)
                found = find(self._search.value)
                if not self._lm.answer():
                    return found

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """The best path so far but its first tokens and labels; it can continue."""
        self.settle_trace()
        counts, utterance, ended = self.state.counts, self._in_order(), np.inf
        unfinished = endings_of(self._search.value, utterance, False)
        if counts[arrays.DIED] < 0:
            accepted = self._answered(
                lambda search: endings_of(search, utterance, True)
            )
            ended = float(accepted["cost"].min(initial=np.inf))
        best = unfinished[unfinished["cost"].argmin()]
        pron = self._ending_pron(utterance.frontier[best["entry"]])
        tip = int(best["trace"]), int(best["token_end"])
        rows, before = trace_back(self.state.trace, *tip)
        settled = self._settled[0]
        return PartialPath(
            settled.followed_by(path_of_rows(rows, pron), before, since),
            num_whole=max(0, settled.num_whole - since[0]),
            num_labels=0,
            num_frames=int(counts[arrays.FRAMES]),
            final_cost=ended - float(best["cost"]),
        )

    def settle_trace(self) -> None:
        """Take out of the trace what is settled, and what no entry can reach."""
        utterance = int(self._found.at[arrays.NEXT_UTTERANCE])
        nodes, end = settle_trace(self.state)
        at = np.flatnonzero(nodes["pron"] >= 0)  # where a pronunciation has ended
        tokens = nodes["token"], nodes["start"], nodes["previous_end"]
        self._settled[utterance].add(tokens, (nodes["pron"][at], at, at), end)

    def _ending_pron(self, entry: Any) -> int:
        """The pronunciation of least cost that ends at an entry's node, or -1."""
        if not self._memory.space.has_lexicon or entry["node"] == 0:
            return NONE

        def ends(search: arrays.Search) -> list[WordEnd]:
            here = entry.view(np.recarray)
            count = num_word_ends(search, here.node)
            return [word_end(search, None, here, number) for number in range(count)]

        # An open word that is none costs `inf`.
        found = [
            one
            for one in self._answered(ends)
            if one.pron != OPEN_PRON or one.cost < np.inf
        ]
        return int(min(found, key=attrgetter("cost")).pron) if found else NONE

    def _in_order(self) -> arrays.UtteranceState:
        """The utterance with its entries in order: the first of equal endings wins."""
        frontier = self.state.frontier[: self.state.counts[arrays.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self.state._replace(frontier=frontier[order])


class RecordingSearch(CpuSearch):
    """The search of one utterance, for its lattice.

    The record is pruned when its arrays are full, and they grow only if that frees less
    than half: they stay a small multiple of the lattice.
    """

    _record: arrays.Record | None
    first_arcs = 1 << 15
    """Room for arcs at first, and for a quarter as many entries."""

    def __init__(
        self, memory: SearchMemory, inputs: Inputs, lattice_beam: float
    ) -> None:
        super().__init__(memory, inputs)
        num_entries = max(1, self.first_arcs // 4)
        first, entries = (
            inputs[0].value.first[0],
            np.zeros(num_entries, arrays.LATTICE_ENTRY),
        )
        for name in ("cost", "lookahead_cost", "state", "node", "boost", "spelling"):
            entries[0][name] = first[name]
        self._record = arrays.Record(
            arcs=np.empty(self.first_arcs, arrays.LATTICE_ARC),
            entries=entries,
            counts=np.array([0, 1, 0]),
            limit=np.float32(lattice_beam),
            extra=np.empty(2 * num_entries, np.float32),
            number=np.empty(num_entries, np.int32),
        )

    def finish(self) -> RecordedFrames:  # type: ignore[override]
        """End the utterance; the search cannot be used afterwards."""
        record, utterance, ends = self._record, self.state, np.zeros(0, arrays.ENDING)
        assert record is not None
        if utterance.counts[arrays.DIED] < 0:
            ends = self._answered(lambda search: endings_of(search, utterance, True))
        if not (ends["cost"] < np.inf).any():
            ends = endings_of(self._search.value, utterance, False)
        ends = ends[ends["cost"] < np.inf]
        ends["cost"] -= ends["cost"].min()
        ends = ends[ends["cost"] <= record.limit]
        extra = np.full(2 * utterance.counts[arrays.FRONTIER], np.inf, np.float32)
        np.minimum.at(extra, 2 * ends["entry"] + ends["phase"], ends["cost"])
        first = record.counts[arrays.FIRST]
        prune(record, extra)
        ends["entry"] = record.number[first + ends["entry"]]
        arcs = self._answered(lambda search: gather(search, record, ends))
        entries = record.entries[: record.counts[arrays.NUM_ENTRIES]]
        names = ("frame", "cost", "node", "boost", "spelling")
        self._record = None  # the best path alone is left to be read
        return RecordedFrames(
            super().finish()[0],
            RecordedEntries(
                nonblank_first=entries["nonblank_first"] != 0,
                state=self._lm.orders(entries["state"].copy()),
                **{name: entries[name].copy() for name in names},
            ),
            RecordedArcs(*arcs),
        )

    def _grow(
        self, status: int, scratch: Handle[arrays.Scratch]
    ) -> Handle[arrays.Scratch]:
        record = self._record
        if status != arrays.GROW_LATTICE or record is None:
            return super()._grow(status, scratch)
        prune(record, np.zeros(2 * self.state.counts[arrays.FRONTIER], np.float32))
        num_arcs, num_entries, _ = record.counts.tolist()
        needed = 2 * (num_arcs + 4 * len(scratch.value.candidates))
        if needed > len(record.arcs):
            record = record._replace(arcs=longer(record.arcs, needed))
        needed = 2 * (num_entries + len(self.state.frontier))
        if needed > len(record.entries):
            record = record._replace(
                entries=longer(record.entries, needed),
                extra=np.empty(2 * needed, np.float32),
                number=np.empty(needed, np.int32),
            )
        self._record = record
        return scratch


def with_model(search: Handle[arrays.Search], lm: LmArrays) -> Handle[arrays.Search]:
    """Let kernels have the language model's arrays as they are now."""
    value = search.value
    if value.space.automaton is lm.now:
        return search
    return Handle(value._replace(space=value.space._replace(automaton=lm.now)))
