"""Hash tables of integers: composed states, the children of nodes, equal nodes.

A table of pairs:

    slots = np.full(size, -1, np.int32)         # a power of 2, at most half full
    slot = slot_of_pair(slots, pairs, first, second)
    if slots[slot] < 0:                         # not there yet
        pairs[number] = first, second
        slots[slot] = number

    table, count, number = enter(table, count, first, second)     # found, or added

Open addressing: a slot holds the number of a pair, -1 where it is empty.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.copying import twice

_FACTOR = 1000003
_KEY_MASK = (1 << 31) - 1
_SPREAD = 2654435761  # below 2**32: products stay below 2**63


@jit
def slot_of_pair(slots: np.ndarray, pairs: np.ndarray, first: int, second: int) -> int:
    """The slot that holds (first, second), or the empty one where it belongs.

    Args:
        slots: int32 [2**n], with at least one empty slot.
        pairs: int32 [N, 2], the pairs by number.
        first: One half of the pair that is looked for.
        second: The other.
    """
    mask = len(slots) - 1
    key = (int(first) * _FACTOR ^ int(second)) & _KEY_MASK
    slot = (key * _SPREAD >> 16) & mask
    while True:
        number = slots[slot]
        if number < 0 or (pairs[number, 0] == first and pairs[number, 1] == second):
            return slot
        slot = (slot + 1) & mask


@jit
def enter(table, count, first, second):
    """Find or make the number of a pair; (the table, how many pairs, the number).

    `table`: pairs, integers [N, 2], and slots, int32. It grows where it is full.
    """
    pairs, slots = table
    slot = slot_of_pair(slots, pairs, first, second)
    if slots[slot] >= 0:
        return (pairs, slots), count, np.int64(slots[slot])
    if count == len(pairs):
        pairs = twice(pairs)
        # The slots are made anew; row 0 may be a mark that is no pair.
        slots = np.full(4 * len(pairs), -1, np.int32)
        for i in range(count):
            if pairs[i, 0] >= 0:
                slots[slot_of_pair(slots, pairs, pairs[i, 0], pairs[i, 1])] = i
        slot = slot_of_pair(slots, pairs, first, second)
    pairs[count, 0], pairs[count, 1] = first, second
    slots[slot] = count
    return (pairs, slots), count + 1, np.int64(count)


@jit
def first_equal(
    previous: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> np.ndarray:
    """The first node that says the same after the same, of each node of a forest.

    Args:
        previous: int32 [N], the node before, a lower number, or -1. Changed: nodes are
            made to follow the first of those that they follow.
        a: 32-bit integers [N], what a node says.
        b: The same.
        c: The same.
        d: The same; not hashed, since it hardly tells nodes apart.

    Returns:
        int32 [N].
    """
    first = np.empty(len(previous), np.int32)
    size = 256
    while size < 2 * len(previous):
        size *= 2
    slots = np.full(size, -1, np.int32)
    for i in range(len(previous)):
        # Those before have lower numbers, so that their first equals are known: equal
        # histories are one number, and comparing a node is comparing five integers.
        if previous[i] >= 0:
            previous[i] = first[previous[i]]
        key = (np.int64(previous[i]) + 1) * _FACTOR ^ np.int64(a[i])
        key = (key * _FACTOR ^ np.int64(b[i])) & _KEY_MASK
        key = (key * _FACTOR ^ np.int64(c[i])) & _KEY_MASK
        slot = (key * _SPREAD >> 16) & (size - 1)
        # Linear probing; half of the slots stay free.
        while slots[slot] >= 0:
            j = slots[slot]
            same = previous[j] == previous[i] and a[j] == a[i] and b[j] == b[i]
            if same and c[j] == c[i] and d[j] == d[i]:
                break
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = i
        first[i] = slots[slot]
    return first
