"""Expansion: token arcs within the beam, and their destination states.

    by token   V <= 63 and no token twice in a row: the tokens of a row are bits, and so
               are those that can survive from each of 16 levels of cost; the arcs in
               the intersection are prefetched, then followed
    by cost    otherwise tokens share bits (modulo 64); the arcs of rows with a bit in
               common are followed in order of cost, up to the first that is above the
               cutoff even with the best token

A second set of levels admits arcs that boosts may credit. Where boosts have states, its
levels are of the cost less the largest credit of the entry, and a third set, for the
initial boost state, uses token costs less the credit for beginning a phrase.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, uint8, uint32, uint64

from wfstdec.boost.kernels import boost_window, deferred_of, may_boost, state_of
from wfstdec.jit import inlined, part
from wfstdec.jit.vectors import (
    STEP,
    add,
    any_bit,
    at_most,
    below,
    both,
    count_bits,
    count_from,
    either,
    least,
    least_of,
    load,
    look_up,
    lowest_bit,
    most,
    multiply,
    prefetch,
    splat,
    store,
    store_some,
    subtract,
    trailing,
)
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.wfst.cpu.arrays import GROW_CANDIDATES, LEVELS, OK
from wfstdec.wfst.cpu.boosts import (
    FIRST_TOKEN,
    begin_credit,
    bonus_at,
    max_insertion_credit,
    may_step,
    step,
    tokens_of,
    top_bonus,
)
from wfstdec.wfst.cpu.entries import leaving_cost, row_of
from wfstdec.wfst.cpu.oov import expand_oov, write_candidate
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, TOKEN_FIRST, WORD

_NO_FLAG = uint32(0)
_TOKENS = uint32(FIRST_TOKEN)
_INF = float32(np.inf)
_ZERO, _ONE, _CLASSES = uint64(0), uint64(1), uint64(64)
_ROUNDING = float32(4e-6)


class ArcStep(NamedTuple):
    """Token arc to follow."""

    entry: np.uint64
    arc: np.uint32
    token: np.uint32
    frame: np.uint32  # frames passed with it


class Bounds(NamedTuple):
    """Bounds of the arcs of a frame, float32."""

    beam: np.float32
    slack: np.float32  # largest rounding error of a sum of costs at the cutoff
    bonus: np.float32  # additional slack for boosted words
    cheapest: np.float32  # least token cost
    begins: np.float32  # the same minus the credit for beginning a phrase


@inlined
def expand(search, lowest):
    """Write the arcs within the beam to `scratch.candidates`; set the cutoff."""
    # `lowest`: lowest cost of the states that advance in place.
    # Returns (OK or the array to grow, number of candidates).
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    phrases, oov = search.phrases, search.oov
    n, beam = uint64(state.progress[0].entries), state.progress[0].beam
    if rows.plain:  # no state advances in place, so there is no bound yet
        lowest = _least_from_best(search, n)
    c0, c1, c2, c3 = _least_of_classes(scratch.costs)
    cheapest = least_of(least(least(c0, c1), least(c2, c3)))

    # An arc can survive only if the costs of its entry and token are below this limit.
    # Arcs count as the cheapest that leaves any entry; the slack covers rounding.
    cutoff = min(float32(lowest + beam), NO_CUTOFF)
    least_arc = min(_least_left(rows, state, n), NO_CUTOFF)
    credit = max_insertion_credit(params)
    if phrases is None:
        bonus = top_bonus(params, words)
    else:
        bonus = state.progress[0].top_credit
    slack = abs(cutoff) + abs(least_arc) + credit + abs(cheapest) + beam + bonus
    slack = float32(1e-3) + float32(_ROUNDING * slack)
    limit = min(float32(float32(cutoff - least_arc) + credit) + slack, NO_CUTOFF)
    bits = _at_most(c0, c1, c2, c3, min(float32(limit + bonus), NO_CUTOFF))
    status, made = OK, _ZERO
    if oov is not None:
        # OOV words first: the best arc may be one of theirs.
        made, lowest, fits = expand_oov(search, made, lowest, beam, False)
        status = OK if fits else GROW_CANDIDATES
    if status == OK and bits != _ZERO:
        classes, begins = scratch.classes, cheapest
        _store_classes(classes, c0, c1, c2, c3)
        if phrases is not None:
            width = min(float32(beam + bonus), NO_CUTOFF)
            above = float32(limit + bonus)
            _fill_live_sets(scratch, classes, bits, above, width, LEVELS)
            bits &= _at_most(c0, c1, c2, c3, limit)
            _price_begun(phrases, scratch, len(rows.repeat_arc))
            c0, c1, c2, c3 = _least_of_classes(scratch.begun)
            begins = least_of(least(least(c0, c1), least(c2, c3)))
            begun = scratch.begun_classes
            _store_classes(begun, c0, c1, c2, c3)
            more = _at_most(c0, c1, c2, c3, limit)
            _fill_live_sets(scratch, begun, more, limit, beam, 2 * LEVELS)
        elif params.has_words:
            above = float32(limit + bonus)
            _fill_live_sets(scratch, classes, bits, above, beam, LEVELS)
            bits &= _at_most(c0, c1, c2, c3, limit)
        _fill_live_sets(scratch, classes, bits, limit, beam, 0)
        if phrases is None:
            listed = _list_entries(search, n, least_arc, beam)
        else:
            listed = _list_boosted(search, n, least_arc, beam)
        if rows.by_token:
            status, made, lowest = _follow_by_token(search, listed, made, lowest, beam)
        else:
            bounds = Bounds(beam, slack + credit, bonus, cheapest, begins)
            status, made, lowest = _follow_by_cost(search, listed, made, lowest, bounds)
    if oov is not None and status == OK:
        made, lowest, fits = expand_oov(search, made, lowest, beam, True)
        status = OK if fits else GROW_CANDIDATES
    state.progress[0].lowest = lowest
    state.progress[0].cutoff = min(float32(lowest + beam), NO_CUTOFF)
    return status, made


@part
def _least_from_best(search, n):
    """Return the lowest cost after the best entry's arcs: a first bound."""
    rows, state = search.rows, search.state
    lowest, frame = _INF, uint32(state.progress[0].frames + 1)
    for i in range(n):
        if not state.token[i] == float32(0):
            continue
        if search.oov is not None and state.record[i] & ADDED != _NO_FLAG:
            break  # `expand_oov` follows its arcs first
        one = rows.records[uint64(state.record[i] & RECORDS)]
        for a in range(uint64(one.first), uint64(one.first) + uint64(one.length)):
            token = uint32(rows.tokens[a])
            step_of = ArcStep(uint64(i), uint32(a), token, frame)
            reached = _follow(search, step_of, _ZERO, NO_CUTOFF)
            lowest = min(lowest, reached)
        break
    return lowest if lowest <= NO_CUTOFF else _INF


@inlined
def _at_most(c0, c1, c2, c3, limit):
    limits = splat(limit)
    low = uint64(at_most(c0, limits)) | uint64(at_most(c1, limits)) << STEP
    high = uint64(at_most(c2, limits)) | uint64(at_most(c3, limits)) << STEP
    return low | high << uint64(32)


@inlined
def _least_of_classes(costs):
    """Return the lowest cost of each class of tokens; with V <= 64 of each token."""
    c0, c1 = load(costs, _ZERO), load(costs, STEP)
    c2, c3 = load(costs, uint64(2) * STEP), load(costs, uint64(3) * STEP)
    v = _CLASSES
    while v < uint64(len(costs)):
        c0, c1 = least(c0, load(costs, v)), least(c1, load(costs, v + STEP))
        c2 = least(c2, load(costs, v + uint64(2) * STEP))
        c3 = least(c3, load(costs, v + uint64(3) * STEP))
        v += _CLASSES
    return c0, c1, c2, c3


@inlined
def _store_classes(classes, c0, c1, c2, c3):
    store(classes, _ZERO, c0)
    store(classes, STEP, c1)
    store(classes, uint64(2) * STEP, c2)
    store(classes, uint64(3) * STEP, c3)


@inlined
def _fill_live_sets(scratch, classes, bits, limit, beam, first):
    """Fill the sets of tokens that can survive from each level, from set `first` on."""
    # `classes`: costs of the tokens `bits` (modulo 64). A level is represented by its
    # lowest cost, so that a set may be too large, never too small.
    sets = scratch.live_sets
    per_nat, top = _levels_per_nat(beam), float32(LEVELS - 1)
    for q in range(uint64(LEVELS)):
        sets[uint64(first) + q] = _ZERO
    while bits != _ZERO:
        v = trailing(bits)
        bits &= bits - _ONE
        level = float32(float32(limit - classes[v]) * per_nat)
        level = uint64(int32(min(max(level, float32(0)), top)))
        sets[uint64(first) + level] |= _ONE << v
    for q in range(uint64(LEVELS - 1)):
        low = uint64(first) + uint64(LEVELS - 2) - q
        sets[low] |= sets[low + _ONE]


@inlined
def _levels_per_nat(beam):
    return float32(LEVELS) / min(max(beam, float32(1e-3)), NO_CUTOFF)


@inlined
def _list_entries(search, n, least_arc, beam):
    """List entries with arcs that may survive, and their tokens; return the count."""
    # The second half of the sets applies to arcs with a bonus.
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    sets, per_nat = scratch.live_sets, _levels_per_nat(beam)
    oov, listed, base = search.oov, _ZERO, _ZERO
    while base < n:
        costs = _leaving_costs(rows, state, base)
        levels = _levels_of(costs, state, base, least_arc, per_nat)
        # Nodes of an overlay have 0 in `labels`.
        labels, possible = load(state.labels, base), below(costs, splat(_INF))
        lives = both(labels, look_up(sets, _ZERO, levels))
        if params.has_words:
            paid = both(labels, look_up(sets, uint64(LEVELS), levels))
            near = uint64(any_bit(either(lives, paid)) & possible)
            while near != _ZERO:
                i = base + trailing(near)
                near &= near - _ONE
                level = _level_of(
                    leaving_cost(rows, state, i), state.least[i], least_arc, per_nat
                )
                live = state.labels[i] & sets[level]
                if may_boost(words, row_of(rows, oov, state.record[i])):
                    among = state.labels[i] & sets[uint64(LEVELS) + level] & ~live
                    if rows.by_token:
                        among = _hot_tokens(
                            words, state.labels[i], state.first[i], among
                        )
                    live |= among
                scratch.listed[listed], scratch.live[listed] = uint32(i), live
                listed += uint64(live != _ZERO)
        else:
            near = any_bit(lives) & possible
            store_some(scratch.listed, listed, count_from(uint32(base)), near)
            store_some(scratch.live, listed, lives, near)
            listed += count_bits(uint64(near))
        base += STEP
    return listed


@inlined
def _leaving_costs(rows, state, i):
    costs = load(state.blank, i)
    return costs if rows.has_hubs else least(costs, load(state.token, i))


@inlined
def _least_left(rows, state, n):
    lowest, i = splat(_INF), _ZERO
    while i < n:
        cost = add(_leaving_costs(rows, state, i), load(state.least, i))
        lowest = least(lowest, cost)
        i += STEP
    return least_of(lowest)


@inlined
def _levels_of(costs, state, i, least_arc, per_nat):
    above = subtract(add(costs, load(state.least, i)), splat(least_arc))
    levels = most(multiply(above, splat(per_nat)), splat(float32(0)))
    return least(levels, splat(float32(LEVELS - 1)))


@inlined
def _list_boosted(search, n, least_arc, beam):
    """Do as `_list_entries` with boost states; one function for both is slower."""
    rows, words = search.rows, search.words
    scratch, state = search.scratch, search.state
    phrases, oov = search.phrases, search.oov
    sets, top, listed = scratch.live_sets, state.progress[0].top_credit, _ZERO
    per_nat = _levels_per_nat(beam)
    paid_per_nat = _levels_per_nat(min(float32(beam + top), NO_CUTOFF))
    base, second, third = _ZERO, uint64(LEVELS), uint64(2 * LEVELS)
    while base < n:
        costs, labels = _leaving_costs(rows, state, base), load(state.labels, base)
        levels = _levels_of(costs, state, base, least_arc, per_nat)
        most_live = either(look_up(sets, _ZERO, levels), look_up(sets, third, levels))
        paid_costs = add(subtract(costs, load(state.credit, base)), splat(top))
        levels = _levels_of(paid_costs, state, base, least_arc, paid_per_nat)
        most_live = either(most_live, look_up(sets, second, levels))
        near = any_bit(both(labels, most_live)) & below(costs, splat(_INF))
        near = uint64(near)
        while near != _ZERO:
            i = base + trailing(near)
            near &= near - _ONE
            cost, boost = leaving_cost(rows, state, i), state.boost[i]
            labels_of_row, least_of_row = state.labels[i], state.least[i]
            level = _level_of(cost, least_of_row, least_arc, per_nat)
            initial = boost == phrases.initial
            hot = may_boost(words, row_of(rows, oov, state.record[i]))
            live = labels_of_row & sets[level + third * uint64(initial)]
            if hot or not initial:
                paid = float32(float32(cost - state.credit[i]) + top)
                level = _level_of(paid, least_of_row, least_arc, paid_per_nat)
                among = labels_of_row & sets[second + level] & ~live
                if not initial:
                    among &= _credited_tokens(phrases, boost, hot)
                elif rows.by_token:
                    among = _hot_tokens(words, labels_of_row, state.first[i], among)
                live |= among
            scratch.listed[listed], scratch.live[listed] = uint32(i), live
            listed += uint64(live != _ZERO)
        base += STEP
    return listed


@inlined
def _credited_tokens(phrases, boost, hot):
    """Return tokens (modulo 64) that may give credit to an entry in a boost state."""
    if phrases.of_tokens and deferred_of(boost) == uint32(0) and not hot:
        return tokens_of(phrases.credited[uint64(state_of(boost))])
    return ~_ZERO


@inlined
def _level_of(cost, least_of_row, least_arc, per_nat):
    """Return an entry's level: its cheapest arc relative to the cheapest of all."""
    level = float32(float32(cost + least_of_row) - least_arc) * per_nat
    return uint64(int32(min(max(level, float32(0)), float32(LEVELS - 1))))


@inlined
def _hot_tokens(words, labels, first, among):
    """Return those tokens of `among` whose arcs of the row have a boosted word."""
    hot, tokens = boost_window(words, first), _ZERO
    if hot != _ZERO:
        while among != _ZERO:
            bit = lowest_bit(among)
            among ^= bit
            if hot >> count_bits(labels & (bit - _ONE)) & _ONE != _ZERO:
                tokens |= bit
    return tokens


@inlined
def _follow_by_token(search, listed, made, lowest, beam):
    # Returns (OK or the array to grow, number of candidates, lowest cost).
    rows, scratch, state = search.rows, search.scratch, search.state
    found, room = _ZERO, uint64(len(scratch.at))
    frame = uint32(state.progress[0].frames + 1)
    for q in range(listed):
        i, live = uint64(scratch.listed[q]), scratch.live[q]
        labels, first = state.labels[i], state.first[i]
        if made + found + _CLASSES > room:
            return GROW_CANDIDATES, _ZERO, lowest
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
        step_of = ArcStep(i, a, uint32(token), frame)
        made, lowest = _follow_within(search, step_of, made, lowest, beam)
    return OK, made, lowest


@inlined
def _follow_by_cost(search, listed, made, lowest, bounds):
    # Returns (OK or the array to grow, number of candidates, lowest cost).
    beam = bounds.beam
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    left, room = _ZERO, uint64(len(scratch.at))
    frame = uint32(state.progress[0].frames + 1)
    for q in range(listed):
        a = uint64(state.first[uint64(scratch.listed[q])])
        prefetch(rows.tokens, a)
        prefetch(rows.costs, a)
    for turn in range(2):
        of_turn = listed if turn == 0 else left
        for q in range(of_turn):
            i = uint64(scratch.listed[q])
            source = leaving_cost(rows, state, i)
            if turn == 0 and not source < float32(1):
                scratch.listed[left] = uint32(i)
                left += _ONE
                continue
            one = rows.records[uint64(state.record[i] & RECORDS)]
            first, last = uint64(one.first), uint64(one.first) + uint64(one.length)
            if made + uint64(one.length) > room:
                return GROW_CANDIDATES, _ZERO, lowest
            limit = min(float32(lowest + beam), NO_CUTOFF)
            limit = float32(float32(limit + bounds.slack) - source)
            if search.phrases is None:
                if params.has_words:
                    if may_boost(words, uint64(one.row)):
                        limit = float32(limit + bounds.bonus)
                most, found = float32(limit - bounds.cheapest), _ZERO
                for a in range(first, last):
                    cost = float32(params.lm_scale * rows.costs[a])
                    if cost > most:
                        break
                    scratch.at[found] = uint32(a)
                    price = scratch.costs[uint64(rows.tokens[a])]
                    found += uint64(price <= float32(limit - cost))
            else:
                found = _list_arcs(search, i, one, limit, bounds)
            for p in range(found):
                a = uint64(scratch.at[p])
                step_of = ArcStep(i, a, uint32(rows.tokens[a]), frame)
                made, lowest = _follow_within(search, step_of, made, lowest, beam)
    return OK, made, lowest


@inlined
def _price_begun(phrases, scratch, num_tokens):
    """Fill `scratch.begun`: token costs less the credit for beginning a phrase."""
    for v in range(num_tokens):
        price = float32(scratch.costs[v] - begin_credit(phrases, uint64(v)))
        scratch.begun[v] = price


@inlined
def _list_arcs(search, i, one, limit, bounds):
    # `one`: the entry's record. `limit`: of arc cost plus token cost, before credit.
    rows, params, words = search.rows, search.params, search.words
    phrases, scratch, state = search.phrases, search.scratch, search.state
    boost, hot = state.boost[i], may_boost(words, uint64(one.row))
    initial, more, found = boost == phrases.initial, limit, _ZERO
    prices = scratch.begun if initial else scratch.costs
    credited = ~_ZERO
    if hot or not initial:
        more = float32(limit + state.credit[i])
        if not initial:
            credited = _credited_tokens(phrases, boost, hot)
    most = float32(more - (bounds.begins if initial else bounds.cheapest))
    for a in range(uint64(one.first), uint64(one.first) + uint64(one.length)):
        cost, token = float32(params.lm_scale * rows.costs[a]), uint64(rows.tokens[a])
        if cost > most:
            break
        scratch.at[found] = uint32(a)
        paid = credited >> (token & (_CLASSES - _ONE)) & _ONE != _ZERO
        bound = more if paid else limit
        found += uint64(prices[token] <= float32(bound - cost))
    return found


@inlined
def _follow_within(search, step_of, made, lowest, beam):
    """Follow an arc; return number of candidates and lowest cost, updated."""
    reached = _follow(search, step_of, made, min(float32(lowest + beam), NO_CUTOFF))
    lowest = min(lowest, reached)
    return made + uint64(reached <= min(float32(lowest + beam), NO_CUTOFF)), lowest


@inlined
def _follow(search, step_of, made, cutoff):
    """Write an arc as candidate `made`; return its cost, infinite if pruned."""
    # The source is the state after a blank or after the token, whichever is lower; a
    # tie goes to the lower state number. Both sums are computed, since they round
    # differently.
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    phrases, record = search.phrases, search.record
    i, a, token, frame = step_of
    arc, own = rows.arcs[a], state.record[i]
    graph_cost = float32(params.lm_scale * arc.cost)
    after_blank = float32(state.blank[i] + graph_cost)
    after_token = float32(state.token[i] + graph_cost)
    if params.has_insertion:
        if arc.next & WORD:
            after_blank = float32(after_blank + params.word_insertion)
            after_token = float32(after_token + params.word_insertion)
    if phrases is None:
        if params.has_words:
            if arc.next & WORD:
                bonus = bonus_at(rows, words, a, rows.arc[a])
                after_blank = float32(after_blank - bonus)
                after_token = float32(after_token - bonus)
    else:
        boost, label = state.boost[i], token + _TOKENS
        if rows.plain:
            if rows.silent[uint64(a)]:  # blanks and repeats do not advance phrases
                label = _NO_FLAG
        has_word = arc.next & WORD != _NO_FLAG
        if may_step(search, boost, label, a, has_word):
            most = state.credit[i]
            if boost == phrases.initial and not has_word:
                most = begin_credit(phrases, uint64(token))
            bound = float32(min(after_blank, after_token) - most)
            if float32(bound + scratch.costs[uint64(token)]) > cutoff:
                return _INF
            paid, boost = step(search, boost, label, a, rows.arc[a], has_word)
            after_blank = float32(after_blank - paid)
            after_token = float32(after_token - paid)
        scratch.goals[made] = boost
    after_blank = float32(after_blank + scratch.costs[uint64(token)])
    after_token = float32(after_token + scratch.costs[uint64(token)])
    tied = after_token == after_blank and own & TOKEN_FIRST != _NO_FLAG
    from_token = token != state.again[i] and (after_token < after_blank or tied)
    from_token = from_token and not rows.has_hubs
    if record is not None:
        other = _INF
        if from_token:
            other = after_blank
        elif token != state.again[i] and not rows.has_hubs:
            other = after_token
        record.others[made] = other
    cost, to = after_token if from_token else after_blank, arc.next & ~WORD
    candidate = write_candidate(search, made, i, from_token, frame)
    candidate.cost, candidate.record, candidate.arc = cost, to, uint32(a)
    prefetch(scratch.slots, uint64(to & RECORDS))
    prefetch(rows.records, uint64(to & RECORDS))
    return cost
