"""The greedy search in plain Python: the specification for every backend."""

from __future__ import annotations

import math

import lm_reference
import numpy as np

from wfstdec.greedy.cpu.backend import CpuBackend, Fusion
from wfstdec.greedy.cpu.kernels import NO_TOKEN
from wfstdec.search.logprobs import price_frame
from wfstdec.search.paths.tokens import (
    PathSoFar,
    TokenPath,
    TokenRows,
)

F = np.float32


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
            lm_cost, lm_state = lm_reference.step(searched.lm, 0, now.lm_state, v)
            if not lm_cost < math.inf:
                continue
            phrase = lm_reference.step(fusion.phrases, 0, now.boost_state, v)
            extra = F(F(F(options.lm_scale) * lm_cost) + phrase[0])
            cost = F(extra + costs[v])
            if cost < least:
                least, chosen, paid = cost, v, extra
                after = lm_state, phrase[1]
        if chosen != NO_TOKEN:
            now.lm_state, now.boost_state = after
            now.cost += float(paid) + float(options.token_insertion)
        return chosen


class ReferenceBackend(CpuBackend):
    """A greedy search in plain Python."""

    search = ReferenceSearch
