"""What a beam search walks: a lexicon trie, or bare tokens, and a language model.

    with a lexicon      node = node of the trie; the model is over words
    without             node = the last token, V before the first; the model is over
                        tokens

The arrays are the same for all backends and read-only: threads share them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import read_only
from wfstdec.lm.automaton import Automaton, BackoffModel, frozen
from wfstdec.lm.ngram import NgramLM
from wfstdec.trie.lexicon_trie import LexiconTrie
from wfstdec.trie.lookahead import Kind, Lookahead, build_lookahead, potential

NONE = -1


class SearchSpace(NamedTuple):
    """The arrays that the kernels take.

    Attributes:
        trie: The lexicon; a lone root where there is none.
        node_token: int32, the token that a node holds: of the root the separator,
            -1 for none.
        automaton: The language model; of no consequence where `model` is -1.
        model: 0, or -1 without a language model.
        lookahead: What is paid in advance at a node.
        slack: float32, no word that ends lowers the cost by more (before the scale).
        lexical: Whether there is a lexicon.
        separator: The token between words, -1 for none.
        optional: Whether words may follow each other without it.
        num_tokens: V.
        blank: The blank.
        start: The node before the first token.
    """

    trie: LexiconTrie
    node_token: np.ndarray
    automaton: Automaton
    model: int
    lookahead: Lookahead
    slack: np.float32
    lexical: bool
    separator: int
    optional: bool
    num_tokens: int
    blank: int
    start: int


def lexical_space(
    trie: LexiconTrie,
    lm: NgramLM | None,
    kind: Kind,
    *,
    separator: int | None,
    separator_optional: bool,
    num_tokens: int,
    blank: int,
) -> SearchSpace:
    """The space of a lexicon."""
    node_token = trie.node_token.copy()
    node_token[0] = NONE if separator is None else separator
    lookahead = _no_lookahead(trie) if lm is None else build_lookahead(lm, trie, kind)
    return SearchSpace(
        trie=trie,
        node_token=read_only(node_token),
        automaton=NO_MODEL if lm is None else lm.automaton,
        model=NONE if lm is None else 0,
        lookahead=lookahead,
        slack=_slack_of(lookahead, lm),
        lexical=True,
        separator=NONE if separator is None else separator,
        optional=separator is None or separator_optional,
        num_tokens=num_tokens,
        blank=blank,
        start=0,
    )


def token_space(num_tokens: int, lm: NgramLM | None, blank: int) -> SearchSpace:
    """The space of V tokens and no lexicon."""
    empty = np.zeros(0, np.int32)
    bare = np.zeros(2, np.int32)
    trie = LexiconTrie(
        child_splits=bare,
        child_token=empty,
        child_node=empty,
        node_token=np.full(1, NONE, np.int32),
        node_end=np.ones(1, np.int32),
        said_splits=bare,
        said_word=empty,
        said_cost=np.zeros(0, np.float32),
    )
    trie = LexiconTrie(*map(read_only, trie))
    return SearchSpace(
        trie=trie,
        node_token=read_only(np.append(np.arange(num_tokens), NONE).astype(np.int32)),
        automaton=NO_MODEL if lm is None else lm.automaton,
        model=NONE if lm is None else 0,
        lookahead=_no_lookahead(trie),
        slack=_slack_of(None, lm),
        lexical=False,
        separator=NONE,
        optional=True,
        num_tokens=num_tokens,
        blank=blank,
        start=num_tokens,
    )


def ahead_of(space: SearchSpace, state: int, node: int) -> np.float32:
    """What is paid in advance in a state at a node, float32; as the kernel has it."""
    lookahead = space.lookahead
    if space.model < 0 or not space.lexical:
        return np.float32(0)
    if node == 0:
        return lookahead.state_cost[state]
    return np.float32(potential(lookahead, space.automaton, state, node))


def _no_lookahead(trie: LexiconTrie) -> Lookahead:
    zero = read_only(np.zeros(1, np.float32))
    return Lookahead(
        splits=read_only(np.zeros(2, np.int64)),
        node=read_only(np.zeros(0, np.int32)),
        cost=read_only(np.zeros(0, np.float32)),
        root_cost=read_only(np.zeros(len(trie.node_token), np.float32)),
        state_cost=zero,
        chained=False,
    )


def _slack_of(lookahead: Lookahead | None, lm: BackoffModel | None) -> np.float32:
    """How much the end of a word, or a token, may lower the cost."""
    if lm is None:
        return np.float32(0)
    least = min(0.0, _least_cost(lm.automaton))
    if lookahead is None or not lookahead.root_cost.any():
        return np.float32(-least)
    if not lookahead.chained:
        return np.float32(np.inf)
    finite = lookahead.state_cost[np.isfinite(lookahead.state_cost)]
    return np.float32(-min(0.0, float(finite.min(initial=0))) + 1e-3)


def _least_cost(automaton: Automaton) -> float:
    """A bound of what any label costs in any state, back-off included."""
    backoff = automaton.backoff_cost
    paid = np.where(automaton.backoff_state < 0, 0, backoff).astype(np.float64)
    for _ in range(16):  # no chain is longer than the order of the model
        link = automaton.backoff_state
        longer = np.minimum(paid, np.where(link < 0, 0, backoff + paid[link]))
        if (longer == paid).all():
            break
        paid = longer
    arcs = automaton.arc_cost
    finite = arcs[np.isfinite(arcs)]
    return float(finite.min(initial=0)) + min(0.0, float(paid.min(initial=0)))


NO_MODEL = frozen(
    Automaton(
        state_arc_splits=np.zeros(2),
        arc_label=np.zeros(0),
        arc_next=np.zeros(0),
        arc_cost=np.zeros(0),
        backoff_state=np.full(1, NONE),
        backoff_cost=np.zeros(1),
        final_cost=np.zeros(1),
        model_start=np.zeros(1),
        model_label_splits=np.zeros(2),
        model_default_cost=np.zeros(1),
        label_alias=np.zeros(0),
    )
)
"""Stands where there is no automaton; model -1 never looks at it."""
