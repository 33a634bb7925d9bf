"""Frames of a batch of utterances that have come so far."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEAST_ROWS = 16
"""Products of fewer rows may be rounded otherwise, by other kernels of libraries."""


class Source(NamedTuple):
    """Frames that have come.

    Attributes:
        frames: [B, T, D].
        first: int64 [B], the number of the first of these in its utterance.
        come: int64 [B], how many there were so far, those before `first` too.
        is_ended: bool [B], no more will come.
    """

    frames: Tensor
    first: Tensor
    come: Tensor
    is_ended: Tensor

    def ended(self) -> Source:
        """Mark the source as ended: these were all frames."""
        return self._replace(is_ended=torch.ones_like(self.is_ended))
