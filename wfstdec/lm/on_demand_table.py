"""Answers of a model as kernels look them up: a hash table of (state, label).

    cost, nextstate = step(table, 0, state, label)      # see `kernels.py`
    if unanswered(table): ...                           # the host asks the model

A pair that the table lacks costs `inf` for now and is noted. Once a kernel has come
back, the host asks the model for all that was noted, and what the kernel did is done
again: until there is nothing to note. No kernel calls Python, and what is found does
not depend on what the table held before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32, uint64

from wfstdec.jit import inlined, jit, read_only

FINAL = 0xFFFFFFFF
"""In the place of a label: the end of the utterance."""
UNKNOWN = (1 << 31) - 1
"""A label that no table of words has: `<unk>`."""
USED, MISSES, FULL = range(3)
"""Positions in counts: pairs, pairs that are noted, whether there was no room for one.
"""
_FREE = uint64(0xFFFFFFFFFFFFFFFF)
_FACTOR = uint64(0x9E3779B97F4A7C15)
_INF = float32(np.inf)
_PENDING = int32(-1)


class LazyTable(NamedTuple):
    """H slots for pairs of a state and a label; of one thread at a time.

    Attributes:
        keys: uint64 [H], state and label; all bits where it is free. H is a power of 2,
            and no more than half of it is used.
        cost: float32 [H], nats; inf where it is not known yet.
        next: int32 [H], the next state; -1 where it is not known yet.
        misses: int32 [H / 2], the slots of what is not known yet.
        counts: int64 [4].
        order: uint64 [S], by which states stand where costs are equal; no state's
            number depends on its history, and this does not depend on numbers.
        aliases: int32, what labels from `num_labels` on stand for; `num_labels` itself
            beyond these.
        num_labels: L, labels below it are asked for as they are.
        model_start: int32 [1].
    """

    keys: np.ndarray
    cost: np.ndarray
    next: np.ndarray
    misses: np.ndarray
    counts: np.ndarray
    order: np.ndarray
    aliases: np.ndarray
    num_labels: int
    model_start: np.ndarray


def new_table(size: int, num_labels: int) -> LazyTable:
    """An empty table of so many slots, a power of two; `order` is empty too."""
    return LazyTable(
        keys=np.full(size, _FREE, np.uint64),
        cost=np.full(size, np.inf, np.float32),
        next=np.full(size, -1, np.int32),
        misses=np.zeros(size // 2, np.int32),
        counts=np.zeros(4, np.int64),
        order=read_only(np.zeros(0, np.uint64)),
        aliases=read_only(np.zeros(0, np.int32)),
        num_labels=num_labels,
        model_start=read_only(np.zeros(1, np.int32)),
    )


@inlined
def table_step(lm, model, state, label):
    """Look up a step; a pair that is not known costs inf, and leads to -1."""
    if model < 0:
        return float32(0), int32(state)
    if state < 0:  # behind a pair that is not known
        return _INF, _PENDING
    label = int64(label)
    if label >= lm.num_labels:
        beyond = label - lm.num_labels
        label = int64(lm.num_labels)
        if beyond < len(lm.aliases):
            label = int64(lm.aliases[beyond])
    return _asked(lm, (uint64(uint32(state)) << uint64(32)) | uint64(label))


@inlined
def table_final(lm, model, state):
    """Look up a final cost; inf where it is not known."""
    if model < 0:
        return float32(0)
    if state < 0:
        return _INF
    return _asked(lm, (uint64(uint32(state)) << uint64(32)) | uint64(FINAL))[0]


@inlined
def table_unanswered(lm):
    """Tell whether any question was noted."""
    return lm.counts[MISSES] + lm.counts[FULL] > 0


@inlined
def table_unknown(lm):
    """The label of `<unk>`."""
    return int64(UNKNOWN)


@inlined
def table_order(lm, state):
    """Order of a state among those of equal cost, uint64."""
    return lm.order[state]


@inlined
def table_row(lm, state):
    """Row of any state in arrays by state: they have but one."""
    return int64(0)


@inlined
def _slot_of(keys, key):
    """The slot of a pair, or the free one where it belongs."""
    mixed = key * _FACTOR
    mixed ^= mixed >> uint64(29)
    mask = uint64(len(keys) - 1)
    slot = (mixed * _FACTOR >> uint64(20)) & mask
    while keys[slot] != key and keys[slot] != _FREE:
        slot = (slot + uint64(1)) & mask
    return slot


@inlined
def _asked(lm, key):
    """The cost and the next state of a pair; it is noted if it is new."""
    slot = _slot_of(lm.keys, key)
    if lm.keys[slot] != key:
        used, noted = lm.counts[USED], lm.counts[MISSES]
        if 2 * (used + 1) > len(lm.keys):
            lm.counts[FULL] = 1
            return _INF, _PENDING
        lm.keys[slot], lm.cost[slot], lm.next[slot] = key, _INF, _PENDING
        lm.misses[noted] = slot
        lm.counts[USED], lm.counts[MISSES] = used + 1, noted + 1
    return lm.cost[slot], lm.next[slot]


@jit
def look_up(known, keys):
    """Note the pairs that a table lacks; whether it had room for them."""
    for i in range(len(keys)):
        _asked(known, keys[i])
    return known.counts[FULL] == 0


@jit
def fill_in(table, slots, known):
    """Answer slots of a table by what another one knows."""
    for i in range(len(slots)):
        slot, other = slots[i], _slot_of(known.keys, table.keys[slots[i]])
        table.cost[slot], table.next[slot] = known.cost[other], known.next[other]


@jit
def move(table, larger):
    """Put what is known into an empty table; what is not is left out."""
    for slot in range(len(table.keys)):
        if table.keys[slot] != _FREE and table.next[slot] >= 0:
            other = _slot_of(larger.keys, table.keys[slot])
            larger.keys[other] = table.keys[slot]
            larger.cost[other] = table.cost[slot]
            larger.next[other] = table.next[slot]
            larger.counts[USED] += 1
