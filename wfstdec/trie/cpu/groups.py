"""Whole utterances, a few in one call of a kernel: the search of most of them.

    found = decode_group(memory, (search, lm), utterances, pace, names)  # TokenPaths

Lattices, and utterances that come in chunks, are searched by `search.py`.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wfstdec.errors import naming
from wfstdec.jit import inlined, kernel
from wfstdec.lm.on_demand import LmArrays
from wfstdec.search.interrupts import Pace, check
from wfstdec.search.paths.token_path import SettledTokens, TokenPath
from wfstdec.search.scheduling import filled_up, stretch
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu.final import end
from wfstdec.trie.cpu.frame import advance
from wfstdec.trie.cpu.memory import SearchMemory, grown

FRAMES_PER_ROW = 4
"""Room for a token in so many frames, at first."""


@kernel
def search_group(
    search, scratch, utterance, logprobs, num_whole, outcomes, paths, rows, at
):
    """Search utterances one after the other, from a frame of one of them on.

    Args:
        search: `Search`.
        scratch: `Scratch`.
        utterance: `UtteranceState` of the one under way.
        logprobs: Of each, float32 [T, V]; all of the first `num_whole`. The next one
            goes on in another call, unless there are no more `outcomes`.
        num_whole: See above.
        outcomes: OUTCOME [B], written.
        paths: PATH_END [P], written.
        rows: int32 [N, 4], the tokens of paths, written.
        at: int64 [4], where it begins; where it has come to, if something must grow.

    Returns:
        OK, or what must grow, or be asked.
    """
    for i in range(at[k.NEXT_UTTERANCE], min(num_whole + 1, len(outcomes))):
        if at[k.NEXT_FRAME] == 0:
            _restart(search, utterance)
        status, frame = advance(
            search, scratch, utterance, None, logprobs[i], at[k.NEXT_FRAME]
        )
        at[k.NEXT_UTTERANCE], at[k.NEXT_FRAME] = i, frame
        if status == k.OK and i < num_whole:
            status = end(search, scratch, utterance, outcomes[i], paths, rows, at)
            if status == k.OK:
                at[k.NEXT_UTTERANCE], at[k.NEXT_FRAME] = i + 1, 0
        if status != k.OK:
            return status
    return k.OK


@inlined
def _restart(search, utterance):
    """Begin an utterance."""
    counts = utterance.counts
    utterance.frontier[0] = search.first[0]
    utterance.base[0] = search.first_base
    counts[:] = 0
    counts[k.FRONTIER], counts[k.DIED] = 1, -1


class FoundPaths(NamedTuple):
    """Room for the paths of utterances, which kernels write.

    Attributes:
        outcomes: OUTCOME [B].
        paths: PATH_END [P].
        rows: int32 [N, 4], tokens of all paths.
        at: int64 [4], see `arrays`.
    """

    outcomes: np.ndarray
    paths: np.ndarray
    rows: np.ndarray
    at: np.ndarray

    @classmethod
    def room_for(cls, num_utterances: int, num_paths: int, num_frames: int) -> Self:
        """Make room for utterances of so many paths each, and so many frames in all."""
        return cls(
            np.zeros(num_utterances, k.OUTCOME),
            np.zeros(num_utterances * num_paths, k.PATH_END),
            np.empty((num_frames // FRAMES_PER_ROW + 1, 4), np.int32),
            np.zeros(4, np.int64),
        )

    def grown(self, status: int) -> FoundPaths:
        """Make more room for what a kernel says."""
        if status == k.GROW_PATHS:
            paths = np.zeros(2 * len(self.paths) + 1, k.PATH_END)
            paths[: len(self.paths)] = self.paths
            return self._replace(paths=paths)
        if status == k.GROW_ROWS:
            rows = np.empty((2 * len(self.rows), 4), np.int32)
            rows[: len(self.rows)] = self.rows
            return self._replace(rows=rows)
        return self

    def read(
        self, settled: dict[int, SettledTokens], *, sums: bool
    ) -> list[list[TokenPath]]:
        """Read the paths of each utterance, best first.

        Args:
            settled: Tokens that had left the trace, by utterance, where there are any.
            sums: Whether alignments were summed, so that none has an acoustic cost.
        """
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
    inputs: tuple[k.Search, LmArrays],
    utterances: Sequence[np.ndarray],
    pace: Pace,
    names: Sequence[int],
) -> list[list[TokenPath]]:
    """Decode whole utterances of the same boosts.

    Args:
        memory: What is borrowed.
        inputs: What they are searched with, and its language model.
        utterances: Float32 [T, V], C order, at most `GROUP`.
        pace: Of searches like these.
        names: What errors call each.

    Raises:
        LanguageModelError: A user's model gives what it must not. What it raises itself
            is passed on.
        Stopped: A handler of signals has raised something.
    """
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
            while at[k.NEXT_UTTERANCE] < num:
                now, behind, cut, frames = stretch(given, num, at, pace.frames)
                began = time.perf_counter()
                status = search_group(
                    *(search, scratch, state, now, behind - int(cut > 0)), *found
                )
                if status == k.OK:
                    pace.note(frames, time.perf_counter() - began)
                at_work = min(int(at[k.NEXT_UTTERANCE]), num - 1)
                scratch, state = grown(
                    *(status, scratch, state, memory.most_words),
                    settled[at_work] if status == k.GROW_TRACE else SettledTokens(),
                )
                found = found.grown(status)
                with naming(names[at_work]):
                    lm.answer()
                search = with_model(search, lm)
                # Ctrl-C is heard between calls, which take so long as `pace` says; a
                # model of the user's may be slow.
                check()
    finally:
        memory.give(scratch)
        memory.states.give(state)
    return found.read(settled, sums=params.sums)


def with_model(search: k.Search, lm: LmArrays) -> k.Search:
    """Let kernels have the language model's arrays as they are now."""
    if search.space.automaton is lm.now:
        return search
    return search._replace(space=search.space._replace(automaton=lm.now))
