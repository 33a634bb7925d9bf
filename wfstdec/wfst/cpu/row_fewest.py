"""The fewest states of a search on rows: what `min_active` keeps above the beam.

    before a frame    the `min_active` least states stay where the beam has fewer
    after its arcs    the cutoff is raised to the `min_active`-th least state reached

What is reached is told before anything is changed: entries go on in place, and cannot
be had back once the cutoff was too low.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.sorting import cost_of, key_of
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.frame import last_of_tie, nth_least
from wfstdec.wfst.cpu.row_entries import (
    NO_BOOST,
    clear_behind,
    find,
    first_of,
    insert,
    is_beside,
    leaving_cost,
    room_in,
    spread,
    state_after_blank,
    state_after_token,
)
from wfstdec.wfst.cpu.rows import NO_BLANK, SHARED

_SHARED, _NO_BLANK = uint32(SHARED), uint32(NO_BLANK)
_NO_FLAG, _NONE = uint32(0), uint32(k.NONE)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


@part
def keep_least(rows, phrases, added, scratch, state, n, keep, limit):
    """Keep the states with the least (cost, state, boost), re-based; the worst's cost.

    At most `keep` of those that cost no more than `limit` stay.
    """
    best = state.costs[k.BEST]
    count, within = spread(rows, phrases, added, scratch, state), _ZERO
    last, last_boost = nth_least(scratch.ends, count, keep, limit, scratch), _NONE
    if phrases is not None:
        for e in range(count):
            within += uint64(scratch.ends[e].cost <= limit)
        keep, boosts = min(keep, within), scratch.end_boosts
        last_boost = last_of_tie(scratch.ends, boosts, count, keep, last, scratch)
    for i in range(n):
        record = state.record[i]
        of_row = state_after_blank(rows, added, record)
        of_record = state_after_token(rows, added, record)
        state.blank[i] = float32(state.blank[i] - best)
        last_stays = True
        if phrases is not None:
            last_stays = state.boost[i] <= last_boost
        if state.blank[i] < _INF:
            key = key_of(state.blank[i], of_row)
            if key > last or (key == last and not last_stays):
                state.blank[i] = _INF
        state.token[i] = float32(state.token[i] - best)
        if state.token[i] < _INF:
            key = key_of(state.token[i], of_record)
            if key > last or (key == last and not last_stays):
                state.token[i] = _INF
    state.costs[k.BEST] = float32(0)
    return cost_of(last)


@part
def keep_fewest(rows, params, phrases, added, scratch, state, n):
    """Keep the `min_active` least states where the beam has fewer of them.

    Returns:
        The beam of those to go on from: none where they are the fewest.
    """
    best, within = state.costs[k.BEST], _ZERO
    for i in range(n):
        within += uint64(float32(state.blank[i] - best) <= params.beam)
        within += uint64(float32(state.token[i] - best) <= params.beam)
    if within >= params.min_active:
        return params.beam
    keep_least(rows, phrases, added, scratch, state, n, params.min_active, NO_CUTOFF)
    return NO_CUTOFF


@part
def reach_fewest(
    rows, params, words, phrases, added, scratch, state, made, of_blank, beam
):
    """Raise the cutoff to the `min_active`-th least state where fewer survive it.

    `beam`: that of the candidates. The states that are known bound what the cutoff can
    become, so that the others are looked for up to there: without a bound all arcs of
    all entries would be followed.

    Returns:
        (OK or what must grow, the beam for further candidates, 0 where none are due).
    """
    lowest, own = state.costs[k.LOWEST], state.costs[k.BEAM]
    cutoff, none = min(float32(lowest + own), NO_CUTOFF), float32(0)
    if not lowest < _INF:
        return k.OK, none
    if uint64(state.counts[k.ENTRIES]) + made > room_in(state.record):
        return k.GROW_ENTRIES, none
    count, within = _survivors(
        rows, params, words, phrases, added, scratch, state, made, of_blank, cutoff
    )
    if within < params.min_active and cutoff < NO_CUTOFF:
        few, first = params.min_active, beam == own and own < NO_CUTOFF
        if first and count < few:
            return k.OK, NO_CUTOFF
        last = cost_of(nth_least(scratch.ends, count, few, NO_CUTOFF, scratch))
        if first and last > cutoff:
            wider = max(float32(last - lowest), own)
            while float32(lowest + wider) < last:  # the difference was rounded
                wider = float32(float32(2) * wider + float32(1e-6))
            return k.OK, min(wider, NO_CUTOFF)
        cutoff = max(cutoff, last)
    state.costs[k.CUTOFF] = cutoff
    return k.OK, none


@inlined
def _survivors(
    rows, params, words, phrases, added, scratch, state, made, of_blank, cutoff
):
    """Fill `scratch.ends` with the states that a frame reaches, each with its least.

    Records that candidates lead to get entries without a cost.

    Returns:
        (how many there are, how many of them survive the cutoff).
    """
    n, reached = uint64(state.counts[k.ENTRIES]), scratch.reached
    for i in range(n):
        reached[i] = scratch.repeats[i] if state.token[i] < _INF else _INF
    for q in range(made):
        candidate = scratch.candidates[q]
        record, boost = candidate.record, NO_BOOST
        if phrases is not None:
            boost = scratch.goals[q]
        i, after = find(rows, phrases, added, scratch, state, n, record, boost, False)
        if i == n:
            n = insert(
                *(rows, params, words, phrases, added, scratch, state),
                *(n, record, boost, after),
            )
            reached[i] = scratch.repeats[i] = _INF
        reached[i] = min(reached[i], candidate.cost)
    state.counts[k.ENTRIES] = int64(n)
    clear_behind(state, n)
    count, within = _ZERO, _ZERO
    for i in range(n):
        record = state.record[i]
        stays = _blank_of_row(rows, phrases, added, scratch, state, uint64(i), of_blank)
        if stays <= NO_CUTOFF:
            end = scratch.ends[count]
            end.cost, end.state = stays, state_after_blank(rows, added, record)
            count, within = count + _ONE, within + uint64(stays <= cutoff)
        if reached[i] <= NO_CUTOFF:
            end = scratch.ends[count]
            end.cost = reached[i]
            end.state = state_after_token(rows, added, record)
            count, within = count + _ONE, within + uint64(reached[i] <= cutoff)
    return count, within


@inlined
def _blank_of_row(rows, phrases, added, scratch, state, i, of_blank):
    """The cost after a blank in the row whose first entry is number `i`, or `inf`."""
    record = state.record[i]
    cost = leaving_cost(rows, state, i)
    if record & _NO_BLANK != _NO_FLAG:
        return _INF
    # Through a hub the first entry of a row alone has its cost.
    if record & _SHARED != _NO_FLAG and not rows.through_epsilon:
        if first_of(rows, phrases, added, scratch, state, i) != i:
            return _INF
        j = state.chain[i]
        while j != _NONE:
            if is_beside(rows, phrases, added, state, i, uint64(j)):
                cost = min(cost, state.token[uint64(j)])
            j = state.chain[uint64(j)]
    return float32(cost + of_blank)
