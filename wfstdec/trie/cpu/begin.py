"""How a token begins: the parts that all ways have in common."""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint32, uint64

from wfstdec.boost.phrase_rows import step
from wfstdec.jit import inlined
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.cpu import records as k
from wfstdec.trie.cpu.price import loosened
from wfstdec.trie.lookahead import potential

_INF = float32(np.inf)
_ZERO = float32(0)
_AHEAD_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_AHEAD_SHIFT = np.uint64(64 - k.AHEAD_BITS)
_TEXT_FACTOR = np.uint64(6364136223846793005)
_TEXT_STEP = np.uint64(1442695040888963407)


@inlined
def bound_of(scales, least):
    """The running bound."""
    return min(float32(least + scales.beam), NO_CUTOFF)


@inlined
def begin(scales, work, entry, i, way, made, least):
    """Add the candidates of a token that begins, one for each phase; -1: no room.

    `way`: (token, state, node, boost, ahead, said, graph, insertion, phrase cost,
    text label or -1, whether the same token must be over).
    """
    token, state, node, boost, ahead, said, graph, insertion, phrase, label, same = way
    if made + 2 > len(work.candidates):
        return -1, least
    both = scales.sums
    for on in range(2):
        if on == 1 and same:
            break
        if not both and not same and (entry.on < entry.over) != (on == 1):
            continue
        before = entry.on if on == 1 else entry.over
        cost = float32(before + float32(scales.lm_scale * graph))
        cost = float32(float32(cost + insertion) + phrase)
        cost = float32(cost + work.costs[token])
        if cost <= bound_of(scales, least):
            c = work.candidates[made]
            c.cost, c.ahead, c.source = cost, ahead, i
            c.state, c.node, c.boost = state, node, boost
            c.token, c.said = token, said
            c.from_on, c.to_on = on == 1, True
            c.text = entry.text
            if scales.by_text and label >= 0:
                c.text = extended(entry.text, label)
            made += 1
            least = min(least, cost)
    return made, least


@inlined
def extended(text, label):
    """The hash of a text with one more word or token, uint64."""
    return np.uint64(text * _TEXT_FACTOR + np.uint64(label) + _TEXT_STEP)


@inlined
def is_over(scales, phrases, work, entry, token, least):
    """Whether a token that begins is over the bound, whatever follows from it."""
    cost = float32(min(entry.over, entry.on) + work.costs[token])
    credit = float32(scales.begin_credit + credit_of(phrases, entry))
    return cost > loosened(bound_of(scales, least), credit)


@inlined
def source_cost(entry, same):
    """What a token begins from; the same token only where it is over."""
    return entry.over if same else min(entry.over, entry.on)


@inlined
def credit_of(phrases, entry):
    """The most that phrases credit a label that follows."""
    return phrases.rows[uint64(entry.boost)].credit


@inlined
def phrase_step(phrases, boost, label):
    """(cost, next boost state) of a label of the phrases' unit."""
    cost, after = step(phrases, boost, uint32(label))
    return cost, int32(after)


@inlined
def ahead_at(space, work, state, node):
    """What is paid in advance in a state at a node.

    The same is asked frame after frame: answers are kept where they are found fast.
    """
    if space.model < 0:
        return _ZERO
    if node == 0:
        return space.lookahead.state_cost[state]
    key = (uint64(state) << uint64(32)) | uint64(node)
    answer = work.ahead[(key * _AHEAD_FACTOR) >> _AHEAD_SHIFT]
    if answer.key != key:
        answer.key = key
        answer.cost = potential(space.lookahead, space.automaton, state, node)
    return answer.cost
