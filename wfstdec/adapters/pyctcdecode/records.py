"""Records and tuples of arrays that the kernels of the pyctcdecode adapter work on.

A beam is (text, part, last): the words said, the word under way, the last token. Words
under way are nodes of a tree of characters (`PART`), texts nodes of a tree of words
(`TEXT`), both grown as the search goes: two beams with one text have one node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.adapters.pyctcdecode.word_tree import WordTree
from wfstdec.jit.records import record
from wfstdec.lm.automaton import Automaton

BEAM = record("f8 logit total", "i4 text part last frames start end")
"""A beam between frames: the log-sum of its alignments; the same with all scores;
`frames` is the node of its last word's frames, `start` and `end` are those of the word
under way, -1 where none has begun."""
ENTRY = np.dtype([*BEAM.descr, ("word_start", "<i4"), ("word_end", "<i4")])
"""A beam while its frame is made; its word that ended here, `word_end` -1 if none."""
PART = record(
    "f8 score",
    "i4 parent char length vocabulary hot label",
    "? is_known is_hot is_scored",
)
"""The beginning of a word: its score while it is under way, its last character, its
length, its nodes in the trees of known words and of hotwords (-1 outside); its label
in the language model, whether it is no `<unk>`, and whether it is a hotword."""
TEXT = record(
    "f8 raw score ended",
    "u8 history",
    "i4 parent word state hot_words",
    "? is_scored is_ended",
)
"""A text: its score by the language model, with hotwords, and with the end of the
utterance; a hash of its last words; its last word (a part); the state behind it."""
FRAMES = record("i4 previous start end")
"""The frames of a word, and the node of the word before it."""

OK, GROW_ENTRIES, GROW_PARTS, GROW_TEXTS, GROW_FRAMES, ASK = range(6)
"""What a kernel returns: done; which arrays are too small; or that the host is to score
what stands in `asks`. The frame is then done again."""
BEAMS, NUM_PARTS, NUM_TEXTS, NUM_FRAMES, STAMP, FORCED, ASKS, DONE, CHOSEN = range(9)
"""Positions in counts: how many of each there are, the last stamp of the table, whether
a word is forced to begin, things to score, frames done, and endings."""

BLANK, SPACE, STARTS, INSIDE = range(4)
"""Kinds of tokens: the blank, a space between words, a piece that starts a word."""
CLOSED = -2
"""The character that ends a part behind which a new word begins."""


class Tokens(NamedTuple):
    """The alphabet as the kernels take it, V labels.

    Attributes:
        kind: int8 [V].
        alias: int32 [V], the first token with the same label.
        closes: bool [V], whether a word must begin behind it.
        char_splits, chars: int64 [V + 1], int32: the label, when a word goes on.
        first_splits, first_chars: The same when a word begins with it.
    """

    kind: np.ndarray
    alias: np.ndarray
    closes: np.ndarray
    char_splits: np.ndarray
    chars: np.ndarray
    first_splits: np.ndarray
    first_chars: np.ndarray


class SearchParams(NamedTuple):
    """Options as the kernels take them, in nats but for `unk_offset` (log10)."""

    beam_width: int
    beam_prune_logp: float
    prunes_history: bool
    history: int  # words that tell histories apart
    alpha: float
    beta: float
    unk_offset: float
    hotword_weight: float
    has_lm: bool
    asks: bool  # whether the host scores texts and parts
    boundary: bool
    is_bpe: bool
    faithful: bool


class Search(NamedTuple):
    """Models and options of a search of an utterance; nothing in it changes."""

    tokens: Tokens
    params: SearchParams
    automaton: Automaton
    vocabulary: WordTree  # of the language model's words
    is_listed: np.ndarray  # bool: those that are no `<unk>`
    hotwords: WordTree
    start_state: int


class Store(NamedTuple):
    """Arrays that an utterance keeps between frames, and scratch.

    Attributes:
        beams: BEAM [beam_width], the best first.
        parts, texts, frames: The trees; node 0 of the first two is the empty one.
        part_slots, text_slots: SLOT, hash tables of nodes, at most half full; `char` is
            the word of a text.
        entries: ENTRY, the beams of a frame in the order of their making.
        entry_slots: int64, a hash table: stamp and entry.
        order: int32, entries, the best first.
        keys: uint64, what they are sorted by.
        stack: int64, of the sorting.
        ended: int32 [beam_width], the text of a beam with its part as a word.
        asks: int32, texts, and parts as -1 - part, that the host is to score.
        counts: int64 [16].
    """

    beams: np.ndarray
    parts: np.ndarray
    texts: np.ndarray
    frames: np.ndarray
    part_slots: np.ndarray
    text_slots: np.ndarray
    entries: np.ndarray
    entry_slots: np.ndarray
    order: np.ndarray
    keys: np.ndarray
    stack: np.ndarray
    ended: np.ndarray
    asks: np.ndarray
    counts: np.ndarray
