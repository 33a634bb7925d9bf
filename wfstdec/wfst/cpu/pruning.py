"""Pruning by `max_active` and `min_active`, and selection of the n-th lowest cost.

    before a frame    the `min_active` lowest states are kept even above the beam
    after its arcs    the cutoff rises to the `min_active`-th lowest state reached

The states reached are counted before anything changes, because entries advance in
place and a state below a wrong cutoff could not be restored.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.sorting import cost_of, key_of
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.wfst.cpu.arrays import (
    GROW_ENTRIES,
    NONE,
    OK,
)
from wfstdec.wfst.cpu.entries import (
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

_NO_FLAG = uint32(0)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


@part
def keep_least(search, n, keep, limit):
    """Keep the `keep` lowest states (cost, state, boost) up to `limit`; the worst."""
    rows, oov, scratch, state = search.rows, search.oov, search.scratch, search.state
    best = state.progress[0].best
    count, within = spread(search), _ZERO
    last, last_boost = nth_least(scratch, count, keep, limit), NONE
    if search.phrases is not None:
        for e in range(count):
            within += uint64(scratch.ends[e].cost <= limit)
        last_boost = last_of_tie(scratch, count, min(keep, within), last)
    for i in range(n):
        record, last_stays = state.record[i], True
        if search.phrases is not None:
            last_stays = state.boost[i] <= last_boost
        state.blank[i] = float32(state.blank[i] - best)
        if state.blank[i] < _INF:
            key = key_of(state.blank[i], state_after_blank(rows, oov, record))
            if key > last or (key == last and not last_stays):
                state.blank[i] = _INF
        state.token[i] = float32(state.token[i] - best)
        if state.token[i] < _INF:
            key = key_of(state.token[i], state_after_token(rows, oov, record))
            if key > last or (key == last and not last_stays):
                state.token[i] = _INF
    state.progress[0].best = float32(0)
    return cost_of(last)


@part
def keep_min_active(search, n):
    """Keep the `min_active` lowest states if the beam has fewer; the beam to use."""
    params, state = search.params, search.state
    best, within = state.progress[0].best, _ZERO
    for i in range(n):
        within += uint64(float32(state.blank[i] - best) <= params.beam)
        within += uint64(float32(state.token[i] - best) <= params.beam)
    if within >= params.min_active:
        return params.beam
    keep_least(search, n, params.min_active, NO_CUTOFF)
    return NO_CUTOFF


@part
def reach_min_active(search, made, of_blank, beam):
    """Raise the cutoff to the `min_active`-th lowest state if fewer survive it.

    `beam`: of the candidates so far. States already reached bound the new cutoff, so
    that further arcs are followed only up to it.

    Returns (OK or the array to grow, the beam for another expansion or 0).
    """
    params, scratch, state = search.params, search.scratch, search.state
    lowest, own = state.progress[0].lowest, state.progress[0].beam
    cutoff, none = min(float32(lowest + own), NO_CUTOFF), float32(0)
    if not lowest < _INF:
        return OK, none
    if uint64(state.progress[0].entries) + made > room_in(state.record):
        return GROW_ENTRIES, none
    count, within = _survivors(search, made, of_blank, cutoff)
    if within < params.min_active and cutoff < NO_CUTOFF:
        few, first = params.min_active, beam == own and own < NO_CUTOFF
        if first and count < few:
            return OK, NO_CUTOFF
        last = cost_of(nth_least(scratch, count, few, NO_CUTOFF))
        if first and last > cutoff:
            wider = max(float32(last - lowest), own)
            while float32(lowest + wider) < last:  # the difference was rounded
                wider = float32(float32(2) * wider + float32(1e-6))
            return OK, min(wider, NO_CUTOFF)
        cutoff = max(cutoff, last)
    state.progress[0].cutoff = cutoff
    return OK, none


@inlined
def _survivors(search, made, of_blank, cutoff):
    """Write the states that the frame reaches, with their costs, to `scratch.ends`.

    Inserts entries without a cost for the destinations of candidates.

    Returns (their number, how many are within the cutoff).
    """
    rows, oov, scratch, state = search.rows, search.oov, search.scratch, search.state
    n, reached = uint64(state.progress[0].entries), scratch.reached
    for i in range(n):
        reached[i] = scratch.repeats[i] if state.token[i] < _INF else _INF
    for q in range(made):
        candidate = scratch.candidates[q]
        record, boost = candidate.record, NO_BOOST
        if search.phrases is not None:
            boost = scratch.goals[q]
        i, after = find(search, n, record, boost, False)
        if i == n:
            n = insert(search, n, record, boost, after)
            reached[i] = scratch.repeats[i] = _INF
        reached[i] = min(reached[i], candidate.cost)
    state.progress[0].entries = int64(n)
    clear_behind(state, n)
    count, within = _ZERO, _ZERO
    for i in range(n):
        record = state.record[i]
        stays = _blank_of_row(search, uint64(i), of_blank)
        if stays <= NO_CUTOFF:
            end = scratch.ends[count]
            end.cost, end.state = stays, state_after_blank(rows, oov, record)
            count, within = count + _ONE, within + uint64(stays <= cutoff)
        if reached[i] <= NO_CUTOFF:
            end = scratch.ends[count]
            end.cost = reached[i]
            end.state = state_after_token(rows, oov, record)
            count, within = count + _ONE, within + uint64(reached[i] <= cutoff)
    return count, within


@inlined
def _blank_of_row(search, i, of_blank):
    """Cost after a blank in the row whose first entry is `i`, or infinity."""
    rows, state = search.rows, search.state
    record = state.record[i]
    cost = leaving_cost(rows, state, i)
    if record & NO_BLANK != _NO_FLAG:
        return _INF
    # With hubs, the first entry of a row already has this cost.
    if record & SHARED != _NO_FLAG and not rows.has_hubs:
        if first_of(search, i) != i:
            return _INF
        j = state.chain[i]
        while j != NONE:
            if is_beside(search, i, uint64(j)):
                cost = min(cost, state.token[uint64(j)])
            j = state.chain[uint64(j)]
    return float32(cost + of_blank)


@part
def nth_least(scratch, count, n, limit):
    """Key of the n-th lowest of `scratch.ends[:count]` with a cost up to `limit`.

    A histogram of costs finds the bin of the n-th; only that bin is searched. An `n`
    above their number selects the last.
    """
    entries, bins, keys = scratch.ends, scratch.bins, scratch.keys
    top = float32(len(bins) - 1)
    least, worst, within = float32(np.inf), float32(-np.inf), uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            least, worst = min(least, cost), max(worst, cost)
            within += _ONE
    n = min(n, within)
    # All costs equal: one bin has them all.
    scale = top / max(float32(worst - least), float32(1e-30))
    for b in range(uint64(len(bins))):
        bins[b] = uint32(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            bins[_bin(cost, least, scale, top)] += uint32(1)
    before, last = uint64(0), uint64(0)
    while before + uint64(bins[last]) < n:
        before += uint64(bins[last])
        last += _ONE
    found = uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit and _bin(cost, least, scale, top) == last:
            keys[found] = key_of(cost, entries[i].state)
            found += _ONE
    return _nth_of(keys, found, n - before - _ONE)


@part
def last_of_tie(scratch, count, n, last):
    """Boost state of the n-th lowest entry; ties go to lower boost states."""
    entries, before, found = scratch.ends, uint64(0), uint64(0)
    for i in range(count):
        key = key_of(entries[i].cost, entries[i].state)
        before += uint64(key < last)
        if key == last:
            scratch.keys[found] = uint64(scratch.end_boosts[i])
            found += _ONE
    return uint32(_nth_of(scratch.keys, found, n - before - _ONE))


@part
def _nth_of(keys, count, n):
    """Element `n` of `keys[:count]` in sorted order, by quickselect."""
    low, high = uint64(0), count - _ONE
    while low < high:
        pivot = keys[(low + high) >> _ONE]
        i, j = low, high
        while True:
            while keys[i] < pivot:
                i += _ONE
            while keys[j] > pivot:
                j -= _ONE
            if i >= j:
                break
            keys[i], keys[j] = keys[j], keys[i]
            i += _ONE
            j -= _ONE
        # The n-th is in this part.
        if n <= j:
            high = j
        else:
            low = j + _ONE
    return keys[n]


@inlined
def _bin(cost, least, scale, top):
    """Bin of a cost; monotone."""
    return uint64(min(float32(float32(cost - least) * scale), top))
