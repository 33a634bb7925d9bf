"""Operations on vectors equal those of NumPy, which kernels run as Python use."""

from types import ModuleType

import numpy as np
import pytest
from numba.core import config
from vectors_in_python import use_arrays

from wfstdec.jit import jit, vectors
from wfstdec.jit.vectors import any_bit, count_from, load, look_up, store, store_some

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
KINDS = np.float32, np.uint32, np.uint64


@pytest.fixture(scope="module")
def numpy_vectors():
    module = ModuleType("vectors")
    module.LANES = vectors.LANES
    use_arrays(module)
    return module


@jit
def pack(array, to, at, bits):
    store_some(to, at, load(array, np.uint64(0)), bits)


@jit
def read_table(table, first, levels, out):
    store(out, np.uint64(0), look_up(table, first, load(levels, np.uint64(0))))
    return any_bit(load(out, np.uint64(0)))


@jit
def count(first, out):
    store(out, np.uint64(0), count_from(first))


@pytest.mark.parametrize("kind", KINDS)
def test_store_some_writes_the_chosen_lanes_in_order(kind, numpy_vectors):
    rng = np.random.default_rng(1)
    for bits in (0, 0xFFFF, 1, 1 << 15, *rng.integers(0, 1 << 16, 300).tolist()):
        array, at = rng.integers(1, 1 << 20, 16).astype(kind), np.uint64(bits % 11)
        own, expected = np.zeros((2, 48), kind)
        pack(array, own, at, np.uint16(bits))
        numpy_vectors.store_some(expected, at, array, np.uint16(bits))
        written = int(at) + bits.bit_count()
        np.testing.assert_array_equal(own[:written], expected[:written])
        assert not own[int(at) + 16 :].any()


def test_look_up_reads_a_table_by_level(numpy_vectors):
    rng = np.random.default_rng(2)
    table = rng.integers(0, 1 << 63, 48).astype(np.uint64)
    table[rng.random(48) < 0.5] = 0
    for first in (np.uint64(0), np.uint64(16), np.uint64(32)):
        levels = (rng.random(16) * 15.999).astype(np.float32)
        own = np.zeros(16, np.uint64)
        bits = read_table(table, first, levels, own)
        expected = numpy_vectors.look_up(table, first, levels)
        np.testing.assert_array_equal(own, expected)
        assert bits == numpy_vectors.any_bit(expected)


def test_count_from_gives_consecutive_numbers():
    own = np.zeros(16, np.uint32)
    count(np.uint32(7), own)
    np.testing.assert_array_equal(own, np.arange(7, 23))
