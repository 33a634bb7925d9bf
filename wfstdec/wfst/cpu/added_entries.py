"""Entries of states of an overlay and of the graph, made of the overlay's candidates.

The second half of `added.py`: recombination, closing, and what stands where.
"""

from __future__ import annotations

from numpy import uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.arc_costs import LABEL
from wfstdec.wfst.cpu.noting import OF_OVERLAY, note, note_displaced, note_loser
from wfstdec.wfst.cpu.recombination import (
    contents_of,
    find,
    find_alone,
    improve,
    insert,
)

_EPSILON_ARC = uint32(k.EPSILON_ARC)
_HAS_EPSILONS = uint32(k.HAS_EPSILONS)
_NONE = uint64(k.NONE)
_ONE = uint64(1)
_ZERO = uint64(0)


@part
def recombine_added(phrases, added, work, record, made, cutoff, count, waiting):
    """Candidates to entries, in `work.next` of the graph, in `added.next` of others.

    `record`: notes the others for a lattice, or None.

    Returns:
        (entries of the graph, those with epsilon arcs, entries of the overlay, OK or
        what must grow).
    """
    more, room = _ZERO, uint64(len(work.next))
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
            i = find_alone(work, count, candidate.state)
        else:
            i = find(work, count, candidate.state, candidate.boost)
        if i < count:
            before = contents_of(work, i)
            if phrases is None:
                _improve_alone(work.next[i], candidate)
            else:
                improve(work, i, candidate)
            if record is not None:
                came = candidate.cost, candidate.node, candidate.arc
                note_loser(record, contents_of(work, i), before, came, uint32(i))
            continue
        if count == room:
            return count, waiting, more, k.GROW_WORK
        work.waiting[waiting] = uint32(count)
        waiting += uint64(candidate.arc & _HAS_EPSILONS)
        if phrases is None:
            work.slots[candidate.state] = uint32(count)
            entry = work.next[count]
            entry.cost, entry.state = candidate.cost, candidate.state
            entry.node, entry.arc = candidate.node, candidate.arc
        else:
            insert(phrases, work, count, candidate)
        count += _ONE
    return count, waiting, more, k.OK


@inlined
def _improve_alone(entry, candidate):
    """Replace an entry by a candidate if that is the less (cost, arc)."""
    cost, arc, old = candidate.cost, candidate.arc, entry.cost
    if cost < old or (cost == old and arc < entry.arc):
        entry.cost, entry.node, entry.arc = cost, candidate.node, arc


@part
def close_added(phrases, added, work, record, count, more):
    """Relax the overlay's epsilon arcs, which cost nothing, and append its entries.

    Args:
        phrases: Phrases, or None.
        added: The overlay; `next` has its entries.
        work: Scratch; `next` has those of the graph.
        record: Notes these arcs for a lattice, or None.
        count: How many those are.
        more: How many of the overlay.

    Returns:
        (entries of the overlay, OK or what must grow).
    """
    for i in range(more):
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
    if append_added(phrases, added, work, count, more):
        return more, k.OK
    return more, k.GROW_WORK


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
    if i == _NONE:
        if count == uint64(len(added.next)):
            return count, False
        added.next[count] = candidate
        added.chain[count] = uint32(last)
        added.slots[candidate.state - added.first_state] = uint32(count)
        return count + _ONE, True
    entry = added.next[i]
    before = entry.cost, entry.node, entry.arc
    better = candidate.cost < entry.cost
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
        last = _NONE
    i = last
    while i != _NONE and added.next[i].boost != boost:
        i = uint64(added.chain[i])
    return i, last


@part
def append_added(phrases, added, work, count, more):
    """The entries of the overlay behind `count` of the graph; whether they fit."""
    if count + more > uint64(len(work.next)):
        return False
    for i in range(more):
        one, entry = added.next[i], work.next[count + i]
        entry.cost, entry.state, entry.arc = one.cost, one.state, one.arc
        entry.node = one.node
        if one.arc & _EPSILON_ARC:
            entry.node += uint32(count)
        if phrases is not None:
            boosts = work.next_boosts[count + i]
            boosts.boost, boosts.source_boost = one.boost, one.source_boost
    return True


@inlined
def label_at(graph, added, arc):
    """The input label of an arc of the graph or the overlay."""
    if added is not None:
        if arc >= added.first_arc:
            return added.arcs[arc - added.first_arc].ilabel & LABEL
    return graph.arcs[arc].ilabel & LABEL
