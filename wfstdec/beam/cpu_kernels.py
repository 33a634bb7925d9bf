"""The trie beam search in numba: one utterance, one frame after the other.

The specification is `reference.py`; this computes the same bits faster:

    for each frame:   price      the acoustic cost of each token, and which may begin
                      emit       candidates, as far as a running bound lets them
                      merge      one entry for each key   (`cpu_merge.py`)
                      settle     the best entries, their trace, re-base

The running bound `least so far + beam` drops only what the final one drops. Before the
language model is asked, a candidate is held against it by source and acoustics alone:
inside a word the look-ahead never falls, and at its end it falls by at most `slack`.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, int64

from wfstdec.beam import cpu_types as k
from wfstdec.beam.cpu_begin import (
    ahead_at,
    begin,
    bound_of,
    credit_of,
    is_over,
    phrase_step,
    source_cost,
)
from wfstdec.beam.cpu_merge import choose, find_entries, settle
from wfstdec.beam.cpu_price import loosened, price
from wfstdec.beam.cpu_types import LARGEST
from wfstdec.beam.trie import find_child
from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined, kernel
from wfstdec.lm.kernels import step

_INF = float32(np.inf)
_ZERO = float32(0)


@kernel
def advance(tree, scales, words, phrases, work, channel, logprobs, first):
    """Pass the frontier through the frames `first` and on of a chunk.

    Returns:
        (status, frame): OK and T, or what must grow and the frame to go on from.
    """
    num_frames = logprobs.shape[0]
    counts = channel.counts
    for frame in range(first, num_frames):
        if counts[k.DIED] >= 0:
            break
        first_entry = channel.frontier[0]
        least = min(first_entry.over, first_entry.on)
        credit = float32(scales.begin_credit + _top_credit(phrases, channel))
        num_live = price(
            tree.network.blank, scales, logprobs[frame], least, credit, work
        )
        made, least = _emit(tree, scales, words, phrases, work, channel, num_live)
        for i in range(num_live):
            work.begin_costs[work.live[i]] = _INF
        if made < 0:
            return k.GROW_CANDIDATES, frame
        if made == 0:
            counts[k.DIED] = counts[k.FRAMES]
            break
        cutoff = min(float32(least + scales.beam), LARGEST)
        num_entries = find_entries(scales, work, channel.frontier, made, cutoff)
        num_entries = choose(scales, work, num_entries)
        if num_entries > len(channel.frontier):
            return k.GROW_FRONTIER, frame
        if counts[k.TRACE] + 2 * num_entries > len(channel.trace):
            return k.GROW_TRACE, frame
        counts[k.ACTIVE] += counts[k.FRONTIER]
        counts[k.CANDIDATES] += made
        settle(tree.network, scales, phrases, work, channel, num_entries)
        counts[k.FRAMES] += 1
    return k.OK, num_frames


@inlined
def _top_credit(phrases, channel):
    """The most that a phrase is credited in any entry."""
    top = _ZERO
    if phrases.of_words or phrases.of_tokens:
        for i in range(channel.counts[k.FRONTIER]):
            top = max(top, credit_of(phrases, channel.frontier[i]))
    return top


@kernel
def _emit(tree, scales, words, phrases, work, channel, num_live):
    """Write the candidates of all entries; (how many, or -1, the least cost)."""
    network = tree.network
    frontier = channel.frontier
    made, least = 0, _INF
    for i in range(channel.counts[k.FRONTIER]):
        if made + 3 > len(work.candidates):
            return -1, least
        made, least = _stay(network, scales, work, frontier[i], i, made, least)
        if num_live == 0:
            continue
        if is_over(scales, phrases, work, frontier[i], work.live[0], least):
            continue
        if network.lexical:
            made, least = _walk_trie(
                tree,
                scales,
                words,
                phrases,
                work,
                frontier[i],
                i,
                num_live,
                made,
                least,
            )
        else:
            made, least = _any_token(
                network, scales, phrases, work, frontier[i], i, num_live, made, least
            )
        if made < 0:
            return -1, least
    return made, least


@inlined
def _stay(network, scales, work, entry, i, made, least):
    """A blank, or the same token again."""
    both = scales.sums
    blank = work.costs[network.blank]
    if both or entry.over <= entry.on:
        made, least = _stays(scales, work, entry, i, entry.over + blank, 0, made, least)
    if both or entry.over > entry.on:
        made, least = _stays(scales, work, entry, i, entry.on + blank, 1, made, least)
    if entry.on < _INF:
        cost = entry.on + work.costs[network.node_token[entry.node]]
        made, least = _stays(scales, work, entry, i, cost, 3, made, least)
    return made, least


@inlined
def _stays(scales, work, entry, i, cost, phases, made, least):
    """Add a candidate of the same entry; bit 0 of `phases`: from on, bit 1: to on."""
    cost = float32(cost)
    if cost <= bound_of(scales, least):
        c = work.candidates[made]
        c.cost, c.ahead, c.source = cost, entry.ahead, i
        c.state, c.node, c.boost = entry.state, entry.node, entry.boost
        c.from_on, c.to_on = phases & 1 != 0, phases & 2 != 0
        c.token, c.said = -1, -1
        c.text = entry.text
        made += 1
        least = min(least, cost)
    return made, least


@inlined
def _any_token(network, scales, phrases, work, entry, i, num_live, made, least):
    """Every live token, with a language model over tokens."""
    before = network.node_token[entry.node]
    insertion = scales.token_insertion
    for n in range(num_live):
        token = work.live[n]
        if is_over(scales, phrases, work, entry, token, least):
            break  # as are all that follow
        same = token == before
        phrase, boost = _ZERO, entry.boost
        if phrases.of_tokens:
            phrase, boost = phrase_step(phrases, entry.boost, token)
            credit = float32(scales.begin_credit - phrase)
            cost = float32(source_cost(entry, same) + work.costs[token])
            if cost > loosened(bound_of(scales, least), credit):
                continue
        graph, state = step(network.automaton, network.model, entry.state, token)
        way = (
            token,
            state,
            token,
            boost,
            _ZERO,
            int32(-1),
            float32(graph),
            insertion,
            phrase,
            int64(token),
            same,
        )
        made, least = begin(scales, work, entry, i, way, made, least)
        if made < 0:
            break
    return made, least


@inlined
def _walk_trie(tree, scales, words, phrases, work, entry, i, num_live, made, least):
    """Tokens inside a word; tokens that end it; separators between words."""
    trie, node = tree.network.trie, int64(entry.node)
    base = min(entry.over, entry.on)
    credit = scales.inside_credit
    if phrases.of_tokens:
        credit = float32(credit + credit_of(phrases, entry))
    limit = loosened(bound_of(scales, least), credit)
    for n in range(_find_ways_down(tree, work, node, base, limit, num_live)):
        made, least = _go_down(
            tree.network, scales, phrases, work, entry, i, n, made, least
        )
        if made < 0:
            return made, least
    if node != 0 and trie.said_splits[node] < trie.said_splits[node + 1]:
        made, least = _end_word(
            tree, scales, words, phrases, work, entry, i, num_live, made, least
        )
    return made, least


@inlined
def _find_ways_down(tree, work, node, base, limit, num_live):
    """Fill `down_token` and `down_node` with children within the limit; how many."""
    trie, separator = tree.network.trie, tree.network.separator
    first, last = int64(trie.child_splits[node]), int64(trie.child_splits[node + 1])
    count = 0
    if last - first <= 2 * num_live:
        for at in range(first, last):
            token = trie.child_token[at]
            cost = float32(base + work.begin_costs[token])
            work.down_token[count] = token
            work.down_node[count] = trie.child_node[at]
            count += int64(cost <= limit and cost < _INF)
    else:
        for n in range(num_live):
            token = work.live[n]
            if float32(base + work.costs[token]) > limit:
                break
            if node == 0:
                child = int64(tree.root_child[token])
            else:
                child = find_child(trie, node, token)
            work.down_token[count] = token
            work.down_node[count] = child
            count += int64(child >= 0)
    if node == 0 and separator >= 0 and work.begin_costs[separator] < _INF:
        work.down_token[count] = separator
        work.down_node[count] = 0
        count += 1
    return count


@inlined
def _go_down(network, scales, phrases, work, entry, i, n, made, least):
    """A token begins and no word ends: the `n`-th way down."""
    token, child = work.down_token[n], int64(work.down_node[n])
    same = token == network.node_token[entry.node]
    cost = float32(source_cost(entry, same) + work.costs[token])
    phrase, boost, credit = _ZERO, entry.boost, scales.inside_credit
    if phrases.of_tokens:
        phrase, boost = phrase_step(phrases, entry.boost, token)
        credit = float32(credit - phrase)
    if cost > loosened(bound_of(scales, least), credit):
        return made, least
    ahead = entry.ahead
    if child > 0:
        ahead = ahead_at(network, entry.state, child)
    graph = float32(ahead - entry.ahead)
    way = (
        token,
        entry.state,
        child,
        boost,
        ahead,
        int32(-1),
        graph,
        scales.token_insertion,
        phrase,
        int64(-1),
        same,
    )
    return begin(scales, work, entry, i, way, made, least)


@inlined
def _end_word(tree, scales, words, phrases, work, entry, i, num_live, made, least):
    """The words of the entry's node end: a separator or another word begins."""
    network = tree.network
    known = False
    for n in range(num_live):
        token = work.live[n]
        if is_over(scales, phrases, work, entry, token, least):
            break  # as are all that follow
        child = int64(0)
        if token != network.separator:
            if not network.optional:
                continue
            child = int64(tree.root_child[token])
            if child < 0:
                continue
        phrase, boost = _ZERO, entry.boost
        if phrases.of_tokens:
            phrase, boost = phrase_step(phrases, entry.boost, token)
            cost = float32(min(entry.over, entry.on) + work.costs[token])
            credit = float32(scales.begin_credit - phrase)
            if cost > loosened(bound_of(scales, least), credit):
                continue
        if not known:
            _price_words(network, phrases, work, entry)
            known = True
        after = token, child, phrase, boost
        made, least = _begin_after(
            network, scales, words, phrases, work, entry, i, after, made, least
        )
        if made < 0:
            break
    return made, least


@inlined
def _price_words(network, phrases, work, entry):
    """Fill in what the words of the entry's node cost, and where they lead."""
    trie = network.trie
    first = int64(trie.said_splits[entry.node])
    last = int64(trie.said_splits[entry.node + 1])
    for said in range(first, last):
        word = trie.said_word[said]
        cost, state = step(network.automaton, network.model, entry.state, word)
        work.word_cost[said - first] = float32(cost + trie.said_cost[said])
        work.word_state[said - first] = state
        if phrases.of_words:
            cost, state = phrase_step(phrases, entry.boost, word)
            work.word_phrase[said - first] = cost
            work.word_boost[said - first] = state


@inlined
def _begin_after(network, scales, words, phrases, work, entry, i, after, made, least):
    """The words of a node end, and a token begins.

    `after`: (token, child of the root or 0, what phrases of tokens say of the token:
    cost, boost state).
    """
    token, child, phrase, boost = after
    trie = network.trie
    first = int64(trie.said_splits[entry.node])
    last = int64(trie.said_splits[entry.node + 1])
    same = token == network.node_token[entry.node]
    for said in range(first, last):
        word, state = trie.said_word[said], work.word_state[said - first]
        if not work.word_cost[said - first] < _INF:
            continue
        if phrases.of_words:
            phrase, boost = (
                work.word_phrase[said - first],
                work.word_boost[said - first],
            )
        ahead = ahead_at(network, state, 0)
        graph = float32(float32(work.word_cost[said - first] + ahead) - entry.ahead)
        if child > 0:
            cost = float32(source_cost(entry, same) + float32(scales.lm_scale * graph))
            cost = float32(cost + work.costs[token])
            credit = float32(scales.word_credit - phrase)
            if cost > loosened(bound_of(scales, least), credit):
                continue
            ahead = ahead_at(network, state, child)
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
