"""The best of many first, ties by their order: quicksort of keys and what they are of.

best_first(keys, order, count, wanted, stack)     # order[:wanted] is then right
"""

from __future__ import annotations

from wfstdec.jit import inlined, kernel

_SHORT = 16


@kernel
def best_first(keys, order, count, wanted, stack):
    """Sort by (key, number) in place, as far as the first `wanted` need it.

    Args:
        keys: uint64 [>= count], the least first.
        order: int32 [>= count], different numbers.
        count: How many.
        wanted: What stands behind so many need not be in order.
        stack: int64 [ordering.STACK], scratch.
    """
    low, high, waiting = 0, count - 1, 0
    while True:
        while high - low >= _SHORT:
            middle = _partition(keys, order, low, high)
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
        _insertion_sort(keys, order, low, high)
        if waiting == 0:
            return
        waiting -= 2
        low, high = stack[waiting], stack[waiting + 1]


@inlined
def _insertion_sort(keys, order, low, high):
    for i in range(low + 1, high + 1):
        key, number = keys[i], order[i]
        j = i
        while j > low and _before(key, number, keys[j - 1], order[j - 1]):
            keys[j], order[j] = keys[j - 1], order[j - 1]
            j -= 1
        keys[j], order[j] = key, number


@inlined
def _before(key, number, other_key, other_number):
    return key < other_key or (key == other_key and number < other_number)


@inlined
def _partition(keys, order, low, high):
    """Hoare's partition by the median of three; the end of the lower part."""
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
