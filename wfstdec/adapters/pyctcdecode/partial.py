"""Utterances that come in parts, by pyctcdecode's calls: beams out, beams in again.

    store = entered(pool, search, asked, beams, labels, first_frame)
    store = passed(store, search, kept, asked, pace)        # of `search`
    beams = read_beams(store, labels)

A beam that a user holds says all of its state, so that beams may be dropped or changed
between two calls. Its words are entered into the trees anew each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy import int64

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.beams import NULL_FRAMES, Beam, Frames
from wfstdec.adapters.pyctcdecode.prefix_tree import (
    begin,
    enlarged,
    part_child,
    text_child,
)
from wfstdec.adapters.pyctcdecode.results import text_of
from wfstdec.adapters.pyctcdecode.search import AskedModel
from wfstdec.adapters.pyctcdecode.word_tree import code_points
from wfstdec.jit import kernel
from wfstdec.jit.pool import Pool

_NO_LABEL = -1


def entered(
    pool: Pool[k.Store],
    search: k.Search,
    asked: AskedModel | None,
    beams: Sequence[Beam],
    labels: Sequence[str],
    first_frame: int,
) -> k.Store:
    """Enter beams into a store, in their order.

    Args:
        pool: Where its arrays come from.
        search: What is searched with.
        asked: The model that the host asks; None where the kernels have it.
        beams: Of the frames before.
        labels: Of the tokens.
        first_frame: The number of the frame to come.
    """
    # Of equal labels the first token counts.
    tokens = {label: token for token, label in reversed(list(enumerate(labels)))}
    store = pool.take(max(search.params.beam_width, len(beams)))
    begin(search, store)
    places = []
    for beam in beams:
        words = [*beam.text.split(), *beam.next_word.split()]
        splits, chars = code_points([*words, beam.partial_word])
        status = -1
        while status != k.OK:
            store = store if status < 0 else enlarged(store, status)
            status, *place = _enter(search, store, chars, splits, beam.is_closed)
        places.append(place)
    if asked is not None:
        # Have the host score all texts, those before others first, and these parts.
        parts = [part for _, part in places]
        texts = range(1, int(store.counts[k.NUM_TEXTS]))
        wanted = [*texts, *(-1 - part for part in dict.fromkeys(parts) if part > 0)]
        asks = np.array(wanted, np.int64)
        counts = store.counts.copy()
        counts[k.ASKS] = len(asks)
        asked.answer(search, store._replace(asks=asks, counts=counts))
    for i, (beam, (text, part)) in enumerate(zip(beams, places, strict=True)):
        store, frames = _with_frames(store, beam.text_frames)
        start, end = beam.partial_frames
        last = _NO_LABEL if beam.last_char is None else tokens[beam.last_char]
        scores = float(store.texts[text]["score"]) + float(store.parts[part]["score"])
        total = beam.logit_score + scores
        record = (beam.logit_score, total, text, part, last, frames, start, end)
        store.beams[i] = record
    store.counts[k.BEAMS] = len(beams)
    store.counts[k.DONE] = first_frame
    return store


def read_beams(store: k.Store, labels: Sequence[str]) -> list[Beam]:
    """The beams of a store, best first."""
    return [
        _read(store, record, labels) for record in store.beams[: store.counts[k.BEAMS]]
    ]


def read_ended(store: k.Store) -> list[Beam]:
    """The endings that `finish` left, best first, as beams."""
    chosen = store.order[: store.counts[k.CHOSEN]]
    found = []
    for entry in store.entries[chosen]:
        frames = _frames_of(store, int(entry["frames"]))
        if entry["end"] >= 0:
            frames.append((int(entry["start"]), int(entry["end"])))
        text = _words_of(store, int(entry["text"]))
        scores = float(entry["logit"]), float(entry["total"])
        found.append(Beam(text, "", "", None, frames, NULL_FRAMES, *scores))
    return found


def with_words_ended(beams: Sequence[Beam]) -> list[Beam]:
    """End the words under way; equal texts become one, their alignments summed."""
    merged: dict[str, Beam] = {}
    for beam in beams:
        frames = beam.text_frames
        if beam.partial_word:
            frames = [*frames, beam.partial_frames]
        text = " ".join(one for one in (beam.text, beam.partial_word) if one)
        logit = beam.logit_score
        if text in merged:
            logit = float(np.logaddexp(merged[text].logit_score, logit))
        merged[text] = Beam(text, "", "", None, frames, NULL_FRAMES, logit)
    return list(merged.values())


def near_the_best(beams: Sequence[Beam], prune_logp: float, width: int) -> list[Beam]:
    """Sort beams, and drop those that are much worse than the best, or too many."""
    best = max((beam.lm_score for beam in beams), default=-math.inf)
    kept = [beam for beam in beams if beam.lm_score >= best + prune_logp]
    return sorted(kept, key=lambda beam: -beam.lm_score)[:width]


@kernel
def _enter(search, store, chars, splits, is_closed):
    """Enter the words of a text, and the word under way behind them."""
    text, part, last = int64(0), int64(0), len(splits) - 2
    for word in range(last + 1):
        part = int64(0)
        for at in range(splits[word], splits[word + 1]):
            part = part_child(search, store, part, int64(chars[at]))
            if part < 0:
                return k.GROW_PARTS, text, part
        if word < last:
            text = text_child(search, store, text, part)
            if text < 0:
                return k.GROW_TEXTS, text, part
    if is_closed and part > 0:
        part = part_child(search, store, part, int64(k.CLOSED))
        if part < 0:
            return k.GROW_PARTS, text, part
    return k.OK, text, part


def _with_frames(store: k.Store, frames: Sequence[Frames]) -> tuple[k.Store, int]:
    """Enter the frames of a text's words; also the node of the last, or -1."""
    first = int(store.counts[k.NUM_FRAMES])
    while first + len(frames) > len(store.frames):
        store = enlarged(store, k.GROW_FRAMES)
    node = -1
    for i, (start, end) in enumerate(frames):
        store.frames[first + i] = (node, start, end)
        node = first + i
    store.counts[k.NUM_FRAMES] = first + len(frames)
    return store, node


def _read(store: k.Store, record: np.void, labels: Sequence[str]) -> Beam:
    part, last = int(record["part"]), int(record["last"])
    return Beam(
        text=_words_of(store, int(record["text"])),
        next_word="",
        partial_word=text_of(store, part),
        last_char=None if last < 0 else labels[last],
        text_frames=_frames_of(store, int(record["frames"])),
        partial_frames=(int(record["start"]), int(record["end"])),
        logit_score=float(record["logit"]),
        lm_score=float(record["total"]),
        is_closed=part > 0 and int(store.parts[part]["char"]) == k.CLOSED,
    )


def _words_of(store: k.Store, node: int) -> str:
    words = []
    while node > 0:
        text = store.texts[node]
        words.append(text_of(store, int(text["word"])))
        node = int(text["parent"])
    return " ".join(words[::-1])


def _frames_of(store: k.Store, node: int) -> list[Frames]:
    found = []
    while node >= 0:
        one = store.frames[node]
        found.append((int(one["start"]), int(one["end"])))
        node = int(one["previous"])
    return found[::-1]
