"""The ends of words: a separator, or the next word, begins after them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.boost.instalments import most_paid, owed_of
from wfstdec.jit import inlined
from wfstdec.trie.cpu.begin import Successor, begin, source_cost
from wfstdec.trie.cpu.boost_steps import credit_token, credit_word, pay_step
from wfstdec.trie.cpu.bounds import exceeds, is_over, least_cost
from wfstdec.trie.cpu.places import (
    Place,
    added_begun,
    advance_of,
    lookahead_of,
    num_word_ends,
    place_begun,
    token_of,
    word_end,
)

_INF = float32(np.inf)
_ZERO = float32(0)


class NextToken(NamedTuple):
    """A token that begins after a word.

    Attributes:
        token: The token.
        credit, state: What phrases of tokens make of it; otherwise 0, as before.
        num_words: How many words end.
    """

    token: int
    credit: np.float32
    state: int
    num_words: int


@inlined
def end_word(search, work, source, num_next, emitted):
    """The words of the entry's node end: a separator or another word begins."""
    space, scales, entry = search.space, search.scales, source.entry
    priced, credit, base = False, _ZERO, least_cost(entry)
    num_words = num_word_ends(search, entry.node)
    for n in range(num_next):
        token, least = work.next_tokens[n], emitted.least_cost
        if is_over(search, work, source, token, least):
            break  # as are all that follow
        cost = float32(base + work.costs[token])
        if priced and exceeds(scales, cost, credit, emitted.least_cost):
            break  # the same, now that the words' costs are known
        place, added = Place(int64(0), uint64(0)), Place(int64(-1), uint64(0))
        if token != space.separator:
            if not space.separator_optional:
                continue
            place = place_begun(search, token)
            if search.beside:
                added = added_begun(search, token)
            if place.node < 0 and added.node < 0:
                continue
        token_credit, state = credit_token(search.phrases, entry.boost, token, _ZERO)
        if search.phrases.of_tokens:
            most = float32(search.words.top_bonus + token_credit)
            most = float32(most + source.beside.at_end)
            most = most_paid(owed_of(entry.boost), most, scales.instalment)
            most = float32(scales.begin_credit + most)
            most = float32(most + source.beside.fall_at_end)
            if exceeds(scales, cost, most, emitted.least_cost):
                continue
        if not priced:
            if exceeds(scales, cost, _most_without_price(search, source), least):
                break  # also where the words cost as little as can be
            cheapest = _price_words(search, work, entry, num_words)
            credit = float32(scales.word_credit + source.most_at_end)
            base = float32(base + float32(scales.lm_scale * cheapest))
            priced = True
        following = NextToken(token, token_credit, state, num_words)
        if place.node >= 0:
            emitted = _begin_after(search, work, source, following, place, emitted)
        if added.node >= 0 and emitted.num_candidates >= 0:
            emitted = _begin_after(search, work, source, following, added, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted


@inlined
def _most_without_price(search, source):
    """By how much the end of a word can lower the cost, whatever the word is."""
    scales, entry = search.scales, source.entry
    gain = float32(entry.lookahead_cost - search.space.word_floor)
    gain = float32(scales.lm_scale * max(_ZERO, gain))
    return float32(float32(scales.end_credit + gain) + source.most_at_end)


@inlined
def _price_words(search, work, entry, num_words):
    """Fill in what the words of the entry's node cost, and where they lead.

    Returns:
        The least unscaled cost that any of them adds, whatever begins after it.
    """
    cheapest = _INF
    for at in range(num_words):
        end = word_end(search, entry, at)
        work.word_costs[at], work.word_states[at] = end.cost, end.state
        work.word_prons[at], work.word_labels[at] = end.pron, end.label
        work.word_bonuses[at] = end.bonus
        lookahead = lookahead_of(search, work, end.state, 0)
        cheapest = min(cheapest, _graph_cost(work, at, lookahead, entry))
        credit, boost = credit_word(search, entry.boost, end.word)
        work.word_credits[at], work.word_boosts[at] = credit, boost
    return cheapest


@inlined
def _graph_cost(work, at, lookahead, entry):
    """The cost of a word of the node; look-ahead moves from the entry to the next."""
    return float32(float32(work.word_costs[at] + lookahead) - entry.lookahead_cost)


@inlined
def _begin_after(search, work, source, following, place, emitted):
    """A token begins after each of the words of the entry's node."""
    scales, of_tokens, entry = search.scales, search.phrases.of_tokens, source.entry
    token, node = following.token, place.node
    repeated = token == token_of(search, entry.node)
    advance = advance_of(search, node), advance_of(search, entry.node)
    for at in range(following.num_words):
        state = work.word_states[at]
        if not work.word_costs[at] < _INF:
            continue
        credit, after = work.word_credits[at], uint32(work.word_boosts[at])
        if of_tokens:
            credit, after = float32(credit + following.credit), following.state
        bonus = float32(float32(work.word_bonuses[at] + advance[0]) - advance[1])
        credit = float32(credit + bonus)
        boost_cost, boost = pay_step(search, entry.boost, credit, after)
        lookahead = lookahead_of(search, work, state, 0)
        graph = _graph_cost(work, at, lookahead, entry)
        if node > 0:
            before = source_cost(entry, repeated)
            cost = float32(before + float32(scales.lm_scale * graph))
            cost = float32(cost + work.costs[token])
            credit = float32(scales.word_credit - boost_cost)
            credit = float32(credit + source.beside.fall_at_end)
            if exceeds(scales, cost, credit, emitted.least_cost):
                continue
            lookahead = lookahead_of(search, work, state, node)
            graph = _graph_cost(work, at, lookahead, entry)
        successor = Successor(
            token=token,
            state=state,
            node=node,
            boost=boost,
            spelling=place.spelling,
            lookahead_cost=lookahead,
            pron=work.word_prons[at],
            graph_cost=graph,
            insertion=float32(scales.token_insertion + scales.word_insertion),
            boost_cost=boost_cost,
            label=work.word_labels[at],
            repeated=repeated,
        )
        emitted = begin(search, work, source, successor, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted
