"""Boosts with states on rows of LG: phrases, and bonuses above an instalment.

    phrases = row_phrases(tables, num_tokens)     # once for each list
    paid, boost = step(rows, params, words, phrases, boost, label, position, arc, word)

A token arc is a step of phrases of tokens; one with a word is one of phrases of words,
and of what is owed both. Blanks and repeats are none. In the quiet boost state nothing
happens on most arcs: `may_step` tells which.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.kernels import (
    BIT,
    LOW_BITS,
    NO_BITS,
    credit,
    hot_window,
    pay,
    state_of,
    word_bonus,
)
from wfstdec.boost.tables import PhraseRows
from wfstdec.jit import inlined, read_only
from wfstdec.text.symbols import ilabel_of

FIRST_TOKEN = ilabel_of(0)
"""Label of token 0 in phrases of tokens."""
_TOKENS = uint64(FIRST_TOKEN)
_NO_LABEL = uint32(0)


class RowPhrases(NamedTuple):
    """`PhraseRows`, field for field, and what beginning a phrase is paid."""

    rows: np.ndarray
    arcs: np.ndarray
    dense: np.ndarray
    final_cost: np.ndarray
    credited: np.ndarray
    num_labels: np.uint32
    of_words: bool
    of_tokens: bool
    quiet: np.uint32
    begun: np.uint64
    start: np.uint32
    begins: np.ndarray  # float32 [V and more]: no less than a quiet entry is paid


def row_phrases(phrases: PhraseRows, num_tokens: int) -> RowPhrases:
    """Phrases as the search on rows takes them.

    Args:
        phrases: Those of a graph, whose token 0 is label `FIRST_TOKEN`.
        num_tokens: V.
    """
    begins = np.zeros((num_tokens // 64 + 1) * 64, np.float32)
    if phrases.of_tokens:
        root = int(phrases.rows["dense"][0]) + FIRST_TOKEN
        costs = phrases.dense["cost"][root : root + num_tokens]
        begins[:num_tokens] = np.maximum(-costs, 0)
    return RowPhrases(*phrases, read_only(begins))


@inlined
def bonus_at(rows, words, position, arc):
    """The bonus of the word on an arc of the packed graph, 0 where it has none.

    `position`: that of the arc among those of rows and, behind them, epsilon arcs.
    """
    if hot_window(words, position) & BIT == NO_BITS:
        return float32(0)
    return word_bonus(words, rows.said[uint64(arc)].olabel)


@inlined
def tokens_of(labels):
    """The tokens of a set of labels, both modulo 64."""
    return labels >> _TOKENS | labels << (uint64(64) - _TOKENS)


@inlined
def may_step(words, phrases, boost, label, position, has_word):
    """Tell whether boosts may do anything on an arc; arguments as of `step`."""
    if boost != phrases.quiet:
        return True
    if phrases.of_tokens:
        if phrases.begun >> (uint64(label) & LOW_BITS) & BIT != NO_BITS:
            return True
    return has_word and hot_window(words, position) & BIT != NO_BITS


@inlined
def step(rows, params, words, phrases, boost, label, position, arc, has_word):
    """Pay a step: float32 nats, and the boost state after it.

    Args:
        rows: The graph.
        params: The options.
        words: The boosted ones.
        phrases: `RowPhrases`.
        boost: The boost state before.
        label: That of the token on the arc, 0 on an epsilon arc.
        position: Of the arc, as of `bonus_at`.
        arc: The packed graph's.
        has_word: Whether it has a word.
    """
    worth, by = float32(0), _NO_LABEL
    if label == _NO_LABEL and not has_word:
        return worth, uint32(boost)
    if phrases.of_tokens:
        by = uint32(label)
    if has_word:
        if phrases.of_words:
            by = uint32(rows.said[uint64(arc)].olabel)
        if params.has_words:
            worth = bonus_at(rows, words, position, arc)
    worth, state = credit(phrases, by != _NO_LABEL, state_of(boost), by, worth)
    return pay(boost, state, worth, params.instalment)
