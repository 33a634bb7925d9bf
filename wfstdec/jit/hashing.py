"""A hash table of pairs of integers: composed states, the children of a trie's nodes.

    slots = np.full(size, -1, np.int32)         # a power of 2, at most half full
    slot = slot_of_pair(slots, pairs, first, second)
    if slots[slot] < 0:                         # not there yet
        pairs[number] = first, second
        slots[slot] = number

Open addressing: a slot holds the number of a pair, -1 where it is empty.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit

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
