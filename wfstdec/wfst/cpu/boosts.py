"""Costs and boosts of an arc in the CPU search.

    credit, boost = step(search, boost, label, position, arc, has_word)

Boosts have states if there are phrases, or bonuses above an instalment. A token arc
advances phrases of tokens; an arc with a word advances phrases of words and pays
deferred credit; blanks and repeats do neither. In the initial boost state most arcs
change nothing: `may_step` selects those that may.

Costs are added in the order of `tests/reference`. A bound used in place of a cost is
never larger: float addition is monotone, so that pruning by the bound is exact.
"""

from numpy import float32, uint32, uint64

from wfstdec.boost import kernels
from wfstdec.boost.kernels import (
    BIT,
    LOW_BITS,
    NO_BITS,
    boost_window,
    credit,
    pay,
    state_of,
    word_bonus,
)
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.jit import inlined
from wfstdec.text.tokens import ilabel_of

FIRST_TOKEN = ilabel_of(0)
"""Label of token 0 in phrases of tokens."""
_TOKENS = uint64(FIRST_TOKEN)
_NO_LABEL = uint32(0)


@inlined
def begin_credit(phrases, token):
    """Return the credit for beginning a phrase with a token; at least 0."""
    if not phrases.of_tokens:
        return float32(0)
    step = phrases.dense[uint64(phrases.rows[0].dense) + uint64(FIRST_TOKEN) + token]
    return max(float32(-step.cost), float32(0))


@inlined
def bonus_at(rows, words, position, arc):
    """Return the bonus of the word on an arc of the packed graph, or 0."""
    # `position`: of the arc among those of rows and, after them, epsilon arcs.
    if boost_window(words, position) & BIT == NO_BITS:
        return float32(0)
    return word_bonus(words, rows.path_arcs[uint64(arc)].olabel)


@inlined
def tokens_of(labels):
    """Return tokens of a set of labels, both modulo 64."""
    return labels >> _TOKENS | labels << (uint64(64) - _TOKENS)


@inlined
def may_step(search, boost, label, position, has_word):
    """Return whether an arc may change a boost state or pay credit; see `step`."""
    words, phrases = search.words, search.phrases
    if boost != phrases.initial:
        return True
    if phrases.of_tokens:
        if phrases.begun >> (uint64(label) & LOW_BITS) & BIT != NO_BITS:
            return True
    return has_word and boost_window(words, position) & BIT != NO_BITS


@inlined
def step(search, boost, label, position, arc, has_word):
    """Advance a boost state by an arc: (credit in nats, float32; next boost state).

    `label`: of the arc's token, 0 on an epsilon arc. `position`: as in `bonus_at`.
    `arc`: its packed number.
    """
    rows, params, words = search.rows, search.params, search.words
    phrases, worth, by = search.phrases, float32(0), _NO_LABEL
    if label == _NO_LABEL and not has_word:
        return worth, uint32(boost)
    if phrases.of_tokens:
        by = uint32(label)
    if has_word:
        if phrases.of_words:
            by = uint32(rows.path_arcs[uint64(arc)].olabel)
        if params.has_words:
            worth = bonus_at(rows, words, position, arc)
    worth, state = credit(phrases, by != _NO_LABEL, state_of(boost), by, worth)
    return pay(boost, state, worth, params.instalment)


LABEL = uint32(LABEL_MASK)
_WORD = uint32(CARRIES_WORD)
_REPEAT = uint32(REPEAT)


@inlined
def bonus_of(params, words, arc):
    """Return the bonus of the word on an arc, or 0."""
    if params.has_words:
        if arc.ilabel & _WORD:
            return word_bonus(words, arc.olabel)
    return float32(0)


@inlined
def top_bonus(params, words):
    """Return the largest bonus of a word, if boosts have no states."""
    return words.top_bonus if params.has_words else float32(0)


@inlined
def max_insertion_credit(params):
    """Return the largest reduction of the cost by a word insertion, at least 0."""
    return max(float32(0), float32(-params.word_insertion))


@inlined
def add_graph_and_insertion(params, cost, arc):
    """Return (cost + graph) + word_insertion."""
    total = float32(cost + float32(params.lm_scale * arc.cost))
    if params.has_insertion:
        if arc.ilabel & _WORD:
            total = float32(total + params.word_insertion)
    return total


@inlined
def most_credited(search, boost):
    """Return the upper bound of the credit of an arc from a boost state."""
    worth = float32(
        search.words.top_bonus + kernels.most_credited(search.phrases, boost)
    )
    return kernels.most_paid(boost, worth, search.params.instalment)


@inlined
def step_oov(search, arc, boost, bonus):
    """Advance a boost state by an arc of an overlay, as `step`."""
    params, phrases = search.params, search.phrases
    token, word = arc.ilabel & LABEL, arc.olabel if arc.ilabel & _WORD else _NO_LABEL
    if arc.ilabel & _REPEAT or token == search.rows.blank_label:
        token = _NO_LABEL
    if token == _NO_LABEL and word == _NO_LABEL:
        return float32(0), boost
    label = _NO_LABEL
    if phrases.of_words:
        label = word
    elif phrases.of_tokens:
        label = token
    steps, worth = label != _NO_LABEL, bonus_of(params, search.words, arc)
    if label >= phrases.num_labels:
        label = _NO_LABEL  # in no phrase
    worth, state = kernels.credit(phrases, steps, state_of(boost), label, worth)
    return pay(boost, state, float32(worth + bonus), params.instalment)
