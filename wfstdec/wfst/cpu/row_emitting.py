"""Token arcs that may survive a frame of a search on rows, and what they reach.

    by token   V <= 63, none twice in a row: the tokens of a row are bits, and so are
               those that may survive from each of 16 levels of cost; the arcs of their
               intersection are asked for first, then followed
    by cost    tokens share bits modulo 64; the arcs of rows with a bit in common are
               looked at in the order of cost, until one is too dear with the best token

A second set of levels is for arcs that boosts pay. Where boosts have states, these
levels are of the cost less what an entry is paid at most, and in the quiet boost state
they are for words alone. What beginning a phrase is paid there is taken off the tokens'
costs, which have a third set.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint8, uint32, uint64

from wfstdec.boost.kernels import hot_window, is_hot, owed_of, state_of
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import count_bits, lowest_bit, prefetch
from wfstdec.jit.vectors import (
    STEP,
    at_most,
    least,
    least_of,
    load,
    splat,
    store,
    subtract,
    trailing,
)
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.arc_costs import max_insertion_credit, top_bonus
from wfstdec.wfst.cpu.row_boosts import FIRST_TOKEN, bonus_at, may_step, step, tokens_of
from wfstdec.wfst.cpu.row_entries import leaving_cost, row_of
from wfstdec.wfst.cpu.row_oov import emit_added
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, TOKEN_FIRST, WORD

_TOKEN_FIRST, _WORD, _RECORDS = uint32(TOKEN_FIRST), uint32(WORD), uint32(RECORDS)
_NO_FLAG, _FROM_TOKEN = uint32(0), uint32(k.FROM_TOKEN)
_ADDED = uint32(ADDED)
_TOKENS = uint32(FIRST_TOKEN)
_INF = float32(np.inf)
_ZERO, _ONE, _CLASSES = uint64(0), uint64(1), uint64(64)
_ROUNDING = float32(4e-6)


@inlined
def emit(rows, params, words, phrases, added, scratch, state, lowest, beam, record):
    """Write the arcs that may survive to `scratch.candidates`.

    Leaves the least cost and the cutoff in `state.costs`. `lowest` is the least cost of
    what goes on in place, `beam` how much more than the least a candidate may cost.

    Returns:
        (OK or what must grow, candidates).
    """
    n = uint64(state.counts[k.ENTRIES])
    c0, c1, c2, c3 = _least_of_classes(scratch.costs)
    cheapest = least_of(least(least(c0, c1), least(c2, c3)))

    # More than `cost of an entry + cost of a token` can be where an arc survives: every
    # arc counts as the least one of the graph, and the slack covers rounding.
    cutoff = min(float32(lowest + beam), NO_CUTOFF)
    least_arc = float32(params.lm_scale * rows.least_cost)
    credit = max_insertion_credit(params)
    if phrases is None:
        bonus = top_bonus(params, words)
    else:
        bonus = state.costs[k.CREDIT]
    slack = abs(cutoff) + abs(least_arc) + credit + abs(cheapest) + beam + bonus
    slack = float32(1e-3) + float32(_ROUNDING * slack)
    limit = min(float32(float32(cutoff - least_arc) + credit) + slack, NO_CUTOFF)
    bits = _at_most(c0, c1, c2, c3, min(float32(limit + bonus), NO_CUTOFF))
    status, made = k.OK, _ZERO
    if added is not None:
        # First those within OOV words, since the best may be one of them.
        made, lowest, fits = emit_added(
            *(rows, params, words, phrases, added, scratch, state),
            *(made, lowest, beam, False, record),
        )
        status = k.OK if fits else k.GROW_CANDIDATES
    if status == k.OK and bits != _ZERO:
        classes, begins = scratch.classes, cheapest
        _store_classes(classes, c0, c1, c2, c3)
        if phrases is not None:
            width = min(float32(beam + bonus), NO_CUTOFF)
            above = float32(limit + bonus)
            _fill_live_sets(scratch, classes, bits, above, width, k.LEVELS)
            bits &= _at_most(c0, c1, c2, c3, limit)
            _price_begun(phrases, scratch)
            c0, c1, c2, c3 = _least_of_classes(scratch.begun)
            begins = least_of(least(least(c0, c1), least(c2, c3)))
            begun = scratch.begun_classes
            _store_classes(begun, c0, c1, c2, c3)
            more = _at_most(c0, c1, c2, c3, limit)
            _fill_live_sets(scratch, begun, more, limit, beam, 2 * k.LEVELS)
        elif params.has_words:
            above = float32(limit + bonus)
            _fill_live_sets(scratch, classes, bits, above, beam, k.LEVELS)
            bits &= _at_most(c0, c1, c2, c3, limit)
        _fill_live_sets(scratch, classes, bits, limit, beam, 0)
        if phrases is None:
            listed = _list_entries(
                rows, params, words, added, scratch, state, n, least_arc, beam
            )
        else:
            listed = _list_boosted(
                rows, words, phrases, added, scratch, state, n, least_arc, beam
            )
        if rows.by_token:
            status, made, lowest = _follow_by_token(
                *(rows, params, words, phrases, added, scratch, state),
                *(listed, made, lowest, beam, record),
            )
        else:
            beyond = slack + credit, bonus
            status, made, lowest = _follow_by_cost(
                *(rows, params, words, phrases, added, scratch, state),
                *(listed, made, lowest, beam, beyond, cheapest, begins, record),
            )
    if added is not None:
        if status == k.OK:
            made, lowest, fits = emit_added(
                *(rows, params, words, phrases, added, scratch, state),
                *(made, lowest, beam, True, record),
            )
            status = k.OK if fits else k.GROW_CANDIDATES
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
def _least_of_classes(costs):
    """The least cost of each class of tokens: of each token where there are few."""
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
    """Fill `classes`, float32 [64]."""
    store(classes, _ZERO, c0)
    store(classes, STEP, c1)
    store(classes, uint64(2) * STEP, c2)
    store(classes, uint64(3) * STEP, c3)


@inlined
def _fill_live_sets(scratch, classes, bits, limit, beam, first):
    """Fill `scratch.live_sets` from `first` on, of some tokens modulo 64.

    `classes`: their costs.

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
        level = float32(float32(limit - classes[v]) * per_nat)
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
def _list_entries(rows, params, words, added, scratch, state, n, least_arc, beam):
    """List entries that have a live token, and these tokens; how many there are.

    The upper half of the sets is for arcs that are paid a bonus.
    """
    sets, per_nat = scratch.live_sets, _levels_per_nat(beam)
    listed = _ZERO
    for i in range(n):
        if added is not None:
            if state.record[i] & _ADDED != _NO_FLAG:
                continue
        cost = leaving_cost(rows, state, i)
        level = _level_of(cost, state.least[i], least_arc, per_nat)
        live = state.labels[i] & sets[level]
        if params.has_words:
            if is_hot(words, row_of(rows, added, state.record[i])):
                labels = state.labels[i]
                among = labels & sets[uint64(k.LEVELS) + level] & ~live
                if rows.by_token:
                    among = _hot_tokens(words, labels, state.first[i], among)
                live |= among
        scratch.listed[listed], scratch.live[listed] = uint32(i), live
        listed += uint64((live != _ZERO) & (cost < _INF))
    return listed


@inlined
def _list_boosted(rows, words, phrases, added, scratch, state, n, least_arc, beam):
    """List entries that have a live token where boosts have states; how many."""
    sets, top, listed = scratch.live_sets, state.costs[k.CREDIT], _ZERO
    per_nat = _levels_per_nat(beam)
    paid_per_nat = _levels_per_nat(min(float32(beam + top), NO_CUTOFF))
    for i in range(n):
        if added is not None:
            if state.record[i] & _ADDED != _NO_FLAG:
                continue
        cost, boost = leaving_cost(rows, state, i), state.boost[i]
        labels, least_of_row = state.labels[i], state.least[i]
        level = _level_of(cost, least_of_row, least_arc, per_nat)
        quiet, hot = (
            boost == phrases.quiet,
            is_hot(words, row_of(rows, added, state.record[i])),
        )
        live = labels & sets[level + uint64(2 * k.LEVELS) * uint64(quiet)]
        if hot or not quiet:
            paid = float32(float32(cost - state.credit[i]) + top)
            level = _level_of(paid, least_of_row, least_arc, paid_per_nat)
            among = labels & sets[uint64(k.LEVELS) + level] & ~live
            if not quiet:
                among &= _credited_tokens(phrases, boost, hot)
            elif rows.by_token:
                among = _hot_tokens(words, labels, state.first[i], among)
            live |= among
        scratch.listed[listed], scratch.live[listed] = uint32(i), live
        listed += uint64((live != _ZERO) & (cost < _INF))
    return listed


@inlined
def _credited_tokens(phrases, boost, hot):
    """Tokens, modulo 64, by which an entry may be paid that is not quiet."""
    if phrases.of_tokens and owed_of(boost) == uint32(0) and not hot:
        return tokens_of(phrases.credited[uint64(state_of(boost))])
    return ~_ZERO


@inlined
def _level_of(cost, least_of_row, least_arc, per_nat):
    """The level of an entry: what its cheapest arc costs above the graph's."""
    level = float32(float32(cost + least_of_row) - least_arc) * per_nat
    return uint64(int32(min(max(level, float32(0)), float32(k.LEVELS - 1))))


@inlined
def _hot_tokens(words, labels, first, among):
    """Pick the tokens of a row whose arcs are hot, among some."""
    hot, tokens = hot_window(words, first), _ZERO
    if hot != _ZERO:
        while among != _ZERO:
            bit = lowest_bit(among)
            among ^= bit
            if hot >> count_bits(labels & (bit - _ONE)) & _ONE != _ZERO:
                tokens |= bit
    return tokens


@inlined
def _follow_by_token(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    listed,
    made,
    lowest,
    beam,
    record,
):
    """Candidates of the live tokens: arcs are asked for first, then followed.

    Returns:
        (OK or what must grow, candidates, the least cost).
    """
    found, room = _ZERO, uint64(len(scratch.at))
    frame = uint32(state.counts[k.FRAMES] + 1)
    for q in range(listed):
        i, live = uint64(scratch.listed[q]), scratch.live[q]
        labels, first = state.labels[i], state.first[i]
        if made + found + _CLASSES > room:
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
        cutoff = min(float32(lowest + beam), NO_CUTOFF)
        reached = _follow(
            *(rows, params, words, phrases, added, scratch, state),
            *(i, a, uint32(token), made, frame, cutoff, record),
        )
        lowest = min(lowest, reached)
        made += uint64(reached <= min(float32(lowest + beam), NO_CUTOFF))
    return k.OK, made, lowest


@inlined
def _follow_by_cost(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    listed,
    made,
    lowest,
    beam,
    above,
    cheapest,
    begins,
    record,
):
    """Candidates of rows in the order of cost; entries near the best one first.

    `above`: by how much a sum of costs may come to more than the cutoff, and by how
    much more where words are boosted. `cheapest`, `begins`: the least cost of a token,
    and the same less what beginning a phrase is paid.

    Returns:
        (OK or what must grow, candidates, the least cost).
    """
    left, room = _ZERO, uint64(len(scratch.at))
    frame = uint32(state.counts[k.FRAMES] + 1)
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
            one = rows.records[uint64(state.record[i] & _RECORDS)]
            first, last = uint64(one.first), uint64(one.first) + uint64(one.length)
            if made + uint64(one.length) > room:
                return k.GROW_CANDIDATES, _ZERO, lowest
            limit = min(float32(lowest + beam), NO_CUTOFF)
            limit = float32(float32(limit + above[0]) - source)
            if phrases is None:
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
            else:
                found = _list_arcs(
                    *(rows, params, words, phrases, added, scratch, state),
                    *(i, one, limit, cheapest, begins),
                )
            for p in range(found):
                a = uint64(scratch.at[p])
                token = uint32(rows.tokens[a])
                cutoff = min(float32(lowest + beam), NO_CUTOFF)
                reached = _follow(
                    *(rows, params, words, phrases, added, scratch, state),
                    *(i, a, token, made, frame, cutoff, record),
                )
                lowest = min(lowest, reached)
                made += uint64(reached <= min(float32(lowest + beam), NO_CUTOFF))
    return k.OK, made, lowest


@inlined
def _price_begun(phrases, scratch):
    """Fill `scratch.begun`: tokens' costs less what beginning a phrase is paid."""
    v = _ZERO
    while v < uint64(len(scratch.begun)):
        price = subtract(load(scratch.costs, v), load(phrases.begins, v))
        store(scratch.begun, v, price)
        v += STEP


@inlined
def _list_arcs(
    rows, params, words, phrases, added, scratch, state, i, one, limit, cheapest, begins
):
    """Fill `scratch.at` with a row's arcs that may survive; how many there are.

    `one`: the entry's record. `limit`: of an arc's cost and its token's, unless boosts
    pay.
    """
    boost, hot = state.boost[i], is_hot(words, uint64(one.row))
    quiet, more, found = boost == phrases.quiet, limit, _ZERO
    prices = scratch.begun if quiet else scratch.costs
    credited = ~_ZERO
    if hot or not quiet:
        more = float32(limit + state.credit[i])
        if not quiet:
            credited = _credited_tokens(phrases, boost, hot)
    most = float32(more - (begins if quiet else cheapest))
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
def _follow(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    i,
    a,
    token,
    made,
    frame,
    cutoff,
    record,
):
    """Write candidate number `made`: arc `a` of entry `i`; its cost.

    A token leads on from a blank, or from another token: whichever is the less, and of
    equal ones the lower state. Sums round, so both are added up. The cost is infinite
    where all that boosts may pay would leave it over the cutoff.
    """
    arc, own = rows.arcs[a], state.record[i]
    graph_cost = float32(params.lm_scale * arc.cost)
    after_blank = float32(state.blank[i] + graph_cost)
    after_token = float32(state.token[i] + graph_cost)
    if params.has_insertion:
        if arc.next & _WORD:
            after_blank = float32(after_blank + params.word_insertion)
            after_token = float32(after_token + params.word_insertion)
    if phrases is None:
        if params.has_words:
            if arc.next & _WORD:
                bonus = bonus_at(rows, words, a, rows.arc[a])
                after_blank = float32(after_blank - bonus)
                after_token = float32(after_token - bonus)
    else:
        boost, label = state.boost[i], token + _TOKENS
        has_word = arc.next & _WORD != _NO_FLAG
        if may_step(words, phrases, boost, label, a, has_word):
            most = state.credit[i]
            if boost == phrases.quiet and not has_word:
                most = phrases.begins[uint64(token)]
            bound = float32(min(after_blank, after_token) - most)
            if float32(bound + scratch.costs[uint64(token)]) > cutoff:
                return _INF
            paid, boost = step(
                *(rows, params, words, phrases, boost),
                *(label, a, rows.arc[a], has_word),
            )
            after_blank = float32(after_blank - paid)
            after_token = float32(after_token - paid)
        scratch.goals[made] = boost
    after_blank = float32(after_blank + scratch.costs[uint64(token)])
    after_token = float32(after_token + scratch.costs[uint64(token)])
    tied = after_token == after_blank and own & _TOKEN_FIRST != _NO_FLAG
    from_token = token != state.again[i] and (after_token < after_blank or tied)
    from_token = from_token and not rows.through_epsilon
    if record is not None:
        other = _INF
        if from_token:
            other = after_blank
        elif token != state.again[i] and not rows.through_epsilon:
            other = after_token
        record.others[made] = other
    candidate, to = scratch.candidates[made], arc.next & ~_WORD
    candidate.cost = after_token if from_token else after_blank
    candidate.record, candidate.arc = to, uint32(a)
    candidate.before = state.token_node[i] if from_token else state.blank_node[i]
    candidate.ended = frame if from_token else state.ended[i]
    candidate.source = uint32(i) | (_FROM_TOKEN if from_token else _NO_FLAG)
    prefetch(scratch.slots, uint64(to & _RECORDS))
    prefetch(rows.records, uint64(to & _RECORDS))
    return candidate.cost
