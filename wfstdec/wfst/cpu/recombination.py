"""Recombination: the entries of a frontier being made, one per search state.

`slots` has a place for each graph state, and needs no clearing: an entry of that place
tells whether it is of this frame. That is all there is where boosts have no states, and
most of what there is where they have: entries in the quiet boost state stand there too.
The others stand in a hash table with chains, whose slots carry the stamp of the frame
that they are of; it is no larger than the frame asks for. Their candidates are apart
from the start, so that quiet ones go the way of a search without boosts.
"""

from __future__ import annotations

from numpy import uint32, uint64

from wfstdec.boost.instalments import state_of
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import records as k

MIN_SLOTS = 256
"""The hash table has no fewer."""
_NONE = uint64(k.NONE)
_HALF = uint64(32)
_ONE = uint64(1)


@inlined
def find_quiet(phrases, work, count, state, alone):
    """Where a state stands in `work.next`, quiet where boosts have states; or `count`.

    `alone`: there are no other entries yet.
    """
    i = uint64(work.slots[state])
    if i < count and work.next[i].state == state:
        if phrases is None or alone:
            return i
        if work.next_boosts[i].boost == phrases.quiet:
            return i
    return count


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
def insert_quiet(phrases, work, count, candidate):
    """Make the candidate of a quiet source entry number `count`, quiet as well."""
    work.slots[candidate.state] = uint32(count)
    work.next[count] = candidate
    if phrases is not None:
        boosts = work.next_boosts[count]
        boosts.boost, boosts.source_boost = phrases.quiet, phrases.quiet


@inlined
def find(phrases, work, count, candidate):
    """Where the search state of a candidate stands in `work.next`, or `count`."""
    state, boost = candidate.state, candidate.boost
    if boost == phrases.quiet:
        return find_quiet(phrases, work, count, state, False)
    i = _head(work, _slot_of(work, candidate))
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
    if candidate.boost == phrases.quiet:
        work.slots[candidate.state] = uint32(count)
    else:
        slot = _slot_of(work, candidate)
        work.chain[count] = uint32(_head(work, slot))
        work.hashed[slot] = work.table[0] << _HALF | count
        prefetch(phrases.rows, uint64(state_of(candidate.boost)))
    entry, boosts = work.next[count], work.next_boosts[count]
    entry.cost, entry.state = candidate.cost, candidate.state
    entry.node, entry.arc = candidate.node, candidate.arc
    boosts.boost = candidate.boost
    boosts.source_boost = candidate.source_boost


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
def _slot_of(work, candidate):
    """The place of a candidate in the hash table."""
    mixed = candidate.state ^ uint32(candidate.boost * uint32(0x9E3779B1))
    mixed ^= mixed >> uint32(15)
    return uint64(mixed) & work.table[1]


@inlined
def _head(work, slot):
    """The last entry of a slot of the hash table, NONE where it is of another time."""
    head = work.hashed[slot]
    return head & _NONE if head >> _HALF == work.table[0] else _NONE
