"""Facts of a graph beside its vocabulary: topology, marks, costs of words, silence."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class GraphInfo:
    """Facts of how a graph was built; by default none is known.

    Attributes:
        topology: The name of the CTC topology, or "" where it is not known.
        marks_repeats: Whether `REPEAT` tells repeats of a token from new ones.
        word_cost: float32 [W], what each word costs whatever was said before, nats,
            `inf` where that is not known; empty where no language model says it.
        silence_prob: How probable the separator is in each place, if it is a silence
            whose costs stand on arcs; None if not, and where that is not known.
    """

    topology: str = ""
    marks_repeats: bool = False
    word_cost: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    silence_prob: float | None = None

    def __repr__(self) -> str:
        """All of it, of the costs of words only whether they are there."""
        costs = f"{len(self.word_cost):,} words" if len(self.word_cost) else "unknown"
        return (
            f"GraphInfo(topology={self.topology!r}, marks_repeats={self.marks_repeats},"
            f" word_cost: {costs}, silence_prob={self.silence_prob})"
        )
