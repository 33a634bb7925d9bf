"""Selection of emitting arcs that may survive a frame: the search's inner loop.

Two ways to find them, with the same result after recombination:

    by label   V <= 63 and no label twice in a row of the graph: a row's labels are
               the bits of one word, and so are the labels that can survive from each
               of 64 cost levels; the arcs of their intersection are followed
    by row     all arcs of a row

Where words are boosted, hot arcs are listed as if each had the largest bonus.

A label is live for an entry if some arc with it may end within the cutoff, so far as
the costs of entry and label alone can tell. Costs of entries are put into levels; a
label is a bit of a uint64.

    live_sets[level]                    the labels that are live from that level on
    row.labels & live_sets[level]       the arcs of a state to follow

Where boosts have states, three kinds of arcs are kept apart from the start, so that no
loop has to ask. In the quiet boost state nothing is owed and no phrase has begun:
nearly all arcs lead to it again, and are followed as if nothing was boosted.

    quiet     from quiet entries, where no boosted word or phrase may begin
    still     from other entries, where boosts do not step
    stepping  all others: those that can end within the cutoff if they are paid all that
              they can be are written first, then their steps are made
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint32, uint64

from wfstdec.boost.kernels import hot_window, is_hot, owed_of, state_of
from wfstdec.jit import inlined, part
from wfstdec.jit.intrinsics import bits_below, lowest_bit, prefetch
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    flagged_arc,
    follow,
    max_insertion_credit,
    step_boosts,
    top_bonus,
    write_candidate,
    write_side,
)

LEVELS = 64
"""Cost levels between 0 and the beam, each with its own set of live labels."""
CREDIT_LEVELS = 16
"""Levels below 0, for costs less a credit."""
MAX_LABELS = 63
"""Labels that fit a row's label set; bit 0 is epsilon's."""
BLOCK = 32
"""Entries whose arcs are listed, and asked for, before they are followed."""
BLOCK_ARCS = BLOCK * MAX_LABELS
"""The most arcs that are listed for a block."""
_ONE = uint64(1)
_ZERO = uint64(0)
_NO_ENTRY = uint64(k.NONE)
_STILL, _STEPPING = uint64(BLOCK_ARCS), uint64(2 * BLOCK_ARCS)
"""Where arcs of these kinds begin in `scratch.listed`, behind the quiet ones."""
_HOT = uint32(1 << 31)
"""Set in the entry of a listed arc where a boosted word may be said."""


@inlined
def emit(graph, params, words, phrases, scratch, utterance, beam, unbounded, known):
    """Write the arcs that may survive to `scratch.candidates` and `scratch.side`.

    The cutoff starts from the best entry's arcs, or from `known`, the cost of some
    candidate or infinite, where this is less; with `unbounded` there is none.

    Returns:
        (candidates, side candidates, least cost), the first NONE if they do not fit.
    """
    # `min_active` wants all that is possible, so that no bound may help.
    if unbounded:
        return _emit_by_row(
            graph, params, words, phrases, scratch, utterance, NO_CUTOFF
        )
    least = known
    # The best entry's arcs first: they give a bound near the final one, and most of the
    # rest is then never looked at.
    if utterance.counts[k.BEST] < utterance.counts[k.GRAPH]:
        best = _least_from_best(graph, params, words, phrases, scratch, utterance)
        least = min(least, best)
    cutoff = min(float32(least + beam), NO_CUTOFF)
    if not graph.by_label:
        return _emit_by_row(graph, params, words, phrases, scratch, utterance, cutoff)
    if phrases is None:
        return _emit_by_label(graph, params, words, scratch, utterance, cutoff, beam)
    else:
        return emit_boosted_by_label(
            graph, params, words, phrases, scratch, utterance, cutoff, beam
        )


@inlined
def _least_from_best(graph, params, words, phrases, scratch, utterance):
    """The least cost that the emitting arcs of the best entry reach."""
    least, best = NO_CUTOFF, utterance.counts[k.BEST]
    state = uint64(utterance.frontier[best].state)
    row_end = uint64(graph.rows[state + _ONE].begin)
    for a in range(uint64(graph.rows[state].emit), row_end):
        cost, _ = follow(
            graph, params, words, phrases, scratch, utterance, best, a, least
        )
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
def _emit_by_label(graph, params, words, scratch, utterance, cutoff, beam):
    """Candidates by intersecting label sets; see `emit`.

    Block by block: first the arcs are listed and asked for, then they are followed; by
    then they are in the cache.
    """
    frontier, count = utterance.frontier, uint64(utterance.counts[k.GRAPH])
    made, least = _ZERO, float32(np.inf)
    room = uint64(len(scratch.candidates))
    find_live_sets(graph, params, scratch, cutoff, top_bonus(params, words), beam)
    first = _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        listed = _list_block(
            graph, params, words, scratch, frontier, first, last, count, beam
        )
        if made + listed > room:
            return _NO_ENTRY, _ZERO, least
        for q in range(listed):
            flagged, a = scratch.listed[q].entry, uint64(scratch.listed[q].arc)
            entry, arc = frontier[flagged & ~_HOT], graph.arcs[a]
            reached = add_graph_and_insertion(params, entry.cost, arc)
            if flagged & _HOT:
                reached = float32(reached - bonus_of(params, words, arc))
            reached = float32(reached + scratch.token_costs[arc.ilabel & LABEL])
            write_candidate(graph, scratch, made, entry, a, reached)
            least = min(least, reached)
            # Written always, counted where it is within the cutoff: no branch that the
            # processor would guess wrong.
            made += uint64(reached <= cutoff)
        first = last
    return made, _ZERO, least


@inlined
def _list_block(graph, params, words, scratch, frontier, first, last, count, beam):
    """Fill `scratch.listed` with the live arcs of some entries; how many there are."""
    per_nat, bonus = levels_per_nat(beam), top_bonus(params, words)
    below_per_nat, listed = credit_levels_per_nat(bonus), _ZERO
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row, cost = graph.rows[uint64(frontier[i].state)], frontier[i].cost
        # The dearer an entry, the fewer tokens it can afford: one intersection finds
        # them.
        live = row.labels & scratch.live_sets[level_of(cost, per_nat)]
        if params.has_words:
            if is_hot(words, frontier[i].state):
                cost = float32(cost - bonus)
                level = credited_level_of(cost, per_nat, below_per_nat)
                hot = hot_labels(words, row, row.labels & scratch.live_sets[level])
                # An arc is listed once: hot ones with their bonus.
                live &= ~hot
                flagged = uint32(i) | _HOT
                listed = list_arcs(graph, row, hot, flagged, scratch.listed, listed)
        listed = list_arcs(graph, row, live, i, scratch.listed, listed)
    return listed


@part
def _emit_by_row(graph, params, words, phrases, scratch, utterance, cutoff):
    """Candidates by looking at every arc; see `emit`.

    Searching long rows for the live labels of the frame was tried and is slower.
    """
    frontier, count = utterance.frontier, uint64(utterance.counts[k.GRAPH])
    room = uint64(len(scratch.candidates))
    made, side, least = _ZERO, _ZERO, float32(np.inf)
    for i in range(count):
        _prefetch_rows(graph, frontier, i, count)
        entry = frontier[i]
        state = uint64(entry.state)
        first = uint64(graph.rows[state].emit)
        last = uint64(graph.rows[state + _ONE].begin)
        if max(made, side) + (last - first) > room:
            return _NO_ENTRY, side, least
        for a in range(first, last):
            reached, boost = follow(
                graph, params, words, phrases, scratch, utterance, i, a, cutoff
            )
            if not reached <= cutoff:
                continue
            least = min(least, reached)
            if phrases is not None:
                source = utterance.boosts[i].boost
                if boost != phrases.quiet or source != phrases.quiet:
                    write_side(graph, scratch, side, entry, a, reached, boost, source)
                    side += _ONE
                    continue
            write_candidate(graph, scratch, made, entry, a, reached)
            made += _ONE
    return made, side, least


@part
def emit_boosted_by_label(
    graph, params, words, phrases, scratch, utterance, cutoff, beam
):
    """Write the arcs that may survive to `scratch.candidates` and `scratch.side`.

    Returns:
        As `emit`.
    """
    frontier, count = utterance.frontier, uint64(utterance.counts[k.GRAPH])
    boosts, top_credit = utterance.boosts, utterance.top_credit[0]
    find_live_sets(graph, params, scratch, cutoff, top_credit, beam)
    made, side, least, first = _ZERO, _ZERO, float32(np.inf), _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        quiet, still, stepping = _list_boosted_block(
            graph, words, phrases, scratch, utterance, first, last, count, beam
        )
        more = still - _STILL + (stepping - _STEPPING)
        if made + quiet > uint64(len(scratch.candidates)):
            return _NO_ENTRY, side, least
        if side + more > uint64(len(scratch.side)):
            return _NO_ENTRY, side, least
        for q in range(quiet):
            entry, a = frontier[scratch.listed[q].entry], uint64(scratch.listed[q].arc)
            reached = _reached(graph, params, scratch, entry, a)
            write_candidate(graph, scratch, made, entry, a, reached)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        for q in range(_STILL, still):
            i, a = uint64(scratch.listed[q].entry), uint64(scratch.listed[q].arc)
            reached = _reached(graph, params, scratch, frontier[i], a)
            boost = boosts[i].boost
            write_side(graph, scratch, side, frontier[i], a, reached, boost, boost)
            least = min(least, reached)
            side += uint64(reached <= cutoff)
        # Before an automaton is stepped, what it could pay at best is looked at.
        bounded = _bound(graph, params, scratch, utterance, side, stepping, cutoff)
        for q in range(side, bounded):
            reached = _step(
                graph, params, words, phrases, scratch, side, scratch.side[q]
            )
            least = min(least, reached)
            side += uint64(reached <= cutoff)
        first = last
    return made, side, least


@inlined
def _reached(graph, params, scratch, entry, a):
    """Cost behind an arc on which boosts do not step."""
    arc = graph.arcs[a]
    reached = add_graph_and_insertion(params, entry.cost, arc)
    return float32(reached + scratch.token_costs[arc.ilabel & LABEL])


@inlined
def _list_boosted_block(
    graph, words, phrases, scratch, utterance, first, last, count, beam
):
    """List the live arcs of some entries in `scratch.listed`; where each kind ends."""
    frontier, boosts, listed = utterance.frontier, utterance.boosts, scratch.listed
    per_nat, sets = levels_per_nat(beam), scratch.live_sets
    below_per_nat = credit_levels_per_nat(utterance.top_credit[0])
    quiet, still, stepping = _ZERO, _STILL, _STEPPING
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row, cost = graph.rows[uint64(frontier[i].state)], frontier[i].cost
        live = sets[level_of(cost, per_nat)] & row.labels
        cost = float32(cost - boosts[i].credit)
        level = credited_level_of(cost, per_nat, below_per_nat)
        # Nearly all entries: no phrase is under way, so that arcs that begin none are
        # as without boosts.
        if boosts[i].boost == phrases.quiet:
            steps, credited = _ZERO, sets[level] & row.labels
            if phrases.of_tokens:
                steps = phrases.begun & ~row.plain
            if is_hot(words, frontier[i].state):
                steps |= hot_labels(words, row, credited)
            quiet = list_arcs(graph, row, live & ~steps, i, listed, quiet)
            if steps & credited != _ZERO:
                credited &= steps
                stepping = list_arcs(graph, row, credited, i, listed, stepping)
        else:
            steps, credited, boost = row.labels, ~_ZERO, boosts[i].boost
            # What is owed is paid on any arc; without it plain arcs do nothing.
            if owed_of(boost) == uint32(0):
                steps &= ~row.plain
                if phrases.of_tokens and not is_hot(words, frontier[i].state):
                    credited = phrases.credited[state_of(boost)]
            still = list_arcs(graph, row, live & ~steps, i, listed, still)
            live = (sets[level] & credited | live) & steps
            stepping = list_arcs(graph, row, live, i, listed, stepping)
    return quiet, still, stepping


@inlined
def _bound(graph, params, scratch, utterance, side, stepping, cutoff):
    """Write the arcs on which boosts step and that can survive, from `side` on.

    Their cost is that before the step, their boost state the entry's.

    Returns:
        Where they end.
    """
    frontier, boosts = utterance.frontier, utterance.boosts
    for q in range(_STEPPING, stepping):
        i, a = uint64(scratch.listed[q].entry), uint64(scratch.listed[q].arc)
        entry, arc, candidate = frontier[i], graph.arcs[a], scratch.side[side]
        cost = add_graph_and_insertion(params, entry.cost, arc)
        acoustic = scratch.token_costs[arc.ilabel & LABEL]
        candidate.cost = cost
        candidate.node = entry.node
        candidate.arc = uint32(a)
        candidate.boost = boosts[i].boost
        bound = float32(float32(cost - boosts[i].credit) + acoustic)
        side += uint64(bound <= cutoff)
    return side


@inlined
def _step(graph, params, words, phrases, scratch, side, bounded):
    """Make side candidate number `side` of one from `_bound`; its cost."""
    cost, source, node, a = bounded.cost, bounded.boost, bounded.node, bounded.arc
    arc = graph.arcs[uint64(a)]
    prefetch(scratch.slots, uint64(arc.nextstate))
    paid, boost = step_boosts(graph, params, words, phrases, arc, source)
    reached = float32(cost - paid)
    reached = float32(reached + scratch.token_costs[arc.ilabel & LABEL])
    candidate = scratch.side[side]
    candidate.cost = reached
    candidate.state = arc.nextstate
    candidate.node = node
    candidate.arc = flagged_arc(a, arc.ilabel)
    candidate.boost = boost
    candidate.source_boost = source
    return reached


@inlined
def find_live_sets(graph, params, scratch, cutoff, top_credit, width):
    """Fill `scratch.live_sets`.

    What survives ends at `cutoff` or below. Levels are of costs 0 to `width`, and of
    costs down to `-top_credit`, which are those of entries less what boosts may pay; a
    level stands for its lowest cost.
    """
    live, costs = scratch.live_sets, scratch.token_costs
    per_nat, below_per_nat = levels_per_nat(width), credit_levels_per_nat(top_credit)
    limit = _limit(graph, params, cutoff, top_credit)
    live[:] = _ZERO
    for label in range(_ONE, uint64(len(costs))):
        cost, bit = costs[label], _ONE << label
        if cost <= limit:
            # Rounded towards the lower cost, so that a level never leaves out what it
            # should have: at worst an arc is looked at in vain.
            level = float32(float32(limit - cost) * per_nat)
            live[_whole(min(level, float32(LEVELS - 1)))] |= bit
        elif cost <= float32(limit + top_credit):
            level = float32(float32(cost - limit) * below_per_nat)
            level = min(level, float32(CREDIT_LEVELS - 1))
            live[uint64(LEVELS) + _whole(level)] |= bit
    # Who can afford a token at a cost can so at less.
    for level in range(uint64(LEVELS - 1)):
        live[uint64(LEVELS - 2) - level] |= live[uint64(LEVELS - 1) - level]
    if top_credit > float32(0):
        live[LEVELS] |= live[0]
        for level in range(uint64(LEVELS), uint64(LEVELS + CREDIT_LEVELS - 1)):
            live[level + _ONE] |= live[level]


@inlined
def _limit(graph, params, cutoff, top_credit):
    """More than `cost of an entry + cost of a token` can be where an arc survives.

    Conservative: every arc counts as the least one of the graph, less what an insertion
    credits, and the slack covers rounding, also that of sums with a credit.
    """
    credit = max_insertion_credit(params)
    least_arc = float32(params.lm_scale * graph.least_cost) - credit
    slack = abs(cutoff) + abs(least_arc) + top_credit
    slack = float32(1e-3) + float32(4e-6) * slack
    return min(float32(cutoff - least_arc) + slack, NO_CUTOFF)


@inlined
def level_of(cost, per_nat):
    """The level of a cost, 0 or more."""
    return _whole(min(float32(cost * per_nat), float32(LEVELS - 1)))


@inlined
def credited_level_of(cost, per_nat, below_per_nat):
    """The level of a cost from which a credit was deducted."""
    if cost >= float32(0):
        return level_of(cost, per_nat)
    level = min(float32(float32(-cost) * below_per_nat), float32(CREDIT_LEVELS - 1))
    return uint64(LEVELS) + _whole(level)


@inlined
def levels_per_nat(width):
    """Levels in a nat."""
    return float32(LEVELS) / min(max(width, float32(1e-3)), NO_CUTOFF)


@inlined
def credit_levels_per_nat(top_credit):
    """Levels in a nat below 0."""
    return float32(CREDIT_LEVELS) / min(max(top_credit, float32(1e-3)), NO_CUTOFF)


@inlined
def _whole(level):
    """The integer below a small float32 (a signed conversion is one instruction)."""
    return uint64(int32(level))


@inlined
def list_arcs(graph, row, live, i, listed, count):
    """List the arcs of entry `i` that have a live label, and ask for them.

    Args:
        graph: `GraphArrays`.
        row: ROW, that of the entry's state; its arcs stand in the order of labels.
        live: uint64, a subset of the row's labels.
        i: The entry's position, perhaps with a flag.
        listed: ENTRY_ARC, filled from `count` on.
        count: How many arcs are listed already.

    Returns:
        How many are listed then.
    """
    labels, first = row.labels, uint64(row.emit)
    while live != _ZERO:
        bit = lowest_bit(live)
        live ^= bit
        a = first + bits_below(labels, bit)
        prefetch(graph.arcs, a)
        listed[count].entry, listed[count].arc = uint32(i), uint32(a)
        count += _ONE
    return count


@inlined
def hot_labels(words, row, among):
    """Select the labels, of some of a state's, whose arcs are hot; uint64."""
    hot, labels = hot_window(words, row.emit), _ZERO
    if hot != _ZERO:
        while among != _ZERO:
            bit = lowest_bit(among)
            among ^= bit
            if hot >> bits_below(row.labels, bit) & _ONE != _ZERO:
                labels |= bit
    return labels
