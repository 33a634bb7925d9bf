"""Acoustic confidence: agreement of a CTC path with the model's best tokens.

    ratio[t]   = x[t, token of the path] - max over v of x[t, v]
    counts[t]  = the path's token or the most probable token is not the blank
    confidence = exp(sum of ratio / number of counted frames), 1 without any

It is low where the decoder's vocabulary does not have the words in the audio.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from wfstdec.search.hypothesis import Hypothesis


@dataclass(frozen=True)
class Nearness:
    """Cumulative sums: entry `t` covers the frames before `t`."""

    ratio: np.ndarray  # float64 [T + 1], of the counted frames
    count: np.ndarray  # int64 [T + 1]

    @classmethod
    def of(
        cls, chunks: Iterable[np.ndarray], hypothesis: Hypothesis, blank: int
    ) -> Self:
        """Sum over the frames of a path; chunks are float32 [T', V] each."""
        tokens = np.full(hypothesis.num_frames, blank, np.int64)
        spans = zip(hypothesis.token_ids, *hypothesis.token_frames, strict=True)
        for one, start, end in spans:
            tokens[start:end] = one
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
        """Return the confidence in frames start..end-1, 0 to 1."""
        count = int(self.count[end] - self.count[start])
        return math.exp(min(0.0, -self.excess(start, end) / count)) if count else 1.0

    def excess(self, start: int, end: int) -> float:
        """Return the extra cost of these frames over their best tokens, nats."""
        return float(self.ratio[start] - self.ratio[end])


def with_acoustic_confidences(
    hypothesis: Hypothesis, logprobs: np.ndarray, blank: int
) -> Hypothesis:
    """Return a copy with acoustic confidences; log-probs are float32 [T, V]."""
    near = Nearness.of([logprobs], hypothesis, blank)
    words = tuple(
        word._replace(
            acoustic_confidence=near.confidence(word.start_frame, word.end_frame)
        )
        for word in hypothesis.words
    )
    return replace(hypothesis, words=words)
