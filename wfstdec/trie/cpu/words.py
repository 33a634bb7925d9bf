"""The ends of words: a separator, or another word, begins after them."""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, int64

from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined
from wfstdec.lm.kernels import step
from wfstdec.trie.cpu.begin import (
    ahead_at,
    begin,
    bound_of,
    credit_of,
    is_over,
    phrase_step,
    source_cost,
)
from wfstdec.trie.cpu.price import loosened

_INF = float32(np.inf)
_ZERO = float32(0)


@inlined
def end_word(tree, scales, words, phrases, work, entry, i, num_live, made, least):
    """The words of the entry's node end: a separator or another word begins."""
    space = tree.space
    known, credit, base = False, _ZERO, min(entry.over, entry.on)
    for n in range(num_live):
        token = work.live[n]
        if is_over(scales, phrases, work, entry, token, least):
            break  # as are all that follow
        cost = float32(base + work.costs[token])
        if known and cost > loosened(bound_of(scales, least), credit):
            break  # the same, now that the words' costs are known
        child = int64(0)
        if token != space.separator:
            if not space.optional:
                continue
            child = int64(tree.root_child[token])
            if child < 0:
                continue
        phrase, boost = _ZERO, entry.boost
        if phrases.of_tokens:
            phrase, boost = phrase_step(phrases, entry.boost, token)
            most = float32(scales.begin_credit - phrase)
            if cost > loosened(bound_of(scales, least), most):
                continue
        if not known:
            cheapest = _price_words(space, phrases, work, entry)
            credit = float32(scales.word_credit + credit_of(phrases, entry))
            base = float32(base + float32(scales.lm_scale * cheapest))
            known = True
        after = token, child, phrase, boost
        made, least = _begin_after(
            space, scales, words, phrases, work, entry, i, after, made, least
        )
        if made < 0:
            break
    return made, least


@inlined
def _price_words(space, phrases, work, entry):
    """Fill in what the words of the entry's node cost, and where they lead.

    Returns:
        What the cheapest of them adds to the cost at least, whatever begins after it.
    """
    trie, cheapest = space.trie, _INF
    first = int64(trie.said_splits[entry.node])
    last = int64(trie.said_splits[entry.node + 1])
    for said in range(first, last):
        word = trie.said_word[said]
        cost, state = step(space.automaton, space.model, entry.state, word)
        work.word_cost[said - first] = float32(cost + trie.said_cost[said])
        work.word_state[said - first] = state
        ahead = ahead_at(space, work, state, 0)
        graph = float32(float32(work.word_cost[said - first] + ahead) - entry.ahead)
        cheapest = min(cheapest, graph)
        if phrases.of_words:
            cost, state = phrase_step(phrases, entry.boost, word)
            work.word_phrase[said - first] = cost
            work.word_boost[said - first] = state
    return cheapest


@inlined
def _begin_after(space, scales, words, phrases, work, entry, i, after, made, least):
    """The words of a node end, and a token begins.

    `after`: (token, child of the root or 0, what phrases of tokens say of the token:
    cost, boost state).
    """
    token, child, phrase, boost = after
    trie = space.trie
    first = int64(trie.said_splits[entry.node])
    last = int64(trie.said_splits[entry.node + 1])
    same = token == space.node_token[entry.node]
    for said in range(first, last):
        word, state = trie.said_word[said], work.word_state[said - first]
        if not work.word_cost[said - first] < _INF:
            continue
        if phrases.of_words:
            phrase = work.word_phrase[said - first]
            boost = work.word_boost[said - first]
        ahead = ahead_at(space, work, state, 0)
        graph = float32(float32(work.word_cost[said - first] + ahead) - entry.ahead)
        if child > 0:
            cost = float32(source_cost(entry, same) + float32(scales.lm_scale * graph))
            cost = float32(cost + work.costs[token])
            credit = float32(scales.word_credit - phrase)
            if cost > loosened(bound_of(scales, least), credit):
                continue
            ahead = ahead_at(space, work, state, child)
            graph = float32(float32(work.word_cost[said - first] + ahead) - entry.ahead)
        bonus = find_bonus(words.keys, words.bonuses, np.uint32(word))
        insertion = float32(scales.word_insertion - bonus)
        insertion = float32(scales.token_insertion + insertion)
        way = (
            token,
            state,
            child,
            boost,
            ahead,
            int32(said),
            graph,
            insertion,
            phrase,
            int64(word),
            same,
        )
        made, least = begin(scales, work, entry, i, way, made, least)
        if made < 0:
            break
    return made, least
