"""Recombination: the entries of a frontier being made, one per search state.

`slots` has a place for each graph state, and needs no clearing: an entry of that place
tells whether it is of this frame. Entries in boost states other than the quiet one
stand in a hash table with chains, whose slots carry the stamp of the frame that they
are of; it is no larger than the frame asks for.
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
def find(phrases, work, count, candidate):
    """Where the search state of a candidate stands in `work.next`, or `count`."""
    entries, state = work.next, candidate.state
    if phrases is None:
        i = uint64(work.slots[state])
        if i < count and entries[i].state == state:
            return i
    elif candidate.boost == phrases.quiet:
        i = uint64(work.slots[state])
        if i < count and entries[i].state == state:
            if entries[i].boost == phrases.quiet:
                return i
    else:
        i = _head(work, _slot_of(work, candidate))
        while i < count:
            if entries[i].state == state and entries[i].boost == candidate.boost:
                return i
            i = uint64(work.chain[i])
    return count


@inlined
def improve(phrases, work, i, candidate):
    """Replace entry `i` by the candidate if that is the less (cost, arc, source)."""
    entry = work.next[i]
    cost, arc, old, old_arc = candidate.cost, candidate.arc, entry.cost, entry.arc
    better = cost < old or (cost == old and arc < old_arc)
    if phrases is not None:
        if cost == old and arc == old_arc:
            better = candidate.source_boost < entry.source_boost
    if better:
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc
        if phrases is not None:
            entry.source_boost = candidate.source_boost


@inlined
def insert(phrases, work, count, candidate):
    """Make the candidate entry number `count`."""
    if phrases is None:
        work.slots[candidate.state] = uint32(count)
    elif candidate.boost == phrases.quiet:
        work.slots[candidate.state] = uint32(count)
    else:
        slot = _slot_of(work, candidate)
        work.chain[count] = uint32(_head(work, slot))
        work.hashed[slot] = work.table[0] << _HALF | count
        prefetch(phrases.rows, uint64(state_of(candidate.boost)))
    work.next[count] = candidate


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
