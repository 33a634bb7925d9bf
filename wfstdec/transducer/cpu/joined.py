"""A model with all that is added to it, as kernels on a CPU take it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.cpu.arrays import NONE, Prices, Steps
from wfstdec.transducer.fusion import NO_ROWS, Fusion
from wfstdec.transducer.model import TransducerModel
from wfstdec.transducer.pricing import Pricer


class Joiner:
    """The model, language models and boosts of a batch.

    Args:
        model: The predictor and joiner.
        fusion: Of the batch.
        pricer: Of the same, with the options.

    Attributes:
        fusion: Of the batch.
        steps: What symbols are.
        late: Fusion comes before tokens are chosen.
        longest: Frames that a symbol goes at most.
        zero: Position of the duration 0; -1 where there is none.
        num_labels: V + 1.
        num_durations: D; 0 for RNN-T.
        says_in_no_time: A token may take no frame.
    """

    def __init__(self, model: TransducerModel, fusion: Fusion, pricer: Pricer) -> None:
        self._model, self.fusion, self._pricer = model, fusion, pricer
        # Of each type no rows, and `Prices.weights`.
        self._of_type: dict[np.dtype, tuple[np.ndarray, np.ndarray]] = {}
        self.steps = Steps(
            np.array([pricer.blank]),
            pricer.token_steps.numpy(),
            pricer.blank_steps.numpy(),
        )
        self.late, self.num_labels = pricer.late, pricer.num_labels
        self.num_durations = len(model.durations)
        self.longest = max(model.durations, default=1)
        self.zero = NONE if pricer.zero is None else pricer.zero
        self.says_in_no_time = not model.durations or pricer.zero is not None

    def predict(self, labels: np.ndarray, state: Any) -> tuple[Tensor, Any]:
        """The predictor one token further; labels int64 [N] of V + 1."""
        tokens = labels - (labels > self._pricer.blank)
        return self._model.predict(torch.from_numpy(tokens), state)

    def prices(
        self, frames: Tensor, g: Tensor, states: list[np.ndarray] | None
    ) -> Prices:
        """Join rows.

        Args:
            frames: [N, D].
            g: [N, ...].
            states: Where models of fusion are in the first rows, late fusion only;
                None leaves fusion out.
        """
        pricer, blank_lasts = self._pricer, None
        logprobs, lasts = pricer.checked(self._model.join(frames, g))
        if lasts is not None:
            lasts = lasts.to(logprobs.dtype)
            blank_lasts = torch.log_softmax(lasts[:, pricer.takes_time], 1)
        numbers = logprobs.numpy()
        if numbers.dtype not in self._of_type:
            weight, paid = pricer.blank_weight, pricer.options.token_insertion
            weights = np.array([weight, paid, 1 + weight, 1, -np.inf], numbers.dtype)
            self._of_type[numbers.dtype] = NO_ROWS.astype(numbers.dtype), weights
        none, weights = self._of_type[numbers.dtype]
        spoke = none.ravel()
        # Asked for only where fusion weighs blanks: the log-prob of all tokens
        # together.
        if pricer.blank_weight:
            tokens = logprobs.masked_fill(pricer.is_blank, -torch.inf)
            spoke = torch.logsumexp(tokens, 1).numpy()
        fused = self.late and states is not None
        return Prices(
            logprobs=np.ascontiguousarray(numbers),
            spoke=spoke,
            gains=self.fusion.gains_on_cpu(states or []) if fused else NO_ROWS,
            lasts=none if lasts is None else np.ascontiguousarray(lasts.numpy()),
            blank_lasts=none if blank_lasts is None else blank_lasts.numpy(),
            weights=weights,
        )
