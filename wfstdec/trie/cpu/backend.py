"""The CPU backend of the trie search: numba kernels, no GIL, an utterance per thread.

    backend = CpuBackend(space)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    paths = search.finish()                       # TokenPaths, best first

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.boost.oov import AddedWords
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.tables import (
    ListedWords,
    PhraseRows,
    WordPlaces,
    lay_out,
    list_words,
    no_phrases,
    no_words,
)
from wfstdec.jit.sorting import STACK
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import SettledTokens, TokenPath, TokenRows
from wfstdec.trie.added_trie import (
    AddedTrie,
    lay_out_added,
    least_label_costs,
    no_added,
)
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu import frame as kernels
from wfstdec.trie.cpu.arrays import search_params
from wfstdec.trie.cpu.final import (
    accepted_endings,
    settle_trace,
    trace_back,
    unfinished_endings,
)
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.reference_steps import Key, Steps
from wfstdec.trie.search_space import SearchSpace, lookahead_cost
from wfstdec.trie.traceback import Ending, Outcome, best_endings, path_of, start_cost

if TYPE_CHECKING:
    from wfstdec.trie.cpu.lattice import RecordingSearch

_Found = TypeVar("_Found")
FIRST_ENTRIES = 1024
NO_PHRASES = no_phrases()
NO_ADDED = no_added()


class CpuBackend:
    """A space and pools of scratch memory.

    Args:
        space: What is searched.
        first_capacity: Candidates and nodes that arrays hold at first; they grow.
    """

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        self.space = space
        self._most_words = int(np.diff(space.trie.node_pron_splits).max(initial=1))
        self._capacity = first_capacity
        self._lock = threading.Lock()
        self._scratches: list[k.Scratch] = []
        self._word_prons: WordPlaces | None = None
        self._words: WeakKeyDictionary[CompiledBoosts, ListedWords]
        self._words = WeakKeyDictionary()
        self._phrases: WeakKeyDictionary[PhraseBoosts, PhraseRows] = WeakKeyDictionary()
        self._least_costs: np.ndarray | None = None
        self._added: WeakKeyDictionary[AddedWords, AddedTrie] = WeakKeyDictionary()

    def start(self, options: TrieOptions, boosts: CompiledBoosts) -> CpuSearch:
        """Begin an utterance."""
        return CpuSearch(self, options, boosts, self._capacity)

    def start_recording(
        self, options: TrieOptions, boosts: CompiledBoosts
    ) -> RecordingSearch:
        """Begin an utterance of which a lattice is wanted."""
        from wfstdec.trie.cpu.lattice import RecordingSearch  # it imports this module

        return RecordingSearch(self, options, boosts, self._capacity)

    def lay_out(self, phrases: PhraseBoosts | None) -> PhraseRows:
        """Phrases as the kernels take them; made once."""
        if phrases is None:
            return NO_PHRASES
        with self._lock:
            if phrases not in self._phrases:
                self._phrases[phrases] = lay_out(phrases)
            return self._phrases[phrases]

    def listed(self, boosts: CompiledBoosts) -> ListedWords:
        """Boosted words as the kernels take them; made once."""
        if not boosts:
            return no_words()
        with self._lock:
            if boosts not in self._words:
                if self._word_prons is None:
                    trie = self.space.trie
                    num_words = int(trie.pron_word.max(initial=0)) + 1
                    self._word_prons = WordPlaces(
                        trie.pron_word, trie.node_pron_splits, num_words
                    )
                self._words[boosts] = list_words(boosts, self._word_prons)
            return self._words[boosts]

    def added_trie(self, added: AddedWords | None) -> AddedTrie:
        """The second trie of a list; made once."""
        if added is None:
            return NO_ADDED
        with self._lock:
            if added not in self._added:
                if self._least_costs is None:
                    automaton = self.space.automaton
                    self._least_costs = least_label_costs(automaton, added.num_known)
                trie = lay_out_added(added, self.space, self._least_costs)
                most = int(np.diff(trie.trie.node_pron_splits).max(initial=1))
                self._most_words = max(self._most_words, most)
                self._added[added] = trie
            return self._added[added]

    def take_scratch(self, num_tokens: int, entries: int) -> k.Scratch:
        """Scratch for one thread, from the pool or new."""
        with self._lock:
            while self._scratches:
                scratch = self._scratches.pop()
                fits = len(scratch.word_costs) >= self._most_words
                fits = fits and len(scratch.costs) == num_tokens
                if fits and len(scratch.sources) >= entries:
                    return scratch
        return self.new_scratch(num_tokens, entries, max(self._capacity, 4 * entries))

    def give_scratch(self, scratch: k.Scratch) -> None:
        """Put scratch back."""
        with self._lock:
            self._scratches.append(scratch)

    def new_scratch(self, num_tokens: int, entries: int, candidates: int) -> k.Scratch:
        """Scratch for so many tokens, entries and candidates."""
        return k.Scratch(
            candidates=np.empty(candidates, k.CANDIDATE),
            new_entries=np.empty(candidates, k.NEW_ENTRY),
            keys=np.empty(max(candidates, num_tokens), np.uint64),
            slots=np.zeros(1 << (2 * candidates).bit_length(), np.int64),
            stack=np.empty(STACK, np.int64),
            counts=np.zeros(8, np.int64),
            sources=np.empty(entries, k.ENTRY),
            unscaled=np.zeros(num_tokens, np.float32),
            costs=np.zeros(num_tokens, np.float32),
            found_tokens=np.zeros(num_tokens, np.int32),
            found_costs=np.zeros(num_tokens, np.float32),
            next_tokens=np.zeros(num_tokens, np.int32),
            next_costs=np.full(num_tokens, np.inf, np.float32),
            inside_tokens=np.empty(num_tokens + 1, np.int32),
            inside_nodes=np.empty(num_tokens + 1, np.int32),
            lookahead_cache=np.zeros(1 << k.CACHE_BITS, k.CACHED_LOOKAHEAD),
            word_costs=np.empty(self._most_words, np.float32),
            word_states=np.empty(self._most_words, np.int32),
            word_credits=np.empty(self._most_words, np.float32),
            word_boosts=np.empty(self._most_words, np.int32),
            word_bonuses=np.empty(self._most_words, np.float32),
            word_prons=np.empty(self._most_words, np.int32),
            word_labels=np.empty(self._most_words, np.int64),
        )


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self,
        backend: CpuBackend,
        options: TrieOptions,
        boosts: CompiledBoosts,
        capacity: int,
    ) -> None:
        self._backend, self._options, self._boosts = backend, options, boosts
        space, added = backend.space, backend.added_trie(boosts.added)
        new_words = boosts.added.words if boosts.added is not None else ()
        self._lm = LmArrays(space.automaton, new_words)
        first_added = space.trie.num_nodes
        self._search = k.Search(
            space=space._replace(automaton=self._lm.now),
            params=search_params(options, space, boosts),
            words=backend.listed(boosts),
            phrases=backend.lay_out(boosts.phrases),
            added=added,
            beside=space.open.is_open or added.num_nodes > 0,
            first_added=first_added,
            first_open=first_added + added.num_nodes,
        )
        first = _first_entry(self._search, space)
        frontier = np.zeros(min(options.beam_size, FIRST_ENTRIES), k.ENTRY)
        frontier[:1] = first
        counts = np.zeros(8, np.int64)
        counts[k.FRONTIER], counts[k.DIED] = 1, -1
        trace = np.empty(capacity, k.TRACE_NODE)
        base = np.array([start_cost(options, first["lookahead_cost"][0])])
        self._utterance = k.UtteranceState(frontier, trace, counts, base)
        self._settled = SettledTokens()
        self._record: k.Record | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "candidates": k.CANDIDATES}
        return {name: int(self._utterance.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        num_tokens = logprobs.shape[1]
        scratch = self._backend.take_scratch(num_tokens, len(self._utterance.frontier))
        try:
            with self._lm:
                frame, status = 0, -1
                self._take_model()
                while status != k.OK:
                    status, frame = kernels.advance(
                        *(self._search, scratch, self._utterance, self._record),
                        *(logprobs, frame),
                    )
                    scratch = self._grow(status, scratch)
                    if self._lm.answer():
                        self._take_model()
        finally:
            self._backend.give_scratch(scratch)

    def _take_model(self) -> None:
        """Let kernels have the language model's arrays as they are now."""
        space = self._search.space._replace(automaton=self._lm.now)
        self._search = self._search._replace(space=space)

    def _answered(self, find: Callable[[k.Search], _Found]) -> _Found:
        """What kernels find once the language model has answered what they ask."""
        with self._lm:
            self._take_model()
            found = find(self._search)
            while self._lm.answer():
                self._take_model()
                found = find(self._search)
        return found

    def finish(self) -> list[TokenPath]:
        """End the utterance; the search cannot be used afterwards."""
        counts, utterance = self._utterance.counts, self._in_order()
        complete = False
        if counts[k.DIED] < 0:
            endings = self._answered(lambda search: accepted_endings(search, utterance))
            complete = bool((endings["cost"] < np.inf).any())
        if not complete:
            endings = unfinished_endings(self._search, utterance)
        outcome = Outcome(
            float(utterance.base[0]),
            complete,
            int(counts[k.FRAMES]),
            int(counts[k.DIED]),
        )
        return [
            path_of(self._tokens(ending), ending, outcome, self._options)
            for ending in self._best_of(endings)
        ]

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come; it goes on as if nobody had looked."""
        self._settled.add(*settle_trace(self._utterance))
        counts, utterance = self._utterance.counts, self._in_order()
        unfinished = unfinished_endings(self._search, utterance)
        at = int(unfinished["cost"].argmin())
        ended = np.float32(np.inf)
        if counts[k.DIED] < 0:
            accepted = self._answered(
                lambda search: accepted_endings(search, utterance)
            )
            ended = accepted["cost"].min(initial=np.inf)
        (best,) = _as_endings(unfinished[at : at + 1])
        entry = utterance.frontier[at // 2]
        pron = self._ending_pron(entry)
        return PathSoFar(
            settled=self._settled,
            said_since=lambda token, _: TokenRows(self._tokens(best, token), pron),
            num_frames=int(counts[k.FRAMES]),
            final_cost=float(ended) - float(best.cost),
        )

    def _ending_pron(self, entry: np.ndarray) -> int:
        """The cheapest pronunciation that ends at the node of an entry, or -1."""
        space, added = self._backend.space, self._search.added
        names = ("state", "node", "boost", "spelling", "text")
        key = Key(*(int(entry[name]) for name in names))
        with self._lm as lm:
            steps = Steps(space, self._options, self._boosts, added, lm)
            return steps.ending_pron(key)

    def _tokens(self, ending: Ending, since: int = 0) -> np.ndarray:
        """The tokens of an ending but the first ones, as rows of `TokenPath`."""
        trace = self._utterance.trace
        rows, end = trace_back(trace, ending.trace, ending.token_end)
        return self._settled.followed_by(rows, end, since)

    def _best_of(self, endings: np.ndarray) -> list[Ending]:
        """The endings that become paths, best first."""
        if not self._search.params.by_text:
            at = endings["cost"].argmin()
            return _as_endings(endings[at : at + 1])
        has_lexicon = self._search.space.has_lexicon
        return best_endings(
            _as_endings(endings), self._options, has_lexicon=has_lexicon
        )

    def _in_order(self) -> k.UtteranceState:
        """The utterance with its entries in order: the first of equal endings wins."""
        frontier = self._utterance.frontier[: self._utterance.counts[k.FRONTIER]]
        keys = [frontier[name] for name in ("text", "spelling", "boost", "node")]
        states = self._lm.orders(frontier["state"])
        order = np.lexsort([*keys, states, frontier["cost"]])
        return self._utterance._replace(frontier=frontier[order])

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        utterance = self._utterance
        if status == k.GROW_CANDIDATES:
            sizes = (
                len(scratch.costs),
                len(scratch.sources),
                2 * len(scratch.candidates),
            )
            return self._backend.new_scratch(*sizes)
        if status == k.GROW_FRONTIER:
            size = 2 * len(utterance.frontier)
            frontier = np.zeros(size, k.ENTRY)
            frontier[: len(utterance.frontier)] = utterance.frontier
            self._utterance = utterance._replace(frontier=frontier)
            sizes = len(scratch.costs), size, len(scratch.candidates)
            return self._backend.new_scratch(*sizes)
        if status == k.GROW_TRACE:
            self._settled.add(*settle_trace(utterance))
            kept = int(utterance.counts[k.TRACE])
            most = 2 * len(scratch.candidates)
            if 2 * (kept + most) > len(utterance.trace):
                longer = np.empty(2 * (len(utterance.trace) + most), k.TRACE_NODE)
                longer[:kept] = utterance.trace[:kept]
                self._utterance = utterance._replace(trace=longer)
        return scratch


def _first_entry(search: k.Search, space: SearchSpace) -> np.ndarray:
    """The entry before the first frame, ENTRY [1]."""
    first = np.zeros(1, k.ENTRY)
    state = int(search.space.automaton.model_start[0])
    first["state"], first["node"] = state, space.start_node
    first["boost"] = search.phrases.start
    first["lookahead_cost"] = lookahead_cost(space, state, space.start_node)
    first["nonblank_cost"] = np.inf
    first["blank_trace"], first["nonblank_trace"] = -1, -1
    return first


def _as_endings(endings: np.ndarray) -> list[Ending]:
    """Records as tuples; costs stay float32."""
    others = (endings[name].tolist() for name in Ending._fields[1:])
    return [
        Ending(cost, *rest)
        for cost, *rest in zip(endings["cost"], *others, strict=True)
    ]
