"""Emission by label with phrases: `emission.py` says what goes by label.

Arcs on which phrases step are kept apart from the others from the start, so that no
loop has to ask, and steps are made in a loop of their own, for what can survive:

    name     a row's plain labels count from the cost of the entry, the others from
             that less the most that its boost state can be credited
    plain    as without phrases; the boost state stays
    weigh    what can end within the cutoff if it is credited all that it can be
    step     of those, the cost and the next boost state
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.phrase_rows import step
from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import count_bits, prefetch
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.following import (
    LABEL,
    find_live_sets,
    level_of,
    levels_per_nat,
    note,
    note_of,
    pass_arc,
)

BLOCK = 32
"""Entries whose arcs are named, and asked for, before they are followed."""
MOST_LABELS = 63
"""Labels that fit a row's label set; bit 0 is epsilon's."""
NAMED_AT_MOST = BLOCK * MOST_LABELS
"""Arcs that a block names."""
_NONE = uint64(k.NONE)
_ONE = uint64(1)
_ZERO = uint64(0)


@kernel
def emit_phrases_by_label(graph, scales, boosts, phrases, work, channel, cutoff, beam):
    """Write the arcs that may survive to `work.candidates`; see `emission.emit`."""
    frontier, count = channel.frontier, uint64(channel.counts[k.FRONTIER])
    candidates, top = work.candidates, channel.top_credit[0]
    width = min(float32(beam + top), NO_CUTOFF)
    find_live_sets(graph, scales, boosts, work, cutoff, top, width)
    made, least = _ZERO, float32(np.inf)
    first = _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        plain, behind = _name_arcs(
            graph, work, frontier, first, last, count, top, width
        )
        if made + plain + (uint64(NAMED_AT_MOST) - behind) > uint64(len(candidates)):
            return _NONE, least
        for q in range(plain):
            entry, a = frontier[work.named[q].entry], uint64(work.named[q].arc)
            arc = graph.arcs[a]
            reached = pass_arc(scales, boosts, entry.cost, arc)
            reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
            note(graph, phrases, work, made, entry, a, reached, entry.boost)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        weighed = _weigh(graph, scales, boosts, work, frontier, made, behind, cutoff)
        for q in range(made, weighed):
            reached = _step(graph, phrases, work, made, candidates[q])
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        first = last
    return made, least


@inlined
def _name_arcs(graph, work, frontier, first, last, count, top, width):
    """Name the arcs with a live label of some entries.

    Returns:
        (plain arcs, named from the front; where the others begin: they stand from
        there to the end of `work.named`).
    """
    per_nat = levels_per_nat(width)
    live, named = work.live_sets, work.named
    plain, behind = _ZERO, uint64(NAMED_AT_MOST)
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row = graph.rows[uint64(frontier[i].state)]
        labels, plain_labels = row.labels, row.plain
        cost = float32(frontier[i].cost + top)
        credited = max(float32(cost - frontier[i].credit), float32(0))
        emit_first = uint64(row.emit)
        bits = live[level_of(cost, per_nat)] & plain_labels & labels
        while bits != _ZERO:
            lowest = bits & (~bits + _ONE)
            a = emit_first + count_bits(labels & (lowest - _ONE))
            bits ^= lowest
            prefetch(graph.arcs, a)
            named[plain].entry = uint32(i)
            named[plain].arc = uint32(a)
            plain += _ONE
        bits = live[level_of(credited, per_nat)] & ~plain_labels & labels
        while bits != _ZERO:
            lowest = bits & (~bits + _ONE)
            a = emit_first + count_bits(labels & (lowest - _ONE))
            bits ^= lowest
            prefetch(graph.arcs, a)
            behind -= _ONE
            named[behind].entry = uint32(i)
            named[behind].arc = uint32(a)
    return plain, behind


@inlined
def _weigh(graph, scales, boosts, work, frontier, made, behind, cutoff):
    """Write the arcs on which phrases step and that can survive, behind `made`.

    Their cost is that before the step, their boost state the entry's.

    Returns:
        Where they end.
    """
    candidates = work.candidates
    for q in range(behind, uint64(NAMED_AT_MOST)):
        entry, a = frontier[work.named[q].entry], uint64(work.named[q].arc)
        arc, candidate = graph.arcs[a], candidates[made]
        cost = pass_arc(scales, boosts, entry.cost, arc)
        acoustic = work.token_costs[arc.ilabel & LABEL]
        candidate.cost = cost
        candidate.node = entry.node
        candidate.arc = uint32(a)
        candidate.boost = entry.boost
        bound = float32(float32(cost - entry.credit) + acoustic)
        made += uint64(bound <= cutoff)
    return made


@inlined
def _step(graph, phrases, work, made, weighed):
    """Make candidate number `made` of a weighed one; its cost."""
    cost, source, node, a = weighed.cost, weighed.boost, weighed.node, weighed.arc
    arc = graph.arcs[uint64(a)]
    label = arc.olabel if phrases.of_words else arc.ilabel & LABEL
    stepped, boost = step(phrases, source, label)
    reached = float32(cost + stepped)
    reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
    candidate = work.candidates[made]
    candidate.cost = reached
    candidate.state = arc.nextstate
    candidate.node = node
    candidate.arc = note_of(a, arc.ilabel)
    candidate.boost = boost
    candidate.source_boost = source
    return reached
