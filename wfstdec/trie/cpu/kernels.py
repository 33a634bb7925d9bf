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
from numpy import float32, int32, int64, uint64

from wfstdec.jit import inlined, kernel
from wfstdec.lm.kernels import step
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.cpu import records as k
from wfstdec.trie.cpu.begin import (
    ahead_at,
    begin,
    bound_of,
    credit_of,
    is_over,
    phrase_step,
    source_cost,
)
from wfstdec.trie.cpu.merge import choose, find_entries, settle
from wfstdec.trie.cpu.price import (
    find_near,
    keep_near,
    least_stay,
    loosened,
    price,
    put_in_order,
    take_best,
)
from wfstdec.trie.cpu.words import end_word
from wfstdec.trie.lexicon_trie import find_child

FEW = 12
"""Live tokens among which none is followed first."""
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
        price(tree.space.blank, scales, logprobs[frame], work)
        num_live, least = _find_live(tree, scales, words, phrases, work, channel)
        made, least = _emit(
            tree,
            scales,
            words,
            phrases,
            work,
            channel,
            counts[k.FRONTIER],
            num_live,
            least,
        )
        for i in range(num_live):
            work.begin_costs[work.live[i]] = _INF
        if made < 0:
            return k.GROW_CANDIDATES, frame
        if made == 0:
            counts[k.DIED] = counts[k.FRAMES]
            break
        cutoff = min(float32(least + scales.beam), NO_CUTOFF)
        num_entries = find_entries(scales, work, channel.frontier, made, cutoff)
        num_entries = choose(scales, work, num_entries)
        if num_entries > len(channel.frontier):
            return k.GROW_FRONTIER, frame
        if counts[k.TRACE] + 2 * num_entries > len(channel.trace):
            return k.GROW_TRACE, frame
        counts[k.ACTIVE] += counts[k.FRONTIER]
        counts[k.CANDIDATES] += made
        settle(tree.space, scales, phrases, work, channel, num_entries)
        counts[k.FRAMES] += 1
    return k.OK, num_frames


@inlined
def _find_live(tree, scales, words, phrases, work, channel):
    """The tokens that may begin, best first: how many; what the bound begins with.

    Live is what costs no more than the bound even from a phase that costs nothing: the
    least there can be after re-basing, with "sum" not always in the first entry. Where
    these are many, the best token is followed from there first, for a better bound.
    """
    frontier = channel.frontier
    credit = float32(scales.begin_credit + _top_credit(phrases, channel))
    least = least_stay(tree.space, work, frontier, channel.counts[k.FRONTIER])
    bound = loosened(bound_of(scales, least), credit)
    count = find_near(tree.space.blank, bound, work)
    if count > uint64(FEW):
        take_best(count, work)
        made, least = _emit(tree, scales, words, phrases, work, channel, 1, 1, least)
        work.begin_costs[work.live[0]] = _INF
        bound = loosened(bound_of(scales, least), credit)
        count = keep_near(count, bound, work)
    return put_in_order(scales, count, work), least


@inlined
def _top_credit(phrases, channel):
    """The most that a phrase is credited in any entry."""
    top = _ZERO
    if phrases.of_words or phrases.of_tokens:
        for i in range(channel.counts[k.FRONTIER]):
            top = max(top, credit_of(phrases, channel.frontier[i]))
    return top


@kernel
def _emit(tree, scales, words, phrases, work, channel, num_entries, num_live, least):
    """Write the candidates of the first entries; (how many, or -1, the least cost)."""
    space = tree.space
    frontier = channel.frontier
    made = 0
    for i in range(num_entries):
        if made + 3 > len(work.candidates):
            return -1, least
        made, least = _stay(space, scales, work, frontier[i], i, made, least)
        if num_live == 0:
            continue
        if is_over(scales, phrases, work, frontier[i], work.live[0], least):
            continue
        if space.lexical:
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
                space, scales, phrases, work, frontier[i], i, num_live, made, least
            )
        if made < 0:
            return -1, least
    return made, least


@inlined
def _stay(space, scales, work, entry, i, made, least):
    """A blank, or the same token again."""
    both = scales.sums
    blank = work.costs[space.blank]
    if both or entry.over <= entry.on:
        made, least = _stays(scales, work, entry, i, entry.over + blank, 0, made, least)
    if both or entry.over > entry.on:
        made, least = _stays(scales, work, entry, i, entry.on + blank, 1, made, least)
    if entry.on < _INF:
        cost = entry.on + work.costs[space.node_token[entry.node]]
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
def _any_token(space, scales, phrases, work, entry, i, num_live, made, least):
    """Every live token, with a language model over tokens."""
    before = space.node_token[entry.node]
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
        graph, state = step(space.automaton, space.model, entry.state, token)
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
    trie, node = tree.space.trie, int64(entry.node)
    base = min(entry.over, entry.on)
    credit = scales.inside_credit
    if phrases.of_tokens:
        credit = float32(credit + credit_of(phrases, entry))
    limit = loosened(bound_of(scales, least), credit)
    for n in range(_find_ways_down(tree, work, node, base, limit, num_live)):
        made, least = _go_down(
            tree.space, scales, phrases, work, entry, i, n, made, least
        )
        if made < 0:
            return made, least
    if node != 0 and trie.said_splits[node] < trie.said_splits[node + 1]:
        made, least = end_word(
            tree, scales, words, phrases, work, entry, i, num_live, made, least
        )
    return made, least


@inlined
def _find_ways_down(tree, work, node, base, limit, num_live):
    """Fill `down_token` and `down_node` with children within the limit; how many."""
    trie, separator = tree.space.trie, tree.space.separator
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
def _go_down(space, scales, phrases, work, entry, i, n, made, least):
    """A token begins and no word ends: the `n`-th way down."""
    token, child = work.down_token[n], int64(work.down_node[n])
    same = token == space.node_token[entry.node]
    cost = float32(source_cost(entry, same) + work.costs[token])
    phrase, boost, credit = _ZERO, entry.boost, scales.inside_credit
    if phrases.of_tokens:
        phrase, boost = phrase_step(phrases, entry.boost, token)
        credit = float32(credit - phrase)
    if cost > loosened(bound_of(scales, least), credit):
        return made, least
    ahead = entry.ahead
    if child > 0:
        ahead = ahead_at(space, work, entry.state, child)
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
