"""The greedy search in plain Python: the specification for every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.greedy.options import GreedyOptions
from wfstdec.lm import reference
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.search.acoustics import price_frame, pricing_of
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import (
    NO_PRON,
    TokenPath,
    TokenRows,
    tokens_so_far,
)
from wfstdec.search.scheduling import HostBackend

F = np.float32
NO_TOKEN = -1
"""No token can begin."""


class Searched(NamedTuple):
    """All that a greedy search is made of, beside log-probs, options and boosts.

    Attributes:
        lm: The language model over tokens; `NULL_AUTOMATON` without one.
        num_tokens: V.
        blank: The blank.
    """

    lm: Automaton
    num_tokens: int
    blank: int


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
        last = reference.final(self.searched.lm, 0, progress.lm_state)
        refund = reference.final(self.phrases, 0, progress.boost_state)
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


class ReferenceSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._progress = fusion.begin()
        self._tokens: list[tuple[int, int, int]] = []

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V]."""
        for row in logprobs:
            if self._progress.died_at_frame >= 0:
                return
            self._frame(row)

    def finish(self) -> TokenPath:
        """End the utterance."""
        return self._fusion.end(self._progress, self._tokens)

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come."""
        return self._fusion.so_far(self._progress, list(self._tokens))

    def _frame(self, logprobs: np.ndarray) -> None:
        now = self._progress
        blank = self._fusion.searched.blank
        unscaled, costs = price_frame(logprobs, self._fusion.pricing, blank)
        best = min(range(len(unscaled)), key=lambda v: (unscaled[v], v))
        # The label by acoustics alone, and whether a token begins.
        held = best == now.last and costs[now.label] < np.inf
        begins = best not in (blank, now.label) and not held
        label = now.label if best != blank and not begins else best
        if begins and costs[best] < np.inf:
            label = self._choose(best, costs)
        if label == NO_TOKEN or not costs[label] < np.inf:
            now.died_at_frame = now.frames
            return
        now.acoustic += float(unscaled[label])
        now.cost += float(costs[label])
        if begins:
            self._tokens.append((label, now.frames, now.frames))
        if label != blank:
            self._tokens[-1] = (*self._tokens[-1][:2], now.frames + 1)
        now.label, now.last = label, best
        now.frames += 1

    def _choose(self, best: int, costs: list[np.float32]) -> int:
        """The token that begins, -1 where none can; the models step by it."""
        fusion, now = self._fusion, self._progress
        searched, options = fusion.searched, fusion.options
        least, chosen, after, paid = F(np.inf), NO_TOKEN, (0, 0), F(0)
        for v in [best, *range(len(costs))]:
            if v in (searched.blank, now.label) or not costs[v] < np.inf:
                continue
            lm_cost, lm_state = reference.step(searched.lm, 0, now.lm_state, v)
            if not lm_cost < math.inf:
                continue
            phrase = reference.step(fusion.phrases, 0, now.boost_state, v)
            extra = F(F(F(options.lm_scale) * lm_cost) + phrase[0])
            cost = F(extra + costs[v])
            if cost < least:
                least, chosen, paid = cost, v, extra
                after = lm_state, phrase[1]
        if chosen != NO_TOKEN:
            now.lm_state, now.boost_state = after
            now.cost += float(paid) + float(options.token_insertion)
        return chosen


class ReferenceBackend(HostBackend):
    """A greedy search's model and tokens, as they are.

    Attributes:
        search: Makes the search of an utterance.
    """

    can = frozenset()
    search: type[Any] = ReferenceSearch

    def __init__(self, searched: Searched) -> None:
        super().__init__(searched.num_tokens, searched)
        self.searched = searched

    def start(
        self, options: GreedyOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> Any:
        """Begin an utterance."""
        assert not record
        return self.search(Fusion(self.searched, options, boosts))
