"""Confidence: how near an alignment is to what the model would say by itself.

near = Nearness.of(log_probs, hypothesis, blank)
near.confidence(start_frame, end_frame)

ratio[t]   = x[t, aligned token] - max over v of x[t, v]
counts[t]  = the aligned token or the most probable one is not the blank
confidence = exp(sum of ratio / number of frames that count), 1 where none does
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from wfstdec.search.hypothesis import Hypothesis


@dataclass(frozen=True)
class Nearness:
    """Sums over the frames before each.

    Attributes:
        ratio: float64 [T + 1], of the frames that count.
        count: int64 [T + 1].
    """

    ratio: np.ndarray
    count: np.ndarray

    @classmethod
    def of(
        cls, chunks: Iterable[np.ndarray], hypothesis: Hypothesis, blank: int
    ) -> Self:
        """The frames of a path.

        Args:
            chunks: float32 [T', V] each, all frames of the utterance in order.
            hypothesis: The path; the frames of no token are blanks.
            blank: The blank.
        """
        tokens = _token_of_frames(hypothesis, blank)
        ratio, count, first = [np.zeros(1)], [np.zeros(1, np.int64)], 0
        for chunk in chunks:
            token = tokens[first : first + len(chunk)]
            chunk, first = chunk[: len(token)], first + len(chunk)
            at = np.arange(len(chunk))
            best = chunk.argmax(axis=1) if len(chunk) else at
            counts = (token != blank) | (best != blank)
            below = chunk[at, token].astype(np.float64) - chunk[at, best]
            ratio.append(np.where(counts, below, 0.0))
            count.append(counts.astype(np.int64))
        return cls(np.cumsum(np.concatenate(ratio)), np.cumsum(np.concatenate(count)))

    def confidence(self, start: int, end: int) -> float:
        """Confidence in frames start..end-1, 0 to 1."""
        count = int(self.count[end] - self.count[start])
        return math.exp(min(0.0, -self.excess(start, end) / count)) if count else 1.0

    def excess(self, start: int, end: int) -> float:
        """Nats by which these frames cost more than their most probable tokens."""
        return float(self.ratio[start] - self.ratio[end])


def _token_of_frames(hypothesis: Hypothesis, blank: int) -> np.ndarray:
    """The token of each frame of a path."""
    tokens = np.full(hypothesis.num_frames, blank, np.int64)
    for token, start, end in zip(
        hypothesis.token_ids, *hypothesis.token_frames, strict=True
    ):
        tokens[start:end] = token
    return tokens
