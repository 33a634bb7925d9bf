"""One frame of the CPU search of a WFST.

    for each frame:   prune      by beam, max_active; subtract the best cost
                      expand     token arcs within the beam: candidates
                      advance    blanks and repeats, in place, sixteen entries at a time
                      recombine  candidates to entries: the best path of each state
                      close      epsilon arcs, in rank order
                      settle     best cost; remove dead entries if there are many

`tests/reference/wfst_reference.py` is the specification, on the packed graph: results
are equal bit for bit. A blank or repeat creates no candidate and no trace node; about
three of four surviving arcs of the packed graph are blanks or repeats. A tie goes to
the arc that comes first in the packed graph.

With V <= 63 the tokens of a row are bits, and so are the tokens that can survive from
each level of cost: their intersection gives the arcs to follow. With more tokens, the
arcs of a row are followed in order of cost until one is above the cutoff even with the
best token.
"""

import numpy as np
from numpy import float32, int64, uint16, uint32, uint64

from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.sorting import cost_of, key_of
from wfstdec.jit.vectors import (
    STEP,
    add,
    at_most,
    below,
    count_bits,
    equal,
    gather,
    has,
    least,
    least_of,
    load,
    multiply,
    negative,
    select,
    splat,
    store,
    subtract,
    trailing,
)
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.logprobs import penalised, scaled
from wfstdec.wfst.cpu.arrays import (
    BETWEEN,
    GROW_ENTRIES,
    GROW_NODES,
    NEW,
    NONE,
    OK,
    PASSING,
)
from wfstdec.wfst.cpu.boosts import max_insertion_credit, top_bonus
from wfstdec.wfst.cpu.entries import (
    NO_BOOST,
    NO_ENTRY,
    clear_behind,
    compact,
    first_of,
    insert,
    is_beside,
    room_in,
    spread,
    state_after_blank,
    state_after_token,
)
from wfstdec.wfst.cpu.expand import expand
from wfstdec.wfst.cpu.lattice_record import record_compaction, record_frame, start_frame
from wfstdec.wfst.cpu.recombine import close, enter_hubs, recombine
from wfstdec.wfst.cpu.rows import EPSILONS, NO_BLANK, SHARED, TOKEN_FIRST

_NO_FLAG = uint32(0)
_TIP, _FIRST = uint32(0), uint32(1)
_INF = float32(np.inf)
_NOBODY = uint16(0)
_ZERO, _ONE = uint64(0), uint64(1)
_FEW_DEAD = uint64(24)


@kernel
def restart(state):
    """Reset the state for a new utterance."""
    progress = state.progress[0]
    progress.entries = progress.nodes = progress.chained = progress.frames = 0
    progress.phase = progress.passes = progress.waiting = progress.at = 0
    progress.fresh = progress.alive = progress.active = progress.folded = 0
    progress.died, progress.base = -1, 0.0


@kernel
def advance(search, logprobs, first):
    """Search a chunk's frames from `first` on."""
    # Returns (OK, T), or (array to grow, frame to resume at).
    rows, params, record = search.rows, search.params, search.record
    scratch, state = search.scratch, search.state
    progress, frame = state.progress[0], int64(first)
    # Scratch memory is new or has another owner: fill `slots` again.
    if progress.phase == BETWEEN and scratch.owner[0] != progress.owner:
        n = uint64(progress.entries)
        record_compaction(record, state, n)
        progress.entries = int64(compact(search, n))
    progress.owner += 1
    scratch.owner[0] = progress.owner
    if progress.phase == NEW:
        _begin(search)
        start_frame(record, _ZERO)
    while True:
        # Close the frame before, or the start: epsilon arcs, then the best cost.
        if progress.phase != BETWEEN:
            status = close(search)
            if record is not None and status == OK:
                status = record_frame(search)
            if status != OK:
                return status, frame
            _settle(search)
            frame += progress.passes
        if frame == logprobs.shape[0] or progress.died >= 0:
            return OK, int64(logprobs.shape[0])
        # Prune, and select the arcs that may survive.
        of_blank = _price(rows, params, scratch.costs, logprobs[frame])
        within, lowest = _prune(search, of_blank)
        status, made = expand(search, lowest)
        if status != OK:
            return status, frame
        if not progress.lowest < _INF:
            progress.died = progress.frames
            continue
        # Nothing has changed so far: with more capacity, the frame starts again.
        if uint64(progress.entries) + made > room_in(state.record):
            return GROW_ENTRIES, frame
        if uint64(progress.nodes) + made > room_in(state.nodes):
            return GROW_NODES, frame
        # Blanks and repeats in place, then the other arcs to their entries.
        progress.active += int64(within)
        waiting = _advance_in_place(search, of_blank)
        recombine(search, made, waiting)
        if rows.has_hubs:
            enter_hubs(search)


@inlined
def _begin(search):
    rows, params = search.rows, search.params
    scratch, state = search.scratch, search.state
    progress, root = state.progress[0], state.nodes[0]
    root.before, root.arc, root.frame, root.ended = _TIP, NONE, uint32(0), uint32(0)
    progress.nodes = progress.fresh = 1
    progress.chained = progress.passes = progress.at = progress.alive = 0
    start, boost = rows.start, NO_BOOST
    if search.phrases is not None:
        boost = search.phrases.start
    insert(search, _ZERO, start, boost, NO_ENTRY)
    if rows.has_hubs:
        state.blank[0], state.blank_node[0], state.ended[0] = float32(0), _TIP, _FIRST
    else:
        state.token[0] = float32(0)
    progress.best = float32(0)
    progress.cutoff = min(params.beam, NO_CUTOFF)
    scratch.waiting[0] = uint32(0)
    progress.entries = 1
    progress.waiting = int64(rows.start & EPSILONS != _NO_FLAG)
    progress.phase = PASSING
    for rank in range(rows.num_ranks):
        scratch.heads[rank] = NONE


@inlined
def _rebase(search, n, of_blank):
    """Subtract the best cost, drop states above the beam, price blanks and repeats."""
    # Idempotent, for a retry after arrays have grown: the best cost is then 0.
    # Returns (states within the beam, lowest cost after a blank or a repeat).
    rows, scratch, state = search.rows, search.scratch, search.state
    inf, blanks = splat(_INF), splat(of_blank)
    bests, beams = splat(state.progress[0].best), splat(search.params.beam)
    within, lowest, i = _ZERO, inf, _ZERO
    while i < n:
        blank, token = load(state.blank, i), load(state.token, i)
        blank, token = subtract(blank, bests), subtract(token, bests)
        near_blank, near_token = at_most(blank, beams), at_most(token, beams)
        within += count_bits(uint64(near_blank) | uint64(near_token) << STEP)
        blank = select(near_blank, blank, inf)
        token = select(near_token, token, inf)
        store(state.blank, i, blank)
        store(state.token, i, token)
        left = blank if rows.has_hubs else least(blank, token)
        stays = add(left, blanks)
        no_blank = has(load(state.record, i), NO_BLANK)
        lowest = least(lowest, select(no_blank, inf, stays))
        if near_token != _NOBODY:
            again = add(token, gather(scratch.costs, load(state.again, i)))
            store(scratch.repeats, i, again)
            lowest = least(lowest, again)
        i += STEP
    state.progress[0].best = float32(0)
    return within, least_of(lowest)


@inlined
def _price(rows, params, costs, logprobs):
    pricing, blank = params.pricing, logprobs[rows.blank]
    size = uint64(len(logprobs))
    if blank >= pricing.blank_skip_logprob:
        for v in range(size):
            costs[v] = _INF
    elif size < STEP:
        for v in range(size):
            costs[v] = scaled(pricing, float32(-logprobs[v]))
    else:
        scale, inf, v = splat(pricing.acoustic_scale), splat(_INF), _ZERO
        while v < size:
            at = min(v, size - STEP)  # the last ones are priced twice
            unscaled = negative(load(logprobs, at))
            possible = below(unscaled, inf)
            store(costs, at, select(possible, multiply(scale, unscaled), inf))
            v += STEP
    of_blank = scaled(pricing, float32(-penalised(pricing, blank)))
    costs[rows.blank] = of_blank if rows.plain else _INF
    return of_blank


@inlined
def _prune(search, of_blank):
    params, state = search.params, search.state
    n = uint64(state.progress[0].entries)
    clear_behind(state, n)
    while True:
        within, lowest = _rebase(search, n, of_blank)
        if within <= params.max_active:
            return within, lowest
        worst = _keep_least(search, n)
        if params.beam_delta >= float32(0):
            delta = float32(worst + params.beam_delta)
            state.progress[0].beam = min(params.beam, delta)


@inlined
def _advance_in_place(search, of_blank):
    """Advance entries by blanks and repeats; return how many have epsilons pending."""
    rows, scratch, state = search.rows, search.scratch, search.state
    progress, record = state.progress[0], search.record
    n = uint64(progress.entries)
    inf, cutoffs = splat(_INF), splat(progress.cutoff)
    blanks, frames = splat(of_blank), splat(uint32(progress.frames + 1))
    waiting, alive, i = _ZERO, _ZERO, _ZERO
    start_frame(record, n)
    while i < n:
        blank, token = load(state.blank, i), load(state.token, i)
        flagged = load(state.record, i)
        after_blank, after_token = add(blank, blanks), inf
        if not rows.has_hubs:
            after_token = add(token, blanks)
        stays = least(after_blank, after_token)
        no_blank = has(flagged, NO_BLANK)
        kept = at_most(stays, cutoffs) & ~no_blank
        if record is not None:
            stays_so = at_most(after_blank, cutoffs) & ~no_blank
            store(record.of_blank, i, select(stays_so, after_blank, inf))
            stays_so = at_most(after_token, cutoffs) & ~no_blank
            store(record.of_token, i, select(stays_so, after_token, inf))
            store(record.again, i, inf)
        store(state.blank, i, select(kept, stays, inf))
        repeated = _NOBODY
        if below(token, inf) != _NOBODY:
            again = load(scratch.repeats, i)
            repeated = at_most(again, cutoffs)
            store(state.token, i, select(repeated, again, inf))
            if record is not None:
                store(record.again, i, select(repeated, again, inf))
            from_token = below(after_token, after_blank)
            from_token |= equal(after_token, after_blank) & has(flagged, TOKEN_FIRST)
            nodes = select(
                from_token, load(state.token_node, i), load(state.blank_node, i)
            )
            store(state.blank_node, i, nodes)
            store(state.ended, i, select(from_token, frames, load(state.ended, i)))
            epsilons = uint64(repeated & has(flagged, EPSILONS))
            while epsilons != _ZERO:
                scratch.waiting[waiting] = uint32(i + trailing(epsilons))
                waiting += _ONE
                epsilons &= epsilons - _ONE
        alive += count_bits(uint64(kept | repeated))
        i += STEP
    if progress.chained > 0 and not rows.has_hubs:
        _merge(search, n)
    progress.alive = int64(alive)
    return waiting


@inlined
def _merge(search, n):
    rows, state = search.rows, search.state
    for i in range(n):
        if state.record[i] & SHARED != _NO_FLAG and state.blank[i] < _INF:
            first = first_of(search, uint64(i))
            if first == uint64(i):
                continue
            better = state.blank[i] < state.blank[first]
            if state.blank[i] == state.blank[first]:
                mine = state_after_token(rows, search.oov, state.record[i])
                better = mine < _blank_from(search, first)
            if better:
                state.blank[first], state.ended[first] = state.blank[i], state.ended[i]
                state.blank_node[first] = state.blank_node[i]
            state.blank[i] = _INF


@inlined
def _blank_from(search, first):
    rows, state = search.rows, search.state
    if int64(state.ended[first]) <= state.progress[0].frames:
        return state_after_blank(rows, search.oov, state.record[first])
    i = uint64(first)
    while state.token_node[i] != state.blank_node[first] or not is_beside(
        search, first, i
    ):
        i = uint64(state.chain[i])
    return state_after_token(rows, search.oov, state.record[i])


@inlined
def _settle(search):
    """End the frame: compute the best cost; remove dead entries if there are many."""
    rows, params, words, state = search.rows, search.params, search.words, search.state
    progress = state.progress[0]
    n = uint64(progress.entries)
    progress.frames += progress.passes
    progress.phase = BETWEEN
    alive = uint64(progress.alive)
    if n > alive + (alive >> _ONE) + _FEW_DEAD:
        record_compaction(search.record, state, n)
        n = compact(search, n)
        progress.entries = int64(n)
    best = progress.lowest
    if search.phrases is None:
        bonus = top_bonus(params, words)
        credited = max_insertion_credit(params) + bonus > float32(0)
        if progress.passes == 0 or rows.least_epsilon < float32(0) or credited:
            best = _INF  # epsilon arcs may have lowered it
            for i in range(n):
                best = min(best, min(state.blank[i], state.token[i]))
    if search.phrases is not None:
        best, credit = _INF, float32(0)
        for i in range(n):
            best = min(best, min(state.blank[i], state.token[i]))
            credit = max(credit, state.credit[i])
        progress.top_credit = credit
    progress.best, progress.beam = best, params.beam
    progress.base += np.float64(best)


@part
def _keep_least(search, n):
    """Keep the `max_active` lowest (cost, state, boost); return the worst cost."""
    rows, oov, scratch, state = search.rows, search.oov, search.scratch, search.state
    keep, limit = search.params.max_active, search.params.beam
    best = state.progress[0].best
    count, within = spread(search), _ZERO
    last, last_boost = _nth_least(scratch, count, keep, limit), NONE
    if search.phrases is not None:
        for e in range(count):
            within += uint64(scratch.ends[e].cost <= limit)
        last_boost = _last_of_tie(scratch, count, min(keep, within), last)
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
def _nth_least(scratch, count, n, limit):
    # A histogram of costs gives the bin of the n-th; only that bin is searched. An `n`
    # above their number selects the last.
    entries, bins, keys = scratch.ends, scratch.bins, scratch.keys
    top = float32(len(bins) - 1)
    least, worst, within = float32(np.inf), float32(-np.inf), uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            least, worst = min(least, cost), max(worst, cost)
            within += _ONE
    n = min(n, within)
    # If all costs are equal, one bin has them all.
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
def _last_of_tie(scratch, count, n, last):
    """Return the n-th lowest entry's boost state; ties go to lower boost states."""
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
    return uint64(min(float32(float32(cost - least) * scale), top))
