"""Emission by label with boost states: `emission.py` says what goes by label.

Arcs on which boosts step are kept apart from the others from the start, so that no
loop has to ask, and steps are made in a loop of their own, for what can survive:

    list     a row's plain labels count from the cost of the entry, the others from
             that less the most that a step is paid
    plain    as without boosts; the boost state stays
    bound    what can end within the cutoff if it is paid all that it can be
    step     of those, the cost and the next boost state

In the quiet boost state, where nothing is owed and no phrase has begun, all arcs are
plain but those where a boosted word or a phrase may begin.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.listed import is_hot
from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    flagged_arc,
    step_boosts,
    write_candidate,
)
from wfstdec.wfst.cpu.live_labels import (
    BLOCK,
    BLOCK_ARCS,
    credit_levels_per_nat,
    credited_level_of,
    find_live_sets,
    level_of,
    levels_per_nat,
    list_arcs,
)

_NONE = uint64(k.NONE)
_STEPPING = uint64(BLOCK_ARCS)
"""Where `work.listed` has the arcs on which boosts step; before it are the others."""
_ONE = uint64(1)
_ZERO = uint64(0)


@kernel
def emit_boosted_by_label(graph, scales, words, phrases, work, channel, cutoff, beam):
    """Write the arcs that may survive to `work.candidates`; see `emission.emit`."""
    frontier, count = channel.frontier, uint64(channel.counts[k.FRONTIER])
    candidates, top_credit = work.candidates, channel.top_credit[0]
    find_live_sets(graph, scales, work, cutoff, top_credit, beam)
    made, least = _ZERO, float32(np.inf)
    first = _ZERO
    while first < count:
        last = min(first + uint64(BLOCK), count)
        plain, stepping = _list_block(
            graph, words, phrases, work, frontier, first, last, count, top_credit, beam
        )
        if made + plain + (stepping - _STEPPING) > uint64(len(candidates)):
            return _NONE, least
        for q in range(plain):
            entry, a = frontier[work.listed[q].entry], uint64(work.listed[q].arc)
            arc = graph.arcs[a]
            reached = add_graph_and_insertion(scales, entry.cost, arc)
            reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
            write_candidate(graph, phrases, work, made, entry, a, reached, entry.boost)
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        bounded = _bound(graph, scales, work, frontier, made, stepping, cutoff)
        for q in range(made, bounded):
            reached = _step(graph, scales, words, phrases, work, made, candidates[q])
            least = min(least, reached)
            made += uint64(reached <= cutoff)
        first = last
    return made, least


@inlined
def _list_block(
    graph, words, phrases, work, frontier, first, last, count, top_credit, beam
):
    """Fill `work.listed` with the live arcs of some entries.

    Returns:
        Where the plain arcs end, and where those end on which boosts step.
    """
    per_nat, below_per_nat = levels_per_nat(beam), credit_levels_per_nat(top_credit)
    live_sets, listed = work.live_sets, work.listed
    plain, stepping = _ZERO, _STEPPING
    for i in range(first, last):
        if i + uint64(BLOCK) < count:
            prefetch(graph.rows, uint64(frontier[i + uint64(BLOCK)].state))
        state = uint64(frontier[i].state)
        row = graph.rows[state]
        steps = row.labels & ~row.plain
        if frontier[i].boost == phrases.quiet:
            if not is_hot(words, state):
                steps &= phrases.begun if phrases.of_tokens else _ZERO
        cost = frontier[i].cost
        live = live_sets[level_of(cost, per_nat)] & row.labels & ~steps
        plain = list_arcs(graph, row, live, i, listed, plain)
        if steps != _ZERO:
            cost = float32(cost - frontier[i].credit)
            live = live_sets[credited_level_of(cost, per_nat, below_per_nat)] & steps
            stepping = list_arcs(graph, row, live, i, listed, stepping)
    return plain, stepping


@inlined
def _bound(graph, scales, work, frontier, made, stepping, cutoff):
    """Write the arcs on which boosts step and that can survive, from `made` on.

    Their cost is that before the step, their boost state the entry's.

    Returns:
        Where they end.
    """
    candidates = work.candidates
    for q in range(_STEPPING, stepping):
        entry, a = frontier[work.listed[q].entry], uint64(work.listed[q].arc)
        arc, candidate = graph.arcs[a], candidates[made]
        cost = add_graph_and_insertion(scales, entry.cost, arc)
        acoustic = work.token_costs[arc.ilabel & LABEL]
        candidate.cost = cost
        candidate.node = entry.node
        candidate.arc = uint32(a)
        candidate.boost = entry.boost
        bound = float32(float32(cost - entry.credit) + acoustic)
        made += uint64(bound <= cutoff)
    return made


@inlined
def _step(graph, scales, words, phrases, work, made, bounded):
    """Make candidate number `made` of one from `_bound`; its cost."""
    cost, source, node, a = bounded.cost, bounded.boost, bounded.node, bounded.arc
    arc = graph.arcs[uint64(a)]
    paid, boost = step_boosts(graph, scales, words, phrases, arc, source)
    reached = float32(cost - paid)
    reached = float32(reached + work.token_costs[arc.ilabel & LABEL])
    candidate = work.candidates[made]
    candidate.cost = reached
    candidate.state = arc.nextstate
    candidate.node = node
    candidate.arc = flagged_arc(a, arc.ilabel)
    candidate.boost = boost
    candidate.source_boost = source
    return reached
