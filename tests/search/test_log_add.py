"""`log_add`: the same bits in kernels, Python, NumPy and on GPUs, and near the truth.

NumPy's and CUDA's are held to the same digest in `tests/tools/gpu/test_probe.py`.
"""

import numpy as np
import pytest

from tools.gpu import log_add as in_numpy
from wfstdec.jit import kernel
from wfstdec.search.log_add import LIMIT, log_add, log_one_plus

INF = np.float32(np.inf)


@kernel
def add_each(a, b, out):
    """Fill in the sum of each two."""
    for i in range(len(a)):
        out[i] = log_add(a[i], b[i])


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
