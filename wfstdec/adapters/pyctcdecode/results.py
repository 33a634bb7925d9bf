"""Results of a search as users read them: texts, frames of words, scores.

endings = read_endings(store, 1)             # the best one; None for all
endings[0].text, endings[0].words            # 'a b', [('a', (3, 5)), ('b', (7, 8))]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import int64

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.jit import kernel

_BETWEEN = "\0"
"""Between two texts."""


class Found(NamedTuple):
    """Text of an utterance, with frames and scores.

    Attributes:
        text: Its words.
        state: Of the language model behind the last word.
        words: Each word with its first frame, and the one behind its last.
        logit_score: The log-sum of its alignments, nats.
        total: The same with language model and hotwords.
    """

    text: str
    state: int
    words: list[tuple[str, tuple[int, int]]]
    logit_score: float
    total: float


def read_endings(store: k.Store, count: int | None = None) -> list[Found]:
    """The endings that `finish` left, best first.

    Args:
        store: The utterance.
        count: So many at most; None for all.
    """
    chosen = int(store.counts[k.CHOSEN])
    chosen = chosen if count is None else min(chosen, count)
    order = store.order[:chosen]
    sizes = np.zeros(2, np.int64)
    _measure(store, order, sizes)
    chars, frames = np.zeros(sizes[0], np.int32), np.zeros((sizes[1], 2), np.int32)
    splits = np.zeros(chosen + 1, np.int64)
    _write(store, order, chars, frames, splits)
    texts = chars.tobytes().decode("utf-32-le", "surrogatepass").split(_BETWEEN)
    spans = list(map(tuple, frames.tolist()))
    entries = store.entries[order]
    states = store.texts["state"][entries["text"]].tolist()
    scores = zip(entries["logit"].tolist(), entries["total"].tolist(), strict=True)
    found = []
    for i, (logit, total) in enumerate(scores):
        said = texts[i].split()
        words = list(zip(said, spans[splits[i] : splits[i + 1]], strict=False))
        found.append(Found(" ".join(said), states[i], words, logit, total))
    return found


def text_of(store: k.Store, node: int) -> str:
    """A word or the beginning of one."""
    chars = []
    while node > 0:
        one = store.parts[node]
        if one["char"] != k.CLOSED:
            chars.append(int(one["char"]))
        node = int(one["parent"])
    joined = np.array(chars[::-1], np.int32).tobytes()
    return joined.decode("utf-32-le", "surrogatepass")


@kernel
def _measure(store, order, sizes):
    """Count characters and words of endings, with one character behind each."""
    for i in order:
        entry = store.entries[i]
        node = int64(entry.text)
        sizes[0] += 1
        while node > 0:
            sizes[0] += store.parts[store.texts[node].word].length + 1
            sizes[1] += 1
            node = int64(store.texts[node].parent)


@kernel
def _write(store, order, chars, frames, splits):
    """Write them, each from its end to its beginning; text and frames of all in a row.

    Every word has a space behind it, and every text a 0.
    """
    end, last = len(chars), len(frames)
    # Trees lead from the end to the beginning: written backwards, all comes out
    # forwards, without a copy.
    for n in range(len(order) - 1, -1, -1):
        entry = store.entries[order[n]]
        splits[n + 1] = last
        end -= 1
        chars[end] = 0
        node, at = int64(entry.text), int64(entry.frames)
        if entry.end >= 0:
            last -= 1
            frames[last, 0], frames[last, 1] = entry.start, entry.end
        while at >= 0:
            last -= 1
            one = store.frames[at]
            frames[last, 0], frames[last, 1] = one.start, one.end
            at = int64(one.previous)
        while node > 0:
            end -= 1
            chars[end] = 32
            part = int64(store.texts[node].word)
            while part > 0:
                end -= 1
                chars[end] = store.parts[part].char
                part = int64(store.parts[part].parent)
            node = int64(store.texts[node].parent)
    splits[0] = last
