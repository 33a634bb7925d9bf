"""An encoder beside a decoder: the protocol, and a model that measures itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class EncoderModel(Protocol):
    """A model that has its encoder too.

    Attributes:
        input_dim: Numbers per frame of features.
        stride: Frames of features to one of the encoder.
    """

    input_dim: int
    stride: int

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features to frames.

        Args:
            features: [B, T, input_dim].
            lengths: int64 [B].

        Returns:
            Frames [B, T', D], and how many of them each utterance has, int64 [B].
        """


_METHODS = ("encode", "start", "predict", "join", "step", "take", "score", "ctc")
"""Whatever of these a model has is measured."""
_OTHERS = (
    *("tokens", "blank", "durations", "prompt", "eos", "neutral", "limit"),
    *("input_dim", "stride", "frame_dim", "tokenizer"),
)


class TimedModel:
    """A model that measures itself: CPU seconds of this process in its methods.

    Args:
        model: Of a transducer or an attention decoder; what it has, this has.

    Attributes:
        cpu_s: Seconds so far.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cpu_s = 0.0
        for name in _OTHERS:
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        for name in _METHODS:
            if hasattr(model, name):
                setattr(self, name, self._timed(getattr(model, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            begin = time.process_time()
            found = method(*given)
            self.cpu_s += time.process_time() - begin
            return found

        return run
