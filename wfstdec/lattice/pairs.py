"""Tables of pairs that grow: what a state of a lattice becomes, one for each history.

pairs, slots, before = longer(pairs, before)        # twice the room
place = places(pairs, num_states)                   # their order by the first half
arcs, order = in_order(arcs, place), order_of(order, pairs)
"""

from __future__ import annotations

import numpy as np
from numpy import int32, uint32

from wfstdec.jit import jit
from wfstdec.jit.copying import copy_columns, copy_rows
from wfstdec.jit.hashing import slot_of_pair
from wfstdec.lattice.arrays import ARC


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
    copy_columns(pairs, more)
    copy_rows(before, rest)
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


@jit
def in_order(arcs, place):
    """The arcs between states in their places, sorted by state."""
    first = np.zeros(len(place) + 1, np.int64)
    for a in range(len(arcs)):
        first[place[arcs[a].state] + 1] += 1
    for s in range(len(place)):
        first[s + 1] += first[s]
    made = np.empty(len(arcs), ARC)
    for a in range(len(arcs)):
        state = place[arcs[a].state]
        made[first[state]] = arcs[a]
        one = made[first[state]]
        one.state, one.nextstate = uint32(state), uint32(place[one.nextstate])
        first[state] += 1
    return made


@jit
def order_of(order, pairs):
    """The states of pairs, each before those that its arcs lead to, int64 [N]."""
    count = np.zeros(len(order) + 1, np.int64)
    for i in range(len(pairs)):
        count[pairs[i, 0] + 1] += 1
    for s in range(len(order)):
        count[s + 1] += count[s]
    found, num = np.empty(len(pairs), np.int64), 0
    for state in order:
        for at in range(count[state], count[state + 1]):
            found[num] = at
            num += 1
    return found
