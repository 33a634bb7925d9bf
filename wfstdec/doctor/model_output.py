"""Tokens that win in the frames of a model's output."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wfstdec.checks.inputs import Pairs
from wfstdec.checks.rows import MOST_ROWS, RowKind, kind_of, row_sums, spread
from wfstdec.checks.token_counts import TokenCounts

UTTERANCES = 200
"""Utterances that are examined."""


@dataclass
class ModelOutput:
    """Tokens that win in the frames of some utterances."""

    counts: TokenCounts
    # The tokens of each utterance's runs, blanks too, int64
    runs: dict[str, np.ndarray] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)  # Of each utterance
    kinds: Counter[RowKind] = field(default_factory=Counter)  # Of utterances
    # The least and the largest ln of the sum of exp(x) of rows
    sums: tuple[float, float] = (math.inf, -math.inf)
    # Shapes of arrays that have not V columns
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    transposed: int = 0  # Utterances that came as [V, T]

    @classmethod
    def of(cls, logprobs: Pairs, num_tokens: int) -> ModelOutput:
        """Examine the first utterances; their log-probs are [T, V]."""
        output = cls(TokenCounts(num_tokens))
        for utterance, array in itertools.islice(logprobs, UTTERANCES):
            output._add(utterance, array)
        return output

    def _add(self, utterance: str, array: np.ndarray) -> None:
        num_tokens = len(self.counts.frames)
        # Examined nevertheless: all that is wrong is reported at once.
        if array.shape[1] != num_tokens and array.shape[0] == num_tokens:
            self.transposed += 1
            array = array.T
        if array.shape[1] != num_tokens:
            self.shapes.append(array.shape)
            return
        kind = kind_of(array)
        if kind is not None:
            self.kinds[kind] += 1
            sums = row_sums(spread(array, MOST_ROWS))
            low, high = self.sums
            self.sums = min(low, float(sums.min())), max(high, float(sums.max()))
        if kind == RowKind.TRANSPOSED:  # a square, of as many frames as tokens
            array = array.T
        self.runs[utterance] = self.counts.add(array)
        self.frames[utterance] = len(array)

    def texts(self, without: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """The tokens of each utterance's greedy path, but for some of them."""
        for utterance, runs in self.runs.items():
            yield utterance, runs[~np.isin(runs, without)].tolist()
