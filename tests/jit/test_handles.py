"""Handles: tuples of arrays that kernels take by one pointer."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.core import config

from wfstdec.jit import kernel
from wfstdec.jit.handles import Handle, opened

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="kernels alone open them")


class Inner(NamedTuple):
    rows: np.ndarray
    scale: float
    none: None


class Outer(NamedTuple):
    inner: Inner
    first: np.ndarray
    mask: np.uint32


@kernel
def total(handle):
    outer = opened(handle)
    found = outer.first[0] + outer.mask
    for i in range(outer.inner.rows.shape[0]):
        for j in range(outer.inner.rows.shape[1]):
            found += outer.inner.rows[i, j] * outer.inner.scale
    return found


def test_a_handle_in_a_handle_is_its_tuple():
    inner = Inner(np.arange(6.0).reshape(2, 3), 0.5, None)
    first, mask = np.array([100.0]), np.uint32(7)
    kept = Handle(inner)
    flat, nested = Handle(Outer(inner, first, mask)), Handle(Outer(kept, first, mask))
    assert nested.value.inner is inner
    assert total(flat) == total(nested) == 100 + 7 + 15 / 2
    assert len(total.signatures) == 1
