"""Arrays that the searches of one trie backend borrow, and how they grow."""

from __future__ import annotations

from functools import partial

import numpy as np

from wfstdec.jit.pool import Pool
from wfstdec.jit.records import longer
from wfstdec.jit.sorting import STACK
from wfstdec.jit.vectors import LANES
from wfstdec.search.paths.token_path import SettledTokens
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu.final import settle_trace
from wfstdec.trie.lexicon_trie import LexiconTrie
from wfstdec.trie.search_space import SearchSpace

FIRST_ENTRIES = 1024


class SearchMemory:
    """Pools of arrays, and how large they are made at first.

    Args:
        space: What is searched.
        capacity: Candidates and nodes that arrays hold at first; they grow.

    Attributes:
        space: The same.
        capacity: The same.
        most_words: The most pronunciations that end at one node of any trie so far.
        states: States of whole utterances, one after the other; `take` is told how
            many entries it should hold.
    """

    def __init__(self, space: SearchSpace, capacity: int) -> None:
        self.space, self.capacity, self.most_words = space, capacity, 1
        self.make_room_for(space.trie)
        self._scratches: Pool[k.Scratch] = Pool(new_scratch, fits=_fits)
        self.states: Pool[k.UtteranceState] = Pool(
            partial(new_state, capacity), beside=self._scratches
        )

    def make_room_for(self, trie: LexiconTrie) -> None:
        """Let scratch be large enough for this trie too."""
        most = int(np.diff(trie.node_pron_splits).max(initial=1))
        self.most_words = max(self.most_words, most)

    def take(self, num_tokens: int, entries: int) -> k.Scratch:
        """Borrow scratch for so many tokens and entries."""
        candidates = max(self.capacity, 4 * entries)
        return self._scratches.take(num_tokens, entries, candidates, self.most_words)

    def give(self, scratch: k.Scratch) -> None:
        """Put scratch back."""
        self._scratches.give(scratch)


def new_state(capacity: int, entries: int) -> k.UtteranceState:
    """Make the state of an utterance, which a search has still to begin."""
    return k.UtteranceState(
        frontier=np.zeros(min(entries, FIRST_ENTRIES), k.ENTRY),
        trace=np.empty(capacity, k.TRACE_NODE),
        counts=np.zeros(8, np.int64),
        base=np.zeros(1),
    )


def new_scratch(
    num_tokens: int, entries: int, candidates: int, most_words: int
) -> k.Scratch:
    """Make scratch for so many tokens, entries, candidates and words of a node."""
    return k.Scratch(
        candidates=np.empty(candidates, k.CANDIDATE),
        endings=np.empty(candidates, k.ENDING),
        new_entries=np.empty(candidates + entries, k.NEW_ENTRY),
        keys=np.empty(max(candidates + entries, num_tokens), np.uint64),
        again_costs=np.empty(entries, np.float32),
        slots=np.zeros(1 << (2 * candidates).bit_length(), np.int64),
        stack=np.empty(STACK, np.int64),
        counts=np.zeros(8, np.int64),
        sources=np.empty(entries, k.ENTRY),
        unscaled=np.zeros(num_tokens, np.float32),
        costs=np.full(num_tokens + LANES, np.inf, np.float32)[:num_tokens],
        found_tokens=np.zeros(num_tokens + 1, np.int32),
        found_costs=np.zeros(num_tokens + 1, np.float32),
        range_ends=np.zeros(k.NUM_RANGES, np.int32),
        next_tokens=np.zeros(num_tokens, np.int32),
        next_costs=np.full(num_tokens, np.inf, np.float32),
        ranked_costs=np.zeros(num_tokens, np.float32),
        ranked_bits=np.zeros(num_tokens + 1, np.uint64),
        inside_tokens=np.empty(num_tokens + 1, np.int32),
        inside_nodes=np.empty(num_tokens + 1, np.int32),
        lookahead_cache=np.zeros(1 << k.CACHE_BITS, k.CACHED_LOOKAHEAD),
        step_cache=np.zeros(1 << k.STEP_CACHE_BITS, k.CACHED_STEP),
        word_ends=np.empty(most_words, k.WORD_END),
    )


def _fits(
    scratch: k.Scratch, num_tokens: int, entries: int, _candidates: int, most_words: int
) -> bool:
    fits = len(scratch.word_ends) >= most_words
    fits = fits and len(scratch.costs) == num_tokens
    return fits and len(scratch.sources) >= entries


def grown(
    status: int,
    scratch: k.Scratch,
    utterance: k.UtteranceState,
    most_words: int,
    settled: SettledTokens,
) -> tuple[k.Scratch, k.UtteranceState]:
    """Enlarge what a kernel found too small, if anything was.

    Args:
        status: Of the kernel.
        scratch: Scratch of the thread.
        utterance: State of the utterance.
        most_words: As of `SearchMemory`.
        settled: Takes over what leaves the trace.
    """
    entries, candidates = len(utterance.frontier), len(scratch.candidates)
    if status == k.GROW_CANDIDATES:
        sizes = len(scratch.costs), len(scratch.sources), 2 * candidates
        scratch = new_scratch(*sizes, most_words)
    elif status == k.GROW_FRONTIER:
        utterance = utterance._replace(frontier=longer(utterance.frontier, 2 * entries))
        scratch = new_scratch(len(scratch.costs), 2 * entries, candidates, most_words)
    elif status == k.GROW_TRACE:
        settled.add(*settle_trace(utterance))
        kept, most = int(utterance.counts[k.TRACE]), 2 * candidates
        if 2 * (kept + most) > len(utterance.trace):
            trace = longer(utterance.trace, 2 * (len(utterance.trace) + most))
            utterance = utterance._replace(trace=trace)
    return scratch, utterance
