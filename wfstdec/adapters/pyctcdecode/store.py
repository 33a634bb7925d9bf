"""The arrays of utterances under way: made, begun, enlarged, and kept for the next one.

store = pool.take(beam_width); begin(search, store)
status, frame = advance(search, store, ...); store = enlarged(store, status)
pool.give(store)
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.word_tree import SLOT, enter
from wfstdec.jit import inlined, kernel
from wfstdec.jit.ordering import STACK

_FIRST = 2048
_KEPT_NODES = 1 << 16
"""Trees that have grown beyond it are not kept: emptying their tables takes time."""


class Pool:
    """Stores that nobody uses.

    Args:
        first_size: Entries and nodes that arrays have at first; they grow.
    """

    def __init__(self, first_size: int = _FIRST) -> None:
        self._first_size = first_size
        self._lock = threading.Lock()
        self._stores: list[k.Store] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy begins empty."""
        return Pool, (self._first_size,)

    def take(self, beam_width: int) -> k.Store:
        """A store for so many beams."""
        with self._lock:
            for i, store in enumerate(self._stores):
                if len(store.beams) >= beam_width:
                    return self._stores.pop(i)
        return _new_store(beam_width, self._first_size)

    def give(self, store: k.Store) -> None:
        """Put one back."""
        if max(len(store.parts), len(store.texts)) <= _KEPT_NODES:
            with self._lock:
                self._stores.append(store)


def _table_size(count: int) -> int:
    """A power of 2, so that the table is at most half full."""
    return 1 << (2 * count - 1).bit_length()


def _new_store(beam_width: int, size: int) -> k.Store:
    slots = _table_size(size)
    return k.Store(
        beams=np.zeros(beam_width, k.BEAM),
        parts=np.zeros(size, k.PART),
        texts=np.zeros(size, k.TEXT),
        frames=np.zeros(max(size, beam_width), k.FRAMES),
        part_slots=np.zeros(slots, SLOT),
        text_slots=np.zeros(slots, SLOT),
        entries=np.zeros(size, k.ENTRY),
        entry_slots=np.zeros(slots, np.int64),
        order=np.zeros(size, np.int32),
        keys=np.zeros(size, np.uint64),
        stack=np.zeros(STACK, np.int64),
        ended=np.zeros(beam_width, np.int32),
        asks=np.zeros(2 * size, np.int64),
        counts=np.zeros(16, np.int64),
    )


@kernel
def begin(search, store):
    """Make the first beam: nothing said."""
    counts, scales = store.counts, search.scales
    stamp = counts[k.STAMP] & 0x3FFFFFFF
    if stamp != counts[k.STAMP]:  # stamps have gone round
        store.entry_slots[:] = 0
    counts[:] = 0
    counts[k.STAMP] = stamp
    _empty(store.part_slots)
    _empty(store.text_slots)
    part, text, beam = store.parts[0], store.texts[0], store.beams[0]
    part.score, part.parent, part.char, part.length = 0.0, -1, -1, 0
    part.vocabulary = 0 if scales.has_lm and not scales.asks else -1
    part.hot = 0 if len(search.hotwords.word) > 1 else -1
    part.label = len(search.automaton.label_alias)
    part.is_known, part.is_hot, part.is_scored = False, False, True
    text.raw, text.score, text.ended, text.history = 0.0, 0.0, 0.0, 0
    text.parent, text.word, text.state = -1, 0, search.start_state
    text.hot_words, text.is_scored, text.is_ended = 0, True, False
    beam.logit, beam.total, beam.text, beam.part, beam.last = 0.0, 0.0, 0, 0, -1
    beam.frames, beam.start, beam.end = -1, -1, -1
    counts[k.BEAMS], counts[k.NUM_PARTS], counts[k.NUM_TEXTS] = 1, 1, 1


def enlarged(store: k.Store, status: int) -> k.Store:
    """The store with twice the room where a kernel found none."""
    if status == k.GROW_ENTRIES:
        size = 2 * len(store.entries)
        return store._replace(
            entries=np.zeros(size, k.ENTRY),
            entry_slots=np.zeros(_table_size(size), np.int64),
            order=np.zeros(size, np.int32),
            keys=np.zeros(size, np.uint64),
            asks=np.zeros(2 * size, np.int64),
        )
    if status == k.GROW_FRAMES:
        return store._replace(frames=_twice(store.frames))
    if status == k.GROW_PARTS:
        parts = _twice(store.parts)
        slots = np.zeros(_table_size(len(parts)), SLOT)
        _enter(parts["parent"], parts["char"], slots, store.counts[k.NUM_PARTS])
        return store._replace(parts=parts, part_slots=slots)
    texts = _twice(store.texts)
    slots = np.zeros(_table_size(len(texts)), SLOT)
    _enter(texts["parent"], texts["word"], slots, store.counts[k.NUM_TEXTS])
    return store._replace(texts=texts, text_slots=slots)


def _twice(array: np.ndarray) -> np.ndarray:
    longer = np.zeros(2 * len(array), array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def _enter(first, second, slots, count):
    """Put the nodes of a tree, but for the root, into an empty table."""
    for node in range(1, count):
        enter(slots, first[node], second[node], node)


@inlined
def _empty(slots):
    for at in range(len(slots)):
        slots[at].node = 0
