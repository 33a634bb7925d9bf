"""Search space of the trie decoder: a lexicon trie or bare tokens, and a model.

    with a lexicon      node = node of the trie; the model is over words
    without             node = the last token, V before the first; the model is over
                        tokens

The arrays are the same for all backends, and read-only: threads share them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wfstdec.jit import jit, read_only
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import step
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import LazyLM
from wfstdec.trie.lexicon_trie import LexiconTrie, empty_trie
from wfstdec.trie.lookahead import (
    Lookahead,
    LookaheadKind,
    build_lookahead,
    no_lookahead,
    potential,
)
from wfstdec.trie.open_words import OpenWords, no_open_words, spelling_cost

NONE = -1
"""No token, node, word or pronunciation."""


class SearchSpace(NamedTuple):
    """The arrays that kernels take.

    Attributes:
        trie: The lexicon; the root alone where there is none.
        node_token: int32 [N], the token of each node, that of the root being the
            separator; without a lexicon int32 [V + 1]. -1 for none.
        root_child: int32 [V], the child of the root by each token, or -1.
        automaton: The language model; `NULL_AUTOMATON` without one. A user's own is a
            `LazyLM`, in whose place kernels take the table of its answers.
        lookahead: Least costs of words to come, by model state and trie node; at the
            root open words are among them.
        looks_ahead: Whether anything is charged before a word is complete.
        unk_lookahead: float32 [S], what is charged for `<unk>` before a word that is
            none of the table is complete.
        open: Open words; none without a lexicon.
        max_word_gain: float32, the most by which the language model can lower the
            cost where a word ends, look-ahead included, before the scale.
        word_floor: float32, what a word and the look-ahead behind it cost at least,
            where they do so in every state: without a history. Else -inf.
        has_lexicon: Whether there is a lexicon.
        separator: The token between words, -1 for none.
        separator_optional: Whether words may follow each other without it.
        num_tokens: V.
        blank: The blank.
        start_node: The node before the first token.
    """

    trie: LexiconTrie
    node_token: np.ndarray
    root_child: np.ndarray
    automaton: Any
    lookahead: Lookahead
    looks_ahead: bool
    unk_lookahead: np.ndarray
    open: OpenWords
    max_word_gain: np.float32
    word_floor: np.float32
    has_lexicon: bool
    separator: int
    separator_optional: bool
    num_tokens: int
    blank: int
    start_node: int


def lexicon_space(
    trie: LexiconTrie,
    lm: NgramLM | LazyLM | None,
    kind: LookaheadKind,
    *,
    separator: int | None,
    separator_optional: bool,
    num_tokens: int,
    blank: int,
    open_words: OpenWords | None = None,
) -> SearchSpace:
    """The space of a lexicon, and of a model over its words."""
    node_token = trie.node_token.copy()
    node_token[0] = NONE if separator is None else separator
    num_children = trie.node_child_splits[1]
    root_child = np.full(num_tokens, NONE, np.int32)
    root_child[trie.child_token[:num_children]] = trie.child_node[:num_children]
    lookahead = no_lookahead(trie) if lm is None else build_lookahead(lm, trie, kind)
    automaton = _model_of(lm)
    unk_lookahead = _unk_lookahead(automaton, kind)
    opened = open_words or no_open_words(trie.num_nodes)
    lookahead = _with_open_words(lookahead, opened, unk_lookahead, kind)
    return SearchSpace(
        trie=trie,
        node_token=read_only(node_token),
        root_child=read_only(root_child),
        automaton=automaton,
        lookahead=lookahead,
        looks_ahead=kind != "none",
        unk_lookahead=unk_lookahead,
        open=opened,
        max_word_gain=_max_word_gain(automaton, lookahead, opened),
        word_floor=_word_floor(automaton, lookahead, opened, trie),
        has_lexicon=True,
        separator=NONE if separator is None else separator,
        separator_optional=separator is None or separator_optional,
        num_tokens=num_tokens,
        blank=blank,
        start_node=0,
    )


def token_space(
    num_tokens: int, lm: NgramLM | LazyLM | None, blank: int
) -> SearchSpace:
    """The space of V tokens without a lexicon, and of a model over tokens."""
    trie = empty_trie()
    lookahead = no_lookahead(trie)
    automaton = _model_of(lm)
    return SearchSpace(
        trie=trie,
        node_token=read_only(np.append(np.arange(num_tokens), NONE).astype(np.int32)),
        root_child=read_only(np.full(num_tokens, NONE, np.int32)),
        automaton=automaton,
        lookahead=lookahead,
        looks_ahead=False,
        unk_lookahead=_unk_lookahead(automaton, "none"),
        open=no_open_words(),
        max_word_gain=_max_word_gain(automaton, lookahead, no_open_words()),
        word_floor=np.float32(-np.inf),
        has_lexicon=False,
        separator=NONE,
        separator_optional=True,
        num_tokens=num_tokens,
        blank=blank,
        start_node=num_tokens,
    )


def lookahead_cost(space: SearchSpace, state: int, node: int) -> np.float32:
    """The least cost of what may follow in a state at a node, float32.

    Entries of the frontier carry it in advance; kernels compute the same bits.
    """
    if not space.has_lexicon:
        return np.float32(0)
    row = row_of(space, state)
    if node == 0:
        return space.lookahead.state_cost[row]
    cost = space.lookahead.unigram_cost[node]
    if space.lookahead.uses_history:
        cost = np.float32(potential(space.lookahead, space.automaton, state, node))
    length = space.open.node_length[node]
    if space.open.is_open and length > 0 and space.looks_ahead:
        unk_cost = space.unk_lookahead[row]
        cost = min(cost, np.float32(spelling_cost(space.open, unk_cost, length)))
    return cost


def row_of(space: SearchSpace, state: int) -> int:
    """Where arrays by state have a state; those of a `LazyLM` have but one."""
    return 0 if isinstance(space.automaton, LazyLM) else state


def unk_label(automaton: Automaton) -> int:
    """A label that is none of the table: what it costs is the cost of `<unk>`."""
    return len(automaton.label_alias)


def least_backoff(automaton: Automaton) -> float:
    """No less is paid for backing off from any state to any other; 0 or below."""
    link, backoff = automaton.backoff_state, automaton.backoff_cost
    paid = np.where(link < 0, 0, backoff).astype(np.float64)
    for _ in range(16):  # no chain is longer than the order of the model
        longer = np.minimum(paid, np.where(link < 0, 0, backoff + paid[link]))
        if (longer == paid).all():
            break
        paid = longer
    return min(0.0, float(paid.min(initial=0)))


def _model_of(lm: NgramLM | LazyLM | None) -> Automaton | LazyLM:
    if isinstance(lm, LazyLM):
        return lm
    return NULL_AUTOMATON if lm is None else lm.automaton


def _unk_lookahead(automaton: Automaton | LazyLM, kind: LookaheadKind) -> np.ndarray:
    """Costs charged for `<unk>` in advance, float32 [S]."""
    if isinstance(automaton, LazyLM):
        cost = automaton.unk_cost() if kind != "none" else 0.0
        return read_only(np.array([cost], np.float32))
    costs = np.zeros(len(automaton.final_cost), np.float32)
    if kind != "none" and automaton is not NULL_AUTOMATON:
        _fill_unk_costs(automaton, unk_label(automaton), costs)
    if kind == "unigram":
        costs[:] = costs[0]
    return read_only(costs)


@jit
def _fill_unk_costs(automaton, label, costs):
    for state in range(len(costs)):
        costs[state], _ = step(automaton, 0, state, label)


def _with_open_words(
    lookahead: Lookahead,
    opened: OpenWords,
    unk_lookahead: np.ndarray,
    kind: LookaheadKind,
) -> Lookahead:
    """The look-ahead where an open word may begin."""
    if not opened.is_open or kind == "none":
        return lookahead
    begun = (unk_lookahead + opened.word_cost) + opened.token_cost  # `spelling_cost`
    state_cost = np.minimum(lookahead.state_cost, begun)
    return lookahead._replace(state_cost=read_only(state_cost))


def _max_word_gain(
    automaton: Automaton | LazyLM, lookahead: Lookahead, opened: OpenWords
) -> np.float32:
    """The most by which the end of a word, or a token, can lower the cost."""
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
    automaton: Automaton | LazyLM,
    lookahead: Lookahead,
    opened: OpenWords,
    trie: LexiconTrie,
) -> np.float32:
    """Least cost of a word and the look-ahead behind it, over all states."""
    if lookahead.uses_history:
        return np.float32(-np.inf)
    floor = _least_label_cost(automaton) + float(trie.pron_cost.min(initial=0))
    if opened.is_open:
        floor -= max(0.0, -float(opened.word_cost + opened.token_cost))
    floor += float(lookahead.state_cost.min(initial=np.inf))
    return np.float32(floor - 1e-3)


def _least_label_cost(automaton: Automaton | LazyLM) -> float:
    """No label costs less in any state, back-off included."""
    if isinstance(automaton, LazyLM):
        return automaton.least_cost
    arcs = automaton.arc_cost
    finite = arcs[np.isfinite(arcs)]
    return float(finite.min(initial=0)) + least_backoff(automaton)
