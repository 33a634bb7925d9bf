"""The CPU backend of the greedy search.

backend = CpuBackend(searched)
search = backend.start(options, boosts)       # one utterance
search.advance(logprobs)                      # float32 [T, V], any number of times
search.finish()                               # a TokenPath
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.greedy.cpu import kernels as k
from wfstdec.greedy.options import GreedyOptions, Searched
from wfstdec.lm.automaton import NULL_AUTOMATON
from wfstdec.search.logprobs import pricing_of
from wfstdec.search.paths.tokens import (
    NO_PRON,
    PathSoFar,
    TokenPath,
    TokenRows,
    tokens_so_far,
)
from wfstdec.search.threads import HostBackend

F = np.float32


@dataclass
class Progress:
    """How far a search has come.

    Attributes:
        label: The label of the last frame; the blank before the first.
        last: The most probable token of the last frame.
        lm_state: The language model's state.
        boost_state: The phrases' state.
        frames: Frames gone through.
        died_at_frame: The frame where it died, or -1.
        acoustic: The unscaled acoustic cost.
        cost: The total.
    """

    label: int
    last: int
    lm_state: int
    boost_state: int
    frames: int = 0
    died_at_frame: int = -1
    acoustic: float = 0.0
    cost: float = 0.0


class Fusion:
    """A language model and the phrases of an utterance, either may be missing."""

    def __init__(
        self, searched: Searched, options: GreedyOptions, boosts: CompiledBoosts
    ) -> None:
        self.searched, self.options = searched, options
        self.pricing = pricing_of(options)
        phrases = boosts.phrases
        self.phrases = NULL_AUTOMATON if phrases is None else phrases.automaton
        self.boost_start = 0 if phrases is None else phrases.start

    def begin(self) -> Progress:
        """Before the first frame."""
        lm_state = int(self.searched.lm.model_start[0])
        blank = self.searched.blank
        return Progress(blank, blank, lm_state, self.boost_start)

    def end(
        self, progress: Progress, tokens: Sequence[tuple[int, int, int]] | np.ndarray
    ) -> TokenPath:
        """The path of an utterance: tokens as rows of token, start, end."""
        scale = F(self.options.lm_scale)
        last = self.searched.lm.final_cost[progress.lm_state]
        refund = self.phrases.final_cost[progress.boost_state]
        complete = progress.died_at_frame < 0 and bool(last < np.inf)
        cost = progress.cost + (float(F(scale * last)) if complete else 0.0)
        rows = np.full((len(tokens), 4), NO_PRON, np.int32)
        rows[:, :3] = np.array(tokens, np.int32).reshape(len(tokens), 3)
        return TokenPath(
            rows=rows,
            last_pron=NO_PRON,
            acoustic=progress.acoustic,
            search_cost=cost + float(refund),
            reached_final=complete,
            num_frames=progress.frames,
            died_at_frame=progress.died_at_frame,
        )

    def so_far(
        self, progress: Progress, tokens: Sequence[tuple[int, int, int]] | np.ndarray
    ) -> PathSoFar[TokenRows]:
        """How far a search has come; only the last token may go on."""
        goes_on = len(tokens) and progress.label != self.searched.blank
        end = self.end(progress, tokens)
        cost = end.search_cost - progress.cost if end.reached_final else math.inf
        whole = len(tokens) - bool(goes_on)
        return tokens_so_far(
            end.rows, whole, num_frames=progress.frames, final_cost=cost
        )


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._search = k.Search(
            blank=fusion.searched.blank,
            lm=fusion.searched.lm,
            phrases=fusion.phrases,
            pricing=fusion.pricing,
            lm_scale=np.float32(fusion.options.lm_scale),
            token_insertion=float(fusion.options.token_insertion),
        )
        first, num_tokens = fusion.begin(), fusion.searched.num_tokens
        states = first.label, first.last, first.lm_state, first.boost_state
        self._utterance = k.UtteranceState(
            counts=np.array([*states, *k.NOTHING_YET], np.int64),
            sums=np.zeros(2),
            tokens=np.empty((0, 3), np.int32),
            lm_cost=np.empty(num_tokens, np.float32),
            boost_cost=np.empty(num_tokens, np.float32),
            lm_next=np.empty(num_tokens, np.int32),
            boost_next=np.empty(num_tokens, np.int32),
        )

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        utterance = self._utterance
        needed = int(utterance.counts[k.TOKENS]) + len(logprobs)
        if needed > len(utterance.tokens):
            longer = np.empty((2 * needed, 3), np.int32)
            longer[: len(utterance.tokens)] = utterance.tokens
            self._utterance = utterance = utterance._replace(tokens=longer)
        k.advance(self._search, utterance, logprobs)

    def finish(self) -> TokenPath:
        """End the utterance."""
        return self._fusion.end(*self._so_far())

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come."""
        return self._fusion.so_far(*self._so_far())

    def _so_far(self) -> tuple[Progress, np.ndarray]:
        counts, sums = self._utterance.counts.tolist(), self._utterance.sums.tolist()
        progress = Progress(*counts[: k.TOKENS], *sums)
        return progress, self._utterance.tokens[: counts[k.TOKENS]]


class CpuBackend(HostBackend):
    """A greedy search's model and tokens, searched by kernels.

    Attributes:
        search: Makes the search of an utterance.
    """

    can = frozenset()
    search: type[Any] = CpuSearch

    def __init__(self, searched: Searched) -> None:
        super().__init__(searched.num_tokens, searched)
        self.searched = searched

    def start(
        self, options: GreedyOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> Any:
        """Begin an utterance."""
        assert not record
        return self.search(Fusion(self.searched, options, boosts))
