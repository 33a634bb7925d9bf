"""Recombination: the entries of a frontier being made, one per search state.

`slots` has a place for each graph state, and needs no clearing: an entry of that place
tells whether it is of this frame. That is all there is where boosts have no states, and
most of what there is where they have: the first boost state at a graph state stands
there. Others stand in a hash table with chains, whose slots carry the stamp of the
frame that they are of; it is no larger than the frame asks for. Candidates that are not
between quiet entries are apart from the start, so that quiet ones, which come first, go
the way of a search without boosts.
"""

from __future__ import annotations

from numpy import uint32, uint64

from wfstdec.boost.instalments import state_of
from wfstdec.jit import inlined, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.noting import note_loser

MIN_SLOTS = 256
"""The hash table has no fewer."""
_HAS_EPSILONS = uint32(k.HAS_EPSILONS)
_NONE = uint64(k.NONE)
_HALF = uint64(32)
_ONE = uint64(1)
_ZERO = uint64(0)


@inlined
def find_alone(work, count, state):
    """Where a graph state stands in `work.next`, or `count`: the only entry there."""
    i = uint64(work.slots[state])
    return i if i < count and work.next[i].state == state else count


@inlined
def find_quiet(phrases, work, count, state):
    """Where a state stands in `work.next`, or `count`; quiet, if boosts have states."""
    if phrases is None:
        i = find_alone(work, count, state)
    else:
        i = find(work, count, state, phrases.quiet)
    return i


@inlined
def contents_of(work, i):
    """(cost, node, arc) of entry `i`, as it is now."""
    entry = work.next[i]
    return entry.cost, entry.node, entry.arc


@inlined
def improve_quiet(phrases, work, i, candidate, alone):
    """Replace entry `i` by a candidate of a quiet source, if that is the less."""
    entry = work.next[i]
    cost, arc, old, old_arc = candidate.cost, candidate.arc, entry.cost, entry.arc
    better = cost < old or (cost == old and arc < old_arc)
    if phrases is not None and not alone:
        if cost == old and arc == old_arc:
            better = work.next_boosts[i].source_boost > phrases.quiet
    if better:
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc
        if phrases is not None and not alone:
            work.next_boosts[i].source_boost = phrases.quiet


@inlined
def insert_alone(phrases, work, count, candidate):
    """Make the candidate of a quiet source entry number `count`, the first there."""
    work.slots[candidate.state] = uint32(count)
    work.next[count] = candidate
    if phrases is not None:
        boosts = work.next_boosts[count]
        boosts.boost, boosts.source_boost = phrases.quiet, phrases.quiet


@inlined
def insert_quiet(phrases, work, count, candidate):
    """Make the candidate of a quiet source entry number `count`, quiet as well."""
    if phrases is None:
        insert_alone(phrases, work, count, candidate)
    else:
        _place(work, count, candidate.state, phrases.quiet)
        work.next[count] = candidate
        boosts = work.next_boosts[count]
        boosts.boost, boosts.source_boost = phrases.quiet, phrases.quiet


@inlined
def find(work, count, state, boost):
    """Where a search state stands in `work.next`, or `count`."""
    i = find_alone(work, count, state)
    if i == count or work.next_boosts[i].boost == boost:
        return i
    i = _head(work, _slot_of(work, state, boost))
    while i < count:
        if work.next[i].state == state and work.next_boosts[i].boost == boost:
            return i
        i = uint64(work.chain[i])
    return count


@inlined
def improve(work, i, candidate):
    """Replace entry `i` by the candidate if that is the less (cost, arc, source)."""
    entry, boosts = work.next[i], work.next_boosts[i]
    cost, arc, old, old_arc = candidate.cost, candidate.arc, entry.cost, entry.arc
    better = cost < old or (cost == old and arc < old_arc)
    if cost == old and arc == old_arc:
        better = candidate.source_boost < boosts.source_boost
    if better:
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc
        boosts.source_boost = candidate.source_boost


@inlined
def insert(phrases, work, count, candidate):
    """Make the candidate entry number `count`."""
    _place(work, count, candidate.state, candidate.boost)
    prefetch(phrases.rows, uint64(state_of(candidate.boost)))
    entry, boosts = work.next[count], work.next_boosts[count]
    entry.cost, entry.state = candidate.cost, candidate.state
    entry.node, entry.arc = candidate.node, candidate.arc
    boosts.boost = candidate.boost
    boosts.source_boost = candidate.source_boost


@inlined
def _place(work, count, state, boost):
    """Let entry number `count` be found: in its slot, or else in the hash table."""
    if find_alone(work, count, state) == count:
        work.slots[state] = uint32(count)
    else:
        slot = _slot_of(work, state, boost)
        work.chain[count] = uint32(_head(work, slot))
        work.hashed[slot] = work.table[0] << _HALF | count


@inlined
def start_table(phrases, work, made):
    """Empty the hash table, and make it large enough: small ones stay in the cache."""
    if phrases is not None:
        size = uint64(MIN_SLOTS)
        while size < made + made:
            size += size
        work.table[0] = (work.table[0] + _ONE) & _NONE
        work.table[1] = min(size, uint64(len(work.hashed))) - _ONE


@inlined
def _slot_of(work, state, boost):
    """The place of a search state in the hash table."""
    mixed = uint32(state) ^ uint32(boost * uint32(0x9E3779B1))
    mixed ^= mixed >> uint32(15)
    return uint64(mixed) & work.table[1]


@inlined
def _head(work, slot):
    """The last entry of a slot of the hash table, NONE where it is of another time."""
    head = work.hashed[slot]
    return head & _NONE if head >> _HALF == work.table[0] else _NONE


@part
def recombine(graph, phrases, work, record, made, side, cutoff):
    """Candidates to entries, one per search state: the least (cost, arc, source).

    `record`: notes the others for a lattice; None where nobody asks for one.

    Returns:
        (entries, how many have epsilon arcs: their positions are in `work.waiting`,
        whether they fit into `work.next`).
    """
    candidates = work.candidates
    count, waiting = _ZERO, _ZERO
    room = uint64(len(work.next))
    for q in range(made):
        if candidates[q].cost > cutoff:
            continue
        i = find_alone(work, count, candidates[q].state)
        if i < count:
            before = contents_of(work, i)
            improve_quiet(phrases, work, i, candidates[q], True)
            if record is not None:
                came = candidates[q].cost, candidates[q].node, candidates[q].arc
                note_loser(record, contents_of(work, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, False
        prefetch(graph.rows, uint64(candidates[q].state))
        work.waiting[waiting] = uint32(count)
        waiting += uint64(candidates[q].arc & _HAS_EPSILONS)
        insert_alone(phrases, work, count, candidates[q])
        count += _ONE
    if phrases is not None:
        start_table(phrases, work, side + uint64(MIN_SLOTS))
        return _recombine_side(
            graph, phrases, work, record, side, cutoff, count, waiting
        )
    return count, waiting, True


@inlined
def _recombine_side(graph, phrases, work, record, side, cutoff, count, waiting):
    """The same with the side candidates."""
    room = uint64(len(work.next))
    for q in range(side):
        candidate = work.side[q]
        if candidate.cost > cutoff:
            continue
        i = find(work, count, candidate.state, candidate.boost)
        if i < count:
            before = contents_of(work, i)
            improve(work, i, candidate)
            if record is not None:
                came = candidate.cost, candidate.node, candidate.arc
                note_loser(record, contents_of(work, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, False
        prefetch(graph.rows, uint64(candidate.state))
        work.waiting[waiting] = uint32(count)
        waiting += uint64(candidate.arc & _HAS_EPSILONS)
        insert(phrases, work, count, candidate)
        count += _ONE
    return count, waiting, True
