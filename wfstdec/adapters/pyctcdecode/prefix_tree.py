"""The trees of an utterance, parts of words and texts, in arrays that are kept.

    part = part_child(search, store, part, char)       # the word goes on
    text = text_child(search, store, text, part)       # the word is said

Both are -1 where the arrays are full. A node has its scores from the first, unless the
host is to give them (`SearchParams.asks`). The arrays of utterances under way are made,
begun, enlarged, and kept for the next one:

    store = pool.take(beam_width); begin(search, store)
    status, frame = advance(search, store, ...); store = enlarged(store, status)
    give_back(pool, store)
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy import int32, int64, uint64

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.constants import (
    AVG_TOKEN_LEN,
    LOG_BASE_CHANGE_FACTOR,
)
from wfstdec.adapters.pyctcdecode.word_tree import SLOT, enter, find_child, slot_of
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.pool import Pool
from wfstdec.jit.records import longer
from wfstdec.jit.sorting import STACK
from wfstdec.lm.kernels import final, step

_MIX = uint64(0xFF51AFD7ED558CCD)
_SEED = uint64(0x9E3779B97F4A7C15)
_SHIFT = uint64(29)
_FIRST = 2048
_KEPT_NODES = 1 << 16
"""Trees that have grown beyond it are not kept: emptying their tables takes time."""


@inlined
def part_child(search, store, parent, char):
    """The part behind a character."""
    slot = slot_of(store.part_slots, parent, char)
    if slot.node == 0:
        return _new_part(search, store, parent, char, slot)
    return int64(slot.node)


@part
def _new_part(search, store, parent, char, slot):
    parts, count = store.parts, store.counts[k.NUM_PARTS]
    if count >= len(parts):
        return int64(-1)
    before, node = parts[parent], parts[count]
    node.parent, node.char = parent, char
    # The same characters, but the word must end: of scores nothing is new.
    if char == k.CLOSED:
        node.score, node.length, node.label = before.score, before.length, before.label
        node.vocabulary, node.hot = before.vocabulary, before.hot
        node.is_known, node.is_hot = before.is_known, before.is_hot
        node.is_scored = before.is_scored
    else:
        node.length = before.length + 1
        vocabulary, hot = int64(before.vocabulary), int64(before.hot)
        if vocabulary >= 0:
            vocabulary = find_child(search.vocabulary, vocabulary, char)
        if hot >= 0:
            hot = find_child(search.hotwords, hot, char)
        node.vocabulary, node.hot = vocabulary, hot
        _score_part(search, node)
    store.counts[k.NUM_PARTS] = count + 1
    slot.parent, slot.char, slot.node = parent, char, count
    return count


@inlined
def _score_part(search, node):
    """Score a part while it is under way, and as a word."""
    params, vocabulary, hot = search.params, int64(node.vocabulary), int64(node.hot)
    length, word = int64(node.length), int32(-1)
    if vocabulary >= 0:
        word = search.vocabulary.word[vocabulary]
    # Labels are the words but for position 0; whatever is behind them is `<unk>`.
    node.label = word + 1 if word >= 0 else len(search.automaton.label_alias)
    least = search.vocabulary.least[vocabulary] if vocabulary >= 0 else int32(0)
    node.is_known = word >= 0 and search.is_listed[word]
    node.is_hot = hot >= 0 and search.hotwords.word[hot] >= 0
    node.is_scored = True
    node.score = 0.0
    if hot >= 0:
        shortest = search.hotwords.least[hot]
        node.score = params.hotword_weight * length / shortest
    elif params.asks:
        node.is_scored = False
    elif params.has_lm and least == 0:
        node.score = params.unk_offset
        if length > AVG_TOKEN_LEN:
            node.score = params.unk_offset * length / AVG_TOKEN_LEN


@inlined
def text_child(search, store, parent, part):
    """The text with one more word."""
    word = int64(part)
    if store.parts[part].char == k.CLOSED:
        word = int64(store.parts[part].parent)
    slot = slot_of(store.text_slots, parent, word)
    if slot.node == 0:
        return _new_text(search, store, parent, word, slot)
    return int64(slot.node)


@part
def _new_text(search, store, parent, word, slot):
    texts, count, params = store.texts, store.counts[k.NUM_TEXTS], search.params
    if count >= len(texts):
        return int64(-1)
    before, node, part = texts[parent], texts[count], store.parts[word]
    node.parent, node.word = parent, word
    node.hot_words = before.hot_words + int32(part.is_hot)
    node.raw, node.state = before.raw, before.state
    node.is_scored, node.is_ended = not params.asks, False
    if params.has_lm and not params.asks:
        node.raw += word_score(search, before.state, part.label, part.is_known)
        node.state = step(search.automaton, 0, before.state, part.label)[1]
    node.score = node.raw + params.hotword_weight * node.hot_words
    store.counts[k.NUM_TEXTS] = count + 1
    slot.parent, slot.char, slot.node = parent, word, count
    node.history = _SEED
    above = count
    # A hash of the last words: texts that differ before them alone count as one.
    for _ in range(params.history):
        if above == 0:
            break
        said = uint64(int64(texts[above].word)) + _SEED
        mixed = (node.history ^ said) * _MIX
        node.history = mixed ^ (mixed >> _SHIFT)
        above = int64(texts[above].parent)
    return count


@inlined
def word_score(search, state, label, is_known):
    """Score a word by the language model, with the reward for having it."""
    params = search.params
    cost = step(search.automaton, 0, state, label)[0]
    logp = -float(cost)
    if not is_known:
        logp += params.unk_offset * LOG_BASE_CHANGE_FACTOR
    return params.alpha * logp + params.beta


@inlined
def end_score(search, state):
    """Score the end of an utterance by the language model."""
    if not search.params.boundary:
        return 0.0
    return -search.params.alpha * float(final(search.automaton, 0, state))


def store_pool(first_size: int = _FIRST) -> Pool[k.Store]:
    """A pool of stores; `take(beam_width)` gives one for so many beams.

    Args:
        first_size: Entries and nodes that arrays have at first; they grow.
    """
    return Pool(partial(_new_store, first_size), fits=_has_beams)


def give_back(pool: Pool[k.Store], store: k.Store) -> None:
    """Put a store back, unless its trees have grown too large."""
    if max(len(store.parts), len(store.texts)) <= _KEPT_NODES:
        pool.give(store)


def _has_beams(store: k.Store, beam_width: int) -> bool:
    return len(store.beams) >= beam_width


def _table_size(count: int) -> int:
    """A power of 2, so that the table is at most half full."""
    return 1 << (2 * count - 1).bit_length()


def _new_store(size: int, beam_width: int) -> k.Store:
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
    counts, params = store.counts, search.params
    stamp = counts[k.STAMP] & 0x3FFFFFFF
    if stamp != counts[k.STAMP]:  # stamps have gone round
        store.entry_slots[:] = 0
    counts[:] = 0
    counts[k.STAMP] = stamp
    for slots in (store.part_slots, store.text_slots):
        for at in range(len(slots)):
            slots[at].node = 0
    part, text, beam = store.parts[0], store.texts[0], store.beams[0]
    part.score, part.parent, part.char, part.length = 0.0, -1, -1, 0
    part.vocabulary = 0 if params.has_lm and not params.asks else -1
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
        return store._replace(frames=longer(store.frames, 2 * len(store.frames)))
    if status == k.GROW_PARTS:
        parts = longer(store.parts, 2 * len(store.parts))
        slots = np.zeros(_table_size(len(parts)), SLOT)
        _enter(parts["parent"], parts["char"], slots, store.counts[k.NUM_PARTS])
        return store._replace(parts=parts, part_slots=slots)
    texts = longer(store.texts, 2 * len(store.texts))
    slots = np.zeros(_table_size(len(texts)), SLOT)
    _enter(texts["parent"], texts["word"], slots, store.counts[k.NUM_TEXTS])
    return store._replace(texts=texts, text_slots=slots)


@kernel
def _enter(first, second, slots, count):
    """Put the nodes of a tree, but for the root, into an empty table."""
    for node in range(1, count):
        enter(slots, first[node], second[node], node)
