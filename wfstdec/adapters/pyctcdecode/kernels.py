"""pyctcdecode's prefix beam search in numba: one utterance, frame after frame.

    for each frame:   emit      every token with every beam; equal beams are one,
                                their alignments summed
                      score     the language model and hotwords, of each beam
                      choose    those near the best, at most `beam_width`, in order
                      settle    they are the next beams

Beams are visited token by token in the order of `visit_order.py`, and those of one
frame stand in the order of their first visit: it decides ties, and whose frames a beam
has, as there. A frame changes nothing of the beams before it until `settle`, so that
it can be done again when arrays must grow, or the host must score something.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import float64, int32, int64, uint64

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.prefix_tree import (
    end_score,
    part_child,
    text_child,
    word_score,
)
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.sorting import best_first
from wfstdec.lm.kernels import step

_TEXT, _PART = uint64(0x9E3779B97F4A7C15), uint64(0xC2B2AE3D27D4EB4F)
_LAST, _HALF = uint64(0x165667B19E3779F9), uint64(32)
_LOW = int64(0xFFFFFFFF)
_NOTHING_MORE = -37.0
"""exp of it is lost beside 1."""


@kernel
def advance(search, store, splits, tokens, logps, first):
    """Pass the beams through the frames from `first` on.

    Args:
        search: What does not change.
        store: The utterance.
        splits: int64 [T + 1], where the tokens of each frame stand.
        tokens: int32, in the order of their visits.
        logps: float64, of these.
        first: The frame to begin with.

    Returns:
        (status, frame): OK and T, or what must be done before this frame is done again.
    """
    counts = store.counts
    num_frames = len(splits) - 1
    for frame in range(first, num_frames):
        forced = counts[k.FORCED] != 0
        status, count, forced = _emit(
            search, store, tokens, logps, splits[frame], splits[frame + 1], forced
        )
        if status == k.OK:
            status = _score(search, store, count)
        # Trees may have grown, but no beam has changed: the frame is done again.
        if status != k.OK:
            return status, frame
        chosen = _choose(search.params, store, count, search.params.prunes_history)
        if counts[k.NUM_FRAMES] + chosen > len(store.frames):
            return k.GROW_FRAMES, frame
        _settle(search.params, store, chosen)
        counts[k.FORCED] = int64(forced)
        counts[k.DONE] += 1
    return k.OK, num_frames


@inlined
def _emit(search, store, tokens, logps, begin, end, forced):
    """Make the entries of a frame: status, how many, whether a word is forced."""
    table, params, counts = search.tokens, search.params, store.counts
    num_beams, count = counts[k.BEAMS], int64(0)
    # Slots of former frames have other stamps and count as free.
    counts[k.STAMP] += 1
    for i in range(num_beams):
        store.ended[i] = -1
    frame = counts[k.DONE]
    for at in range(begin, end):
        token, logp = tokens[at], logps[at]
        kind, alias = table.kind[token], table.alias[token]
        fresh = int64(-1)  # the part that begins with this token
        for i in range(num_beams):
            beam = store.beams[i]
            text, part = int64(beam.text), int64(beam.part)
            start, stop, ends = beam.start, beam.end, False
            if kind == k.BLANK:
                pass
            elif beam.last == alias:
                stop = int32(frame + 1)
            elif kind == k.SPACE or (
                params.is_bpe
                and (kind == k.STARTS or forced or store.parts[part].char == k.CLOSED)
            ):
                ends = part != 0
                if ends:  # once for all tokens
                    if store.ended[i] < 0:
                        store.ended[i] = text_child(search, store, text, part)
                    text = int64(store.ended[i])
                    if text < 0:
                        return k.GROW_TEXTS, count, forced
                # A first part is the same for all beams.
                if fresh < 0:
                    fresh = _first_part(search, store, token)
                    if fresh < 0:
                        return k.GROW_PARTS, count, forced
                part, forced = fresh, params.faithful and table.closes[token]
                start, stop = int32(frame), int32(frame + 1)
                if part == 0 and not (params.is_bpe and params.faithful):
                    start, stop = int32(-1), int32(-1)
            else:
                part = _go_on(search, store, token, part)
                if part < 0:
                    return k.GROW_PARTS, count, forced
                start = int32(frame) if start < 0 else start
                stop = int32(frame + 1)
            slot, found = _find(store, text, part, alias)
            logit = beam.logit + logp
            if found < 0:
                if count >= len(store.entries):
                    return k.GROW_ENTRIES, count, forced
                entry = store.entries[count]
                entry.text, entry.part, entry.last = text, part, alias
                store.entry_slots[slot] = (counts[k.STAMP] << 32) | count
                count += 1
            else:
                entry = store.entries[found]
                # The order of sums is that of pyctcdecode's loops: tokens outside,
                # beams inside.
                logit = log_sum(entry.logit, logit)
            entry.logit, entry.frames = logit, beam.frames
            entry.start, entry.end, entry.word_start = start, stop, beam.start
            entry.word_end = beam.end if ends else int32(-1)
    return k.OK, count, forced


@part
def _first_part(search, store, token):
    """The part that begins with a token."""
    table, part = search.tokens, int64(0)
    for at in range(table.first_splits[token], table.first_splits[token + 1]):
        part = part_child(search, store, part, int64(table.first_chars[at]))
        if part < 0:
            return part
    if part > 0 and table.closes[token] and not search.params.faithful:
        part = part_child(search, store, part, int64(k.CLOSED))
    return part


@inlined
def _go_on(search, store, token, part):
    """The part with a token behind it."""
    table = search.tokens
    for at in range(table.char_splits[token], table.char_splits[token + 1]):
        part = part_child(search, store, part, int64(table.chars[at]))
        if part < 0:
            break
    return part


@inlined
def _find(store, text, part, last):
    """The slot of a beam, and its entry, -1 where this frame has none."""
    slots, entries, stamp = store.entry_slots, store.entries, store.counts[k.STAMP]
    mask = len(slots) - 1
    key = uint64(text) * _TEXT + uint64(part) * _PART + uint64(int64(last)) * _LAST
    slot = int64((key ^ (key >> _HALF)) & uint64(mask))
    while True:
        held = slots[slot]
        if held >> 32 != stamp:
            return slot, int64(-1)
        found = held & _LOW
        entry = entries[found]
        if entry.text == text and entry.part == part and entry.last == last:
            return slot, found
        slot = (slot + 1) & mask


@inlined
def log_sum(a, b):
    """ln(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    if b - a < _NOTHING_MORE:
        return a
    return a + math.log(1.0 + math.exp(b - a))


@inlined
def _score(search, store, count):
    """Add what language model and hotwords say; OK, or ASK."""
    params, texts, parts = search.params, store.texts, store.parts
    asked = int64(0)
    for i in range(count):
        entry = store.entries[i]
        text, part = texts[entry.text], parts[entry.part]
        if params.has_lm:
            # Added in the order in which pyctcdecode adds, to the last bit.
            entry.total = entry.logit + (text.score + part.score)
        else:
            entry.total = (entry.logit + text.score) + part.score
        if params.asks:
            if not text.is_scored:
                store.asks[asked] = entry.text
                asked += 1
            if not part.is_scored:
                store.asks[asked] = -1 - entry.part
                asked += 1
    store.counts[k.ASKS] = asked
    return k.ASK if asked > 0 else k.OK


@inlined
def _choose(params, store, count, prunes_history):
    """Put the best entries into `order`, the best first; how many."""
    entries, order = store.entries, store.order
    best = -np.inf
    for i in range(count):
        best = max(best, entries[i].total)
    least, kept = best + params.beam_prune_logp, int64(0)
    for i in range(count):
        if entries[i].total >= least:
            store.keys[kept] = sort_key(entries[i].total)
            order[kept] = i
            kept += 1
    best_first(store.keys, order, kept, params.beam_width, store.stack)
    kept = min(kept, params.beam_width)
    if prunes_history:
        kept = _prune_history(store, kept)
    return kept


@inlined
def sort_key(total):
    """A uint64 that is less for a higher float64."""
    bits = float64(total + 0.0).view(np.uint64)  # no -0.0
    sign = uint64(1) << uint64(63)
    return bits if bits & sign else ~bits & ~sign


@inlined
def _prune_history(store, kept):
    """Drop what differs from something better only in words long past; how many."""
    counts, slots, texts = store.counts, store.entry_slots, store.texts
    counts[k.STAMP] += 1
    mask, left = len(slots) - 1, int64(0)
    for i in range(kept):
        entry = store.entries[store.order[i]]
        history = texts[entry.text].history
        key = history + uint64(int64(entry.part)) * _PART
        key += uint64(int64(entry.last)) * _LAST
        slot = int64((key ^ (key >> _HALF)) & uint64(mask))
        is_new = True
        while slots[slot] >> 32 == counts[k.STAMP]:
            other = store.entries[slots[slot] & _LOW]
            same = other.part == entry.part and other.last == entry.last
            if same and texts[other.text].history == history:
                is_new = False
                break
            slot = (slot + 1) & mask
        # In the order of totals, so that the first of its kind is the best.
        if is_new:
            slots[slot] = (counts[k.STAMP] << 32) | int64(store.order[i])
            store.order[left] = store.order[i]
            left += 1
    return left


@inlined
def _settle(params, store, chosen):
    """Make beams of the entries in `order`."""
    counts = store.counts
    for i in range(chosen):
        entry, beam = store.entries[store.order[i]], store.beams[i]
        frames = entry.frames
        if entry.word_end >= 0:  # a word ended here, with its frames
            node = store.frames[counts[k.NUM_FRAMES]]
            node.previous, node.start = frames, entry.word_start
            node.end = entry.word_end
            frames = int32(counts[k.NUM_FRAMES])
            counts[k.NUM_FRAMES] += 1
        beam.logit, beam.total = entry.logit, entry.total
        beam.text, beam.part, beam.last = entry.text, entry.part, entry.last
        beam.frames, beam.start, beam.end = frames, entry.start, entry.end
    counts[k.BEAMS] = chosen


@kernel
def finish(search, store):
    """End the utterance: the endings are the entries in `order`, the best first.

    `start` and `end` of an ending are the frames of the word that ended with the
    utterance; `end` is -1 if none did.

    Returns:
        The status, as of `advance`; `counts[CHOSEN]` says how many there are.
    """
    params, counts, count = search.params, store.counts, int64(0)
    counts[k.STAMP] += 1
    for i in range(counts[k.BEAMS]):
        beam = store.beams[i]
        text, part = int64(beam.text), int64(beam.part)
        if part != 0:
            text = text_child(search, store, text, part)
            if text < 0:
                return k.GROW_TEXTS
        slot, found = _find(store, text, int64(0), int64(-1))
        logit = beam.logit
        if found < 0:
            if count >= len(store.entries):
                return k.GROW_ENTRIES
            entry = store.entries[count]
            entry.text, entry.part, entry.last = text, 0, -1
            store.entry_slots[slot] = (counts[k.STAMP] << 32) | count
            count += 1
        else:
            entry = store.entries[found]
            logit = log_sum(entry.logit, logit)
        entry.logit, entry.frames, entry.start = logit, beam.frames, beam.start
        entry.end = beam.end if part != 0 else int32(-1)
        entry.word_end = part
    status = _score_endings(search, store, count)
    if status == k.OK:
        counts[k.CHOSEN] = _choose(params, store, count, False)
    return status


@inlined
def _score_endings(search, store, count):
    """Scores of whole utterances; `word_end` is the part of the last beam merged."""
    params, texts, asked = search.params, store.texts, int64(0)
    for i in range(count):
        entry = store.entries[i]
        text = texts[entry.text]
        if params.asks and not text.is_ended:
            store.asks[asked] = entry.text
            asked += 1
        if params.has_lm and not params.asks:
            text.ended = text.raw + end_score(search, text.state)
            # As if an unknown word without a letter had been said.
            if params.faithful and entry.word_end == 0:
                unknown, state = int64(len(search.automaton.label_alias)), text.state
                score = word_score(search, state, unknown, False)
                text.state = step(search.automaton, 0, state, unknown)[1]
                text.ended = text.raw + score + end_score(search, text.state)
        if params.has_lm:
            hot = params.hotword_weight * text.hot_words
            entry.total = entry.logit + (text.ended + hot)
        else:
            entry.total = entry.logit + text.score
    store.counts[k.ASKS] = asked
    return k.ASK if asked > 0 else k.OK
