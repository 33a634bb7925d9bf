"""The trees of an utterance: parts of words, and texts; nodes are made when asked for.

    part = part_child(search, store, part, char)       # the word goes on
    text = text_child(search, store, text, part)       # the word is said

Both are -1 where the arrays are full. A node has its scores from the first, unless the
host is to give them (`Scales.asks`).
"""

from __future__ import annotations

from numpy import int32, int64, uint64

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.constants import (
    AVG_TOKEN_LEN,
    LOG_BASE_CHANGE_FACTOR,
)
from wfstdec.adapters.pyctcdecode.word_tree import find_child, first_slot
from wfstdec.jit import inlined, part
from wfstdec.lm.kernels import final, step

_MIX = uint64(0xFF51AFD7ED558CCD)
_SEED = uint64(0x9E3779B97F4A7C15)
_SHIFT = uint64(29)


@inlined
def part_child(search, store, parent, char):
    """The part behind a character."""
    slots, mask = store.part_slots, len(store.part_slots) - 1
    at = first_slot(parent, char, mask)
    while True:
        slot = slots[at]
        if slot.node == 0:
            return _new_part(search, store, parent, char, slot)
        if slot.parent == parent and slot.char == char:
            return int64(slot.node)
        at = (at + 1) & mask


@part
def _new_part(search, store, parent, char, slot):
    parts, count = store.parts, store.counts[k.NUM_PARTS]
    if count >= len(parts):
        return int64(-1)
    before, node = parts[parent], parts[count]
    node.parent, node.char = parent, char
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
    """What a part is worth while it is under way, and as a word."""
    scales, vocabulary, hot = search.scales, int64(node.vocabulary), int64(node.hot)
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
        node.score = scales.hotword_weight * length / shortest
    elif scales.asks:
        node.is_scored = False
    elif scales.has_lm and least == 0:
        node.score = scales.unk_offset
        if length > AVG_TOKEN_LEN:
            node.score = scales.unk_offset * length / AVG_TOKEN_LEN


@inlined
def text_child(search, store, parent, part):
    """The text with one more word."""
    slots, mask, word = store.text_slots, len(store.text_slots) - 1, int64(part)
    if store.parts[part].char == k.CLOSED:
        word = int64(store.parts[part].parent)
    at = first_slot(parent, word, mask)
    while True:
        slot = slots[at]
        if slot.node == 0:
            return _new_text(search, store, parent, word, slot)
        if slot.parent == parent and slot.char == word:
            return int64(slot.node)
        at = (at + 1) & mask


@part
def _new_text(search, store, parent, word, slot):
    texts, count, scales = store.texts, store.counts[k.NUM_TEXTS], search.scales
    if count >= len(texts):
        return int64(-1)
    before, node, part = texts[parent], texts[count], store.parts[word]
    node.parent, node.word = parent, word
    node.hot_words = before.hot_words + int32(part.is_hot)
    node.raw, node.state = before.raw, before.state
    node.is_scored, node.is_ended = not scales.asks, False
    if scales.has_lm and not scales.asks:
        node.raw += word_score(search, before.state, part.label, part.is_known)
        node.state = step(search.automaton, 0, before.state, part.label)[1]
    node.score = node.raw + scales.hotword_weight * node.hot_words
    store.counts[k.NUM_TEXTS] = count + 1
    slot.parent, slot.char, slot.node = parent, word, count
    node.history = _SEED
    above = count
    for _ in range(scales.history):
        if above == 0:
            break
        said = uint64(int64(texts[above].word)) + _SEED
        mixed = (node.history ^ said) * _MIX
        node.history = mixed ^ (mixed >> _SHIFT)
        above = int64(texts[above].parent)
    return count


@inlined
def word_score(search, state, label, is_known):
    """What the language model says of a word, with the reward for having it."""
    scales = search.scales
    cost = step(search.automaton, 0, state, label)[0]
    logp = -float(cost)
    if not is_known:
        logp += scales.unk_offset * LOG_BASE_CHANGE_FACTOR
    return scales.alpha * logp + scales.beta


@inlined
def end_score(search, state):
    """What the language model says of the end of an utterance."""
    if not search.scales.boundary:
        return 0.0
    return -search.scales.alpha * float(final(search.automaton, 0, state))
