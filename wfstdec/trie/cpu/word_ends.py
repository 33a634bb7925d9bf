"""The ends of words: a separator, or the next word, begins after them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32

from wfstdec.boost.instalments import most_paid, owed_of
from wfstdec.jit import inlined
from wfstdec.lm.kernels import step
from wfstdec.trie.cpu.begin import (
    Successor,
    begin,
    cached_lookahead,
    source_cost,
)
from wfstdec.trie.cpu.boost_steps import credit_token, credit_word, pay_step
from wfstdec.trie.cpu.bounds import exceeds, is_over, least_cost

_INF = float32(np.inf)
_ZERO = float32(0)


class NextToken(NamedTuple):
    """A token that begins after a word.

    Attributes:
        token: The token.
        child: The root's child by it; 0, the root, for the separator.
        credit, state: What phrases of tokens make of it; otherwise 0, as before.
    """

    token: int
    child: int
    credit: np.float32
    state: int


@inlined
def end_word(search, work, source, num_next, emitted):
    """The words of the entry's node end: a separator or another word begins."""
    space, scales, entry = search.space, search.scales, source.entry
    priced, credit, base = False, _ZERO, least_cost(entry)
    for n in range(num_next):
        token = work.next_tokens[n]
        if is_over(search, work, source, token, emitted.least_cost):
            break  # as are all that follow
        cost = float32(base + work.costs[token])
        if priced and exceeds(scales, cost, credit, emitted.least_cost):
            break  # the same, now that the words' costs are known
        child = int64(0)
        if token != space.separator:
            if not space.separator_optional:
                continue
            child = int64(space.root_child[token])
            if child < 0:
                continue
        token_credit, state = credit_token(search.phrases, entry.boost, token, _ZERO)
        if search.phrases.of_tokens:
            most = float32(search.words.top_bonus + token_credit)
            most = most_paid(owed_of(entry.boost), most, scales.instalment)
            most = float32(scales.begin_credit + most)
            if exceeds(scales, cost, most, emitted.least_cost):
                continue
        if not priced:
            cheapest = _price_words(search, work, entry)
            credit = float32(scales.word_credit + source.most_at_end)
            base = float32(base + float32(scales.lm_scale * cheapest))
            priced = True
        following = NextToken(token, child, token_credit, state)
        emitted = _begin_after(search, work, source, following, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted


@inlined
def _price_words(search, work, entry):
    """Fill in what the words of the entry's node cost, and where they lead.

    Returns:
        The least unscaled cost that any of them adds, whatever begins after it.
    """
    space, trie = search.space, search.space.trie
    cheapest = _INF
    first = int64(trie.node_pron_splits[entry.node])
    last = int64(trie.node_pron_splits[entry.node + 1])
    for pron in range(first, last):
        word, at = trie.pron_word[pron], pron - first
        cost, state = step(space.automaton, 0, entry.state, word)
        work.word_costs[at] = float32(cost + trie.pron_cost[pron])
        work.word_states[at] = state
        lookahead = cached_lookahead(space, work, state, 0)
        cheapest = min(cheapest, _graph_cost(work, at, lookahead, entry))
        credit, boost = credit_word(search, entry.boost, word)
        work.word_credits[at], work.word_boosts[at] = credit, boost
    return cheapest


@inlined
def _graph_cost(work, at, lookahead, entry):
    """The cost of a word of the node; look-ahead moves from the entry to the next."""
    return float32(float32(work.word_costs[at] + lookahead) - entry.lookahead_cost)


@inlined
def _begin_after(search, work, source, following, emitted):
    """A token begins after each of the words of the entry's node."""
    space, scales, of_tokens = search.space, search.scales, search.phrases.of_tokens
    entry, trie = source.entry, search.space.trie
    token, child = following.token, following.child
    first = int64(trie.node_pron_splits[entry.node])
    last = int64(trie.node_pron_splits[entry.node + 1])
    repeated = token == space.node_token[entry.node]
    for pron in range(first, last):
        word, at = trie.pron_word[pron], pron - first
        state = work.word_states[at]
        if not work.word_costs[at] < _INF:
            continue
        credit, after = work.word_credits[at], uint32(work.word_boosts[at])
        if of_tokens:
            credit, after = float32(credit + following.credit), following.state
        boost_cost, boost = pay_step(search, entry.boost, credit, after)
        lookahead = cached_lookahead(space, work, state, 0)
        graph = _graph_cost(work, at, lookahead, entry)
        if child > 0:
            before = source_cost(entry, repeated)
            cost = float32(before + float32(scales.lm_scale * graph))
            cost = float32(cost + work.costs[token])
            credit = float32(scales.word_credit - boost_cost)
            if exceeds(scales, cost, credit, emitted.least_cost):
                continue
            lookahead = cached_lookahead(space, work, state, child)
            graph = _graph_cost(work, at, lookahead, entry)
        successor = Successor(
            token=token,
            state=state,
            node=child,
            boost=boost,
            lookahead_cost=lookahead,
            pron=int32(pron),
            graph_cost=graph,
            insertion=float32(scales.token_insertion + scales.word_insertion),
            boost_cost=boost_cost,
            label=int64(word),
            repeated=repeated,
        )
        emitted = begin(search, work, source, successor, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted
