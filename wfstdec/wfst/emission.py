"""Which emitting arcs may survive a frame: the inner loop of the search.

Two ways to find them, with the same result after recombination:

    by label   V <= 63 and no label twice in a row of the graph: a row's labels are
               the bits of one word, and so are the labels that can survive from each
               of 16 cost levels; their intersection names the arcs to look at
    by row     all arcs of a row
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint32, uint64

from wfstdec.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON
from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined, kernel
from wfstdec.wfst import kernel_types as k
from wfstdec.wfst.kernel_types import LARGEST, count_bits, prefetch
from wfstdec.wfst.phrase_rows import label_of, step

LEVELS = 64
"""Cost levels between 0 and the beam, each with its own set of live labels."""
BLOCK = 32
"""Entries whose arcs are named, and asked for, before they are followed."""
MOST_LABELS = 63
"""Labels that fit a row's label set; bit 0 is epsilon's."""
_LABEL = uint32(LABEL_MASK)
_LEADS_BIT = uint32(LEADS_TO_EPSILON.bit_length() - 1)
_NONE = uint64(k.NONE)
_ONE = uint64(1)
_ZERO = uint64(0)


@inlined
def extras(scales, boosts, arc):
    """What an arc costs besides graph and acoustics: insertion less boost."""
    if arc.ilabel & uint32(CARRIES_WORD):
        bonus = find_bonus(boosts.keys, boosts.bonuses, arc.olabel)
        return float32(scales.word_insertion - bonus)
    return float32(0)


@kernel
def price(graph, scales, logprobs, work):
    """Fill `work.unscaled` and `work.token_costs` (by ilabel) for one frame."""
    unscaled, costs = work.unscaled[1:], work.token_costs[1:]
    blank, scale = graph.blank, scales.acoustic_scale
    for v in range(len(logprobs)):
        unscaled[v] = float32(-logprobs[v])
    unscaled[blank] = float32(-float32(logprobs[blank] - scales.blank_penalty))
    if logprobs[blank] >= scales.blank_skip_logprob:
        of_blank = unscaled[blank]
        unscaled[:] = float32(np.inf)
        unscaled[blank] = of_blank
    for v in range(len(logprobs)):
        costs[v] = float32(scale * unscaled[v])
    if scale == float32(0):
        for v in range(len(logprobs)):
            if unscaled[v] == float32(np.inf):
                costs[v] = float32(np.inf)


@inlined
def emit(graph, scales, boosts, phrases, work, channel, beam, unbounded):
    """Write the arcs that may survive to `work.candidates`.

    The cutoff starts from the best entry's arcs; with `unbounded` there is none.

    Returns:
        (candidates, least cost), or (NONE, ...) where they do not fit.
    """
    count = uint64(channel.counts[k.FRONTIER])
    cutoff = LARGEST
    if not unbounded:
        best = channel.frontier[channel.counts[k.BEST]]
        least = _least_from(graph, scales, boosts, phrases, work, best)
        cutoff = min(float32(least + beam), LARGEST)
    frontier = channel.frontier
    if graph.by_label and not unbounded:
        top = _top_credit(phrases)
        dearest = _dearest(graph, scales, boosts, cutoff, top)
        width = min(float32(beam + top), LARGEST)
        _find_live_sets(work, dearest, width)
        return _emit_by_label(
            graph, scales, boosts, phrases, work, frontier, count, cutoff, width
        )
    return _emit_by_row(graph, scales, boosts, phrases, work, frontier, count, cutoff)


@inlined
def _top_credit(phrases):
    """The most that a phrase credits an arc."""
    if phrases is None:
        return float32(0)
    else:
        return phrases.top_credit


@inlined
def _least_from(graph, scales, boosts, phrases, work, entry):
    """The least cost that the emitting arcs of one entry reach."""
    least = float32(np.inf)
    state = uint64(entry.state)
    row_end = uint64(graph.rows[state + _ONE].begin)
    for a in range(uint64(graph.rows[state].emit), row_end):
        cost, _ = _follow(graph, scales, boosts, phrases, work, entry, a, LARGEST)
        least = min(least, cost)
    return least


@inlined
def _follow(graph, scales, boosts, phrases, work, entry, a, cutoff):
    """What emitting arc `a` reaches: ((cost + graph) + extras) + acoustic.

    Phrases are asked only where the arc can end within the cutoff.

    Returns:
        (cost, boost state); the cost is `inf` where phrases were not asked.
    """
    arc = graph.arcs[a]
    acoustic = work.token_costs[arc.ilabel & _LABEL]
    reached = float32(entry.cost + float32(scales.lm_scale * arc.cost))
    if scales.has_extras:
        reached = float32(reached + extras(scales, boosts, arc))
    if phrases is None:
        return float32(reached + acoustic), uint32(0)
    else:
        return with_phrase(phrases, arc, entry.boost, reached, acoustic, cutoff)


@inlined
def with_phrase(phrases, arc, boost, cost, acoustic, cutoff):
    """(cost + step of the phrases) + acoustic, and the next boost state.

    The cost is `inf` where even the most that the phrases credit leaves it over the
    cutoff (exact: float addition is monotone).
    """
    label = label_of(phrases, arc)
    if label != uint32(0):
        credit = phrases.rows[uint64(boost)].credit
        if float32(float32(cost - credit) + acoustic) > cutoff:
            return float32(np.inf), boost
        stepped, boost = step(phrases, boost, label)
        cost = float32(cost + stepped)
    return float32(cost + acoustic), boost


@inlined
def _note(graph, phrases, work, made, entry, a, cost, boost):
    """Write candidate number `made`: arc `a` from an entry of the frontier."""
    arc = graph.arcs[a]
    candidate = work.candidates[made]
    candidate.cost = cost
    candidate.state = arc.nextstate
    candidate.node = entry.node
    candidate.arc = note_of(a, arc.ilabel)
    if phrases is not None:
        candidate.boost = boost
        candidate.source_boost = entry.boost
    prefetch(work.slots, uint64(arc.nextstate))


@inlined
def note_of(a, ilabel):
    """An arc as entries note it: its id, and whether its state has epsilon arcs."""
    leads = (ilabel & uint32(LEADS_TO_EPSILON)) >> _LEADS_BIT
    return (uint32(a) << uint32(1)) | leads


@inlined
def _prefetch_rows(graph, frontier, i, count):
    """Ask for the rows and arcs that will be needed some entries later."""
    if i + uint64(16) < count:
        prefetch(graph.rows, uint64(frontier[i + uint64(16)].state))
    if i + uint64(8) < count:
        state = uint64(frontier[i + uint64(8)].state)
        prefetch(graph.arcs, uint64(graph.rows[state].emit))


@inlined
def _dearest(graph, scales, boosts, cutoff, top):
    """More than `cost of an entry + cost of a token` can be where an arc survives.

    Conservative: every arc counts as the least one of the graph, less the largest
    credit (`top` is that of phrases), and the slack covers rounding.
    """
    credit = max(float32(0), float32(boosts.top_bonus - scales.word_insertion))
    least_arc = float32(scales.lm_scale * graph.least_cost) - credit - top
    slack = float32(1e-3) + float32(4e-6) * (abs(cutoff) + abs(least_arc))
    return min(float32(cutoff - least_arc) + slack, LARGEST)


@inlined
def _find_live_sets(work, dearest, width):
    """Fill `work.live_sets`: the labels that can survive from each level of cost.

    Costs are 0 to `width`; a level stands for its lowest cost.
    """
    live, costs = work.live_sets, work.token_costs
    per_nat = _levels_per_nat(width)
    live[:] = _ZERO
    for label in range(_ONE, uint64(len(costs))):
        cost = costs[label]
        if cost <= dearest:
            level = float32(float32(dearest - cost) * per_nat)
            live[_whole(min(level, float32(LEVELS - 1)))] |= _ONE << label
    for level in range(uint64(LEVELS - 1)):
        live[uint64(LEVELS - 2) - level] |= live[uint64(LEVELS - 1) - level]


@inlined
def _whole(level):
    """The integer below a small float32 (a signed conversion is one instruction)."""
    return uint64(int32(level))


@inlined
def _levels_per_nat(width):
    return float32(LEVELS) / min(max(width, float32(1e-3)), LARGEST)


@kernel
def _emit_by_label(
    graph, scales, boosts, phrases, work, frontier, count, cutoff, width
):
    """Candidates by intersecting label sets; see `emit`.

    Block by block: first the arcs are named and asked for, then they are followed; by
    then they are in the cache.
    """
    made, least = _ZERO, float32(np.inf)
    room = uint64(len(work.candidates))
    first = _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        named = _name_arcs(graph, phrases, work, frontier, first, last, count, width)
        if made + named > room:
            return _NONE, least
        for q in range(named):
            entry, a = frontier[work.named[q].entry], uint64(work.named[q].arc)
            reached, boost = _follow(
                graph, scales, boosts, phrases, work, entry, a, cutoff
            )
            _note(graph, phrases, work, made, entry, a, reached, boost)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        first = last
    return made, least


@inlined
def _name_arcs(graph, phrases, work, frontier, first, last, count, width):
    """Name the arcs with a live label of some entries; how many there are."""
    per_nat = _levels_per_nat(width)
    named = _ZERO
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row = graph.rows[uint64(frontier[i].state)]
        labels, emit_first = row.labels, uint64(row.emit)
        bits = labels & _live_from(graph, phrases, work, frontier[i], row, per_nat)
        while bits != _ZERO:
            lowest = bits & (~bits + _ONE)
            a = emit_first + count_bits(labels & (lowest - _ONE))
            bits ^= lowest
            prefetch(graph.arcs, a)
            work.named[named].entry = uint32(i)
            work.named[named].arc = uint32(a)
            named += _ONE
    return named


@inlined
def _live_from(graph, phrases, work, entry, row, per_nat):
    """The labels that can survive from an entry; see `_dearest`.

    With phrases, levels begin at minus their largest credit; a label that cannot be
    credited counts from the cost of the entry, others from that less its credit.
    """
    top = float32(LEVELS - 1)
    if phrases is None:
        return work.live_sets[_whole(min(float32(entry.cost * per_nat), top))]
    else:
        cost = float32(entry.cost + phrases.top_credit)
        credited = float32(cost - phrases.rows[uint64(entry.boost)].credit)
        level = _whole(min(float32(max(credited, float32(0)) * per_nat), top))
        live = work.live_sets[level]
        if phrases.of_words:
            return live
        level = _whole(min(float32(cost * per_nat), top))
        plain = row.repeats | graph.blank_set
        return (live & ~plain) | (work.live_sets[level] & plain)


@kernel
def _emit_by_row(graph, scales, boosts, phrases, work, frontier, count, cutoff):
    """Candidates by looking at every arc; see `emit`.

    Searching long rows for the live labels of the frame was tried and is slower.
    """
    room = uint64(len(work.candidates))
    made, least = _ZERO, float32(np.inf)
    for i in range(count):
        _prefetch_rows(graph, frontier, i, count)
        entry = frontier[i]
        state = uint64(entry.state)
        first = uint64(graph.rows[state].emit)
        last = uint64(graph.rows[state + _ONE].begin)
        if made + (last - first) > room:
            return _NONE, least
        for a in range(first, last):
            reached, boost = _follow(
                graph, scales, boosts, phrases, work, entry, a, cutoff
            )
            if reached <= cutoff:
                _note(graph, phrases, work, made, entry, a, reached, boost)
                least = min(least, reached)
                made += _ONE
    return made, least
