"""Language models and boosts beside a transducer, as gains: nats to add to a score.

    fusion = Fusion([Term(lm, 0.3, start, True), Term(phrases, 1.0, starts, False)])
    states = fusion.start(beam_size)                   # one tensor for each term
    gains = fusion.rows(states)                        # of all labels, [N, V + 1]
    gains, states = fusion.step(states, labels)        # of one label each, [N]
    score += fusion.final(states)

They step on tokens alone, never on a blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.automata import TorchBackoff

NO_ROWS = np.empty((0, 0), np.float32)
States = tuple[Tensor, ...]
"""int64 [N] for each term."""


class Term(NamedTuple):
    """A model and what it weighs.

    Attributes:
        model: Costs of labels.
        weight: Above 0.
        start: int64 [B], where each utterance begins.
        probabilistic: A language model, whose weight blanks are scored by; boosts are
            none.
    """

    model: TorchBackoff
    weight: float
    start: Tensor
    probabilistic: bool


class Fusion:
    """The terms of a batch.

    Args:
        terms: Any number, none included.

    Attributes:
        lm_weight: L, the sum of the weights of language models.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        self.lm_weight = sum(term.weight for term in terms if term.probabilistic)

    def start(self, width: int) -> States:
        """The states before B utterances, `width` rows for each: [B * width]."""
        return tuple(term.start.repeat_interleave(width) for term in self.terms)

    def rows(self, states: States) -> Tensor | None:
        """Gains of all labels, float32 [N, V + 1]; None without terms."""
        total = None
        for term, at in zip(self.terms, states, strict=True):
            gains = term.model(at)[0] * -term.weight
            total = gains if total is None else total + gains
        return total

    def step(self, states: States, labels: Tensor) -> tuple[Tensor, States]:
        """Gains of one label each, float32 [N], and the next states."""
        total, nextstates = torch.zeros_like(labels, dtype=torch.float32), []
        for term, at in zip(self.terms, states, strict=True):
            costs, there = term.model.step(at, labels)
            total = total - costs * term.weight
            nextstates.append(there.long())
        return total, tuple(nextstates)

    def gains_on_cpu(self, states: Sequence[np.ndarray]) -> np.ndarray:
        """Implement `rows`, of arrays; no rows without terms."""
        total = None
        for term, at in zip(self.terms, states, strict=True):
            gains = term.model.rows_on_cpu(at)[0]
            gains *= np.float32(-term.weight)
            total = gains if total is None else total + gains
        return NO_ROWS if total is None else total

    def step_on_cpu(
        self, states: Sequence[np.ndarray], labels: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Implement `step`, of arrays."""
        total: np.ndarray = np.zeros(len(labels), np.float32)
        nextstates = []
        for term, at in zip(self.terms, states, strict=True):
            costs, there = term.model.steps_on_cpu(at, labels)
            total = total - costs * np.float32(term.weight)
            nextstates.append(there)
        return total, nextstates

    def final(self, states: States, num: int) -> Tensor:
        """Gains of ending in these states, float64 [N]."""
        device = states[0].device if states else None
        total = torch.zeros(num, dtype=torch.float64, device=device)
        for term, at in zip(self.terms, states, strict=True):
            total = total - term.model.final(at).double() * term.weight
        return total
