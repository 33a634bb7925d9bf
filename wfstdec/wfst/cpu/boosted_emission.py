"""Emission by label where boosts have states: `emission.py` says what goes by label.

In the quiet boost state, where nothing is owed and no phrase has begun, nearly all arcs
lead to it again, and are followed as if nothing was boosted. Three kinds of arcs are
kept apart from the start, so that no loop has to ask:

    quiet     from quiet entries, where no boosted word or phrase may begin
    still     from other entries, where boosts do not step
    stepping  all others: those that can end within the cutoff if they are paid all that
              they can be are written first, then their steps are made
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.instalments import owed_of, state_of
from wfstdec.boost.listed import is_hot
from wfstdec.jit import inlined, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    flagged_arc,
    step_boosts,
    write_candidate,
    write_side,
)
from wfstdec.wfst.cpu.live_labels import (
    BLOCK,
    BLOCK_ARCS,
    credit_levels_per_nat,
    credited_level_of,
    find_live_sets,
    hot_labels,
    level_of,
    levels_per_nat,
    list_arcs,
)

_NONE = uint64(k.NONE)
_STILL, _STEPPING = uint64(BLOCK_ARCS), uint64(2 * BLOCK_ARCS)
"""Where `work.listed` has the arcs of these kinds; before them are the quiet ones."""
_ONE = uint64(1)
_ZERO = uint64(0)


@part
def emit_boosted_by_label(graph, scales, words, phrases, work, channel, cutoff, beam):
    """Write the arcs that may survive to `work.candidates` and `work.side`.

    Returns:
        As `emission.emit`.
    """
    frontier, count = channel.frontier, uint64(channel.counts[k.GRAPH])
    boosts, top_credit = channel.boosts, channel.top_credit[0]
    find_live_sets(graph, scales, work, cutoff, top_credit, beam)
    made, side, least, first = _ZERO, _ZERO, float32(np.inf), _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        quiet, still, stepping = _list_block(
            graph, words, phrases, work, channel, first, last, count, beam
        )
        more = still - _STILL + (stepping - _STEPPING)
        if made + quiet > uint64(len(work.candidates)):
            return _NONE, side, least
        if side + more > uint64(len(work.side)):
            return _NONE, side, least
        for q in range(quiet):
            entry, a = frontier[work.listed[q].entry], uint64(work.listed[q].arc)
            reached = _reached(graph, scales, work, entry, a)
            write_candidate(graph, work, made, entry, a, reached)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        for q in range(_STILL, still):
            i, a = uint64(work.listed[q].entry), uint64(work.listed[q].arc)
            reached = _reached(graph, scales, work, frontier[i], a)
            boost = boosts[i].boost
            write_side(graph, work, side, frontier[i], a, reached, boost, boost)
            least = min(least, reached)
            side += uint64(reached <= cutoff)
        bounded = _bound(graph, scales, work, channel, side, stepping, cutoff)
        for q in range(side, bounded):
            reached = _step(graph, scales, words, phrases, work, side, work.side[q])
            least = min(least, reached)
            side += uint64(reached <= cutoff)
        first = last
    return made, side, least


@inlined
def _reached(graph, scales, work, entry, a):
    """What an arc reaches on which boosts do not step."""
    arc = graph.arcs[a]
    reached = add_graph_and_insertion(scales, entry.cost, arc)
    return float32(reached + work.token_costs[arc.ilabel & LABEL])


@inlined
def _list_block(graph, words, phrases, work, channel, first, last, count, beam):
    """Fill `work.listed` with the live arcs of some entries; where each kind ends."""
    frontier, boosts, listed = channel.frontier, channel.boosts, work.listed
    per_nat, sets = levels_per_nat(beam), work.live_sets
    below_per_nat = credit_levels_per_nat(channel.top_credit[0])
    quiet, still, stepping = _ZERO, _STILL, _STEPPING
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        row, cost = graph.rows[uint64(frontier[i].state)], frontier[i].cost
        live = sets[level_of(cost, per_nat)] & row.labels
        cost = float32(cost - boosts[i].credit)
        level = credited_level_of(cost, per_nat, below_per_nat)
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
            if owed_of(boost) == uint32(0):
                steps &= ~row.plain
                if phrases.of_tokens and not is_hot(words, frontier[i].state):
                    credited = phrases.credited[state_of(boost)]
            still = list_arcs(graph, row, live & ~steps, i, listed, still)
            live = (sets[level] & credited | live) & steps
            stepping = list_arcs(graph, row, live, i, listed, stepping)
    return quiet, still, stepping


@inlined
def _bound(graph, scales, work, channel, side, stepping, cutoff):
    """Write the arcs on which boosts step and that can survive, from `side` on.

    Their cost is that before the step, their boost state the entry's.

    Returns:
        Where they end.
    """
    frontier, boosts = channel.frontier, channel.boosts
    for q in range(_STEPPING, stepping):
        i, a = uint64(work.listed[q].entry), uint64(work.listed[q].arc)
        entry, arc, candidate = frontier[i], graph.arcs[a], work.side[side]
        cost = add_graph_and_insertion(scales, entry.cost, arc)
        acoustic = work.token_costs[arc.ilabel & LABEL]
        candidate.cost = cost
        candidate.node = entry.node
        candidate.arc = uint32(a)
        candidate.boost = boosts[i].boost
        bound = float32(float32(cost - boosts[i].credit) + acoustic)
        side += uint64(bound <= cutoff)
    return side


@inlined
def _step(graph, scales, words, phrases, work, side, bounded):
    """Make side candidate number `side` of one from `_bound`; its cost."""
    cost, source, node, a = bounded.cost, bounded.boost, bounded.node, bounded.arc
    arc = graph.arcs[uint64(a)]
    prefetch(work.slots, uint64(arc.nextstate))
    paid, boost = step_boosts(graph, scales, words, phrases, arc, source)
    reached = float32(cost - paid)
    reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
    candidate = work.side[side]
    candidate.cost = reached
    candidate.state = arc.nextstate
    candidate.node = node
    candidate.arc = flagged_arc(a, arc.ilabel)
    candidate.boost = boost
    candidate.source_boost = source
    return reached
