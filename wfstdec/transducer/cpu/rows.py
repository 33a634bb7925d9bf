"""Rows of a predictor's output: g and its state, moved by NumPy.

    rows = Rows(g, state)
    g, state = rows.g_at(at), rows.state_at(at)
    rows.put(at, new_g, new_state)

NumPy moves a few rows several times faster than torch does, whose calls cost more than
the rows. Numbers are moved as they are, of any type: by integers of their size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.model import leaves, tree_map

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Rows:
    """Rows of a predictor, with room for more.

    Args:
        g: [N, ...].
        state: Pytree of tensors [N, ...].
        size: Rows that there is room for; None for N.
    """

    def __init__(self, g: Tensor, state: Any, size: int | None = None) -> None:
        size = len(g) if size is None else size
        self._g = _wide(g, size)
        self._state = tree_map(lambda part: _wide(part, size), state)
        self._parts = [self._g, *leaves(self._state)]
        self._numbers = [_numbers(part) for part in self._parts]

    def g_at(self, at: np.ndarray) -> Tensor:
        """The rows at int64 [M]."""
        return self._taken(0, at)

    def state_at(self, at: np.ndarray) -> Any:
        """Likewise of the state."""
        place = iter(range(1, len(self._parts)))
        return tree_map(lambda _: self._taken(next(place), at), self._state)

    def put(self, at: np.ndarray | slice, g: Tensor, state: Any, num: int) -> None:
        """Put the first so many rows there, in the types that are there."""
        for to, kept, part in zip(
            self._numbers, self._parts, [g, *leaves(state)], strict=True
        ):
            to[at] = _numbers(part.to(kept.dtype))[:num]

    def widened(self, at: np.ndarray, size: int) -> Rows:
        """Take some of the rows, with room for so many."""
        return Rows(self.g_at(at), self.state_at(at), size)

    def _taken(self, place: int, at: np.ndarray) -> Tensor:
        found = torch.from_numpy(self._numbers[place].take(at, 0))
        return found.view(self._parts[place].dtype)


def _wide(part: Tensor, size: int) -> Tensor:
    """A copy with free rows behind."""
    wide = part.new_zeros(size, *part.shape[1:])
    wide[: len(part)] = part
    return wide


def _numbers(part: Tensor) -> np.ndarray:
    """View memory as integers."""
    return part.contiguous().view(_SAME_SIZE[part.element_size()]).numpy()
