"""How a token begins: what all successors of an entry have in common.

successor = Successor(token, state, node, ...)         # where the token leads
emitted = begin(search, work, source, successor, emitted)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int64

from wfstdec.jit import inlined
from wfstdec.trie.cpu.bounds import least_cost, running_bound

_TEXT_FACTOR = np.uint64(6364136223846793005)
_TEXT_STEP = np.uint64(1442695040888963407)


class Beside(NamedTuple):
    """What added and open words may credit in a step of an entry, at most.

    Attributes:
        inside, at_end: Bonuses, where no word ends, where one does.
        fall_inside, fall_at_end: By how much costs may fall, scaled.
    """

    inside: np.float32
    at_end: np.float32
    fall_inside: np.float32
    fall_at_end: np.float32


class Source(NamedTuple):
    """An entry that is followed.

    Attributes:
        entry: The entry.
        position: Its position in the frontier.
        most_inside, most_at_end: No less than boosts pay where no word ends, where one
            does; and than costs fall where that is not in `begin_credit`.
        beside: What of this is of added and open words.
    """

    entry: Any
    position: int
    most_inside: np.float32
    most_at_end: np.float32
    beside: Beside


class Emitted(NamedTuple):
    """How many candidates there are, -1 if they do not fit, and their least cost."""

    num_candidates: int
    least_cost: np.float32


class Successor(NamedTuple):
    """Where a token leads, and what it costs but for the source and acoustics.

    Attributes:
        token: The token.
        state, node, boost, spelling: The place.
        lookahead_cost: At that place.
        pron: The pronunciation that ends before the token, -1 for none.
        graph_cost: Unscaled, look-ahead included.
        insertion: Of the token, and of the word that ends.
        boost_cost: What boosts make of it.
        label: The word or token that the text grows by, -1 for none.
        repeated: Whether it is the last token again, which may only follow a blank.
    """

    token: int
    state: int
    node: int
    boost: int
    spelling: np.uint64
    lookahead_cost: np.float32
    pron: int
    graph_cost: np.float32
    insertion: np.float32
    boost_cost: np.float32
    label: int
    repeated: bool


@inlined
def begin(search, work, source, successor, emitted):
    """Add the candidates of a token that begins, one for each phase that it may follow.

    With "max" it is one phase: the cheaper one, and the blank where the token repeats.
    """
    scales, entry, s = search.scales, source.entry, successor
    count, least = emitted.num_candidates, emitted.least_cost
    if count + 2 > len(work.candidates):
        return Emitted(int64(-1), least)
    for phase in range(2):
        nonblank = phase == 1
        if nonblank and s.repeated:
            break
        if not scales.sums and not s.repeated:
            if (entry.nonblank_cost < entry.blank_cost) != nonblank:
                continue
        before = entry.nonblank_cost if nonblank else entry.blank_cost
        cost = float32(before + float32(scales.lm_scale * s.graph_cost))
        cost = float32(float32(cost + s.insertion) + s.boost_cost)
        cost = float32(cost + work.costs[s.token])
        if cost <= running_bound(scales, least):
            c = work.candidates[count]
            c.cost, c.lookahead_cost, c.source = cost, s.lookahead_cost, source.position
            c.state, c.node, c.boost = s.state, s.node, s.boost
            c.spelling = s.spelling
            c.token, c.pron = s.token, s.pron
            c.from_nonblank, c.to_nonblank = nonblank, True
            c.text = entry.text
            if scales.by_text and s.label >= 0:
                c.text = text_with(entry.text, s.label)
            count += 1
            least = min(least, cost)
    return Emitted(count, least)


@inlined
def text_with(text, label):
    """The hash of a text with one more word or token, uint64."""
    return np.uint64(text * _TEXT_FACTOR + np.uint64(label) + _TEXT_STEP)


@inlined
def source_cost(entry, repeated):
    """The cost that a token begins from; the last token again only follows a blank."""
    return entry.blank_cost if repeated else least_cost(entry)
