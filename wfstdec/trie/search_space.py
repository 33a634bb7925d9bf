"""Search space of the trie decoder: a lexicon trie or bare tokens, and a model.

    with a lexicon      node = node of the trie; the model is over words
    without             node = the last token, V before the first; the model is over
                        tokens

The arrays are the same for all backends, and read-only: threads share them.

OOV words of a list are a second trie of the utterance:

    oov = build_oov_trie(boosts.oov, space, least_label_costs)       # once per list

Its node n is the node `first_oov + n` of the search; the root is shared. Its nodes have
a look-ahead like the lexicon's: the cost of `<unk>` in the state, or the least cost of
known words in any state. The best bonus below a node is credited in advance, up to the
charge for `<unk>` at the beginning. So an OOV word is not dropped before it is
complete, and a long list does not fill the frontier.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy import float32

from wfstdec.jit import inlined, read_only
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import steps
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import OnDemandLM
from wfstdec.text.vocabulary import OovWords
from wfstdec.trie.lexicon_trie import (
    LexiconTrie,
    OpenWords,
    TextTable,
    least_below,
    no_open_words,
    parents_of,
    root_children,
    spelling_cost,
    text_table,
    trie_of,
)
from wfstdec.trie.lookahead import (
    Lookahead,
    LookaheadKind,
    build_lookahead,
    no_lookahead,
    potential,
)

NONE = -1
"""No token, node, word or pronunciation."""


class Node(NamedTuple):
    """A node, of a trie or of an open word, and the hash of an open word.

    -1 in kernels: no node.
    """

    node: int
    spelling: int = 0


class WordEnd(NamedTuple):
    """A word that ends at a node."""

    # The pronunciation; those of the list follow the lexicon's, and an open word has
    # `OPEN_PRON`. -1 where no word ends
    pron: int
    # The word id; 0 without one, and for words without boosts; -1 where no word ends
    word: int
    cost: np.float32  # of word and pronunciation; inf where there is no word
    state: int  # of the language model, after the word
    label: int  # extends the text: the word id, or a hash of an open word
    bonus: np.float32 = np.float32(0)  # credited for the pronunciation


class SearchSpace(NamedTuple):
    """The arrays that kernels take."""

    trie: LexiconTrie  # only the root without a lexicon
    # int32 [N], the token of each node; the separator at the root; without a lexicon
    # int32 [V + 1]. -1 for none
    node_token: np.ndarray
    root_child: np.ndarray  # int32 [V], the child of the root by each token, or -1
    # The language model; `NULL_AUTOMATON` without one. For a user's `OnDemandLM`
    # kernels take the table of its answers instead.
    automaton: Any
    lookahead: Lookahead  # includes open words at the root
    looks_ahead: bool  # whether incomplete words are charged
    # float32 [S], charged for `<unk>` within a word outside the table
    unk_lookahead: np.ndarray
    open: OpenWords  # none without a lexicon
    # Largest fall in the language model's cost at a word end, look-ahead included,
    # before the scale
    max_word_gain: np.float32
    # Least cost of a word and the look-ahead after it, if independent of the state
    # (without a history); else -inf
    word_floor: np.float32
    has_lexicon: bool
    separator: int  # the token between words, -1 for none
    separator_optional: bool  # whether words may follow each other without it
    num_tokens: int  # V
    blank: int
    start_node: int  # the node before the first token


def search_space(
    trie: LexiconTrie | None,
    lm: NgramLM | OnDemandLM | None,
    kind: LookaheadKind,
    *,
    separator: int | None,
    separator_optional: bool,
    num_tokens: int,
    blank: int,
    open_words: OpenWords | None = None,
) -> SearchSpace:
    """Return the space of a lexicon and a model over its words; or of bare tokens."""
    has_lexicon, between = trie is not None, NONE if separator is None else separator
    if trie is None:
        trie, kind, between = trie_of(()), "none", NONE
        node_token = np.append(np.arange(num_tokens), NONE).astype(np.int32)
    else:
        node_token = trie.node_token.copy()
        node_token[0] = between
    if lm is None or not has_lexicon:
        lookahead = no_lookahead(trie)
    else:
        lookahead = build_lookahead(lm, trie, kind)
    automaton = _model_of(lm)
    unk_lookahead = _unk_lookahead(automaton, kind)
    opened = open_words or no_open_words(trie.num_nodes)
    if opened.is_open and kind != "none":  # an open word may begin in any state
        begun = (unk_lookahead + opened.word_cost) + opened.token_cost
        state_cost = np.minimum(lookahead.state_cost, begun)
        lookahead = lookahead._replace(state_cost=read_only(state_cost))
    return SearchSpace(
        trie=trie,
        node_token=read_only(node_token),
        root_child=root_children(trie, num_tokens),
        automaton=automaton,
        lookahead=lookahead,
        looks_ahead=kind != "none",
        unk_lookahead=unk_lookahead,
        open=opened,
        max_word_gain=_max_word_gain(automaton, lookahead, opened),
        word_floor=_word_floor(automaton, lookahead, opened, trie, has_lexicon),
        has_lexicon=has_lexicon,
        separator=between,
        separator_optional=between == NONE or separator_optional,
        num_tokens=num_tokens,
        blank=blank,
        start_node=0 if has_lexicon else num_tokens,
    )


def lookahead_cost(space: SearchSpace, state: int, node: int) -> np.float32:
    """Return the least cost of what may follow in a state at a node, float32."""
    # Entries of the frontier carry it in advance; kernels compute the same bits.
    if not space.has_lexicon:
        return np.float32(0)
    row = row_of(space, state)
    if node == 0:
        return space.lookahead.state_cost[row]
    cost = space.lookahead.unigram_cost[node]
    if space.lookahead.uses_history:
        cost = np.float32(potential(space.lookahead, state, node))
    length = space.open.node_length[node]
    if space.open.is_open and length > 0 and space.looks_ahead:
        unk_cost = space.unk_lookahead[row]
        cost = min(cost, np.float32(spelling_cost(space.open, unk_cost, length)))
    return cost


def start_cost(lm_scale: float, lookahead_cost: np.float32) -> float:
    """Return the base before the first frame: the first entry's scaled look-ahead."""
    return lm_scale * float(charged(lookahead_cost))


def charged(lookahead_cost: np.float32) -> np.float32:
    """Return a look-ahead as it is refunded: 0 where nothing can follow."""
    return lookahead_cost if lookahead_cost < np.inf else np.float32(0)


def row_of(space: SearchSpace, state: int) -> int:
    """Return the row of a state in arrays by state; `OnDemandLM` has only one."""
    return 0 if isinstance(space.automaton, OnDemandLM) else state


def least_backoff(automaton: Automaton) -> float:
    """Return a lower bound of the cost of backing off between any states, at most 0."""
    link, backoff = automaton.backoff_state, automaton.backoff_cost
    paid = np.where(link < 0, 0, backoff).astype(np.float64)
    for _ in range(16):  # no chain is longer than the order of the model
        longer = np.minimum(paid, np.where(link < 0, 0, backoff + paid[link]))
        if (longer == paid).all():
            break
        paid = longer
    return min(0.0, float(paid.min(initial=0)))


def _model_of(lm: NgramLM | OnDemandLM | None) -> Automaton | OnDemandLM:
    if isinstance(lm, OnDemandLM):
        return lm
    return NULL_AUTOMATON if lm is None else lm.automaton


def _unk_lookahead(
    automaton: Automaton | OnDemandLM, kind: LookaheadKind
) -> np.ndarray:
    """Return costs charged for `<unk>` in advance, float32 [S]."""
    if isinstance(automaton, OnDemandLM):
        cost = automaton.unk_cost() if kind != "none" else 0.0
        return read_only(np.array([cost], np.float32))
    costs = np.zeros(len(automaton.final_cost), np.float32)
    if kind != "none" and automaton is not NULL_AUTOMATON:
        # A label outside the table costs as `<unk>`.
        states = np.arange(len(costs), dtype=np.int32)
        unknown = np.full_like(states, len(automaton.label_alias))
        models, nextstates = np.zeros_like(states), np.empty_like(states)
        steps(automaton, models, states, unknown, costs, nextstates)
    if kind == "unigram":
        costs[:] = costs[0]
    return read_only(costs)


def _max_word_gain(
    automaton: Automaton | OnDemandLM, lookahead: Lookahead, opened: OpenWords
) -> np.float32:
    if lookahead.uses_history:
        finite = lookahead.state_cost[np.isfinite(lookahead.state_cost)]
        return np.float32(max(0.0, -float(finite.min(initial=0))) + 1e-3)
    if lookahead.unigram_cost.any():
        return np.float32(np.inf)
    gain = -_least_label_cost(automaton)
    if opened.is_open:  # open words that are charged at once, or in advance
        gain += max(0.0, -float(opened.word_cost + opened.token_cost)) + 1e-3
    return np.float32(max(0.0, gain))


def _word_floor(
    automaton: Automaton | OnDemandLM,
    lookahead: Lookahead,
    opened: OpenWords,
    trie: LexiconTrie,
    has_lexicon: bool,
) -> np.float32:
    """Return the least cost of a word and the look-ahead after it, over all states."""
    if lookahead.uses_history or not has_lexicon:
        return np.float32(-np.inf)
    floor = _least_label_cost(automaton) + float(trie.pron_cost.min(initial=0))
    if opened.is_open:
        floor -= max(0.0, -float(opened.word_cost + opened.token_cost))
    floor += float(lookahead.state_cost.min(initial=np.inf))
    return np.float32(floor - 1e-3)


def _least_label_cost(automaton: Automaton | OnDemandLM) -> float:
    """Return the least cost of any label in any state, back-off included."""
    if isinstance(automaton, OnDemandLM):
        return automaton.least_cost
    arcs = automaton.arc_cost
    finite = arcs[np.isfinite(arcs)]
    return float(finite.min(initial=0)) + least_backoff(automaton)


_INF = np.float32(np.inf)


class OovTrie(NamedTuple):
    """Second trie of M nodes, for the kernels; empty without OOV words."""

    trie: LexiconTrie
    root_child: np.ndarray  # int32 [V], the root's child by each token, or -1
    pron: np.ndarray  # int32 [P], the number in the list of the trie's pronunciations
    bonus: np.ndarray  # float32 [P], nats
    best_bonus: np.ndarray  # float32 [M], the best below each node, at least 0
    has_new: np.ndarray  # bool [M], whether a word outside the word table is below
    least_cost: np.ndarray  # float32 [M], least cost of known words below; inf without
    num_nodes: int  # M, or 0
    fall: np.float32  # largest fall of the look-ahead where an OOV word begins
    texts: TextTable  # the new words by text


def no_oov() -> OovTrie:
    """Return the second trie without OOV words."""
    nothing = read_only(np.zeros(0, np.float32))
    return OovTrie(
        trie=trie_of(()),
        root_child=read_only(np.zeros(0, np.int32)),
        pron=read_only(np.zeros(0, np.int32)),
        bonus=nothing,
        best_bonus=nothing,
        has_new=read_only(np.zeros(0, np.bool_)),
        least_cost=nothing,
        num_nodes=0,
        fall=np.float32(0),
        texts=text_table((), ()),
    )


def build_oov_trie(
    oov: OovWords, space: SearchSpace, least_label_cost: np.ndarray
) -> OovTrie:
    """Return the second trie of a list."""
    tokens, splits = oov.tokens.tolist(), oov.splits.tolist()
    words, bonuses = oov.word.tolist(), oov.bonus.tolist()
    spelt = [tuple(tokens[a:b]) for a, b in zip(splits, splits[1:], strict=False)]
    numbers = sorted(range(len(words)), key=lambda pron: (spelt[pron], words[pron]))
    trie = trie_of([(spelt[pron], words[pron], 0.0) for pron in numbers])
    bonus = np.array([bonuses[pron] for pron in numbers], np.float32)
    is_new = trie.pron_word >= oov.num_known
    known = np.where(is_new, 0, trie.pron_word)
    known_cost = least_label_cost[known] if space.looks_ahead else 0.0 * known
    least = np.where(is_new, _INF, known_cost).astype(np.float32)
    of_new, where = np.where(is_new, np.float32(0), _INF), parents_of(trie)
    best_bonus, has_new, least_cost = (
        least_below(values, trie.node_pron_splits, where)
        for values in (-bonus, of_new, least)
    )
    best_bonus, has_new = np.maximum(0, -best_bonus), has_new == 0
    ids = range(oov.num_known, oov.num_known + len(oov.words))
    return OovTrie(
        trie=trie,
        root_child=root_children(trie, space.num_tokens),
        pron=read_only(np.array(numbers, np.int32)),
        bonus=read_only(bonus),
        best_bonus=read_only(best_bonus),
        has_new=read_only(has_new),
        least_cost=read_only(least_cost),
        num_nodes=trie.num_nodes,
        fall=_fall(space, bool(has_new[0]), least_cost[0]),
        texts=text_table(oov.words, ids),
    )


def least_label_costs(automaton: Automaton | OnDemandLM, num_labels: int) -> np.ndarray:
    """Return each label's least cost in any state, with back-off; float32 [L]."""
    if isinstance(automaton, OnDemandLM):
        costs = automaton.word_costs()[:num_labels].copy()
        costs[np.isinf(costs)] = costs[np.isfinite(costs)].max(initial=0)
        return costs
    if len(automaton.label_alias) == 0:
        return np.zeros(num_labels, np.float32)
    least = np.full(len(automaton.label_alias) + 1, _INF, np.float32)
    np.minimum.at(least, automaton.arc_label, automaton.arc_cost)
    finite = np.isfinite(least)
    rounding = 1e-4 * np.abs(least[finite]) + 1e-4
    least[finite] += np.float32(least_backoff(automaton)) - rounding
    return least[automaton.label_alias[:num_labels]]


@inlined
def oov_lookahead(oov, unk_lookahead, node):
    """Return the look-ahead at a node of the second trie, float32."""
    least = oov.least_cost[node]
    if oov.has_new[node]:
        least = min(least, unk_lookahead)
    return float32(least)


@inlined
def advance_credit(oov, cap, node):
    """Return the bonus credited in advance at a node of the second trie, float32."""
    return min(oov.best_bonus[node], cap)


def credit_cap(space: SearchSpace, lm_scale: float) -> np.float32:
    """Return the largest bonus credited in advance."""
    cost = float(space.unk_lookahead[0])  # in the empty history
    return np.float32(min(max(0.0, lm_scale * cost), 1e6) if np.isfinite(cost) else 0.0)


def _fall(space: SearchSpace, has_new: bool, least_cost: np.float32) -> np.float32:
    before = space.lookahead.state_cost
    after = np.minimum(space.unk_lookahead if has_new else _INF, least_cost)
    fall = np.where(np.isfinite(before), before, 0) - after
    return np.float32(max(0.0, float(fall.max(initial=0))))
