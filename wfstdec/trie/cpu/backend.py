"""CPU backend of the trie search: numba kernels without the GIL, in threads.

    backend = CpuBackend(space)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    paths = search.finish()                       # `Path`s, best first

    backend.decode(utterances, options, boosts)   # many, as `HostBackend`

`search_utterances` decodes both whole utterances and chunks: a second kernel with the
same search would double the compile time. When it reports that arrays are too small,
they grow and the frame is repeated, so that growth never changes a result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import NO_PHRASES, BoostTables
from wfstdec.errors import naming
from wfstdec.jit import inlined, kernel, read_only
from wfstdec.jit.handles import Handle, opened
from wfstdec.jit.records import Pool, WeakCache, longer
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.tokens import (
    OPEN_PRON,
    PATH_END,
    PartialPath,
    Path,
    Paths,
    SinglePaths,
    columns_of_rows,
    path_of_rows,
)
from wfstdec.search.threads import (
    CallBudget,
    HostBackend,
    check,
    filled_up,
    stretch,
)
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.final import end, endings_of, settle_trace, trace_back
from wfstdec.trie.cpu.frame import advance
from wfstdec.trie.cpu.lattice_kernels import gather, prune
from wfstdec.trie.cpu.nodes import num_word_ends, word_end
from wfstdec.trie.lattice_pack import RecordedArcs, RecordedEntries, RecordedFrames
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import (
    NONE,
    OovTrie,
    SearchSpace,
    WordEnd,
    build_oov_trie,
    least_label_costs,
    lookahead_cost,
    no_oov,
    start_cost,
)

FRAMES_PER_ROW = 4
"""Initial frames per row of tokens."""
_Found = TypeVar("_Found")
Inputs = tuple[Handle[arrays.Search], LmArrays]
"""Tables of a search, and its language model."""
_laid_out: Any = lru_cache(maxsize=64)(Handle)  # of parameters
_NO_PHRASES: Any = Handle(NO_PHRASES)


@kernel
def search_utterances(
    search, scratch, utterance, record, logprobs, num_whole, outcomes, paths, rows, at
):
    """Search utterances one after another; end the first `num_whole`."""
    # The first one has begun. `at` is the progress to resume from; see `arrays`.
    # Returns OK or the array to grow.
    search, scratch = opened(search), opened(scratch)
    for i in range(at[arrays.NEXT_UTTERANCE], min(num_whole + 1, len(outcomes))):
        if i > 0 and at[arrays.NEXT_FRAME] == 0:
            begin(search, utterance)
        status, frame = advance(
            search, scratch, utterance, record, logprobs[i], at[arrays.NEXT_FRAME]
        )
        at[arrays.NEXT_UTTERANCE], at[arrays.NEXT_FRAME] = i, frame
        if record is None:  # otherwise the lattice is read first
            if status == arrays.OK and i < num_whole:
                status = end(search, scratch, utterance, outcomes[i], paths, rows, at)
                if status == arrays.OK:
                    at[arrays.NEXT_UTTERANCE], at[arrays.NEXT_FRAME] = i + 1, 0
        if status != arrays.OK:
            return status
    return arrays.OK


@kernel
def end_utterances(search, scratch, ended, outcomes, paths, rows, at):
    """End utterances advanced by another search; as `search_utterances`."""
    search, scratch = opened(search), opened(scratch)
    for i in range(at[arrays.NEXT_UTTERANCE], len(outcomes)):
        entry, node = ended.splits[i]
        behind, last = ended.splits[i + 1]
        utterance = arrays.UtteranceState(
            ended.frontier[entry:behind],
            ended.trace[node:last],
            ended.counts[i],
            ended.base[i : i + 1],
        )
        status = end(search, scratch, utterance, outcomes[i], paths, rows, at)
        if status != arrays.OK:
            return status
        at[arrays.NEXT_UTTERANCE] = i + 1
    return arrays.OK


@inlined
def begin(search, utterance):
    """Begin an utterance."""
    counts = utterance.counts
    utterance.frontier[0] = search.first[0]
    utterance.base[0] = search.first_base
    counts[:] = 0
    counts[arrays.FRONTIER], counts[arrays.DIED] = 1, -1


class CpuBackend(HostBackend):
    """Search space with boosts laid out for the kernels, and memory of searches."""

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        super().__init__(space.num_tokens, space)
        self.space = space
        self.capacity = first_capacity  # initial candidates and trace nodes
        self._most_words = int(np.diff(space.trie.node_pron_splits).max(initial=1))
        self._least_costs: np.ndarray | None = None
        self.scratches: Pool[Handle[arrays.Scratch]] = Pool(_new_scratch, fits=_fits)
        self.tables = BoostTables(space.trie.pron_word, space.trie.node_pron_splits)
        self._no_oov: Any = Handle(no_oov())
        self._space: Handle[SearchSpace] | None = None  # created for the first list
        self._oov_tries: WeakCache[OovWords, Any] = WeakCache(self._lay_out_oov)
        self._searches: WeakCache[
            CompiledBoosts, dict[TrieOptions, Handle[arrays.Search]]
        ] = WeakCache(lambda _: {})

    def prepare(self, options: TrieOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; the layout lives as long as they do."""
        self.inputs_of(options, boosts)

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> CpuSearch:
        """Begin an utterance."""
        if record:
            inputs = self.inputs_of(replace(options, nbest=1), boosts)
            return RecordingSearch(self, inputs, options.beam_of_lattice)
        return CpuSearch(self, self.inputs_of(options, boosts))

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: TrieOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] = (),
    ) -> Sequence[list[Path]]:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        search = CpuSearch(self, self.inputs_of(options, boosts))
        return search.decode(utterances, pace, names or range(len(utterances)))

    def inputs_of(self, options: TrieOptions, boosts: CompiledBoosts) -> Inputs:
        """Lay out a search's tables; cached for the last options of each list."""
        known = self._searches.of(boosts)
        search = known.get(options)
        lm = LmArrays(
            self.space.automaton, boosts.oov.words if boosts.oov is not None else ()
        )
        if search is None:
            known.clear()
            search = known[options] = Handle(self._lay_out(options, boosts, lm))
        return with_model(search, lm), lm

    def _lay_out(
        self, options: TrieOptions, boosts: CompiledBoosts, lm: LmArrays
    ) -> arrays.Search:
        space, oov = self.space, self._no_oov
        if boosts.oov is not None:
            oov = self._oov_tries.of(boosts.oov)
        first_oov, num_oov = space.trie.num_nodes, oov.value.num_nodes
        phrases = self.tables.phrases(boosts)
        first, state = np.zeros(1, arrays.ENTRY), int(lm.now.model_start[0])
        first["state"], first["node"] = state, space.start_node
        first["boost"], first["nonblank_cost"] = int(phrases.start), np.inf
        first["lookahead_cost"] = lookahead_cost(space, state, space.start_node)
        first["blank_trace"], first["nonblank_trace"] = -1, -1
        return arrays.Search(
            space=self._space_with(lm),
            params=_laid_out(arrays.search_params(options, space, boosts)),
            words=self.tables.words(boosts),
            phrases=_NO_PHRASES if phrases is NO_PHRASES else phrases,
            oov=oov,
            has_oov=space.open.is_open or num_oov > 0,
            first_oov=first_oov,
            first_open=first_oov + num_oov,
            first=read_only(first),
            first_base=start_cost(options.lm_scale, first["lookahead_cost"][0]),
        )

    def _space_with(self, lm: LmArrays) -> Any:
        """Return the space for a handle; cached unless the model is a user's own."""
        if lm.now is not self.space.automaton:
            return self.space._replace(automaton=lm.now)
        if self._space is None:
            self._space = Handle(self.space)
        return self._space

    def _lay_out_oov(self, oov: OovWords) -> Handle[OovTrie]:
        if self._least_costs is None:
            costs = least_label_costs(self.space.automaton, oov.num_known)
            self._least_costs = costs
        laid_out = build_oov_trie(oov, self.space, self._least_costs)
        most = int(np.diff(laid_out.trie.node_pron_splits).max(initial=1))
        self._most_words = max(self._most_words, most)
        return Handle(laid_out)

    def take_scratch(self, entries: int) -> Handle[arrays.Scratch]:
        """Borrow scratch for a number of entries."""
        sizes = entries, max(self.capacity, 4 * entries)
        return self.scratches.take(self.space.num_tokens, *sizes, self._most_words)

    def larger_scratch(self, entries: int, candidates: int) -> Handle[arrays.Scratch]:
        """Return the scratch for numbers of entries and candidates."""
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
    """Arrays into which kernels write the paths of utterances."""

    outcomes: np.ndarray  # OUTCOME [B]
    paths: np.ndarray  # PATH_END [P]
    rows: np.ndarray  # int32 [N, 4], tokens of all paths
    at: np.ndarray  # int64 [4], see `arrays`

    @classmethod
    def room_for(cls, num_utterances: int, num_paths: int, num_frames: int) -> Self:
        """Allocate for utterances: `num_paths` each, `num_frames` in all."""
        return cls(
            np.zeros(num_utterances, arrays.OUTCOME),
            np.zeros(num_utterances * num_paths, arrays.PATH_END),
            np.empty((num_frames // FRAMES_PER_ROW + 1, 4), np.int32),
            np.zeros(4, np.int64),
        )

    def read(
        self, settled: Mapping[int, np.ndarray], *, sums: bool
    ) -> Sequence[list[Path]]:
        """Read the paths of each utterance, best first."""
        ends = self.paths[: self.at[arrays.NUM_PATHS]]
        splits = np.append(ends["first"], self.at[arrays.NUM_ROWS])
        of_rows = columns_of_rows(self.rows, splits, ends["pron"].astype(np.int64))
        outcome = np.repeat(self.outcomes, self.outcomes["count"])
        made = np.zeros(len(ends), PATH_END)
        made["acoustic_cost"] = math.nan if sums else ends["acoustic"]
        made["search_cost"] = outcome["base"] + ends["cost"].astype(np.float64)
        made["reached_final"], made["died_at_frame"] = (
            outcome["complete"],
            outcome["died"],
        )
        made["num_frames"] = outcome["frames"]
        read = Paths(made, *of_rows)
        if not settled and (self.outcomes["count"] == 1).all():
            return SinglePaths(read)
        found = []
        for i, (first, count) in enumerate(self.outcomes[["first", "count"]].tolist()):
            paths = [read[k] for k in range(first, first + count)]
            if i in settled:
                for k, path in enumerate(paths, first):
                    rows = self.rows[splits[k] : splits[k + 1]]
                    rows = _joined(settled[i], rows, int(ends["before"][k]))
                    tokens = path_of_rows(rows, int(ends["pron"][k]))
                    paths[k - first] = path._replace(tokens=tokens)
            found.append(paths)
        return found


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    # `decode` is for whole ones.

    _record: arrays.Record | None = None

    def __init__(self, backend: CpuBackend, inputs: Inputs) -> None:
        self._backend, (self._search, self._lm) = backend, inputs
        self._params = self._search.value.params
        self.state = arrays.new_state(backend.capacity, self._params.beam_size)
        begin(self._search.value, self.state)
        self._settled: dict[int, np.ndarray] = {}  # rows, by utterance
        self._num_whole = 0  # settled rows with a settled end
        self._found = FoundPaths.room_for(1, 1, 0)

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        places = arrays.FRAMES, arrays.ACTIVE, arrays.CANDIDATES
        counts = self.state.counts[list(places)].tolist()
        return dict(zip(("frames", "active", "candidates"), counts, strict=True))

    def advance(self, logprobs: np.ndarray) -> None:
        """Search a chunk, float32 [T, V], C order."""
        self._found.at[:] = 0
        self._run(filled_up([logprobs]), 0)

    def finish(self) -> list[Path]:
        """End the utterance; the search cannot be used afterwards."""
        if self._params.by_text:  # fixes the order of sums
            self.state = self._in_order()
        num_frames = int(self.state.counts[arrays.FRAMES])
        self._found = FoundPaths.room_for(1, self._params.nbest, num_frames)
        self._run(filled_up([]), 1)
        return self._found.read(self._settled, sums=self._params.sums)[0]

    def decode(
        self, utterances: Sequence[np.ndarray], pace: CallBudget, names: Sequence[int]
    ) -> Sequence[list[Path]]:
        """Decode whole utterances, at most `GROUP`; errors use `names`."""
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

    def end(self, ended: arrays.EndedStates) -> Sequence[list[Path]]:
        """End utterances advanced by another search, with sorted entries."""
        num, params = len(ended.base), self._params
        num_frames = int(ended.counts[:, arrays.FRAMES].sum())
        self._found = FoundPaths.room_for(num, params.nbest, num_frames)
        self._call(
            lambda scratch: end_utterances(self._search, scratch, ended, *self._found)
        )
        return self._found.read(self._settled, sums=params.sums)

    def _run(self, given: tuple[np.ndarray, ...], num_whole: int) -> None:
        self._call(
            lambda scratch: search_utterances(
                *(self._search, scratch, self.state, self._record),
                *(given, num_whole, *self._found),
            )
        )

    def _call(self, run: Callable[[Handle[arrays.Scratch]], int]) -> None:
        scratch, status = self._backend.take_scratch(len(self.state.frontier)), -1
        try:
            with self._lm:
                while status != arrays.OK:
                    self._search = with_model(self._search, self._lm)
                    status = run(scratch)
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        check()  # a user's model may be slow
        finally:
            self._backend.scratches.give(scratch)

    def _grow(
        self, status: int, scratch: Handle[arrays.Scratch]
    ) -> Handle[arrays.Scratch]:
        state, found = self.state, self._found
        entries, candidates = len(state.frontier), len(scratch.value.candidates)
        if status == arrays.GROW_CANDIDATES:
            return self._backend.larger_scratch(
                len(scratch.value.sources), 2 * candidates
            )
        if status == arrays.GROW_FRONTIER:
            self.state = state._replace(frontier=longer(state.frontier, 2 * entries))
            return self._backend.larger_scratch(2 * entries, candidates)
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
        with self._lm:
            while True:
                self._search = with_model(self._search, self._lm)
                found = find(self._search.value)
                if not self._lm.answer():
                    return found

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the best path so far, without its first tokens and labels."""
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
        rows = _joined(self._settled[0][since[0] :], rows, before)
        if since[0] and len(rows):
            rows[0, 3] = NONE  # it ended in a settled row
        return PartialPath(
            path_of_rows(rows, pron),
            num_whole=max(0, self._num_whole - since[0]),
            num_labels=0,
            num_frames=int(counts[arrays.FRAMES]),
            final_cost=ended - float(best["cost"]),
        )

    def settle_trace(self) -> None:
        """Remove settled and unreachable nodes from the trace."""
        utterance = int(self._found.at[arrays.NEXT_UTTERANCE])
        nodes, end = settle_trace(self.state)
        rows = np.empty((len(nodes), 4), np.int32)
        for at, name in ((0, "token"), (1, "start"), (3, "pron")):
            rows[:, at] = nodes[name]
        before, ends = self._settled.get(utterance, rows[:0]), nodes["previous_end"]
        rows[:, 2] = np.append(ends[1:], end)[: len(nodes)]
        self._settled[utterance] = rows = _joined(before, rows, *ends[:1])
        self._num_whole = len(rows) - (len(rows) > 0 and end < 0)

    def _ending_pron(self, entry: Any) -> int:
        if not self._search.value.space.has_lexicon or entry["node"] == 0:
            return NONE

        def ends(search: arrays.Search) -> list[WordEnd]:
            here = entry.view(np.recarray)
            count = num_word_ends(search, here.node)
            return [word_end(search, None, here, number) for number in range(count)]

        # Not an open word: the cost is `inf`.
        found = [
            one
            for one in self._answered(ends)
            if one.pron != OPEN_PRON or one.cost < np.inf
        ]
        return int(min(found, key=attrgetter("cost")).pron) if found else NONE

    def _in_order(self) -> arrays.UtteranceState:
        """Return the utterance with sorted entries: the first of equal endings wins."""
        frontier = self.state.frontier[: self.state.counts[arrays.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self.state._replace(frontier=frontier[order])


class RecordingSearch(CpuSearch):
    """The search of one utterance that records a lattice."""

    # The record is pruned when its arrays are full, and they grow only if that frees
    # less than half. They stay a small multiple of the lattice.

    _record: arrays.Record | None
    first_arcs = 1 << 15
    """Initial capacity in arcs; that in entries is a quarter."""

    def __init__(
        self, backend: CpuBackend, inputs: Inputs, lattice_beam: float
    ) -> None:
        super().__init__(backend, inputs)
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
        self._record = None  # only the best path is still to be read
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


def _joined(settled: np.ndarray, rows: np.ndarray, before: int = -1) -> np.ndarray:
    joined = np.concatenate([settled, rows])
    if len(settled) and before >= 0:
        joined[len(settled) - 1, 2] = before
    return joined


def with_model(search: Handle[arrays.Search], lm: LmArrays) -> Handle[arrays.Search]:
    """Update the language model's arrays of kernels."""
    value = search.value
    if value.space.automaton is lm.now:
        return search
    return Handle(value._replace(space=value.space._replace(automaton=lm.now)))
