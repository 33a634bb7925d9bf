"""Which emitting arcs may survive a frame: the inner loop of the search.

Two ways to find them, with the same result after recombination:

    by label   V <= 63 and no label twice in a row of the graph: a row's labels are
               the bits of one word, and so are the labels that can survive from each
               of 64 cost levels; the arcs of their intersection are followed
    by row     all arcs of a row

Where words are boosted, hot arcs are listed as if each had the largest bonus.
`boosted_emission.py` goes by label with boost states.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.listed import is_hot
from wfstdec.jit import inlined, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    follow,
    top_bonus,
    write_candidate,
    write_side,
)
from wfstdec.wfst.cpu.boosted_emission import emit_boosted_by_label
from wfstdec.wfst.cpu.live_labels import (
    BLOCK,
    credit_levels_per_nat,
    credited_level_of,
    find_live_sets,
    hot_labels,
    level_of,
    levels_per_nat,
    list_arcs,
)

_HOT = uint32(1 << 31)
"""Set in the entry of a listed arc where a boosted word may be said."""
_NONE = uint64(k.NONE)
_ONE = uint64(1)
_ZERO = uint64(0)


@inlined
def emit(graph, scales, words, phrases, work, channel, beam, unbounded, known):
    """Write the arcs that may survive to `work.candidates` and `work.side`.

    The cutoff starts from the best entry's arcs, or from `known`, the cost of some
    candidate or infinite, where this is less; with `unbounded` there is none.

    Returns:
        (candidates, side candidates, least cost), the first NONE if they do not fit.
    """
    if unbounded:
        return _emit_by_row(graph, scales, words, phrases, work, channel, NO_CUTOFF)
    least = known
    if channel.counts[k.BEST] < channel.counts[k.GRAPH]:
        best = _least_from_best(graph, scales, words, phrases, work, channel)
        least = min(least, best)
    cutoff = min(float32(least + beam), NO_CUTOFF)
    if not graph.by_label:
        return _emit_by_row(graph, scales, words, phrases, work, channel, cutoff)
    if phrases is None:
        return _emit_by_label(graph, scales, words, work, channel, cutoff, beam)
    else:
        return emit_boosted_by_label(
            graph, scales, words, phrases, work, channel, cutoff, beam
        )


@inlined
def _least_from_best(graph, scales, words, phrases, work, channel):
    """The least cost that the emitting arcs of the best entry reach."""
    least, best = NO_CUTOFF, channel.counts[k.BEST]
    state = uint64(channel.frontier[best].state)
    row_end = uint64(graph.rows[state + _ONE].begin)
    for a in range(uint64(graph.rows[state].emit), row_end):
        cost, _ = follow(graph, scales, words, phrases, work, channel, best, a, least)
        least = min(least, cost)
    return least


@inlined
def _prefetch_rows(graph, frontier, i, count):
    """Ask for the rows and arcs that will be needed some entries later."""
    if i + uint64(16) < count:
        prefetch(graph.rows, uint64(frontier[i + uint64(16)].state))
    if i + uint64(8) < count:
        state = uint64(frontier[i + uint64(8)].state)
        prefetch(graph.arcs, uint64(graph.rows[state].emit))


@part
def _emit_by_label(graph, scales, words, work, channel, cutoff, beam):
    """Candidates by intersecting label sets; see `emit`.

    Block by block: first the arcs are listed and asked for, then they are followed; by
    then they are in the cache.
    """
    frontier, count = channel.frontier, uint64(channel.counts[k.GRAPH])
    made, least = _ZERO, float32(np.inf)
    room = uint64(len(work.candidates))
    find_live_sets(graph, scales, work, cutoff, top_bonus(scales, words), beam)
    first = _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        listed = _list_block(
            graph, scales, words, work, frontier, first, last, count, beam
        )
        if made + listed > room:
            return _NONE, _ZERO, least
        for q in range(listed):
            flagged, a = work.listed[q].entry, uint64(work.listed[q].arc)
            entry, arc = frontier[flagged & ~_HOT], graph.arcs[a]
            reached = add_graph_and_insertion(scales, entry.cost, arc)
            if flagged & _HOT:
                reached = float32(reached - bonus_of(scales, words, arc))
            reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
            write_candidate(graph, work, made, entry, a, reached)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        first = last
    return made, _ZERO, least


@inlined
def _list_block(graph, scales, words, work, frontier, first, last, count, beam):
    """Fill `work.listed` with the live arcs of some entries; how many there are."""
    per_nat, bonus = levels_per_nat(beam), top_bonus(scales, words)
    below_per_nat, listed = credit_levels_per_nat(bonus), _ZERO
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row, cost = graph.rows[uint64(frontier[i].state)], frontier[i].cost
        live = row.labels & work.live_sets[level_of(cost, per_nat)]
        if scales.has_words:
            if is_hot(words, frontier[i].state):
                cost = float32(cost - bonus)
                level = credited_level_of(cost, per_nat, below_per_nat)
                hot = hot_labels(words, row, row.labels & work.live_sets[level])
                live &= ~hot
                flagged = uint32(i) | _HOT
                listed = list_arcs(graph, row, hot, flagged, work.listed, listed)
        listed = list_arcs(graph, row, live, i, work.listed, listed)
    return listed


@part
def _emit_by_row(graph, scales, words, phrases, work, channel, cutoff):
    """Candidates by looking at every arc; see `emit`.

    Searching long rows for the live labels of the frame was tried and is slower.
    """
    frontier, count = channel.frontier, uint64(channel.counts[k.GRAPH])
    room = uint64(len(work.candidates))
    made, side, least = _ZERO, _ZERO, float32(np.inf)
    for i in range(count):
        _prefetch_rows(graph, frontier, i, count)
        entry = frontier[i]
        state = uint64(entry.state)
        first = uint64(graph.rows[state].emit)
        last = uint64(graph.rows[state + _ONE].begin)
        if max(made, side) + (last - first) > room:
            return _NONE, side, least
        for a in range(first, last):
            reached, boost = follow(
                graph, scales, words, phrases, work, channel, i, a, cutoff
            )
            if not reached <= cutoff:
                continue
            least = min(least, reached)
            if phrases is not None:
                source = channel.boosts[i].boost
                if boost != phrases.quiet or source != phrases.quiet:
                    write_side(graph, work, side, entry, a, reached, boost, source)
                    side += _ONE
                    continue
            write_candidate(graph, work, made, entry, a, reached)
            made += _ONE
    return made, side, least
