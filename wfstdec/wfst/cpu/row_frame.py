"""The search on rows of LG in numba: one utterance, one frame after the other.

The specification is `reference.py`, on the packed graph; this computes the same bits.

    for each frame:   keep       prune by beam, max_active and min_active, re-base
                      expand     candidates: arcs of rows that may survive
                      go on      blanks and repeats, sixteen entries at a time, in place
                      recombine  candidates to entries
                      close      epsilon arcs, in rank order
                      settle     the least cost; entries that died are left out at times

Blanks and repeats make no candidates and no nodes of the trace: of four arcs of the
packed graph that survive three are theirs. A tie between them and candidates, or among
candidates, goes to the arc that comes first in the packed graph: `rows.py` says how its
number follows from rows and records.

With V <= 63 the tokens of a row are bits, and the live ones of each cost level too, so
that the arcs to follow are counted off. With more, tokens share bits, and a row's arcs
are looked at in the order of cost, until one is too dear with the best token.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint16, uint32, uint64

from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import count_bits
from wfstdec.jit.vectors import (
    STEP,
    add,
    at_most,
    below,
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
from wfstdec.search.acoustics import penalised, scaled
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.arc_costs import max_insertion_credit, top_bonus
from wfstdec.wfst.cpu.row_emitting import emit
from wfstdec.wfst.cpu.row_entries import (
    NO_BOOST,
    NO_ENTRY,
    clear_behind,
    compact,
    first_of,
    insert,
    is_beside,
    room_in,
    state_after_blank,
    state_after_token,
)
from wfstdec.wfst.cpu.row_fewest import keep_fewest, keep_least, reach_fewest
from wfstdec.wfst.cpu.row_notes import (
    note_moves,
    note_staying,
    note_step,
    start_frame,
)
from wfstdec.wfst.cpu.row_recombination import close, fall_back, recombine
from wfstdec.wfst.cpu.rows import (
    EPSILONS,
    NO_BLANK,
    SHARED,
    TOKEN_FIRST,
)

_EPSILONS, _SHARED, _NO_BLANK = uint32(EPSILONS), uint32(SHARED), uint32(NO_BLANK)
_TOKEN_FIRST, _NO_FLAG = uint32(TOKEN_FIRST), uint32(0)
_NONE, _TIP, _FIRST = uint32(k.NONE), uint32(0), uint32(1)
_INF = float32(np.inf)
_NOBODY = uint16(0)
_ZERO, _ONE = uint64(0), uint64(1)
_FEW_DEAD = uint64(24)


@kernel
def restart(state):
    """Make a state that of an utterance whose first frame is to come."""
    state.counts[:] = 0
    state.counts[k.DIED] = -1
    state.base[0] = 0.0


@kernel
def advance(
    rows, params, words, phrases, added, scratch, state, logprobs, first, record
):
    """Pass entries through the frames `first` and on of a chunk.

    `phrases`: `RowPhrases` where boosts have states, else None. `added`: a `RowOverlay`
    where there are OOV words, else None. `record`: `RowNotes`, or None where nobody
    asks for a lattice.

    Returns:
        (status, frame): OK and T, or what must grow and the frame to go on from.
    """
    counts, frame = state.counts, int64(first)
    # In scratch that another utterance had meanwhile, or that is another than before,
    # entries are found once they are registered anew.
    if counts[k.PHASE] == k.BETWEEN and scratch.turn[0] != state.turn[0]:
        n = uint64(counts[k.ENTRIES])
        note_moves(record, state, n)
        counts[k.ENTRIES] = int64(compact(rows, phrases, added, scratch, state, n))
    state.turn[0] += 1
    scratch.turn[0] = state.turn[0]
    if counts[k.PHASE] == k.NEW:
        _begin(rows, params, words, phrases, added, scratch, state)
        start_frame(record, _ZERO)
    while True:
        if counts[k.PHASE] != k.BETWEEN:
            status = close(rows, params, words, phrases, added, scratch, state, record)
            if record is not None:
                if status == k.OK:
                    status = note_step(rows, phrases, added, scratch, state, record)
            if status != k.OK:
                return status, frame
            _settle(rows, params, words, phrases, added, scratch, state, record)
            frame += counts[k.PASSES]
        if frame == logprobs.shape[0] or counts[k.DIED] >= 0:
            return k.OK, int64(logprobs.shape[0])
        of_blank = _price(rows, params, scratch.costs, logprobs[frame])
        within, lowest = _keep(rows, params, phrases, added, scratch, state, of_blank)
        beam, more = state.costs[k.BEAM], True
        while more:
            status, made = emit(
                *(rows, params, words, phrases, added, scratch, state),
                *(lowest, beam, record),
            )
            more = False
            if status == k.OK and params.min_active > _ZERO:
                status, wider = reach_fewest(
                    *(rows, params, words, phrases, added, scratch, state),
                    *(made, of_blank, beam),
                )
                beam, more = wider, wider > float32(0)
        if status != k.OK:
            return status, frame
        if not state.costs[k.LOWEST] < _INF:
            counts[k.DIED] = counts[k.FRAMES]
            continue
        if uint64(counts[k.ENTRIES]) + made > room_in(state.record):
            return k.GROW_ENTRIES, frame
        if uint64(counts[k.NODES]) + made > room_in(state.nodes):
            return k.GROW_NODES, frame
        counts[k.ACTIVE] += int64(within)
        waiting = _go_on(rows, phrases, added, scratch, state, of_blank, record)
        recombine(
            *(rows, params, words, phrases, added, scratch, state),
            *(made, waiting, record),
        )
        if rows.through_epsilon:
            fall_back(rows, phrases, added, scratch, state)


@inlined
def _begin(rows, params, words, phrases, added, scratch, state):
    """Make the entry of the start; its epsilon arcs wait."""
    counts, root = state.counts, state.nodes[0]
    root.before, root.arc, root.frame, root.ended = _TIP, _NONE, uint32(0), uint32(0)
    counts[k.NODES] = counts[k.FRESH] = 1
    counts[k.CHAINED] = counts[k.PASSES] = counts[k.AT] = counts[k.ALIVE] = 0
    start, boost = rows.start, NO_BOOST
    if phrases is not None:
        boost = phrases.start
    insert(
        *(rows, params, words, phrases, added, scratch, state),
        *(_ZERO, start, boost, NO_ENTRY),
    )
    if rows.through_epsilon:
        state.blank[0], state.blank_node[0], state.ended[0] = float32(0), _TIP, _FIRST
    else:
        state.token[0] = float32(0)
    state.costs[k.BEST] = float32(0)
    state.costs[k.CUTOFF] = min(params.beam, NO_CUTOFF)
    scratch.waiting[0] = uint32(0)
    counts[k.ENTRIES] = 1
    counts[k.WAITING] = int64(rows.start & _EPSILONS != _NO_FLAG)
    counts[k.PHASE] = k.PASSING
    for rank in range(rows.num_ranks):
        scratch.heads[rank] = _NONE


@inlined
def _rebase(rows, state, n, of_blank, costs, repeats, beam):
    """Re-base entries, drop those over the beam, and price blanks and repeats.

    Done again after arrays grew, it changes nothing: the best cost is 0 by then.

    Returns:
        (states within the beam, the least cost of those that go on in place).
    """
    inf, blanks = splat(_INF), splat(of_blank)
    bests, beams = splat(state.costs[k.BEST]), splat(beam)
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
        left = blank if rows.through_epsilon else least(blank, token)
        stays = add(left, blanks)
        no_blank = has(load(state.record, i), _NO_BLANK)
        lowest = least(lowest, select(no_blank, inf, stays))
        if near_token != _NOBODY:
            again = add(token, gather(costs, load(state.again, i)))
            store(repeats, i, again)
            lowest = least(lowest, again)
        i += STEP
    state.costs[k.BEST] = float32(0)
    return within, least_of(lowest)


@inlined
def _price(rows, params, costs, logprobs):
    """Price the tokens; the cost of the blank, which itself becomes infinite."""
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
    costs[rows.blank] = _INF
    return scaled(pricing, float32(-penalised(pricing, blank)))


@inlined
def _keep(rows, params, phrases, added, scratch, state, of_blank):
    """Prune and re-base; as `_rebase`."""
    n = uint64(state.counts[k.ENTRIES])
    clear_behind(state, n)
    beam = params.beam
    if params.min_active > _ZERO:
        beam = keep_fewest(rows, params, phrases, added, scratch, state, n)
    while True:
        within, lowest = _rebase(
            rows, state, n, of_blank, scratch.costs, scratch.repeats, beam
        )
        if within <= params.max_active:
            return within, lowest
        worst = keep_least(
            rows, phrases, added, scratch, state, n, params.max_active, beam
        )
        if params.beam_delta >= float32(0):
            delta = float32(worst + params.beam_delta)
            state.costs[k.BEAM] = min(params.beam, delta)


@inlined
def _go_on(rows, phrases, added, scratch, state, of_blank, record):
    """Let entries go on by blanks and repeats, in place.

    Returns:
        How many wait for their epsilon arcs to be followed: in `scratch.waiting`.
    """
    counts, n = state.counts, uint64(state.counts[k.ENTRIES])
    inf, cutoffs = splat(_INF), splat(state.costs[k.CUTOFF])
    blanks, frames = splat(of_blank), splat(uint32(counts[k.FRAMES] + 1))
    waiting, alive, i = _ZERO, _ZERO, _ZERO
    start_frame(record, n)
    while i < n:
        blank, token = load(state.blank, i), load(state.token, i)
        flagged = load(state.record, i)
        after_blank, after_token = add(blank, blanks), inf
        if not rows.through_epsilon:
            after_token = add(token, blanks)
        stays = least(after_blank, after_token)
        no_blank = has(flagged, _NO_BLANK)
        kept = at_most(stays, cutoffs) & ~no_blank
        if record is not None:
            note_staying(record, i, no_blank, after_blank, after_token, cutoffs)
        store(state.blank, i, select(kept, stays, inf))
        repeated = _NOBODY
        if below(token, inf) != _NOBODY:
            again = load(scratch.repeats, i)
            repeated = at_most(again, cutoffs)
            store(state.token, i, select(repeated, again, inf))
            if record is not None:
                store(record.again, i, select(repeated, again, inf))
            from_token = below(after_token, after_blank)
            from_token |= equal(after_token, after_blank) & has(flagged, _TOKEN_FIRST)
            nodes = select(
                from_token, load(state.token_node, i), load(state.blank_node, i)
            )
            store(state.blank_node, i, nodes)
            store(state.ended, i, select(from_token, frames, load(state.ended, i)))
            epsilons = uint64(repeated & has(flagged, _EPSILONS))
            while epsilons != _ZERO:
                scratch.waiting[waiting] = uint32(i + trailing(epsilons))
                waiting += _ONE
                epsilons &= epsilons - _ONE
        alive += count_bits(uint64(kept | repeated))
        i += STEP
    if counts[k.CHAINED] > 0 and not rows.through_epsilon:
        _merge(rows, phrases, added, scratch, state, n)
    counts[k.ALIVE] = int64(alive)
    return waiting


@inlined
def _merge(rows, phrases, added, scratch, state, n):
    """Let the first entry of each row have the least cost after a blank."""
    for i in range(n):
        if state.record[i] & _SHARED != _NO_FLAG and state.blank[i] < _INF:
            first = first_of(rows, phrases, added, scratch, state, uint64(i))
            if first == uint64(i):
                continue
            better = state.blank[i] < state.blank[first]
            if state.blank[i] == state.blank[first]:
                mine = state_after_token(rows, added, state.record[i])
                better = mine < _blank_from(rows, phrases, added, state, first)
            if better:
                state.blank[first], state.ended[first] = state.blank[i], state.ended[i]
                state.blank_node[first] = state.blank_node[i]
            state.blank[i] = _INF


@inlined
def _blank_from(rows, phrases, added, state, first):
    """The state that the blank of a row's first entry came from in this frame."""
    if int64(state.ended[first]) <= state.counts[k.FRAMES]:
        return state_after_blank(rows, added, state.record[first])
    i = uint64(first)
    while state.token_node[i] != state.blank_node[first] or not is_beside(
        rows, phrases, added, state, first, i
    ):
        i = uint64(state.chain[i])
    return state_after_token(rows, added, state.record[i])


@inlined
def _settle(rows, params, words, phrases, added, scratch, state, record):
    """Find what costs are to be less by; leave out the dead where they are many."""
    counts, n = state.counts, uint64(state.counts[k.ENTRIES])
    counts[k.FRAMES] += counts[k.PASSES]
    counts[k.PHASE] = k.BETWEEN
    alive = uint64(counts[k.ALIVE])
    if n > alive + (alive >> _ONE) + _FEW_DEAD:
        note_moves(record, state, n)
        n = compact(rows, phrases, added, scratch, state, n)
        counts[k.ENTRIES] = int64(n)
    best = state.costs[k.LOWEST]
    if phrases is None:
        bonus = top_bonus(params, words)
        credited = max_insertion_credit(params) + bonus > float32(0)
        if counts[k.PASSES] == 0 or rows.least_epsilon < float32(0) or credited:
            best = _INF  # epsilon arcs may have led below it
            for i in range(n):
                best = min(best, min(state.blank[i], state.token[i]))
    if phrases is not None:
        best, credit = _INF, float32(0)
        for i in range(n):
            best = min(best, min(state.blank[i], state.token[i]))
            credit = max(credit, state.credit[i])
        state.costs[k.CREDIT] = credit
    state.costs[k.BEST], state.costs[k.BEAM] = best, params.beam
    state.base[0] += np.float64(best)
