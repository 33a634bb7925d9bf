"""Recombination: the entries of a frontier being made, one per search state.

`slots` has a place for each graph state, and needs no clearing: an entry of that place
tells whether it is of this frame. That is all there is where boosts have no states, and
most of what there is where they have: the first boost state at a graph state stands
there. Others stand in a hash table with chains, whose slots carry the stamp of the
frame that they are of; it is no larger than the frame asks for. Candidates that are not
between quiet entries are apart from the start, so that quiet ones, which come first, go
the way of a search without boosts.

Closing a frontier relaxes its epsilon arcs in rank order:

    count, fits = close(graph, params, words, phrases, scratch, record, count, waiting,
                        cutoff)
"""

from __future__ import annotations

from numpy import float32, uint32, uint64

from wfstdec.boost.kernels import state_of
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.arc_costs import (
    add_boosts_and_acoustic,
    add_graph_and_insertion,
    bonus_of,
    flagged_arc,
    most_credited,
)
from wfstdec.wfst.cpu.lattice_notes import note, note_displaced, note_loser

MIN_SLOTS = 256
"""The hash table has no fewer."""
_HAS_EPSILONS = uint32(k.HAS_EPSILONS)
_NO_ENTRY = uint64(k.NONE)
_HALF = uint64(32)
_ONE = uint64(1)
_ZERO = uint64(0)
_NO_NEXT = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_AHEAD = uint64(8)


@part
def recombine(graph, phrases, scratch, record, made, side, cutoff):
    """Candidates to entries, one per search state: the least (cost, arc, source).

    `record`: notes the others for a lattice; None where nobody asks for one.

    Returns:
        (entries, how many have epsilon arcs: their positions are in `scratch.waiting`,
        whether they fit into `scratch.next`).
    """
    candidates = scratch.candidates
    count, waiting = _ZERO, _ZERO
    room = uint64(len(scratch.next))
    for q in range(made):
        if candidates[q].cost > cutoff:
            continue
        i = find_alone(scratch, count, candidates[q].state)
        if i < count:
            before = contents_of(scratch, i)
            improve_quiet(phrases, scratch, i, candidates[q], True)
            if record is not None:
                came = candidates[q].cost, candidates[q].node, candidates[q].arc
                note_loser(record, contents_of(scratch, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, False
        prefetch(graph.rows, uint64(candidates[q].state))
        scratch.waiting[waiting] = uint32(count)
        # Written always, counted where the flag is set: no branch.
        waiting += uint64(candidates[q].arc & _HAS_EPSILONS)
        insert_alone(phrases, scratch, count, candidates[q])
        count += _ONE
    if phrases is not None:
        start_table(phrases, scratch, side + uint64(MIN_SLOTS))
        return _recombine_side(
            graph, phrases, scratch, record, side, cutoff, count, waiting
        )
    return count, waiting, True


@inlined
def _recombine_side(graph, phrases, scratch, record, side, cutoff, count, waiting):
    """Recombine the side candidates with the frontier."""
    room = uint64(len(scratch.next))
    for q in range(side):
        candidate = scratch.side[q]
        if candidate.cost > cutoff:
            continue
        i = find(scratch, count, candidate.state, candidate.boost)
        if i < count:
            before = contents_of(scratch, i)
            improve(scratch, i, candidate)
            if record is not None:
                came = candidate.cost, candidate.node, candidate.arc
                note_loser(record, contents_of(scratch, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, False
        prefetch(graph.rows, uint64(candidate.state))
        scratch.waiting[waiting] = uint32(count)
        waiting += uint64(candidate.arc & _HAS_EPSILONS)
        insert(phrases, scratch, count, candidate)
        count += _ONE
    return count, waiting, True


@inlined
def find_alone(scratch, count, state):
    """Position of a graph state, its only entry, in `scratch.next`, or `count`."""
    i = uint64(scratch.slots[state])
    return i if i < count and scratch.next[i].state == state else count


@inlined
def find_quiet(phrases, scratch, count, state):
    """Position of a quiet search state in `scratch.next`, or `count`."""
    if phrases is None:
        i = find_alone(scratch, count, state)
    else:
        i = find(scratch, count, state, phrases.quiet)
    return i


@inlined
def contents_of(scratch, i):
    """(cost, node, arc) of entry `i`, as it is now."""
    entry = scratch.next[i]
    return entry.cost, entry.node, entry.arc


@inlined
def improve_quiet(phrases, scratch, i, candidate, alone):
    """Replace entry `i` by a candidate of a quiet source, if that is the less."""
    entry = scratch.next[i]
    cost, arc, old, old_arc = candidate.cost, candidate.arc, entry.cost, entry.arc
    better = cost < old or (cost == old and arc < old_arc)
    if phrases is not None and not alone:
        if cost == old and arc == old_arc:
            better = scratch.next_boosts[i].source_boost > phrases.quiet
    if better:
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc
        if phrases is not None and not alone:
            scratch.next_boosts[i].source_boost = phrases.quiet


@inlined
def insert_alone(phrases, scratch, count, candidate):
    """Make the candidate of a quiet source entry number `count`, the first there."""
    scratch.slots[candidate.state] = uint32(count)
    scratch.next[count] = candidate
    if phrases is not None:
        boosts = scratch.next_boosts[count]
        boosts.boost, boosts.source_boost = phrases.quiet, phrases.quiet


@inlined
def insert_quiet(phrases, scratch, count, candidate):
    """Make the candidate of a quiet source entry number `count`, quiet as well."""
    if phrases is None:
        insert_alone(phrases, scratch, count, candidate)
    else:
        _place(scratch, count, candidate.state, phrases.quiet)
        scratch.next[count] = candidate
        boosts = scratch.next_boosts[count]
        boosts.boost, boosts.source_boost = phrases.quiet, phrases.quiet


@inlined
def find(scratch, count, state, boost):
    """Position of a search state in `scratch.next`, or `count`."""
    i = find_alone(scratch, count, state)
    if i == count or scratch.next_boosts[i].boost == boost:
        return i
    i = _head(scratch, _slot_of(scratch, state, boost))
    while i < count:
        if scratch.next[i].state == state and scratch.next_boosts[i].boost == boost:
            return i
        i = uint64(scratch.chain[i])
    return count


@inlined
def improve(scratch, i, candidate):
    """Replace entry `i` by the candidate if that is the less (cost, arc, source)."""
    entry, boosts = scratch.next[i], scratch.next_boosts[i]
    cost, arc, old, old_arc = candidate.cost, candidate.arc, entry.cost, entry.arc
    better = cost < old or (cost == old and arc < old_arc)
    if cost == old and arc == old_arc:
        better = candidate.source_boost < boosts.source_boost
    if better:
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc
        boosts.source_boost = candidate.source_boost


@inlined
def insert(phrases, scratch, count, candidate):
    """Make the candidate entry number `count`."""
    _place(scratch, count, candidate.state, candidate.boost)
    prefetch(phrases.rows, uint64(state_of(candidate.boost)))
    entry, boosts = scratch.next[count], scratch.next_boosts[count]
    entry.cost, entry.state = candidate.cost, candidate.state
    entry.node, entry.arc = candidate.node, candidate.arc
    boosts.boost = candidate.boost
    boosts.source_boost = candidate.source_boost


@inlined
def _place(scratch, count, state, boost):
    """Let entry number `count` be found: in its slot, or else in the hash table."""
    if find_alone(scratch, count, state) == count:
        scratch.slots[state] = uint32(count)
    else:
        slot = _slot_of(scratch, state, boost)
        scratch.chain[count] = uint32(_head(scratch, slot))
        scratch.hashed[slot] = scratch.table[0] << _HALF | count


@inlined
def start_table(phrases, scratch, made):
    """Empty the hash table, and make it large enough: small ones stay in the cache."""
    if phrases is not None:
        size = uint64(MIN_SLOTS)
        while size < made + made:
            size += size
        scratch.table[0] = (scratch.table[0] + _ONE) & _NO_ENTRY
        scratch.table[1] = min(size, uint64(len(scratch.hashed))) - _ONE


@inlined
def _slot_of(scratch, state, boost):
    """The place of a search state in the hash table."""
    mixed = uint32(state) ^ uint32(boost * uint32(0x9E3779B1))
    mixed ^= mixed >> uint32(15)
    return uint64(mixed) & scratch.table[1]


@inlined
def _head(scratch, slot):
    """The last entry of a slot of the hash table, NONE where it is of another time."""
    head = scratch.hashed[slot]
    return head & _NO_ENTRY if head >> _HALF == scratch.table[0] else _NO_ENTRY


@kernel
def close(graph, params, words, phrases, scratch, record, count, waiting, cutoff):
    """Relax epsilon arcs in rank order; (entries, whether they fit).

    `record`: notes these arcs for a lattice; None where nobody asks for one.

    Sources are final when their rank comes, since every epsilon arc leads to a higher
    rank. Most are of rank 0: their arcs become candidates first, so that cache misses
    overlap. Entries keep the position of their source, so that a source that improved
    meanwhile needs no correction: trace nodes are made later.
    """
    entries = scratch.next
    for rank in range(graph.num_ranks):
        scratch.rank_heads[rank] = _NO_NEXT
    made, side = _ZERO, _ZERO
    for w in range(waiting):
        if w + _AHEAD < waiting:
            ahead = uint64(entries[uint64(scratch.waiting[w + _AHEAD])].state)
            prefetch(graph.arcs, uint64(graph.rows[ahead].begin))
        i = uint64(scratch.waiting[w])
        rank = graph.rows[uint64(entries[i].state)].rank
        if rank > uint32(0):
            _queue(scratch, i, uint64(rank))
            continue
        made, side, fits = relax(
            graph, params, words, phrases, scratch, made, side, cutoff, i
        )
        if not fits:
            return count, False
    count, fits = _reach(graph, phrases, scratch, record, count, made, side)
    if not fits:
        return count, False
    for rank in range(_ONE, graph.num_ranks):
        i = uint64(scratch.rank_heads[rank])
        while i != uint64(_NO_NEXT):
            made, side, fits = relax(
                graph, params, words, phrases, scratch, _ZERO, _ZERO, cutoff, i
            )
            if fits:
                count, fits = _reach(graph, phrases, scratch, record, count, made, side)
            if not fits:
                return count, False
            i = uint64(scratch.links[i])
    return count, True


@inlined
def _queue(scratch, i, rank):
    """Put entry `i` into the list of its rank."""
    scratch.links[i] = scratch.rank_heads[rank]
    scratch.rank_heads[rank] = uint32(i)


@inlined
def relax(graph, params, words, phrases, scratch, made, side, cutoff, i):
    """Make candidates of the epsilon arcs of entry `i`.

    Returns:
        (candidates, side candidates, whether they fit).
    """
    entry, candidates = scratch.next[i], scratch.candidates
    row = graph.rows[uint64(entry.state)]
    first, last = uint64(row.begin), uint64(row.emit)
    if max(made, side) + (last - first) > uint64(len(candidates)):
        return made, side, False
    for a in range(first, last):
        arc = graph.arcs[a]
        reached = add_graph_and_insertion(params, entry.cost, arc)
        if phrases is None:
            reached = float32(reached - bonus_of(params, words, arc))
        else:
            source = scratch.next_boosts[i].boost
            credit = most_credited(params, words, phrases, source)
            reached, boost = add_boosts_and_acoustic(
                *(graph, params, words, phrases, arc, source, credit, reached),
                float32(0),
                cutoff,
            )
            # What boosts touch goes through a hash table, all else by the graph state
            # alone.
            if boost != phrases.quiet or source != phrases.quiet:
                candidate = scratch.side[side]
                candidate.cost, candidate.state = reached, arc.nextstate
                candidate.node = uint32(i)
                candidate.arc = flagged_arc(a, arc.ilabel) | _EPSILON_ARC
                candidate.boost, candidate.source_boost = boost, source
                side += uint64(reached <= cutoff)
                continue
        candidates[made].cost = reached
        candidates[made].state = arc.nextstate
        prefetch(scratch.slots, uint64(arc.nextstate))
        candidates[made].node = uint32(i)
        candidates[made].arc = flagged_arc(a, arc.ilabel) | _EPSILON_ARC
        made += uint64(reached <= cutoff)
    return made, side, True


@inlined
def _reach(graph, phrases, scratch, record, count, made, side):
    """Make or improve the entries that epsilon arcs lead to; (entries, fits)."""
    room = uint64(len(scratch.next))
    # First those that boosts do not touch, found by the graph state alone.
    for q in range(made):
        candidate = scratch.candidates[q]
        i = find_quiet(phrases, scratch, count, candidate.state)
        if record is not None:
            note(record, candidate.node, candidate.arc, candidate.cost, uint32(i))
        if i < count:
            before = contents_of(scratch, i)
            improve_quiet(phrases, scratch, i, candidate, False)
            if record is not None:
                note_displaced(record, contents_of(scratch, i), before, uint32(i))
            continue
        if count == room:
            return count, False
        insert_quiet(phrases, scratch, count, candidate)
        if candidate.arc & _HAS_EPSILONS:
            _queue(scratch, count, uint64(graph.rows[uint64(candidate.state)].rank))
        count += _ONE
    if phrases is not None:
        for q in range(side):
            candidate = scratch.side[q]
            i = find(scratch, count, candidate.state, candidate.boost)
            if record is not None:
                note(record, candidate.node, candidate.arc, candidate.cost, uint32(i))
            if i < count:
                before = contents_of(scratch, i)
                improve(scratch, i, candidate)
                if record is not None:
                    note_displaced(record, contents_of(scratch, i), before, uint32(i))
                continue
            if count == room:
                return count, False
            insert(phrases, scratch, count, candidate)
            if candidate.arc & _HAS_EPSILONS:
                _queue(scratch, count, uint64(graph.rows[uint64(candidate.state)].rank))
            count += _ONE
    return count, True
