"""Engine of the prefix searches of pyctcdecode and flashlight (torchaudio).

A hypothesis is (history, node, token): the words so far, a node of a prefix tree, the
token of the last frame. In each frame the kernels of a search (its rules) expand
hypotheses by tokens, merge equal candidates (`find_candidate`), score them by the
language model, and choose the next beam (`choose`). If an array is too small, or the
host must call a language model, the kernel returns a status and the frame is repeated:
the beam is unchanged until the last step.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy import float64, int64, uint64

from wfstdec.jit import inlined, kernel
from wfstdec.jit.records import Pool, longer, record
from wfstdec.jit.sorting import STACK, best_first
from wfstdec.search.threads import CallBudget, check

OK, GROW_CANDIDATES, GROW_TRACE, GROW_PARTS, GROW_HISTORIES, ASK = range(6)
"""Statuses of kernels: done; arrays that are too small; language model needed."""
BEAM, CANDIDATES, TRACE, PARTS, HISTORIES, STAMP, FRAMES, OWN = range(8)
"""Positions in counts: sizes, the last stamp of candidates, frames done; then the
rules'.
"""
SLOT = record("i4 parent symbol node")

_A, _B = uint64(0x9E3779B97F4A7C15), uint64(0xC2B2AE3D27D4EB4F)
_C, _HALF, _LOW = uint64(0x165667B19E3779F9), uint64(32), int64(0xFFFFFFFF)
_MAX_KEPT = 1 << 16  # Larger trees are dropped: clearing their tables takes time


class Store(NamedTuple):
    """Arrays of an utterance, and scratch of a frame."""

    beam: np.ndarray  # [K], best first
    trace: np.ndarray  # append-only, linked by `previous`
    parts: np.ndarray  # tree of partial words; node 0 is the root
    part_slots: np.ndarray  # SLOT [2**n], at most half full
    histories: np.ndarray  # tree of words; node 0 is the root
    history_slots: np.ndarray
    candidates: np.ndarray  # of the frame, in order of creation
    slots: np.ndarray  # int64 [2**n], hash table of candidates: stamp, number
    order: np.ndarray  # int32, candidates, best first
    keys: np.ndarray  # uint64, sort keys
    stack: np.ndarray  # of the sort
    counts: np.ndarray  # int64 [16]
    flags: np.ndarray  # bool [C], of the rules
    limits: np.ndarray  # float64 [2], of the rules


@inlined
def slot_of(slots, parent, symbol):
    """Return the slot of a child, or the empty slot where it belongs."""
    mask = len(slots) - 1
    key = uint64(int64(parent)) * _A + uint64(int64(symbol)) * _B
    at = int64((key ^ (key >> _HALF)) & uint64(mask))
    while slots[at].node != 0:  # terminates: at most half of the slots are taken
        if slots[at].parent == parent and slots[at].symbol == symbol:
            break
        at = (at + 1) & mask
    return slots[at]


@inlined
def enter(slots, parent, symbol, node):
    """Enter a node into a table that lacks it."""
    slot = slot_of(slots, parent, symbol)
    slot.parent, slot.symbol, slot.node = parent, symbol, node


@inlined
def find_candidate(candidates, slots, stamp, key, node, token):
    """Return a candidate's slot and number, -1 if it is new in this frame."""
    # Slots of earlier frames have other stamps and count as free.
    mask = len(slots) - 1
    mixed = uint64(key) * _A + uint64(int64(node)) * _B + uint64(int64(token)) * _C
    slot = int64((mixed ^ (mixed >> _HALF)) & uint64(mask))
    while True:  # terminates: there are twice as many slots as candidates
        held = slots[slot]
        if held >> 32 != stamp:
            return slot, int64(-1)
        number = held & _LOW
        c = candidates[number]
        if c.key == key and c.node == node and c.token == token:
            return slot, number
        slot = (slot + 1) & mask


@inlined
def choose(store, count, least, wanted):
    """Sort the `wanted` best candidates into `order`; return their number.

    Those below `least` are dropped. Ties are in order of creation.
    """
    kept = int64(0)
    for i in range(count):
        total = store.candidates[i].total
        if total >= least:
            store.keys[kept] = sort_key(total)
            store.order[kept] = i
            kept += 1
    best_first(store.keys, store.order, kept, wanted, store.stack)
    return kept


@inlined
def sort_key(total):
    """Return a uint64 in descending order of a float64."""
    bits = float64(total + 0.0).view(np.uint64)  # no -0.0
    sign = uint64(1) << uint64(63)
    return bits if bits & sign else ~bits & ~sign


@inlined
def clear(store):
    """Begin an utterance: a beam of one, and trees of their roots."""
    counts = store.counts
    stamp = counts[STAMP]
    if stamp >> 30:
        store.slots[:] = 0
        stamp = int64(0)
    counts[:] = 0
    counts[STAMP] = stamp
    for slots in (store.part_slots, store.history_slots):
        for at in range(len(slots)):
            slots[at].node = 0
    counts[BEAM] = counts[PARTS] = counts[HISTORIES] = 1


@kernel
def _enter_all(parents, symbols, slots, count):
    for node in range(1, count):
        enter(slots, parents[node], symbols[node], node)


class Utterance:
    """Search of an utterance; a `model` in Python has `answer(store)`."""

    def __init__(self, advance: Any, search: Any, store: Store, model: Any) -> None:
        self._advance, self.search, self.store = advance, search, store
        self.model = model

    def advance(self, frames: Any, num_frames: int, pace: CallBudget) -> None:
        """Search frames, in calls that are short enough to be interrupted."""
        frame = 0
        while frame < num_frames:
            before, began = frame, time.perf_counter()
            stop = min(frame + pace.frames, num_frames)
            status, frame = self._advance(self.search, self.store, frames, frame, stop)
            if status == OK:
                pace.note(frame - before, time.perf_counter() - began)
            else:
                self.provide(status)
            # Not after the last frame: finished work is not lost.
            if frame < num_frames:
                check()

    def provide(self, status: int) -> None:
        """Satisfy the status of a kernel: larger arrays, or scores of a model."""
        if status == ASK:
            self.model.answer(self.store)
        else:
            self.store = grown(self.store, status)


def store_pool(records: Mapping[str, np.dtype], first_size: int) -> Pool[Store]:
    """Return a pool of stores: `take(beam_size)`, and `give_back`."""
    # `records` are the types of beam, candidate, trace, history and, optionally, part.
    # Candidates have the fields `key node token total`, where `key` identifies the
    # history, and nodes of trees `parent symbol`. Arrays start with `first_size`
    # candidates and nodes.
    return Pool(partial(_new_store, records, first_size), fits=_has_beam)


def _has_beam(store: Store, beam_size: int) -> bool:
    return len(store.beam) >= beam_size


def give_back(pool: Pool[Store], store: Store) -> None:
    """Return a store to the pool, unless its trees have grown too large."""
    if max(len(store.parts), len(store.histories)) <= _MAX_KEPT:
        pool.give(store)


def _new_store(records: Mapping[str, np.dtype], size: int, beam_size: int) -> Store:
    num_parts = size if "part" in records else 0
    return Store(
        beam=np.zeros(beam_size, records["beam"]),
        trace=np.zeros(max(size, beam_size), records["trace"]),
        parts=np.zeros(num_parts, records.get("part")),
        part_slots=np.zeros(_table_size(num_parts), SLOT),
        histories=np.zeros(size, records["history"]),
        history_slots=np.zeros(_table_size(size), SLOT),
        **_of_candidates(records["candidate"], size),
        stack=np.zeros(STACK, np.int64),
        counts=np.zeros(16, np.int64),
        flags=np.zeros(size, np.bool_),
        limits=np.zeros(2),
    )


def _of_candidates(dtype: np.dtype, size: int) -> dict[str, np.ndarray]:
    return {
        "candidates": np.zeros(size, dtype),
        "slots": np.zeros(_table_size(size), np.int64),
        "order": np.zeros(size, np.int32),
        "keys": np.zeros(size, np.uint64),
    }


def _table_size(count: int) -> int:
    return 1 << (2 * count - 1).bit_length()


def grown(store: Store, status: int) -> Store:
    """Return a store with twice the capacity of the array that the status names."""
    if status == GROW_CANDIDATES:
        size = 2 * len(store.candidates)
        return store._replace(**_of_candidates(store.candidates.dtype, size))
    if status == GROW_TRACE:
        return store._replace(trace=longer(store.trace, 2 * len(store.trace)))
    is_part = status == GROW_PARTS
    nodes = store.parts if is_part else store.histories
    nodes = longer(nodes, 2 * len(nodes))
    slots = np.zeros(_table_size(len(nodes)), SLOT)
    count = store.counts[PARTS if is_part else HISTORIES]
    _enter_all(nodes["parent"], nodes["symbol"], slots, count)
    if is_part:
        return store._replace(parts=nodes, part_slots=slots)
    return store._replace(histories=nodes, history_slots=slots)
