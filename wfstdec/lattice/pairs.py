"""Tables of pairs that grow: what a state of a lattice becomes, one for each history.

pairs, slots, before = longer(pairs, before)        # twice the room
place = places(pairs, num_states)                   # their order by the first half
"""

from __future__ import annotations

import numpy as np
from numpy import int32

from wfstdec.jit import jit
from wfstdec.jit.hashing import slot_of_pair


@jit
def enter(slots, keys, count):
    """Enter the first pairs into an empty table."""
    for i in range(count):
        slots[slot_of_pair(slots, keys, keys[i, 0], keys[i, 1])] = i


@jit
def longer(pairs, before):
    """Twice the room for pairs, all of them taken, and their hash table."""
    num = len(pairs)
    more, rest = np.full((2 * num, 2), -1, np.int32), np.full(2 * num, -1, np.int32)
    more[:num], rest[:num] = pairs, before
    slots = np.full(8 * num, -1, np.int32)
    enter(slots, more, num)
    return more, slots, rest


@jit
def places(pairs, num_states):
    """The places of pairs sorted by state, int32 [N]; pairs of a state as they came."""
    first = np.zeros(num_states + 1, np.int64)
    for i in range(len(pairs)):
        first[pairs[i, 0] + 1] += 1
    for s in range(num_states):
        first[s + 1] += first[s]
    place = np.empty(len(pairs), np.int32)
    for i in range(len(pairs)):
        place[i] = int32(first[pairs[i, 0]])
        first[pairs[i, 0]] += 1
    return place
