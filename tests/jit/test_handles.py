"""Handles give kernels what was handed to them, and types that are made once."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.core import config

from wfstdec.jit import kernel
from wfstdec.jit.handles import Handle, opened

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
RECORD = np.dtype([("number", "<u4"), ("cost", "<f4"), ("rank", "<u2")])


class Options(NamedTuple):
    """Numbers, the smallest and the largest."""

    scale: np.float32
    most: np.uint64
    on: bool
    rank: np.uint16


class Arrays(NamedTuple):
    """Arrays of all kinds that kernels have."""

    costs: np.ndarray
    records: np.ndarray
    nothing: None
    options: Options
    turned: np.ndarray
    splits: np.ndarray


def arrays(on=True):
    options = Options(np.float32(-2.5), np.uint64(2**64 - 3), on, np.uint16(65535))
    records = np.zeros((3, 4), RECORD)
    records["number"] = np.arange(12).reshape(3, 4)
    records["rank"][2, 3] = 40000
    fixed = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    fixed.setflags(write=False)
    return Arrays(np.arange(5.0), records, None, options, fixed, np.arange(3))


@kernel
def look(handle, to):
    """Copy numbers out of all members."""
    given = opened(handle)
    given.costs[1] += given.options.scale
    to[0], to[1], to[2] = given.costs[1], len(given.costs), given.records[2, 1].number
    to[3], to[4] = given.records[2, 3].rank, given.records.shape[1]
    to[5], to[6] = given.turned[1, 2, 3], given.turned.size
    to[7], to[8] = given.options.on, given.options.rank
    to[9] = given.splits[2]
    return given.options.most


@kernel
def is_there(handle):
    """Tell None from a handle."""
    return 0 if opened(handle) is None else 1


def test_kernels_find_arrays_and_numbers_behind_a_handle():
    given, to = arrays(), np.zeros(10)
    handle = Handle(given)
    assert handle.value is given
    assert look(handle, to) == 2**64 - 3
    assert to.tolist() == [-1.5, 5, 9, 40000, 4, 23, 24, 1, 65535, 2]
    assert given.costs[1] == -1.5  # the array itself
    assert look(Handle(arrays(on=False)), to) == 2**64 - 3
    assert to[7] == 0


def test_none_is_no_handle():
    assert is_there(None) == 0
    assert is_there(Handle(arrays())) == 1


def test_arrays_of_equal_types_are_of_one_type_of_handle():
    one, other = Handle(arrays()), Handle(arrays())
    assert one._numba_type_ is other._numba_type_
    writable = arrays()._replace(turned=np.zeros((2, 3, 4), np.int64))
    assert Handle(writable)._numba_type_ != one._numba_type_
