"""`log_add`: the same bits in kernels, Python, NumPy and on GPUs, and near the truth.

NumPy's and CUDA's are held to the same digest in `tests/tools/gpu/test_probe.py`.
"""

import numpy as np
import pytest

from tools.gpu import log_add as in_numpy
from wfstdec.jit import kernel
from wfstdec.search.log_add import LIMIT, add_scores, log_add, log_one_plus

INF = np.float32(np.inf)


@kernel
def add_each(a, b, out):
    for i in range(len(a)):
        out[i] = log_add(a[i], b[i])


@kernel
def add_each_score(a, b, out):
    for i in range(len(a)):
        out[i] = add_scores(a[i], b[i])


def test_two_halves_are_certain():
    half = np.float32(np.log(2))
    assert log_add(half, half) == 0
    assert log_one_plus(np.float32(0)) == half


@pytest.mark.parametrize("a", [INF, np.float32(3), np.float32(-2)])
def test_the_impossible_adds_nothing(a):
    assert log_add(a, INF) == log_add(INF, a) == a


def test_kernels_have_the_bits_that_gpus_are_held_to():
    a, b = in_numpy.inputs()
    found = np.empty_like(a)
    add_each(a, b, found)
    assert in_numpy.digest(found) == in_numpy.KEPT


def test_python_has_the_bits_of_kernels():
    a, b = (each[::509] for each in in_numpy.inputs())
    found = [log_add(*pair) for pair in zip(a, b, strict=True)]
    assert {type(x) for x in found} == {np.float32}
    expected = in_numpy.log_add(a, b)
    np.testing.assert_array_equal(np.array(found).view("u4"), expected.view("u4"))


def test_costs_far_apart_are_the_lesser():
    assert log_one_plus(LIMIT) == 0
    assert log_one_plus(np.nextafter(LIMIT, np.float32(0))) > 0
    exact = np.log1p(np.exp(-np.float64(LIMIT)))
    assert exact < 2.6e-8  # less than half a last place of 1


def test_scores_gain_the_same_in_kernels_python_and_numpy():
    costs = [each.astype(np.float64) for each in in_numpy.inputs()]
    a, b = (-1000 * costs[0] - costs[0], -1000 * costs[0] - costs[1])
    a[:3], b[:3] = (-np.inf, -np.inf, 2.5), (-np.inf, 2.5, -np.inf)
    found = np.empty_like(a)
    add_each_score(a, b, found)
    high, low = np.maximum(a, b), np.minimum(a, b)
    there = low > -np.inf
    apart = np.where(there, high, 0.0) - np.where(there, low, 0.0)
    apart = np.where(there, apart, np.inf).astype(np.float32)
    np.testing.assert_array_equal(found, high + in_numpy.log_one_plus(apart))
    some = slice(None, None, 509)
    in_python = [add_scores(*pair) for pair in zip(a[some], b[some], strict=True)]
    np.testing.assert_array_equal(found[some], in_python)
    # Far from 0 nothing is lost: the sum is float64, and the gain alone is rounded.
    exact = np.log1p(np.exp(low[there] - high[there]))
    assert np.abs(found[there] - high[there] - exact).max() < 3e-7
