"""A model with all that is added to it, as kernels on a CPU take it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.cpu.arrays import NONE, Prices, Steps
from wfstdec.transducer.fusion import Fusion
from wfstdec.transducer.model import TransducerModel
from wfstdec.transducer.pricing import Pricer

_NO_ROWS = np.empty((0, 0), np.float32)


class Joiner:
    """The model, language models and boosts of a batch.

    Args:
        model: The predictor and joiner.
        fusion: Of the batch.
        pricer: Of the same, with the options.

    Attributes:
        steps: What symbols are.
        late: Fusion comes before tokens are chosen.
        longest: Frames that a symbol goes at most.
        zero: Position of the duration 0; -1 where there is none.
        num_labels: V + 1.
        num_durations: D; 0 for RNN-T.
        says_in_no_time: A token may take no frame.
    """

    def __init__(self, model: TransducerModel, fusion: Fusion, pricer: Pricer) -> None:
        self._model, self._fusion, self._pricer = model, fusion, pricer
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
        joined = self._model.join(frames, g)
        logprobs, lasts = self._pricer.checked(joined)
        pricer = self._pricer
        blank_lasts = None
        if lasts is not None:
            lasts = lasts.to(logprobs.dtype)
            blank_lasts = torch.log_softmax(lasts[:, pricer.takes_time], 1)
        numbers = logprobs.numpy()
        none, weights = self._constants(numbers.dtype)
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
            gains=self.gains(states or []) if fused else _NO_ROWS,
            lasts=none if lasts is None else np.ascontiguousarray(lasts.numpy()),
            blank_lasts=none if blank_lasts is None else blank_lasts.numpy(),
            weights=weights,
        )

    def _constants(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """No rows, and `Prices.weights`, of a type."""
        if dtype not in self._of_type:
            weight = self._pricer.blank_weight
            insertion = self._pricer.options.token_insertion
            weights = np.array([weight, insertion, 1 + weight, 1, -np.inf], dtype)
            self._of_type[dtype] = _NO_ROWS.astype(dtype), weights
        return self._of_type[dtype]

    def gains(self, states: list[np.ndarray]) -> np.ndarray:
        """Gains by fusion for all labels, float32 [N, V + 1]; no rows without."""
        found = self._fusion.gains_on_cpu(states)
        return _NO_ROWS if found is None else found

    def label_gains(self, states: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
        """Gains by fusion for one label each, float32 [N]."""
        return self._fusion.step_on_cpu(states, labels)[0]

    def next_states(
        self, states: list[np.ndarray], labels: np.ndarray
    ) -> list[np.ndarray]:
        """Where models of fusion are one label further."""
        return self._fusion.step_on_cpu(states, labels)[1]
