"""Exact selection of the n least entries of a frontier."""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.ordering import key_of

_ONE = uint64(1)


@part
def nth_least(entries, count, n, limit, work):
    """The key of the n-th least entry among those that cost at most `limit`.

    A histogram over the costs finds the bin of the n-th; only that bin is sorted.

    Args:
        entries: ENTRY [>= count].
        count: How many entries there are.
        n: 1 or more; more than there are gives the key of the last.
        limit: float32, entries over it do not count.
        work: `Work`, for `bins` and `keys`.
    """
    bins, keys = work.bins, work.keys
    top = float32(len(bins) - 1)
    least, worst, within = float32(np.inf), float32(-np.inf), uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            least, worst = min(least, cost), max(worst, cost)
            within += _ONE
    n = min(n, within)
    scale = top / max(float32(worst - least), float32(1e-30))
    for b in range(uint64(len(bins))):
        bins[b] = uint32(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            bins[_bin(cost, least, scale, top)] += uint32(1)
    before, last = uint64(0), uint64(0)
    while before + uint64(bins[last]) < n:
        before += uint64(bins[last])
        last += _ONE
    found = uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit and _bin(cost, least, scale, top) == last:
            keys[found] = key_of(cost, entries[i].state)
            found += _ONE
    return _nth_of(keys, found, n - before - _ONE)


@part
def last_of_tie(entries, boosts, count, n, last, work):
    """The boost state of the n-th least entry, ties going to the lower one.

    Args:
        entries: ENTRY [>= count].
        boosts: BOOST [>= count].
        count: How many entries there are.
        n: 1 or more, at most as many as do not come after `last`.
        last: The key of the n-th, from `nth_least`.
        work: `Work`, for `keys`.
    """
    before, found = uint64(0), uint64(0)
    for i in range(count):
        key = key_of(entries[i].cost, entries[i].state)
        before += uint64(key < last)
        if key == last:
            work.keys[found] = uint64(boosts[i].boost)
            found += _ONE
    return uint32(_nth_of(work.keys, found, n - before - _ONE))


@part
def _nth_of(keys, count, n):
    """The key that stands at `n` once `keys[:count]` is sorted; Hoare's quickselect."""
    low, high = uint64(0), count - _ONE
    while low < high:
        pivot = keys[(low + high) >> _ONE]
        i, j = low, high
        while True:
            while keys[i] < pivot:
                i += _ONE
            while keys[j] > pivot:
                j -= _ONE
            if i >= j:
                break
            keys[i], keys[j] = keys[j], keys[i]
            i += _ONE
            j -= _ONE
        if n <= j:
            high = j
        else:
            low = j + _ONE
    return keys[n]


@inlined
def _bin(cost, least, scale, top):
    """Monotone in `cost`."""
    return uint64(min(float32(float32(cost - least) * scale), top))
