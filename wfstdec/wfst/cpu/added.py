"""Words that the graph does not have: the frame's steps on the arcs of an overlay.

    emit_added         candidates: arcs of the overlay's states, and out of calls
    recombine_added    those that lead back into the graph, to `work.next`; those that
                       stay in the overlay, to `added.next`
    close_added        its epsilon arcs, which lead to states without any; its entries
                       behind those of the graph

The last two are in `added_entries.py`. The loops over the graph's own states and arcs
know nothing of it: a frontier has the graph's entries first, `counts[GRAPH]` of them.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.graph.arcs import LEADS_TO_EPSILON
from wfstdec.jit import inlined, part
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.added_records import CALL_BITS
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    flagged_arc,
    max_insertion_credit,
    step_credited,
    top_bonus,
)
from wfstdec.wfst.cpu.recombination import (
    find_alone,
)

_CALL_MASK = uint64(CALL_BITS - 1)
_FEW_CALLS = 16
"""So many states with calls are looked up rather than looked for."""
_LEADS = uint32(LEADS_TO_EPSILON)
_MOST = float32(NO_CUTOFF)
_LOW, _WORD_OF_BITS = uint64(63), uint64(6)
_NONE = uint64(k.NONE)
_NO_LABEL = uint32(0)
_ONE = uint64(1)
_ZERO = uint64(0)


@part
def least_from_best_added(graph, scales, words, phrases, added, work, channel):
    """The least cost of the best entry's arcs, infinite if it is of the graph."""
    best, least = uint64(channel.counts[k.BEST]), float32(np.inf)
    if best >= uint64(channel.counts[k.GRAPH]):
        state = uint64(channel.frontier[best].state - added.first_state)
        for a in range(uint64(added.emit[state]), uint64(added.begin[state + _ONE])):
            cost, _ = _follow(
                graph, scales, words, phrases, added, work, channel, best, a
            )
            least = min(least, cost)
    return least


@part
def emit_added(graph, scales, words, phrases, added, work, channel, beam, least):
    """Write the arcs that may survive to `added.made`.

    Args:
        graph: The graph; this and what follows as everywhere.
        scales: Options.
        words: Boosted words.
        phrases: Phrases, or None.
        added: The overlay.
        work: Scratch.
        channel: Of the utterance.
        beam: Of the frame; infinite for all that are possible.
        least: Of the candidates so far.

    Returns:
        (candidates, least cost), the first NONE if they do not fit.
    """
    frontier, of_graph = channel.frontier, uint64(channel.counts[k.GRAPH])
    made = _ZERO
    for i in range(of_graph, uint64(channel.counts[k.FRONTIER])):
        state = uint64(frontier[i].state - added.first_state)
        row = uint64(added.emit[state]), uint64(added.begin[state + _ONE])
        made, least = _follow_row(
            *(graph, scales, words, phrases, added, work, channel),
            *(i, row, beam, made, least),
        )
        if made == _NONE:
            return made, least
    if phrases is None:
        few = len(added.call_state) <= _FEW_CALLS and beam < np.inf
        if few and channel.counts[k.MOVED] == 0:
            for call in range(uint64(len(added.call_state))):
                state = uint64(added.call_state[call])
                i = find_alone(work, of_graph, state)
                if i == of_graph:
                    continue
                row = call * added.num_entering, (call + _ONE) * added.num_entering
                made, least = _follow_row(
                    *(graph, scales, words, phrases, added, work, channel),
                    *(i, row, beam, made, least),
                )
                if made == _NONE:
                    return made, least
            return made, least
    for i in range(of_graph):
        state = frontier[i].state
        bit = uint64(state) & _CALL_MASK
        if added.call_bits[bit >> _WORD_OF_BITS] >> (bit & _LOW) & _ONE == _ZERO:
            continue
        call = _call_of(added, state)
        if call == _NONE:
            continue
        row = call * added.num_entering, (call + _ONE) * added.num_entering
        made, least = _follow_row(
            *(graph, scales, words, phrases, added, work, channel),
            *(i, row, beam, made, least),
        )
        if made == _NONE:
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
    return _NONE


@inlined
def _follow_row(
    graph, scales, words, phrases, added, work, channel, i, row, beam, made, least
):
    """Candidates of arcs out of entry `i`; (made or NONE, least) behind them."""
    first, last = row
    if made + (last - first) > uint64(len(added.made)):
        return _NONE, least
    limit = _limit(scales, words, phrases, added, channel, i, least, beam)
    for a in range(first, last):
        if not work.token_costs[added.arcs[a].ilabel & LABEL] <= limit:
            continue
        cost, boost = _follow(graph, scales, words, phrases, added, work, channel, i, a)
        if not cost <= min(float32(least + beam), NO_CUTOFF):
            continue
        least = min(least, cost)
        _write(phrases, added, channel, made, i, a, cost, boost)
        made += _ONE
    return made, least


@inlined
def _limit(scales, words, phrases, added, channel, i, least, beam):
    """More than a token of an arc from entry `i` can cost where the arc survives.

    Conservative, as `live_labels._limit` is.
    """
    cutoff, cost = min(float32(least + beam), NO_CUTOFF), channel.frontier[i].cost
    if phrases is None:
        credit = top_bonus(scales, words)
    else:
        credit = channel.boosts[i].credit
    credit = float32(credit + added.top_bonus) + max_insertion_credit(scales)
    arc = float32(scales.lm_scale * added.least_cost)
    slack = float32(abs(cutoff) + cost) + float32(credit - arc)
    slack = float32(1e-3) + float32(4e-6) * slack
    return min(float32(float32(cutoff - cost) + float32(credit - arc)) + slack, _MOST)


@inlined
def _follow(graph, scales, words, phrases, added, work, channel, i, a):
    """What arc `a` of the overlay reaches from entry `i`; see `arc_costs.follow`."""
    arc, source = added.arcs[a], _NO_LABEL
    cost = add_graph_and_insertion(scales, channel.frontier[i].cost, arc)
    if phrases is not None:
        source = channel.boosts[i].boost
    paid, boost = _pay(graph, scales, words, phrases, added, a, source)
    cost = float32(cost - paid)
    cost = float32(cost + work.token_costs[arc.ilabel & LABEL])
    if not arc.cost < np.inf:
        cost = float32(np.inf)  # no arc, whatever the scale
    return cost, boost


@inlined
def _pay(graph, scales, words, phrases, added, a, source):
    """What boosts pay on arc `a` of the overlay, and the next boost state."""
    arc = added.arcs[a]
    if phrases is None:
        paid, boost = float32(bonus_of(scales, words, arc) + added.bonus[a]), _NO_LABEL
    else:
        paid, boost = step_credited(
            graph, scales, words, phrases, arc, source, added.bonus[a]
        )
    return paid, boost


@inlined
def paid_added(graph, scales, words, phrases, added, a, source):
    """What boosts pay on arc `a` of the overlay."""
    paid, _ = _pay(graph, scales, words, phrases, added, a, source)
    return paid


@inlined
def _write(phrases, added, channel, made, i, a, cost, boost):
    """Write candidate number `made`: arc `a` of the overlay from entry `i`."""
    one, arc = added.made[made], added.arcs[a]
    one.cost, one.state, one.node = cost, arc.nextstate, channel.frontier[i].node
    ilabel = arc.ilabel
    if arc.nextstate >= added.first_state:
        ilabel &= ~_LEADS
    one.arc = flagged_arc(uint32(a) + added.first_arc, ilabel)
    one.boost, one.source_boost = boost, _NO_LABEL
    if phrases is not None:
        one.source_boost = channel.boosts[i].boost
