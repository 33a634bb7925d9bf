"""CTC by the enumeration of alignments: what a text has, and all that begin with it.

    ctc = Joint(logprobs, blank=2, weight=0.3)         # [T, V + 1]
    ctc.whole((0, 1)), ctc.prefix((0,))                # natural logs

Tokens of texts are columns.
"""

import itertools
import math
from collections import defaultdict


class Joint:
    """The probability of every text, and its weight next to attention's."""

    def __init__(self, logprobs, blank, weight, columns=None):
        self.weight, self.columns = weight, columns
        self.probability = defaultdict(float)
        num_frames, num_tokens = logprobs.shape
        for alignment in itertools.product(range(num_tokens), repeat=num_frames):
            kept = [k for k, _ in itertools.groupby(alignment) if k != blank]
            total = sum(logprobs[t, token] for t, token in enumerate(alignment))
            self.probability[tuple(kept)] += math.exp(total)

    def said(self, text):
        """The columns of a text's tokens that CTC has."""
        if self.columns is None:
            return tuple(text)
        return tuple(self.columns[t] for t in text if t in self.columns)

    def whole(self, text):
        """Log-prob of a finished text."""
        return log(self.probability.get(self.said(text), 0.0))

    def prefix(self, text):
        """Log-prob of all texts that begin so."""
        start = self.said(text)
        parts = (
            p for other, p in self.probability.items() if other[: len(start)] == start
        )
        return log(sum(parts))


def log(probability):
    return math.log(probability) if probability > 0 else -math.inf
