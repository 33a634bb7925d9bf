"""The CPU backend of the beam search: numba kernels, no GIL, an utterance per thread.

    backend = CpuBackend(space)
    search = backend.start(options, boosts)       # one utterance
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # TokenPath

Arrays grow when a kernel says so; the frame is then done again, so that growing never
changes a result.
"""

from __future__ import annotations

import math
import threading
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.phrase_rows import PhraseRows, lay_out, no_phrases
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.jit.ordering import STACK
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.cpu import ends as cpu_ends
from wfstdec.trie.cpu import kernels as cpu_kernels
from wfstdec.trie.cpu import records as k
from wfstdec.trie.ends import End, State, best_ends, path_of, start_cost
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.path import TokenPath
from wfstdec.trie.space import SearchSpace, ahead_of

NO_LIMIT = 1 << 40
FIRST_ENTRIES = 1024
NO_PHRASES = no_phrases()


class CpuBackend:
    """A space and pools of scratch memory.

    Args:
        space: What is searched.
        first_capacity: Candidates and nodes that arrays hold at first; they grow.
    """

    def __init__(self, space: SearchSpace, first_capacity: int = 4096) -> None:
        self.space = space
        trie = space.trie
        num_children = trie.child_splits[1]
        root_child = np.full(space.num_tokens, -1, np.int32)
        root_child[trie.child_token[:num_children]] = trie.child_node[:num_children]
        self.tree = k.Tree(space, root_child)
        self.most_words = int(np.diff(trie.said_splits).max(initial=1))
        self._capacity = first_capacity
        self._lock = threading.Lock()
        self._works: list[k.Work] = []
        self._phrases: WeakKeyDictionary[PhraseBoosts, PhraseRows] = WeakKeyDictionary()

    def start(self, options: TrieOptions, boosts: CompiledBoosts) -> CpuSearch:
        """Begin an utterance."""
        return CpuSearch(self, options, boosts, self._capacity)

    def lay_out(self, phrases: PhraseBoosts | None) -> PhraseRows:
        """Phrases as the kernels take them; made once."""
        if phrases is None:
            return NO_PHRASES
        with self._lock:
            if phrases not in self._phrases:
                self._phrases[phrases] = lay_out(phrases)
            return self._phrases[phrases]

    def take_work(self, num_tokens: int, entries: int) -> k.Work:
        """Scratch for one thread, from the pool or new."""
        with self._lock:
            while self._works:
                work = self._works.pop()
                if len(work.costs) == num_tokens and len(work.before) >= entries:
                    return work
        return self.new_work(num_tokens, entries, max(self._capacity, 4 * entries))

    def give_work(self, work: k.Work) -> None:
        """Put scratch back."""
        with self._lock:
            self._works.append(work)

    def new_work(self, num_tokens: int, entries: int, candidates: int) -> k.Work:
        """Scratch for so many tokens, entries and candidates."""
        return k.Work(
            candidates=np.empty(candidates, k.CANDIDATE),
            made=np.empty(candidates, k.MADE),
            keys=np.empty(max(candidates, num_tokens), np.uint64),
            slots=np.zeros(1 << (2 * candidates).bit_length(), np.int64),
            stack=np.empty(STACK, np.int64),
            counts=np.zeros(8, np.int64),
            before=np.empty(entries, k.ENTRY),
            unscaled=np.zeros(num_tokens, np.float32),
            costs=np.zeros(num_tokens, np.float32),
            near_token=np.zeros(num_tokens, np.int32),
            near=np.zeros(num_tokens, np.float32),
            live=np.zeros(num_tokens, np.int32),
            begin_costs=np.full(num_tokens, np.inf, np.float32),
            down_token=np.empty(num_tokens + 1, np.int32),
            down_node=np.empty(num_tokens + 1, np.int32),
            ahead=np.zeros(1 << k.AHEAD_BITS, k.AHEAD),
            word_cost=np.empty(self.most_words, np.float32),
            word_state=np.empty(self.most_words, np.int32),
            word_phrase=np.empty(self.most_words, np.float32),
            word_boost=np.empty(self.most_words, np.int32),
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
        self._backend, self._options = backend, options
        space = backend.space
        self._words: WordBoosts = boosts.words
        self._phrases = backend.lay_out(boosts.phrases)
        self._scales = scales_of(options, space, boosts)
        frontier = np.zeros(min(options.beam_size, FIRST_ENTRIES), k.ENTRY)
        start = frontier[:1]
        start["on"], start["over_trace"], start["on_trace"] = np.inf, -1, -1
        start["node"] = space.start
        if space.model >= 0:
            start["state"] = space.automaton.model_start[0]
        if boosts.phrases is not None:
            start["boost"] = boosts.phrases.start
        start["ahead"] = ahead_of(space, int(start["state"][0]), int(start["node"][0]))
        counts = np.zeros(8, np.int64)
        counts[k.FRONTIER], counts[k.DIED] = 1, -1
        trace = np.empty(capacity, k.NODE)
        base = np.array([start_cost(options, start["ahead"][0])])
        self._channel = k.Channel(frontier, trace, counts, base)

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and sums of `active` entries and `candidates`."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE, "candidates": k.CANDIDATES}
        return {name: int(self._channel.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        num_tokens = logprobs.shape[1]
        work = self._backend.take_work(num_tokens, len(self._channel.frontier))
        try:
            frame, status = 0, -1
            while status != k.OK:
                status, frame = cpu_kernels.advance(
                    self._backend.tree,
                    self._scales,
                    self._words,
                    self._phrases,
                    work,
                    self._channel,
                    logprobs,
                    frame,
                )
                work = self._grow(status, work)
        finally:
            self._backend.give_work(work)

    def finish(self) -> list[TokenPath]:
        """End the utterance; the search cannot be used afterwards."""
        counts = self._channel.counts
        self._put_in_order()
        complete = False
        if counts[k.DIED] < 0:
            ends = cpu_ends.ways_to_end(
                self._backend.tree,
                self._scales,
                self._words,
                self._phrases,
                self._channel,
            )
            complete = bool((ends["cost"] < np.inf).any())
        if not complete:
            ends = cpu_ends.ways_to_stop(self._scales, self._phrases, self._channel)
        state = State(
            float(self._channel.base[0]),
            complete,
            int(counts[k.FRAMES]),
            int(counts[k.DIED]),
        )
        if self._scales.by_text:
            lexical = self._backend.space.lexical
            best = best_ends(_as_ends(ends), self._options, lexical=lexical)
        else:
            at = ends["cost"].argmin()
            best = _as_ends(ends[at : at + 1])
        trace = self._channel.trace
        return [
            path_of(
                cpu_ends.walk_back(trace, end.trace, end.end), end, state, self._options
            )
            for end in best
        ]

    def _put_in_order(self) -> None:
        """Sort the frontier, in which the first of equal ends wins."""
        frontier = self._channel.frontier[: self._channel.counts[k.FRONTIER]]
        names = ("text", "boost", "node", "state", "cost")
        frontier[:] = frontier[np.lexsort([frontier[name] for name in names])]

    def _grow(self, status: int, work: k.Work) -> k.Work:
        """Enlarge what a kernel found too small; returns the work to go on with."""
        channel = self._channel
        if status == k.GROW_CANDIDATES:
            sizes = len(work.costs), len(work.before), 2 * len(work.candidates)
            return self._backend.new_work(*sizes)
        if status == k.GROW_FRONTIER:
            size = 2 * len(channel.frontier)
            frontier = np.zeros(size, k.ENTRY)
            frontier[: len(channel.frontier)] = channel.frontier
            self._channel = channel._replace(frontier=frontier)
            sizes = len(work.costs), size, len(work.candidates)
            return self._backend.new_work(*sizes)
        if status == k.GROW_TRACE:
            kept = cpu_ends.compact(channel)
            most = 2 * len(work.candidates)
            if 2 * (kept + most) > len(channel.trace):
                longer = np.empty(2 * (len(channel.trace) + most), k.NODE)
                longer[:kept] = channel.trace[:kept]
                self._channel = channel._replace(trace=longer)
        return work


def scales_of(
    options: TrieOptions, space: SearchSpace, boosts: CompiledBoosts
) -> k.Scales:
    """The options as the kernels take them."""
    skip, top_k = options.blank_skip_threshold, options.token_top_k
    inside = max(0.0, -options.token_insertion)
    begin = inside + max(0.0, float(boosts.words.top_bonus) - options.word_insertion)
    word = begin if np.isfinite(space.slack) else math.inf
    if options.lm_scale > 0:
        begin += options.lm_scale * float(space.slack)
    return k.Scales(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_size=options.beam_size,
        token_top_k=NO_LIMIT if top_k is None else top_k,
        sums=options.merge == "sum",
        by_text=options.merge == "sum" or options.nbest > 1,
        nbest=options.nbest,
        acoustic_scale=np.float32(options.acoustic_scale),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        token_insertion=np.float32(options.token_insertion),
        blank_penalty=np.float32(options.blank_penalty),
        blank_skip_logprob=np.float32(math.inf if skip is None else math.log(skip)),
        begin_credit=np.float32(begin),
        inside_credit=np.float32(inside),
        word_credit=np.float32(word),
    )


def _as_ends(ends: np.ndarray) -> list[End]:
    return [
        End(cost, *rest)
        for cost, *rest in zip(
            ends["cost"],
            *(ends[name].tolist() for name in End._fields[1:]),
            strict=True,
        )
    ]
