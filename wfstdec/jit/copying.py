"""Copying rows between arrays, and arrays that grow, for kernels.

numba compiles `longer[:n] = rows` together with a message for rows that do not fit,
which takes half a second for each kernel that has it; no kernel means to raise it.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit, part


@part
def copy_rows(rows: np.ndarray, to: np.ndarray) -> None:
    """Copy rows to the front of an array that is as long or longer.

    Args:
        rows: Numbers or records, [N].
        to: Of the same type, [M >= N].
    """
    for i in range(len(rows)):
        to[i] = rows[i]


@part
def copy_columns(rows: np.ndarray, to: np.ndarray) -> None:
    """Copy rows of several columns to the front of an array as long or longer.

    Args:
        rows: [N, C].
        to: Of the same type, [M >= N, C].
    """
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            to[i, j] = rows[i, j]


@jit
def longer(rows, needed):
    """Twice as many numbers or records, or as many as are needed; [N] to [M]."""
    more = np.empty(max(2 * len(rows), needed), rows.dtype)
    copy_rows(rows, more)
    return more


@jit
def twice(rows):
    """Twice as many rows of several columns, the new ones not filled in."""
    more = np.empty((2 * len(rows), rows.shape[1]), rows.dtype)
    copy_columns(rows, more)
    return more
