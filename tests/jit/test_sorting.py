"""Sorting keys: few of them, by counting."""

import numpy as np
import pytest

from wfstdec.jit import kernel
from wfstdec.jit.sorting import cost_of, index_of, key_of, sort_few_keys


@kernel
def run(keys, count):
    sort_few_keys(keys, count)


def test_keys_by_cost_then_index():
    made = [key_of(np.float32(cost), i) for cost, i in ((1.5, 0), (0.5, 2), (0.5, 1))]
    keys = np.array([*made, 0, 0, 0], np.uint64)
    run(keys, 3)
    assert [index_of(key) for key in keys[:3]] == [1, 2, 0]
    assert [cost_of(key) for key in keys[:3]] == [0.5, 0.5, 1.5]


@pytest.mark.parametrize("count", [0, 1, 2, 31, 128])
def test_few_keys_are_sorted(count):
    rng = np.random.default_rng(count)
    keys = rng.choice(1 << 40, 2 * count, replace=False).astype(np.uint64)
    keys |= rng.integers(0, 2, 2 * count).astype(np.uint64) << np.uint64(63)
    want = np.sort(keys[:count])
    run(keys, count)
    np.testing.assert_array_equal(keys[:count], want)
