"""Vectors of `wfstdec.jit.vectors` as NumPy arrays, for kernels that run as Python.

from wfstdec.jit import vectors
use_arrays(vectors)            # before the kernels are imported
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

LANES = 16


def use_arrays(vectors: ModuleType) -> None:
    """Put NumPy in the place of all operations of `wfstdec.jit.vectors`."""
    assert vectors.LANES == LANES
    operations: dict[str, Any] = {
        "load": lambda array, index: _lanes(array, index).copy(),
        "store": _store,
        "splat": lambda value: np.full(LANES, value),
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "negative": np.negative,
        "least": np.minimum,
        "most": np.maximum,
        "both": np.bitwise_and,
        "either": np.bitwise_or,
        "any_bit": lambda vector: _bits_of(vector != 0),
        "count_from": lambda first: first + np.arange(LANES, dtype=np.uint32),
        "look_up": lambda table, first, levels: _lanes(table, first)[
            levels.astype(int)
        ],
        "store_some": _store_some,
        "below": lambda one, other: _bits_of(one < other),
        "at_most": lambda one, other: _bits_of(one <= other),
        "equal": lambda one, other: _bits_of(one == other),
        "has": lambda vector, value: _bits_of((vector & value) != 0),
        "select": _select,
        "gather": lambda array, index: array[index],
        "least_of": np.min,
        "trailing": lambda value: np.uint64(
            (int(value) & -int(value)).bit_length() - 1
        ),
    }
    for name, operation in operations.items():
        setattr(vectors, name, operation)


def _lanes(array: np.ndarray, index: Any) -> np.ndarray:
    """Sixteen elements of an array, all of which must be there."""
    assert index + LANES <= len(array)
    return array[int(index) : int(index) + LANES]


def _store(array: np.ndarray, index: Any, vector: np.ndarray) -> None:
    _lanes(array, index)[:] = vector


def _store_some(array: np.ndarray, index: Any, vector: np.ndarray, bits: Any) -> None:
    kept = vector[[i for i in range(LANES) if int(bits) >> i & 1]]
    _lanes(array, index)[: len(kept)] = kept


def _bits_of(found: np.ndarray) -> np.uint16:
    """A bit for each of sixteen."""
    return np.uint16(sum(1 << i for i in np.flatnonzero(found).tolist()))


def _select(bits: Any, one: Any, other: Any) -> np.ndarray:
    return np.where([int(bits) >> i & 1 for i in range(LANES)], one, other)
