"""Whole utterances, a few in one call of a kernel: the search of most of them.

    found = decode_group(memory, (search, lm), utterances, pace, names)  # TokenPaths

Lattices, and utterances that come in chunks, are searched by `search.py`.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from wfstdec.errors import naming
from wfstdec.jit import inlined, kernel
from wfstdec.jit.records import Pool, longer
from wfstdec.jit.sorting import STACK
from wfstdec.jit.vectors import LANES
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.paths.tokens import SettledTokens, TokenPath
from wfstdec.search.threads import CallBudget, check, filled_up, stretch
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.final import end, settle_trace
from wfstdec.trie.cpu.frame import advance
from wfstdec.trie.lexicon_trie import LexiconTrie
from wfstdec.trie.search_space import SearchSpace

FIRST_ENTRIES = 1024


class SearchMemory:
    """Pools of arrays, and how large they are made at first."""

    def __init__(self, space: SearchSpace, capacity: int) -> None:
        self.space, self.capacity, self.most_words = space, capacity, 1
        self.make_room_for(space.trie)
        self._scratches: Pool[arrays.Scratch] = Pool(new_scratch, fits=_fits)
        self.states: Pool[arrays.UtteranceState] = Pool(
            partial(new_state, capacity), beside=self._scratches
        )

    def make_room_for(self, trie: LexiconTrie) -> None:
        """Let scratch be large enough for this trie too."""
        most = int(np.diff(trie.node_pron_splits).max(initial=1))
        self.most_words = max(self.most_words, most)

    def take(self, num_tokens: int, entries: int) -> arrays.Scratch:
        """Borrow scratch for a number of tokens and entries."""
        candidates = max(self.capacity, 4 * entries)
        return self._scratches.take(num_tokens, entries, candidates, self.most_words)

    def give(self, scratch: arrays.Scratch) -> None:
        """Put scratch back."""
        self._scratches.give(scratch)


def new_state(capacity: int, entries: int) -> arrays.UtteranceState:
    """Make the state of an utterance, which a search has still to begin."""
    return arrays.UtteranceState(
        frontier=np.zeros(min(entries, FIRST_ENTRIES), arrays.ENTRY),
        trace=np.empty(capacity, arrays.TRACE_NODE),
        counts=np.zeros(8, np.int64),
        base=np.zeros(1),
    )


def new_scratch(
    num_tokens: int, entries: int, candidates: int, most_words: int
) -> arrays.Scratch:
    """Make scratch for numbers of tokens, entries, candidates, words of a node."""
    return arrays.Scratch(
        candidates=np.empty(candidates, arrays.CANDIDATE),
        endings=np.empty(candidates, arrays.ENDING),
        new_entries=np.empty(candidates + entries, arrays.NEW_ENTRY),
        keys=np.empty(max(candidates + entries, num_tokens), np.uint64),
        again_costs=np.empty(entries, np.float32),
        slots=np.zeros(1 << (2 * (candidates + entries)).bit_length(), np.int64),
        stack=np.empty(STACK, np.int64),
        counts=np.zeros(8, np.int64),
        sources=np.empty(entries, arrays.ENTRY),
        unscaled=np.zeros(num_tokens, np.float32),
        costs=np.full(num_tokens + LANES, np.inf, np.float32)[:num_tokens],
        found_tokens=np.zeros(num_tokens + 1, np.int32),
        found_costs=np.zeros(num_tokens + 1, np.float32),
        range_ends=np.zeros(arrays.NUM_RANGES, np.int32),
        next_tokens=np.zeros(num_tokens, np.int32),
        next_costs=np.full(num_tokens, np.inf, np.float32),
        ranked_costs=np.zeros(num_tokens, np.float32),
        ranked_bits=np.zeros(num_tokens + 1, np.uint64),
        inside_tokens=np.empty(num_tokens + 1, np.int32),
        inside_nodes=np.empty(num_tokens + 1, np.int32),
        lookahead_cache=np.zeros(1 << arrays.CACHE_BITS, arrays.CACHED_LOOKAHEAD),
        step_cache=np.zeros(1 << arrays.STEP_CACHE_BITS, arrays.CACHED_STEP),
        word_ends=np.empty(most_words, arrays.WORD_END),
    )


def _fits(
    scratch: arrays.Scratch,
    num_tokens: int,
    entries: int,
    _candidates: int,
    most_words: int,
) -> bool:
    fits = len(scratch.word_ends) >= most_words
    fits = fits and len(scratch.costs) == num_tokens
    return fits and len(scratch.sources) >= entries


def grown(
    status: int,
    scratch: arrays.Scratch,
    utterance: arrays.UtteranceState,
    most_words: int,
    settled: SettledTokens,
) -> tuple[arrays.Scratch, arrays.UtteranceState]:
    """Enlarge what a kernel found too small, if anything was."""
    entries, candidates = len(utterance.frontier), len(scratch.candidates)
    if status == arrays.GROW_CANDIDATES:
        sizes = len(scratch.costs), len(scratch.sources), 2 * candidates
        scratch = new_scratch(*sizes, most_words)
    elif status == arrays.GROW_FRONTIER:
        utterance = utterance._replace(frontier=longer(utterance.frontier, 2 * entries))
        scratch = new_scratch(len(scratch.costs), 2 * entries, candidates, most_words)
    elif status == arrays.GROW_TRACE:
        settled.add(*settle_trace(utterance))
        kept, most = int(utterance.counts[arrays.TRACE]), 2 * candidates
        if 2 * (kept + most) > len(utterance.trace):
            trace = longer(utterance.trace, 2 * (len(utterance.trace) + most))
            utterance = utterance._replace(trace=trace)
    return scratch, utterance


FRAMES_PER_ROW = 4
"""Frames per row of tokens, at first."""


@kernel
def search_group(
    search, scratch, utterance, logprobs, num_whole, outcomes, paths, rows, at
):
    """Search utterances one after the other, from a frame of one of them on."""
    for i in range(at[arrays.NEXT_UTTERANCE], min(num_whole + 1, len(outcomes))):
        if at[arrays.NEXT_FRAME] == 0:
            begin(search, utterance)
        status, frame = advance(
            search, scratch, utterance, None, logprobs[i], at[arrays.NEXT_FRAME]
        )
        at[arrays.NEXT_UTTERANCE], at[arrays.NEXT_FRAME] = i, frame
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

    def grown(self, status: int) -> FoundPaths:
        """Enlarge what a kernel's status names."""
        if status == arrays.GROW_PATHS:
            return self._replace(paths=longer(self.paths, 2 * len(self.paths) + 1))
        if status == arrays.GROW_ROWS:
            return self._replace(rows=longer(self.rows, 2 * len(self.rows)))
        return self

    def read(
        self, settled: dict[int, SettledTokens], *, sums: bool
    ) -> list[list[TokenPath]]:
        """Read the paths of each utterance, best first."""
        ends, found = self.paths.tolist(), []
        for i, outcome in enumerate(self.outcomes.tolist()):
            base, first, count, frames, died, complete = outcome
            paths = []
            for cost, pron, acoustic, row, num, before in ends[first : first + count]:
                rows = self.rows[row : row + num]
                if i in settled:
                    rows = settled[i].followed_by(rows, before)
                paths.append(
                    TokenPath(
                        rows,
                        pron,
                        math.nan if sums else acoustic,
                        base + cost,
                        bool(complete),
                        frames,
                        died,
                    )
                )
            found.append(paths)
        return found


def decode_group(
    memory: SearchMemory,
    inputs: tuple[arrays.Search, LmArrays],
    utterances: Sequence[np.ndarray],
    pace: CallBudget,
    names: Sequence[int],
) -> list[list[TokenPath]]:
    """Decode whole utterances of the same boosts."""
    search, lm = inputs
    params, num = search.params, len(utterances)
    given = filled_up(utterances)
    found = FoundPaths.room_for(num, params.nbest, sum(map(len, utterances)))
    settled: defaultdict[int, SettledTokens] = defaultdict(SettledTokens)
    state = memory.states.take(params.beam_size)
    scratch = memory.take(search.space.num_tokens, len(state.frontier))
    try:
        with lm:
            search, at = with_model(search, lm), found.at
            while at[arrays.NEXT_UTTERANCE] < num:
                now, behind, cut, frames = stretch(given, num, at, pace.frames)
                began = time.perf_counter()
                status = search_group(
                    *(search, scratch, state, now, behind - int(cut > 0)), *found
                )
                if status == arrays.OK:
                    pace.note(frames, time.perf_counter() - began)
                at_work = min(int(at[arrays.NEXT_UTTERANCE]), num - 1)
                scratch, state = grown(
                    *(status, scratch, state, memory.most_words),
                    settled[at_work]
                    if status == arrays.GROW_TRACE
                    else SettledTokens(),
                )
                found = found.grown(status)
                with naming(names[at_work]):
                    lm.answer()
                search = with_model(search, lm)
                # Ctrl-C is handled between calls, whose length `pace` bounds; a
                # model of the user's may be slow.
                check()
    finally:
        memory.give(scratch)
        memory.states.give(state)
    return found.read(settled, sums=params.sums)


def with_model(search: arrays.Search, lm: LmArrays) -> arrays.Search:
    """Let kernels have the language model's arrays as they are now."""
    if search.space.automaton is lm.now:
        return search
    return search._replace(space=search.space._replace(automaton=lm.now))
