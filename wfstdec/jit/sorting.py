"""Costs as integer keys, and in-place sorting."""

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, jit, kernel, part

_SIGN = uint32(1 << 31)
_SHORT, _SHORT_RUN = 24, 16
"""Shorter runs are sorted by insertion, which is faster than partitioning."""
STACK = 128  # largest number of pending ranges: twice the bits of any length


@inlined
def key_of(cost, index):
    """Return a uint64 sorted by (cost, index): float32 of either sign, below 2**32."""
    bits = float32(cost).view(np.uint32)
    ordered = ~bits if bits & _SIGN else bits | _SIGN
    return (uint64(ordered) << uint64(32)) | uint64(index)


@inlined
def cost_of(key):
    """Return the cost in a key, float32."""
    ordered = uint32(key >> uint64(32))
    bits = ordered ^ _SIGN if ordered & _SIGN else ~ordered
    return uint32(bits).view(np.float32)


@inlined
def index_of(key):
    """Return the index in a key."""
    return int64(key & uint64(0xFFFFFFFF))


@part
def sort_keys(keys, count, stack):
    """Sort `keys[:count]` in place: quicksort, the larger part last; insertion."""
    # `keys`: uint64 [>= count]. `stack`: int64 [STACK], scratch.
    low, high, waiting = 0, count - 1, 0
    while True:
        while high - low >= _SHORT:
            middle = _partition(keys, low, high)
            if middle - low < high - middle:
                stack[waiting], stack[waiting + 1] = middle + 1, high
                high = middle
            else:
                stack[waiting], stack[waiting + 1] = low, middle
                low = middle + 1
            waiting += 2
        for i in range(low + 1, high + 1):
            key = keys[i]
            j = i
            while j > low and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        if waiting == 0:
            return
        waiting -= 2
        low, high = stack[waiting], stack[waiting + 1]


@part
def sort_few_keys(keys, count):
    """Sort a few different keys in place, by counting the smaller ones."""
    # No branch depends on the keys: 45 are sorted while quicksort mispredicts ten.
    # `keys`: uint64 [>= 2 count]; elements after the first `count` are overwritten.
    unsorted = keys[count : 2 * count]
    for i in range(count):
        unsorted[i] = keys[i]
    for i in range(count):
        key, place = unsorted[i], 0
        for j in range(count):
            place += int64(unsorted[j] < key)
        keys[place] = key


@inlined
def _partition(keys, low, high):
    """Partition by Hoare with the median of three; return the end of the lower part."""
    a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
    pivot = max(min(a, b), min(max(a, b), c))
    i, j = low, high
    while True:
        while keys[i] < pivot:
            i += 1
        while keys[j] > pivot:
            j -= 1
        if i >= j:
            break
        keys[i], keys[j] = keys[j], keys[i]
        i += 1
        j -= 1
    return min(j, high - 1)


@kernel
def best_first(keys, order, count, wanted, stack):
    """Sort by (key, number) in place, as far as needed for the first `wanted`."""
    # `keys`: uint64 [>= count]. `order`: int32 [>= count], different numbers. After the
    # first `wanted` there is no order. `stack`: int64 [STACK], scratch.
    low, high, waiting = 0, count - 1, 0
    while True:
        while high - low >= _SHORT_RUN:
            middle = _partition_both(keys, order, low, high)
            # All wanted ones are in the lower part: the upper one is not sorted.
            if middle + 1 >= wanted:
                high = middle
                continue
            if middle - low < high - middle:  # the larger part waits
                stack[waiting], stack[waiting + 1] = middle + 1, high
                high = middle
            else:
                stack[waiting], stack[waiting + 1] = low, middle
                low = middle + 1
            waiting += 2
        for i in range(low + 1, high + 1):
            key, number = keys[i], order[i]
            j = i
            while j > low and _before(key, number, keys[j - 1], order[j - 1]):
                keys[j], order[j] = keys[j - 1], order[j - 1]
                j -= 1
            keys[j], order[j] = key, number
        if waiting == 0:
            return
        waiting -= 2
        low, high = stack[waiting], stack[waiting + 1]


@inlined
def _before(key, number, other_key, other_number):
    return key < other_key or (key == other_key and number < other_number)


@inlined
def _partition_both(keys, order, low, high):
    """Partition by Hoare with the median of three; return the end of the lower part."""
    a, b, c = low, (low + high) >> 1, high
    if _before(keys[b], order[b], keys[a], order[a]):
        a, b = b, a
    if _before(keys[c], order[c], keys[b], order[b]):
        b = a if _before(keys[c], order[c], keys[a], order[a]) else c
    key, number = keys[b], order[b]
    i, j = low, high
    while True:
        while _before(keys[i], order[i], key, number):
            i += 1
        while _before(key, number, keys[j], order[j]):
            j -= 1
        if i >= j:
            break
        keys[i], keys[j] = keys[j], keys[i]
        order[i], order[j] = order[j], order[i]
        i += 1
        j -= 1
    return min(j, high - 1)


@jit
def counted(groups, count):
    """Sort rows by group, 0 to `count` - 1, stably."""
    # Returns (int64 [count + 1], start of each group; int64 [N], rows).
    splits = np.zeros(count + 1, np.int64)
    for group in groups:
        splits[int64(group) + 1] += 1
    for group in range(count):
        splits[group + 1] += splits[group]
    at, order = splits[:-1].copy(), np.empty(len(groups), np.int64)
    for i in range(len(groups)):
        order[at[int64(groups[i])]] = i
        at[int64(groups[i])] += 1
    return splits, order
