"""Kernels say what Python says, however their intermediate code is written."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.core import config

from wfstdec.jit import inlined, jit, kernel, part

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")


class Inner(NamedTuple):
    weight: np.ndarray
    scale: float


class Arrays(NamedTuple):
    values: np.ndarray
    inner: Inner
    order: np.ndarray


def arrays():
    rng = np.random.default_rng(3)
    values, weight = rng.normal(size=9), rng.normal(size=9).astype(np.float32)
    return Arrays(values, Inner(weight, 0.5), rng.permutation(9))


@inlined
def _at(given, i):
    return given.values[given.order[i]] * given.inner.scale


@part
def _through(given, i):
    """Hands its tuple on, whole and in pieces."""
    return _at(given, i) + _weight(given.inner, i)


@part
def _weight(inner, i):
    return inner.weight[i] * inner.scale


@kernel
def total(given, begin):
    """Variables that are set once, before the loop; one that is set in a branch."""
    inner, least = given.inner, 0.25
    sum_, last = 0.0, -1
    for i in range(begin, len(given.values)):
        value = _through(given, i)
        if value > least:
            last = i
            continue
        sum_ += value + inner.scale
    return sum_, last


@kernel
def alternating(given, other, count):
    """A tuple that is set anew in a loop, and one of two by a condition."""
    now, sum_ = given, 0.0
    for i in range(count):
        one = given if i % 3 == 0 else other
        sum_ += _through(now, i) - _through(one, i)
        now = other if i % 2 == 0 else given
    return sum_


@kernel
def late(values, asked):
    """A variable that some ways to its use do not set; another that a loop sets."""
    found, i = 0.0, 0
    while i < len(values):
        square = values[i] * values[i]
        if asked:
            kept = square
        i += 1
    if asked:
        found = kept + square
    return found


@jit
def counted(values, twice):
    """Arrays whose references are counted, of which one or the other is returned."""
    doubled = values * 2
    shorter = doubled[1:]
    for _ in range(2):
        shorter = shorter + 1
    return shorter if twice else doubled


class Optional(NamedTuple):
    """A tuple with members that may be None."""

    values: np.ndarray
    inner: Inner | None
    within: tuple | None = None


@inlined
def _scaled(given, i):
    inner, values = given.inner, given.values
    if inner is not None:
        return values[i] * inner.weight[i]
    return values[i]


@kernel
def scaled(given, i):
    """Asks a member of a member, and hands the tuple on."""
    found = _scaled(given, i)
    if given.within is not None:
        if given.within.inner is not None:
            found += given.within.inner.scale
    return found


@pytest.mark.parametrize("inner", [None, arrays().inner])
@pytest.mark.parametrize("within", [None, Optional(np.ones(2), None)])
def test_branches_for_members_that_are_none_are_dropped(inner, within):
    """They would not compile: None has no weight."""
    given = Optional(np.arange(9.0), inner, within)
    nested = Optional(np.arange(9.0), None, given)
    for one in (given, nested):
        assert scaled(one, 3) == scaled.py_func(one, 3)


@pytest.mark.parametrize("begin", [0, 4, 9])
def test_tuples_through_parts_and_loops(begin):
    assert total(arrays(), begin) == total.py_func(arrays(), begin)


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_tuples_that_change(count):
    given, other = arrays(), arrays()._replace(values=np.arange(9.0))
    expected = alternating.py_func(given, other, count)
    assert alternating(given, other, count) == expected


@pytest.mark.parametrize("asked", [False, True])
def test_variables_that_not_every_way_sets(asked):
    values = np.array([1.5, -2.0, 3.0])
    assert late(values, asked) == late.py_func(values, asked)


@pytest.mark.parametrize("twice", [False, True])
def test_counted_references(twice):
    values = np.arange(5.0)
    for _ in range(3):  # memory that was freed too early would be taken again
        found = counted(values, twice)
        np.testing.assert_array_equal(found, counted.py_func(values, twice))
