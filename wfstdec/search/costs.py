"""The account of costs: what all searches and hypotheses add up in the same way."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import numpy as np

NO_CUTOFF = np.float32(np.finfo(np.float32).max)
"""The cutoff where there is none: infinite costs stay over it."""


class Scales(Protocol):
    """Scales of costs among the options of every search."""

    @property
    def acoustic_scale(self) -> float:
        """Multiplies the negated log-probs."""

    @property
    def lm_scale(self) -> float:
        """Multiplies graph costs."""


class CostAccount(NamedTuple):
    """Costs of a path by what they are for: nats, added in float64.

        total_cost = acoustic_scale * acoustic_cost
                     + ((lm_scale * graph_cost + insertion_cost) + boost_cost)

    Attributes are those of `Hypothesis`.
    """

    total_cost: float
    graph_cost: float
    acoustic_cost: float
    insertion_cost: float
    boost_cost: float

    @classmethod
    def of_path(
        cls,
        options: Scales,
        *,
        graph: float,
        acoustic: float,
        insertion: float,
        boost: float,
    ) -> Self:
        """The account of a path, both sums unscaled."""
        rest = options.lm_scale * graph + insertion + boost
        total = options.acoustic_scale * acoustic + rest
        return cls(total, graph, acoustic, insertion, boost)

    @classmethod
    def of_total(cls, options: Scales, *, total: float, **others: float) -> Self:
        """Account of a total of summed alignments: what is left is acoustic."""
        known, scale = (
            cls.of_path(options, acoustic=0.0, **others),
            options.acoustic_scale,
        )
        acoustic = (total - known.total_cost) / scale if scale else 0.0
        return known._replace(total_cost=total, acoustic_cost=acoustic)


def insertion_cost(cost: float, count: int) -> float:
    """Cost of `count` words or tokens at `cost` each; never -0.0."""
    return float(cost * count) + 0.0
