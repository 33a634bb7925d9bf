"""Array kernels: copying and growing, integer hash tables, trees of spellings.

Hash tables use open addressing: a slot has the number of a pair, -1 where it is empty.
Tables with other keys begin at `hash_of(a, b, c)`.
"""

import numpy as np
from numpy import uint64

from wfstdec.jit import inlined, jit, part


@part
def copy_rows(rows: np.ndarray, to: np.ndarray) -> None:
    """Copy numbers or records to the front of an array that is as long or longer."""
    # `to[:n] = rows` adds a message for unequal sizes: 0.5 s of compile time.
    for i in range(len(rows)):
        to[i] = rows[i]


@part
def copy_columns(rows: np.ndarray, to: np.ndarray) -> None:
    """Copy rows of several columns to the front of an array as long or longer."""
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            to[i, j] = rows[i, j]


@jit
def longer(rows, needed):
    """Return an array of at least twice the size and `needed`, with the old rows."""
    more = np.empty(max(2 * len(rows), needed), rows.dtype)
    copy_rows(rows, more)
    return more


@jit
def twice(rows):
    """Return twice as many rows of several columns, the new ones uninitialised."""
    more = np.empty((2 * len(rows), rows.shape[1]), rows.dtype)
    copy_columns(rows, more)
    return more


_FACTOR = 1000003
_KEY_MASK = (1 << 31) - 1
_SPREAD = 2654435761  # below 2**32: products stay below 2**63


@inlined
def hash_of(a, b, c):
    """Return a hash of three integers, uint64: multiply and shift."""
    mixed = uint64(a) * uint64(0x9E3779B97F4A7C15)
    mixed ^= (uint64(b) + uint64(0x165667B19E3779F9)) * uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= uint64(c) * uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(29)
    mixed *= uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> uint64(32))


@jit
def slot_of_pair(slots: np.ndarray, pairs: np.ndarray, first: int, second: int) -> int:
    """Return the slot of (first, second), or the empty one for it."""
    # `slots`: int32 [2**n], not full. `pairs`: int32 [N, 2], by number.
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
    """Find or add the number of a pair; (the table, number of pairs, the number)."""
    pairs, slots = table  # as in `slot_of_pair`; they grow when full
    slot = slot_of_pair(slots, pairs, first, second)
    if slots[slot] >= 0:
        return (pairs, slots), count, np.int64(slots[slot])
    if count == len(pairs):
        pairs = twice(pairs)
        # The slots are rebuilt; row 0 may be a mark instead of a pair.
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
    """Return the first of equal nodes after equal nodes, for each node of a forest."""
    # `previous`: int32 [N], the predecessor, a lower number, or -1; is overwritten with
    # the first of equal ones. `a` to `d`: 32-bit integers [N]. Returns int32 [N].
    first = np.empty(len(previous), np.int32)
    size = 256
    while size < 2 * len(previous):
        size *= 2
    slots = np.full(size, -1, np.int32)
    for i in range(len(previous)):
        # First equals of lower numbers are known, so equal histories have one number.
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


@jit
def grow_tree(
    labels: np.ndarray, splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the tree of sorted, different, non-empty spellings."""
    # `labels`: int32, all spellings in a row. `splits`: int64 [P + 1]. Returns of each
    # node, int32 [N], -1 for none: parent, label, depth and the spelling that ends.
    size = len(labels) + 1
    parent, label = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    depth, ending = np.zeros(size, np.int32), np.full(size, -1, np.int32)
    path = np.zeros(size, np.int32)  # nodes of the previous spelling
    num_nodes, length_before, begin_before = 1, 0, 0
    for i in range(len(splits) - 1):
        begin, length = splits[i], splits[i + 1] - splits[i]
        common = 0
        # Sorted spellings share a prefix with the previous one, or with none.
        while (
            common < min(length, length_before)
            and labels[begin + common] == labels[begin_before + common]
        ):
            common += 1
        for position in range(common, length):
            parent[num_nodes] = path[position]
            label[num_nodes] = labels[begin + position]
            depth[num_nodes] = position + 1
            path[position + 1] = num_nodes
            num_nodes += 1
        ending[path[length]] = i
        length_before, begin_before = length, begin
    n = num_nodes
    return parent[:n], label[:n], depth[:n], ending[:n]
