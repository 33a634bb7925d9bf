"""Records that kernels work on: their types, and arrays of them that grow.

ENTRY = record("f4 cost lookahead_cost", "i4 state node")
entries = np.zeros(100, ENTRY)                # entries["cost"], entries[0]["node"]
entries = longer(entries, 200)
"""

from __future__ import annotations

import numpy as np


def record(*declarations: str, align: bool = False) -> np.dtype:
    """The type of a record; each declaration is a type and the fields that have it.

    Args:
        declarations: Such as `"f4 cost lookahead_cost"`, in the order of the fields;
            numbers are little-endian.
        align: Whether fields stand where a C compiler would put them.
    """
    fields = [
        (name, f"<{kind}")
        for kind, *names in map(str.split, declarations)
        for name in names
    ]
    return np.dtype(fields, align=align)


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """A copy that has `size` rows; those behind the given ones are 0."""
    copy = np.zeros((size, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return copy
