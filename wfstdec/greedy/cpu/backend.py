"""The CPU backend of the greedy search: `reference.py`, the same bits faster.

backend = CpuBackend(searched)
search = backend.start(options, boosts)       # one utterance
search.advance(logprobs)                      # float32 [T, V], any number of times
search.finish()                               # a TokenPath
"""

from __future__ import annotations

import numpy as np

from wfstdec.greedy.cpu import kernels as k
from wfstdec.greedy.reference import Fusion, Progress, ReferenceBackend
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import TokenPath, TokenRows


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


class CpuBackend(ReferenceBackend):
    """A greedy search's model and tokens, searched by kernels."""

    search = CpuSearch
