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
from numpy import float32, int32, int64, uint8, uint16, uint32, uint64

from wfstdec.boost.kernels import hot_window, is_hot
from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import count_bits, lowest_bit, prefetch
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
from wfstdec.wfst.cpu.row_entries import (
    NO_ENTRY,
    clear_behind,
    compact,
    insert,
    room_in,
    row_of,
)
from wfstdec.wfst.cpu.row_fewest import keep_fewest, keep_least, reach_fewest
from wfstdec.wfst.cpu.row_recombination import bonus_at, close, recombine
from wfstdec.wfst.cpu.rows import (
    EPSILONS,
    NO_BLANK,
    RECORDS,
    SHARED,
    TOKEN_FIRST,
    WORD,
)

_EPSILONS, _SHARED, _NO_BLANK = uint32(EPSILONS), uint32(SHARED), uint32(NO_BLANK)
_TOKEN_FIRST, _WORD, _RECORDS = uint32(TOKEN_FIRST), uint32(WORD), uint32(RECORDS)
_NO_FLAG = uint32(0)
_EPSILON_ARC, _FROM_TOKEN = uint32(k.EPSILON_ARC), uint32(k.FROM_TOKEN)
_NONE, _TIP = uint32(k.NONE), uint32(0)
_INF = float32(np.inf)
_NOBODY = uint16(0)
_ZERO, _ONE, _CLASSES = uint64(0), uint64(1), uint64(64)
_ROUNDING = float32(4e-6)
_FEW_DEAD = uint64(24)


@kernel
def restart(state):
    """Make a state that of an utterance whose first frame is to come."""
    state.counts[:] = 0
    state.counts[k.DIED] = -1
    state.base[0] = 0.0


@kernel
def advance(rows, params, words, scratch, state, logprobs, first):
    """Pass entries through the frames `first` and on of a chunk.

    Returns:
        (status, frame): OK and T, or what must grow and the frame to go on from.
    """
    counts, frame = state.counts, int64(first)
    if counts[k.PHASE] == k.NEW:
        _begin(rows, params, scratch, state)
    while True:
        if counts[k.PHASE] != k.BETWEEN:
            status = close(rows, params, words, scratch, state)
            if status != k.OK:
                return status, frame
            _settle(rows, params, words, scratch, state)
            frame += counts[k.PASSES]
        if frame == logprobs.shape[0] or counts[k.DIED] >= 0:
            return k.OK, int64(logprobs.shape[0])
        of_blank = _price(rows, params, scratch.costs, logprobs[frame])
        within, lowest = _keep(rows, params, scratch, state, of_blank)
        beam, more = state.costs[k.BEAM], True
        while more:
            status, made = _emit(rows, params, words, scratch, state, lowest, beam)
            more = False
            if status == k.OK and params.min_active > _ZERO:
                status, wider = reach_fewest(
                    rows, params, scratch, state, made, of_blank, beam
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
        waiting = _go_on(rows, scratch, state, of_blank)
        recombine(rows, params, scratch, state, made, waiting)


@inlined
def _begin(rows, params, scratch, state):
    """Make the entry of the start; its epsilon arcs wait."""
    counts, root = state.counts, state.nodes[0]
    root.before, root.arc, root.frame, root.ended = _TIP, _NONE, uint32(0), uint32(0)
    counts[k.NODES] = counts[k.FRESH] = 1
    counts[k.CHAINED] = counts[k.PASSES] = counts[k.AT] = counts[k.ALIVE] = 0
    insert(rows, params, scratch, state, _ZERO, rows.start, NO_ENTRY)
    state.token[0], state.costs[k.BEST] = float32(0), float32(0)
    state.costs[k.CUTOFF] = min(params.beam, NO_CUTOFF)
    scratch.waiting[0] = uint32(0)
    counts[k.ENTRIES] = 1
    counts[k.WAITING] = int64(rows.start & _EPSILONS != _NO_FLAG)
    counts[k.PHASE] = k.PASSING
    for rank in range(rows.num_ranks):
        scratch.heads[rank] = _NONE


@inlined
def _rebase(state, n, of_blank, costs, repeats, beam):
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
        stays = add(least(blank, token), blanks)
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
def _keep(rows, params, scratch, state, of_blank):
    """Prune and re-base; as `_rebase`."""
    n = uint64(state.counts[k.ENTRIES])
    clear_behind(state, n)
    beam = params.beam
    if params.min_active > _ZERO:
        beam = keep_fewest(rows, params, scratch, state, n)
    while True:
        within, lowest = _rebase(
            state, n, of_blank, scratch.costs, scratch.repeats, beam
        )
        if within <= params.max_active:
            return within, lowest
        worst = keep_least(rows, scratch, state, n, params.max_active, beam)
        if params.beam_delta >= float32(0):
            delta = float32(worst + params.beam_delta)
            state.costs[k.BEAM] = min(params.beam, delta)


@inlined
def _emit(rows, params, words, scratch, state, lowest, beam):
    """Write the arcs that may survive to `scratch.candidates`.

    Leaves the least cost and the cutoff in `state.costs`. `lowest` is the least cost of
    what goes on in place, `beam` how much more than the least a candidate may cost.

    Returns:
        (OK or what must grow, candidates).
    """
    n, costs = uint64(state.counts[k.ENTRIES]), scratch.costs
    # The least cost of each class of tokens: of each token where there are few.
    c0, c1 = load(costs, _ZERO), load(costs, STEP)
    c2, c3 = load(costs, uint64(2) * STEP), load(costs, uint64(3) * STEP)
    v = _CLASSES
    while v < uint64(len(costs)):
        c0, c1 = least(c0, load(costs, v)), least(c1, load(costs, v + STEP))
        c2 = least(c2, load(costs, v + uint64(2) * STEP))
        c3 = least(c3, load(costs, v + uint64(3) * STEP))
        v += _CLASSES
    cheapest = least_of(least(least(c0, c1), least(c2, c3)))

    # More than `cost of an entry + cost of a token` can be where an arc survives: every
    # arc counts as the least one of the graph, and the slack covers rounding.
    cutoff = min(float32(lowest + beam), NO_CUTOFF)
    least_arc = float32(params.lm_scale * rows.least_cost)
    credit, bonus = max_insertion_credit(params), top_bonus(params, words)
    slack = abs(cutoff) + abs(least_arc) + credit + abs(cheapest) + beam + bonus
    slack = float32(1e-3) + float32(_ROUNDING * slack)
    limit = min(float32(float32(cutoff - least_arc) + credit) + slack, NO_CUTOFF)
    bits = _at_most(c0, c1, c2, c3, min(float32(limit + bonus), NO_CUTOFF))
    status, made = k.OK, _ZERO
    if bits != _ZERO:
        classes = scratch.classes
        store(classes, _ZERO, c0)
        store(classes, STEP, c1)
        store(classes, uint64(2) * STEP, c2)
        store(classes, uint64(3) * STEP, c3)
        if params.has_words:
            _fill_live_sets(scratch, bits, float32(limit + bonus), beam, k.LEVELS)
            bits &= _at_most(c0, c1, c2, c3, limit)
        _fill_live_sets(scratch, bits, limit, beam, 0)
        listed = _list_entries(rows, params, words, scratch, state, n, least_arc, beam)
        if rows.by_token:
            status, made, lowest = _follow_by_token(
                rows, params, words, scratch, state, listed, lowest, beam
            )
        else:
            above = slack + credit, bonus
            status, made, lowest = _follow_by_cost(
                rows, params, words, scratch, state, listed, lowest, beam, above
            )
    state.costs[k.LOWEST] = lowest
    state.costs[k.CUTOFF] = min(float32(lowest + beam), NO_CUTOFF)
    return status, made


@inlined
def _at_most(c0, c1, c2, c3, limit):
    """The classes of tokens whose costs are no more than a limit, uint64."""
    limits = splat(limit)
    low = uint64(at_most(c0, limits)) | uint64(at_most(c1, limits)) << STEP
    high = uint64(at_most(c2, limits)) | uint64(at_most(c3, limits)) << STEP
    return low | high << uint64(32)


@inlined
def _fill_live_sets(scratch, bits, limit, beam, first):
    """Fill `scratch.live_sets` from `first` on, of some tokens modulo 64.

    A token is live for an entry if an arc with it may end within the cutoff, so far as
    their costs and the least one of the row can tell. Costs of entries are put into
    levels, each of which stands for its lowest.
    """
    sets = scratch.live_sets
    per_nat, top = _levels_per_nat(beam), float32(k.LEVELS - 1)
    for q in range(uint64(k.LEVELS)):
        sets[uint64(first) + q] = _ZERO
    while bits != _ZERO:
        v = trailing(bits)
        bits &= bits - _ONE
        level = float32(float32(limit - scratch.classes[v]) * per_nat)
        level = uint64(int32(min(max(level, float32(0)), top)))
        sets[uint64(first) + level] |= _ONE << v
    for q in range(uint64(k.LEVELS - 1)):
        low = uint64(first) + uint64(k.LEVELS - 2) - q
        sets[low] |= sets[low + _ONE]


@inlined
def _levels_per_nat(beam):
    """Levels in a nat."""
    return float32(k.LEVELS) / min(max(beam, float32(1e-3)), NO_CUTOFF)


@inlined
def _list_entries(rows, params, words, scratch, state, n, least_arc, beam):
    """List entries that have a live token, and these tokens; how many there are.

    The upper half of the sets is for arcs that are paid a bonus.
    """
    sets, per_nat = scratch.live_sets, _levels_per_nat(beam)
    listed = _ZERO
    for i in range(n):
        cost = min(state.blank[i], state.token[i])
        level = _level_of(cost, state.least[i], least_arc, per_nat)
        live = state.labels[i] & sets[level]
        if params.has_words:
            if is_hot(words, row_of(rows, state.record[i])):
                labels = state.labels[i]
                among = labels & sets[uint64(k.LEVELS) + level] & ~live
                if rows.by_token:
                    among = _hot_tokens(words, labels, state.first[i], among)
                live |= among
        scratch.listed[listed], scratch.live[listed] = uint32(i), live
        listed += uint64((live != _ZERO) & (cost < _INF))
    return listed


@inlined
def _level_of(cost, least_of_row, least_arc, per_nat):
    """The level of an entry: what its cheapest arc costs above the graph's."""
    level = float32(float32(cost + least_of_row) - least_arc) * per_nat
    return uint64(int32(min(max(level, float32(0)), float32(k.LEVELS - 1))))


@inlined
def _hot_tokens(words, labels, first, among):
    """Those of some of a row's tokens whose arcs are hot."""
    hot, tokens = hot_window(words, first), _ZERO
    if hot != _ZERO:
        while among != _ZERO:
            bit = lowest_bit(among)
            among ^= bit
            if hot >> count_bits(labels & (bit - _ONE)) & _ONE != _ZERO:
                tokens |= bit
    return tokens


@inlined
def _follow_by_token(rows, params, words, scratch, state, listed, lowest, beam):
    """Candidates of the live tokens: arcs are asked for first, then followed.

    Returns:
        (OK or what must grow, candidates, the least cost).
    """
    found, made, room = _ZERO, _ZERO, uint64(len(scratch.at))
    frame = uint32(state.counts[k.FRAMES] + 1)
    for q in range(listed):
        i, live = uint64(scratch.listed[q]), scratch.live[q]
        labels, first = state.labels[i], state.first[i]
        if found + _CLASSES > room:
            return k.GROW_CANDIDATES, _ZERO, lowest
        while live != _ZERO:
            bit = lowest_bit(live)
            a = first + uint32(count_bits(labels & (bit - _ONE)))
            scratch.at[found], scratch.of[found] = a, uint32(i)
            scratch.by[found] = uint8(trailing(live))
            prefetch(rows.arcs, uint64(a))
            found += _ONE
            live ^= bit
    for q in range(found):
        i, a, token = uint64(scratch.of[q]), uint64(scratch.at[q]), scratch.by[q]
        reached = _follow(rows, params, words, scratch, state, i, a, token, made, frame)
        lowest = min(lowest, reached)
        made += uint64(reached <= min(float32(lowest + beam), NO_CUTOFF))
    return k.OK, made, lowest


@inlined
def _follow_by_cost(rows, params, words, scratch, state, listed, lowest, beam, above):
    """Candidates of rows in the order of cost; entries near the best one first.

    `above`: by how much a sum of costs may come to more than the cutoff, and by how
    much more where words are boosted.

    Returns:
        (OK or what must grow, candidates, the least cost).
    """
    made, left, room = _ZERO, _ZERO, uint64(len(scratch.at))
    frame = uint32(state.counts[k.FRAMES] + 1)
    cheapest = _INF
    for v in range(_CLASSES):
        cheapest = min(cheapest, scratch.classes[v])
    for q in range(listed):
        a = uint64(state.first[uint64(scratch.listed[q])])
        prefetch(rows.tokens, a)
        prefetch(rows.costs, a)
    for turn in range(2):
        of_turn = listed if turn == 0 else left
        for q in range(of_turn):
            i = uint64(scratch.listed[q])
            source = min(state.blank[i], state.token[i])
            if turn == 0 and not source < float32(1):
                scratch.listed[left] = uint32(i)
                left += _ONE
                continue
            one = rows.records[uint64(state.record[i] & _RECORDS)]
            first, last = uint64(one.first), uint64(one.first) + uint64(one.length)
            if made + uint64(one.length) > room:
                return k.GROW_CANDIDATES, _ZERO, lowest
            limit = min(float32(lowest + beam), NO_CUTOFF)
            limit = float32(float32(limit + above[0]) - source)
            if params.has_words:
                if is_hot(words, uint64(one.row)):
                    limit = float32(limit + above[1])
            most, found = float32(limit - cheapest), _ZERO
            for a in range(first, last):
                cost = float32(params.lm_scale * rows.costs[a])
                if cost > most:
                    break
                scratch.at[found] = uint32(a)
                price = scratch.costs[uint64(rows.tokens[a])]
                found += uint64(price <= float32(limit - cost))
            for q in range(found):
                a = uint64(scratch.at[q])
                token = uint32(rows.tokens[a])
                reached = _follow(
                    rows, params, words, scratch, state, i, a, token, made, frame
                )
                lowest = min(lowest, reached)
                made += uint64(reached <= min(float32(lowest + beam), NO_CUTOFF))
    return k.OK, made, lowest


@inlined
def _follow(rows, params, words, scratch, state, i, a, token, made, frame):
    """Write candidate number `made`: arc `a` of entry `i`; its cost.

    A token leads on from a blank, or from another token: whichever is the less, and of
    equal ones the lower state. Sums round, so both are added up.
    """
    arc, record = rows.arcs[a], state.record[i]
    graph_cost = float32(params.lm_scale * arc.cost)
    after_blank = float32(state.blank[i] + graph_cost)
    after_token = float32(state.token[i] + graph_cost)
    if params.has_insertion:
        if arc.next & _WORD:
            after_blank = float32(after_blank + params.word_insertion)
            after_token = float32(after_token + params.word_insertion)
    if params.has_words:
        if arc.next & _WORD:
            bonus = bonus_at(rows, words, a, rows.arc[a])
            after_blank = float32(after_blank - bonus)
            after_token = float32(after_token - bonus)
    after_blank = float32(after_blank + scratch.costs[uint64(token)])
    after_token = float32(after_token + scratch.costs[uint64(token)])
    tied = after_token == after_blank and record & _TOKEN_FIRST != _NO_FLAG
    from_token = token != state.again[i] and (after_token < after_blank or tied)
    candidate, to = scratch.candidates[made], arc.next & ~_WORD
    candidate.cost = after_token if from_token else after_blank
    candidate.record, candidate.arc = to, uint32(a)
    candidate.before = state.token_node[i] if from_token else state.blank_node[i]
    candidate.ended = frame if from_token else state.ended[i]
    candidate.source = uint32(i) | (_FROM_TOKEN if from_token else _NO_FLAG)
    prefetch(scratch.slots, uint64(to & _RECORDS))
    prefetch(rows.records, uint64(to & _RECORDS))
    return candidate.cost


@inlined
def _go_on(rows, scratch, state, of_blank):
    """Let entries go on by blanks and repeats, in place.

    Returns:
        How many wait for their epsilon arcs to be followed: in `scratch.waiting`.
    """
    counts, n = state.counts, uint64(state.counts[k.ENTRIES])
    inf, cutoffs = splat(_INF), splat(state.costs[k.CUTOFF])
    blanks, frames = splat(of_blank), splat(uint32(counts[k.FRAMES] + 1))
    waiting, alive, i = _ZERO, _ZERO, _ZERO
    while i < n:
        blank, token = load(state.blank, i), load(state.token, i)
        record = load(state.record, i)
        after_blank, after_token = add(blank, blanks), add(token, blanks)
        stays = least(after_blank, after_token)
        kept = at_most(stays, cutoffs) & ~has(record, _NO_BLANK)
        store(state.blank, i, select(kept, stays, inf))
        repeated = _NOBODY
        if below(token, inf) != _NOBODY:
            again = load(scratch.repeats, i)
            repeated = at_most(again, cutoffs)
            store(state.token, i, select(repeated, again, inf))
            from_token = below(after_token, after_blank)
            from_token |= equal(after_token, after_blank) & has(record, _TOKEN_FIRST)
            nodes = select(
                from_token, load(state.token_node, i), load(state.blank_node, i)
            )
            store(state.blank_node, i, nodes)
            store(state.ended, i, select(from_token, frames, load(state.ended, i)))
            epsilons = uint64(repeated & has(record, _EPSILONS))
            while epsilons != _ZERO:
                scratch.waiting[waiting] = uint32(i + trailing(epsilons))
                waiting += _ONE
                epsilons &= epsilons - _ONE
        alive += count_bits(uint64(kept | repeated))
        i += STEP
    if counts[k.CHAINED] > 0:
        _merge(rows, scratch, state, n)
    counts[k.ALIVE] = int64(alive)
    return waiting


@inlined
def _merge(rows, scratch, state, n):
    """Let the first entry of each row have the least cost after a blank."""
    for i in range(n):
        if state.record[i] & _SHARED != _NO_FLAG and state.blank[i] < _INF:
            first = uint64(scratch.slots[row_of(rows, state.record[i])])
            if first == uint64(i):
                continue
            better = state.blank[i] < state.blank[first]
            if state.blank[i] == state.blank[first]:
                mine = rows.state_of_record[uint64(state.record[i] & _RECORDS)]
                better = mine < _blank_from(rows, state, first)
            if better:
                state.blank[first], state.ended[first] = state.blank[i], state.ended[i]
                state.blank_node[first] = state.blank_node[i]
            state.blank[i] = _INF


@inlined
def _blank_from(rows, state, first):
    """The state that the blank of a row's first entry came from in this frame."""
    if int64(state.ended[first]) <= state.counts[k.FRAMES]:
        return rows.state_of_row[row_of(rows, state.record[first])]
    i = uint64(first)
    while state.token_node[i] != state.blank_node[first]:
        i = uint64(state.chain[i])
    return rows.state_of_record[uint64(state.record[i] & _RECORDS)]


@inlined
def _settle(rows, params, words, scratch, state):
    """Find what costs are to be less by; leave out the dead where they are many."""
    counts, n = state.counts, uint64(state.counts[k.ENTRIES])
    counts[k.FRAMES] += counts[k.PASSES]
    counts[k.PHASE] = k.BETWEEN
    alive = uint64(counts[k.ALIVE])
    if n > alive + (alive >> _ONE) + _FEW_DEAD:
        n = compact(rows, scratch, state, n)
        counts[k.ENTRIES] = int64(n)
    best = state.costs[k.LOWEST]
    credited = max_insertion_credit(params) + top_bonus(params, words) > float32(0)
    if counts[k.PASSES] == 0 or rows.least_epsilon < float32(0) or credited:
        best = _INF  # epsilon arcs may have led below it
        for i in range(n):
            best = min(best, min(state.blank[i], state.token[i]))
    state.costs[k.BEST], state.costs[k.BEAM] = best, params.beam
    state.base[0] += np.float64(best)
