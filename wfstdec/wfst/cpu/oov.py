"""OOV words in a frame: the arcs of an utterance's overlay, beside those of the graph.

    emit_added         candidates: arcs of the overlay's states, and out of its exits
    recombine_added    those that lead back into the graph, to `next`; those that stay
                       in the overlay, to `added.next`
    close_added        its epsilon arcs, which lead to states without any
    append_added       its entries, behind those of the graph

The loops over the graph's own states and arcs know nothing of it: a frontier has the
graph's entries first, `counts[GRAPH]` of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.graph.arcs import LEADS_TO_EPSILON
from wfstdec.graph.overlay import Overlay
from wfstdec.jit import inlined, part, read_only
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    flagged_arc,
    max_insertion_credit,
    step_credited,
    top_bonus,
)
from wfstdec.wfst.cpu.arrays import SIDE_ENTRY
from wfstdec.wfst.cpu.lattice_notes import OF_OVERLAY, note, note_displaced, note_loser
from wfstdec.wfst.cpu.recombination import (
    contents_of,
    find,
    find_alone,
    improve,
    insert,
)

CALL_BITS = 1 << 12
"""A set of so many bits tells most states without calls from those with some."""
FIRST_ENTRIES = 512
_CALL_MASK = uint64(CALL_BITS - 1)
_LEADS = uint32(LEADS_TO_EPSILON)
_MOST = float32(NO_CUTOFF)
_LOW, _WORD_OF_BITS = uint64(63), uint64(6)
_NO_ENTRY = uint64(k.NONE)
_NO_LABEL = uint32(0)
_ONE = uint64(1)
_ZERO = uint64(0)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_HAS_EPSILONS = uint32(k.HAS_EPSILONS)


class AddedArrays(NamedTuple):
    """An overlay, read only, and scratch of one utterance.

    The scratch means nothing between frames; `next` has the entries of the overlay's
    states in the frontier that is made.
    """

    first_state: np.uint32  # S: states from here on are the overlay's
    first_arc: np.uint32  # A: so are arcs
    num_entering: np.uint64
    arcs: np.ndarray  # ARC [A']
    bonus: np.ndarray  # float32 [A']
    begin: np.ndarray  # uint32 [S' + 1]: the first arc of each state
    emit: np.ndarray  # uint32 [S']: the first emitting one
    top_bonus: np.float32  # the largest, at least 0
    least_cost: np.float32  # of an arc, at most 0
    call_state: np.ndarray  # int32 [C]
    call_bits: np.ndarray  # uint64 [CALL_BITS / 64], by the low bits of states
    made: np.ndarray  # SIDE_ENTRY [M]: candidates
    next: np.ndarray  # SIDE_ENTRY [F]
    chain: np.ndarray  # uint32 [F]: the entry before of the same state
    slots: np.ndarray  # uint32 [S']: where the last entry of a state is, if there


def added_arrays(overlay: Overlay) -> AddedArrays:
    """An overlay laid out for searches; `with_scratch` makes it ready for one."""
    # A filter: most states have no exit, and one bit tells so without a search.
    at = overlay.call_state.astype(np.uint64) % CALL_BITS
    bits = np.zeros(CALL_BITS // 64, np.uint64)
    np.bitwise_or.at(bits, (at // 64).astype(np.int64), np.uint64(1) << (at % 64))
    begin = overlay.state_arc_splits
    nothing = np.zeros(0, np.uint32)
    return AddedArrays(
        first_state=np.uint32(overlay.first_state),
        first_arc=np.uint32(overlay.first_arc),
        num_entering=np.uint64(overlay.num_entering),
        arcs=overlay.arcs,
        bonus=overlay.bonus,
        begin=begin,
        emit=read_only(begin[:-1] + overlay.state_num_epsilons),
        top_bonus=overlay.top_bonus,
        least_cost=np.float32(min(0.0, overlay.arcs["cost"].min(initial=0.0))),
        call_state=read_only(overlay.call_state),
        call_bits=read_only(bits),
        made=np.empty(0, SIDE_ENTRY),
        next=np.empty(0, SIDE_ENTRY),
        chain=nothing,
        slots=nothing,
    )


def with_scratch(arrays: AddedArrays, entries: int = FIRST_ENTRIES) -> AddedArrays:
    """Give the arrays scratch for so many entries, four times as many candidates."""
    return arrays._replace(
        made=np.empty(4 * entries + int(arrays.num_entering), SIDE_ENTRY),
        next=np.empty(entries, SIDE_ENTRY),
        chain=np.empty(entries, np.uint32),
        slots=np.zeros(len(arrays.emit), np.uint32),
    )


@part
def least_from_best_added(graph, params, words, phrases, added, scratch, utterance):
    """The least cost of the best entry's arcs, infinite if it is of the graph."""
    best, least = uint64(utterance.counts[k.BEST]), float32(np.inf)
    if best >= uint64(utterance.counts[k.GRAPH]):
        state = uint64(utterance.frontier[best].state - added.first_state)
        for a in range(uint64(added.emit[state]), uint64(added.begin[state + _ONE])):
            cost, _ = _follow(
                graph, params, words, phrases, added, scratch, utterance, best, a
            )
            least = min(least, cost)
    return least


@part
def emit_added(graph, params, words, phrases, added, scratch, utterance, beam, least):
    """Write the arcs that may survive to `added.made`.

    Args:
        graph: The graph; this and what follows as everywhere.
        params: Options.
        words: Boosted words.
        phrases: Phrases, or None.
        added: The overlay.
        scratch: Scratch.
        utterance: Its state.
        beam: Of the frame; infinite for all that are possible.
        least: Of the candidates so far.

    Returns:
        (candidates, least cost), the first NONE if they do not fit.
    """
    frontier, of_graph = utterance.frontier, uint64(utterance.counts[k.GRAPH])
    made = _ZERO
    for i in range(of_graph, uint64(utterance.counts[k.FRONTIER])):
        state = uint64(frontier[i].state - added.first_state)
        row = uint64(added.emit[state]), uint64(added.begin[state + _ONE])
        made, least = _follow_row(
            *(graph, params, words, phrases, added, scratch, utterance),
            *(i, row, beam, made, least),
        )
        if made == _NO_ENTRY:
            return made, least
    for i in range(of_graph):
        state = frontier[i].state
        bit = uint64(state) & _CALL_MASK
        if added.call_bits[bit >> _WORD_OF_BITS] >> (bit & _LOW) & _ONE == _ZERO:
            continue
        call = _call_of(added, state)
        if call == _NO_ENTRY:
            continue
        row = call * added.num_entering, (call + _ONE) * added.num_entering
        made, least = _follow_row(
            *(graph, params, words, phrases, added, scratch, utterance),
            *(i, row, beam, made, least),
        )
        if made == _NO_ENTRY:
            return made, least
    return made, least


@inlined
def _call_of(added, state):
    """The position of a state among those with calls, NONE where it has none."""
    begin, end = _ZERO, uint64(len(added.call_state))
    while begin < end:
        middle = (begin + end) >> _ONE
        if uint32(added.call_state[middle]) < state:
            begin = middle + _ONE
        else:
            end = middle
    if begin < uint64(len(added.call_state)):
        if uint32(added.call_state[begin]) == state:
            return begin
    return _NO_ENTRY


@inlined
def _follow_row(
    graph, params, words, phrases, added, scratch, utterance, i, row, beam, made, least
):
    """Candidates of arcs out of entry `i`; (made or NONE, least) behind them."""
    first, last = row
    if made + (last - first) > uint64(len(added.made)):
        return _NO_ENTRY, least
    limit = _limit(params, words, phrases, added, utterance, i, least, beam)
    for a in range(first, last):
        # The token alone is over what is left: no cost is added up.
        if not scratch.token_costs[added.arcs[a].ilabel & LABEL] <= limit:
            continue
        cost, boost = _follow(
            graph, params, words, phrases, added, scratch, utterance, i, a
        )
        if not cost <= min(float32(least + beam), NO_CUTOFF):
            continue
        least = min(least, cost)
        _write(phrases, added, utterance, made, i, a, cost, boost)
        made += _ONE
    return made, least


@inlined
def _limit(params, words, phrases, added, utterance, i, least, beam):
    """More than a token of an arc from entry `i` can cost where the arc survives.

    Conservative, as `live_labels._limit` is.
    """
    cutoff, cost = min(float32(least + beam), NO_CUTOFF), utterance.frontier[i].cost
    if phrases is None:
        credit = top_bonus(params, words)
    else:
        credit = utterance.boosts[i].credit
    credit = float32(credit + added.top_bonus) + max_insertion_credit(params)
    arc = float32(params.lm_scale * added.least_cost)
    slack = float32(abs(cutoff) + cost) + float32(credit - arc)
    slack = float32(1e-3) + float32(4e-6) * slack
    return min(float32(float32(cutoff - cost) + float32(credit - arc)) + slack, _MOST)


@inlined
def _follow(graph, params, words, phrases, added, scratch, utterance, i, a):
    """Follow arc `a` of the overlay from entry `i`; see `arc_costs.follow`."""
    arc, source = added.arcs[a], _NO_LABEL
    cost = add_graph_and_insertion(params, utterance.frontier[i].cost, arc)
    if phrases is not None:
        source = utterance.boosts[i].boost
    paid, boost = _pay(graph, params, words, phrases, added, a, source)
    cost = float32(cost - paid)
    cost = float32(cost + scratch.token_costs[arc.ilabel & LABEL])
    if not arc.cost < np.inf:
        cost = float32(np.inf)  # no arc, whatever the scale
    return cost, boost


@inlined
def _pay(graph, params, words, phrases, added, a, source):
    """Step the boosts on arc `a` of the overlay: pay, and next state."""
    arc = added.arcs[a]
    if phrases is None:
        paid, boost = float32(bonus_of(params, words, arc) + added.bonus[a]), _NO_LABEL
    else:
        paid, boost = step_credited(
            graph, params, words, phrases, arc, source, added.bonus[a]
        )
    return paid, boost


@inlined
def paid_added(graph, params, words, phrases, added, a, source):
    """Pay boosts on arc `a` of the overlay."""
    paid, _ = _pay(graph, params, words, phrases, added, a, source)
    return paid


@inlined
def _write(phrases, added, utterance, made, i, a, cost, boost):
    """Write candidate number `made`: arc `a` of the overlay from entry `i`."""
    one, arc = added.made[made], added.arcs[a]
    one.cost, one.state, one.node = cost, arc.nextstate, utterance.frontier[i].node
    ilabel = arc.ilabel
    if arc.nextstate >= added.first_state:
        ilabel &= ~_LEADS
    one.arc = flagged_arc(uint32(a) + added.first_arc, ilabel)
    one.boost, one.source_boost = boost, _NO_LABEL
    if phrases is not None:
        one.source_boost = utterance.boosts[i].boost


@part
def recombine_added(phrases, added, scratch, record, made, cutoff, count, waiting):
    """Candidates to entries, in `scratch.next` of the graph, in `added.next` of others.

    `record`: notes the others for a lattice, or None.

    Returns:
        (entries of the graph, those with epsilon arcs, entries of the overlay, OK or
        what must grow).
    """
    more, room = _ZERO, uint64(len(scratch.next))
    for q in range(made):
        candidate = added.made[q]
        if candidate.cost > cutoff:
            continue
        if candidate.state >= added.first_state:
            more, fits = _put(added, record, more, candidate)
            if not fits:
                return count, waiting, more, k.GROW_ADDED
            continue
        if phrases is None:
            i = find_alone(scratch, count, candidate.state)
        else:
            i = find(scratch, count, candidate.state, candidate.boost)
        if i < count:
            before = contents_of(scratch, i)
            if phrases is None:
                _improve_alone(scratch.next[i], candidate)
            else:
                improve(scratch, i, candidate)
            if record is not None:
                came = candidate.cost, candidate.node, candidate.arc
                note_loser(record, contents_of(scratch, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, more, k.GROW_SCRATCH
        scratch.waiting[waiting] = uint32(count)
        waiting += uint64(candidate.arc & _HAS_EPSILONS)
        if phrases is None:
            scratch.slots[candidate.state] = uint32(count)
            entry = scratch.next[count]
            entry.cost, entry.state = candidate.cost, candidate.state
            entry.node, entry.arc = candidate.node, candidate.arc
        else:
            insert(phrases, scratch, count, candidate)
        count += _ONE
    return count, waiting, more, k.OK


@inlined
def _improve_alone(entry, candidate):
    """Replace an entry by a candidate if that is the less (cost, arc)."""
    cost, arc, old = candidate.cost, candidate.arc, entry.cost
    if cost < old or (cost == old and arc < entry.arc):
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc


@part
def close_added(phrases, added, scratch, record, count, more):
    """Relax the overlay's epsilon arcs, which cost nothing, and append its entries.

    Args:
        phrases: Phrases, or None.
        added: The overlay; `next` has its entries.
        scratch: Scratch; `next` has those of the graph.
        record: Notes these arcs for a lattice, or None.
        count: How many those are.
        more: How many of the overlay.

    Returns:
        (entries of the overlay, OK or what must grow).
    """
    for i in range(more):
        # Entries grow while this runs: epsilon arcs of the overlay lead to states
        # without any, so one pass is enough.
        entry = added.next[i]
        state = uint64(entry.state - added.first_state)
        a = added.begin[state]
        if a == added.emit[state]:
            continue
        made = added.made[0]
        made.cost, made.state, made.node = entry.cost, added.arcs[a].nextstate, i
        made.arc = ((a + added.first_arc) << uint32(1)) | _EPSILON_ARC
        made.boost, made.source_boost = entry.boost, entry.boost
        more, fits = _put(added, record, more, made)
        if not fits:
            return more, k.GROW_ADDED
    if append_added(phrases, added, scratch, count, more):
        return more, k.OK
    return more, k.GROW_SCRATCH


@inlined
def _put(added, record, count, candidate):
    """Make a candidate an entry, or improve the one that is there; (entries, fits)."""
    i, last = _find(added, count, candidate.state, candidate.boost)
    is_epsilon = candidate.arc & _EPSILON_ARC != uint32(0)
    if record is not None:
        if is_epsilon:
            to = uint32(min(i, count)) | OF_OVERLAY
            node = candidate.node | OF_OVERLAY
            note(record, node, candidate.arc, candidate.cost, to)
    if i == _NO_ENTRY:
        if count == uint64(len(added.next)):
            return count, False
        added.next[count] = candidate
        added.chain[count] = uint32(last)
        added.slots[candidate.state - added.first_state] = uint32(count)
        return count + _ONE, True
    entry = added.next[i]
    before = entry.cost, entry.node, entry.arc
    better = candidate.cost < entry.cost
    # Ties by arc, then by the source's boost state: as the reference, whatever the
    # order of visits.
    if candidate.cost == entry.cost:
        better = candidate.arc < entry.arc
        if candidate.arc == entry.arc:
            better = candidate.source_boost < entry.source_boost
    if better:
        added.next[i] = candidate
    if record is not None:
        now = entry.cost, entry.node, entry.arc
        if is_epsilon:
            note_displaced(record, now, before, uint32(i) | OF_OVERLAY)
        else:
            came = candidate.cost, candidate.node, candidate.arc
            note_loser(record, now, before, came, uint32(i) | OF_OVERLAY)
    return count, True


@inlined
def _find(added, count, state, boost):
    """Where a search state of the overlay stands, and the last entry of its state."""
    last = uint64(added.slots[state - added.first_state])
    if last >= count or added.next[last].state != state:
        last = _NO_ENTRY
    i = last
    while i != _NO_ENTRY and added.next[i].boost != boost:
        i = uint64(added.chain[i])
    return i, last


@part
def append_added(phrases, added, scratch, count, more):
    """The entries of the overlay behind `count` of the graph; whether they fit."""
    if count + more > uint64(len(scratch.next)):
        return False
    for i in range(more):
        one, entry = added.next[i], scratch.next[count + i]
        entry.cost, entry.state, entry.arc = one.cost, one.state, one.arc
        entry.node = one.node
        if one.arc & _EPSILON_ARC:
            entry.node += uint32(count)
        if phrases is not None:
            boosts = scratch.next_boosts[count + i]
            boosts.boost, boosts.source_boost = one.boost, one.source_boost
    return True


@inlined
def label_at(graph, added, arc):
    """The input label of an arc of the graph or the overlay."""
    if added is not None:
        if arc >= added.first_arc:
            return added.arcs[arc - added.first_arc].ilabel & LABEL
    return graph.arcs[arc].ilabel & LABEL
