"""Closing a frontier: epsilon arcs, in rank order.

count, fits = close(graph, scales, words, phrases, work, record, count, waiting, cutoff)
"""

from __future__ import annotations

from numpy import float32, uint32, uint64

from wfstdec.boost.listed import is_hot
from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.arc_costs import (
    add_boosts_and_acoustic,
    add_graph_and_insertion,
    bonus_of,
    flagged_arc,
    max_insertion_credit,
    most_credited,
    top_bonus,
)
from wfstdec.wfst.cpu.noting import note, note_displaced
from wfstdec.wfst.cpu.recombination import (
    contents_of,
    find,
    find_quiet,
    improve,
    improve_quiet,
    insert,
    insert_quiet,
)

_NONE = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_HAS_EPSILONS = uint32(k.HAS_EPSILONS)
_AHEAD = uint64(8)
_ONE = uint64(1)
_ZERO = uint64(0)


@kernel
def close(graph, scales, words, phrases, work, record, count, waiting, cutoff):
    """Relax epsilon arcs in rank order; (entries, whether they fit).

    `record`: notes these arcs for a lattice; None where nobody asks for one.

    Sources are final when their rank comes, since every epsilon arc leads to a higher
    rank. Most are of rank 0: their arcs become candidates first, so that cache misses
    overlap. Entries keep the position of their source, so that a source that improved
    meanwhile needs no correction: trace nodes are made later.
    """
    entries = work.next
    for rank in range(graph.num_ranks):
        work.rank_heads[rank] = _NONE
    made, side = _ZERO, _ZERO
    for w in range(waiting):
        if w + _AHEAD < waiting:
            ahead = uint64(entries[uint64(work.waiting[w + _AHEAD])].state)
            prefetch(graph.arcs, uint64(graph.rows[ahead].begin))
        i = uint64(work.waiting[w])
        rank = graph.rows[uint64(entries[i].state)].rank
        if rank > uint32(0):
            _queue(work, i, uint64(rank))
            continue
        made, side, fits = relax(
            graph, scales, words, phrases, work, made, side, cutoff, i
        )
        if not fits:
            return count, False
    count, fits = _reach(graph, phrases, work, record, count, made, side)
    if not fits:
        return count, False
    for rank in range(_ONE, graph.num_ranks):
        i = uint64(work.rank_heads[rank])
        while i != uint64(_NONE):
            made, side, fits = relax(
                graph, scales, words, phrases, work, _ZERO, _ZERO, cutoff, i
            )
            if fits:
                count, fits = _reach(graph, phrases, work, record, count, made, side)
            if not fits:
                return count, False
            i = uint64(work.links[i])
    return count, True


@inlined
def _queue(work, i, rank):
    """Put entry `i` into the list of its rank."""
    work.links[i] = work.rank_heads[rank]
    work.rank_heads[rank] = uint32(i)


@inlined
def relax(graph, scales, words, phrases, work, made, side, cutoff, i):
    """Make candidates of the epsilon arcs of entry `i`.

    An entry whose cheapest arc ends over the cutoff is passed by (exact: float
    addition is monotone).

    Returns:
        (candidates, side candidates, whether they fit).
    """
    entry, candidates = work.next[i], work.candidates
    row = graph.rows[uint64(entry.state)]
    credit = _epsilon_credit(scales, words, phrases, work, i)
    least = float32(entry.cost + float32(scales.lm_scale * row.least_epsilon))
    least = float32(float32(least - max_insertion_credit(scales)) - credit)
    if least > cutoff:
        return made, side, True
    first, last = uint64(row.begin), uint64(row.emit)
    if max(made, side) + (last - first) > uint64(len(candidates)):
        return made, side, False
    for a in range(first, last):
        arc = graph.arcs[a]
        reached = add_graph_and_insertion(scales, entry.cost, arc)
        if phrases is None:
            reached = float32(reached - bonus_of(scales, words, arc))
        else:
            source = work.next_boosts[i].boost
            reached, boost = add_boosts_and_acoustic(
                *(graph, scales, words, phrases, arc, source, credit, reached),
                float32(0),
                cutoff,
            )
            if boost != phrases.quiet or source != phrases.quiet:
                candidate = work.side[side]
                candidate.cost, candidate.state = reached, arc.nextstate
                candidate.node = uint32(i)
                candidate.arc = flagged_arc(a, arc.ilabel) | _EPSILON_ARC
                candidate.boost, candidate.source_boost = boost, source
                side += uint64(reached <= cutoff)
                continue
        candidates[made].cost = reached
        candidates[made].state = arc.nextstate
        prefetch(work.slots, uint64(arc.nextstate))
        candidates[made].node = uint32(i)
        candidates[made].arc = flagged_arc(a, arc.ilabel) | _EPSILON_ARC
        made += uint64(reached <= cutoff)
    return made, side, True


@inlined
def _epsilon_credit(scales, words, phrases, work, i):
    """No less than boosts pay on the epsilon arcs of entry `i`."""
    if phrases is None:
        credit = top_bonus(scales, words)
        if scales.has_words:
            if not is_hot(words, work.next[i].state):
                credit = float32(0)
    else:
        boost = work.next_boosts[i].boost
        credit = most_credited(scales, words, phrases, boost)
        if boost == phrases.quiet:
            if not is_hot(words, work.next[i].state):
                credit = float32(0)
    return credit


@inlined
def _reach(graph, phrases, work, record, count, made, side):
    """Make or improve the entries that epsilon arcs lead to; (entries, fits)."""
    room = uint64(len(work.next))
    for q in range(made):
        candidate = work.candidates[q]
        i = find_quiet(phrases, work, count, candidate.state)
        if record is not None:
            note(record, candidate.node, candidate.arc, candidate.cost, uint32(i))
        if i < count:
            before = contents_of(work, i)
            improve_quiet(phrases, work, i, candidate, False)
            if record is not None:
                note_displaced(record, contents_of(work, i), before, uint32(i))
            continue
        if count == room:
            return count, False
        insert_quiet(phrases, work, count, candidate)
        if candidate.arc & _HAS_EPSILONS:
            _queue(work, count, uint64(graph.rows[uint64(candidate.state)].rank))
        count += _ONE
    if phrases is not None:
        for q in range(side):
            candidate = work.side[q]
            i = find(work, count, candidate.state, candidate.boost)
            if record is not None:
                note(record, candidate.node, candidate.arc, candidate.cost, uint32(i))
            if i < count:
                before = contents_of(work, i)
                improve(work, i, candidate)
                if record is not None:
                    note_displaced(record, contents_of(work, i), before, uint32(i))
                continue
            if count == room:
                return count, False
            insert(phrases, work, count, candidate)
            if candidate.arc & _HAS_EPSILONS:
                _queue(work, count, uint64(graph.rows[uint64(candidate.state)].rank))
            count += _ONE
    return count, True
