"""From candidates to the next frontier: merging, choosing, and the trace."""

from __future__ import annotations

import math

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.jit import inlined, kernel
from wfstdec.jit.intrinsics import prefetch
from wfstdec.jit.ordering import index_of, key_of, sort_keys
from wfstdec.trie.cpu import records as k

_INF = float32(np.inf)


@inlined
def added(a, b):
    """-ln(exp(-a) + exp(-b)), by way of float64, float32."""
    low, high = np.float64(min(a, b)), np.float64(max(a, b))
    if high == np.inf:
        return float32(low)
    return float32(low - math.log1p(math.exp(low - high)))


@inlined
def _hash(state, node, boost, text):
    """A slot for a key: multiply and shift."""
    mixed = uint64(state) * uint64(0x9E3779B97F4A7C15)
    mixed ^= (uint64(node) + uint64(0x165667B19E3779F9)) * uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= (uint64(boost) + text) * uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(29)
    mixed *= uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> uint64(32))


@inlined
def _slot_of(work, stamp, state, node, boost, text):
    """The slot of a key, taken or free, and the entry there or -1."""
    slots, made = work.slots, work.made
    mask = uint64(len(slots) - 1)
    slot = _hash(state, node, boost, text) & mask
    while slots[slot] >> 32 == stamp:
        e = slots[slot] & int64(0xFFFFFFFF)
        m = made[e]
        if m.state == state and m.node == node and m.boost == boost and m.text == text:
            return slot, e
        slot = (slot + uint64(1)) & mask
    return slot, int64(-1)


@kernel
def find_entries(scales, work, frontier, num_candidates, cutoff):
    """Merge the candidates within the cutoff into `work.made`; returns how many."""
    candidates, made = work.candidates, work.made
    work.counts[k.STAMP] += 1
    stamp = work.counts[k.STAMP]
    count = 0
    for q in range(num_candidates):
        c = candidates[q]
        if c.cost > cutoff:
            continue
        slot, e = _slot_of(work, stamp, c.state, c.node, c.boost, c.text)
        if e < 0:
            e = count
            count += 1
            work.slots[slot] = (stamp << 32) | e
            m = made[e]
            m.state, m.node, m.boost, m.text = c.state, c.node, c.boost, c.text
            m.ahead, m.over, m.on, m.over_way, m.on_way = c.ahead, _INF, _INF, -1, -1
        _enter(scales, work, frontier, e, q)
    for e in range(count):
        m = made[e]
        m.cost = added(m.over, m.on) if scales.sums else min(m.over, m.on)
    return count


@inlined
def _enter(scales, work, frontier, e, q):
    """Candidate `q` leads into entry `e`."""
    m, c = work.made[e], work.candidates[q]
    if c.to_on:
        if m.on_way < 0 or _goes_before(work, frontier, q, m.on_way):
            m.on_way = q
        m.on = added(m.on, c.cost) if scales.sums else min(m.on, c.cost)
    else:
        if m.over_way < 0 or _goes_before(work, frontier, q, m.over_way):
            m.over_way = q
        m.over = added(m.over, c.cost) if scales.sums else min(m.over, c.cost)


@inlined
def _goes_before(work, frontier, q, other):
    """Whether a later candidate wins: by cost, then by the order of the sources."""
    a, b = work.candidates[q], work.candidates[other]
    if a.cost != b.cost:
        return a.cost < b.cost
    if a.source == b.source:
        return False
    source, former = frontier[a.source], frontier[b.source]
    if source.cost != former.cost:
        return source.cost < former.cost
    return _less(source, former)


@kernel
def choose(scales, work, count):
    """Put what goes on into `work.keys`, in its order; returns how many.

    The order is that of re-based costs: rounding may have made some of them equal.
    Where all of it goes on, and nothing is added up, no order is needed but that the
    best comes first: equal candidates are told apart by their sources.
    """
    keys, made = work.keys, work.made
    best = 0
    for e in range(count):
        keys[e] = np.uint64(e)
        if made[e].cost < made[best].cost:
            best = e
    if not scales.by_text and count <= scales.beam_size:
        keys[0], keys[best] = keys[best], keys[0]
        return count
    for e in range(count):
        keys[e] = key_of(float32(made[e].cost - made[best].cost), e)
    sort_keys(keys, count, work.stack)
    _order_ties(keys, made, count)
    if not scales.by_text:
        return min(count, scales.beam_size)
    if scales.sums and count <= scales.beam_size:
        return count
    return _choose_texts(scales, work, count)


@kernel
def settle(space, scales, phrases, work, channel, num_entries):
    """Make the trace of what goes on, re-base; the next frontier."""
    keys, made = work.keys, work.made
    for i in range(channel.counts[k.FRONTIER]):
        work.before[i] = channel.frontier[i]
    best = made[index_of(keys[0])].cost
    for r in range(num_entries):
        m, entry = made[index_of(keys[r])], channel.frontier[r]
        entry.state, entry.node, entry.boost = m.state, m.node, m.boost
        prefetch(phrases.rows, uint64(m.boost))
        entry.text, entry.ahead = m.text, m.ahead
        entry.cost = float32(m.cost - best)
        entry.over, entry.on = float32(m.over - best), float32(m.on - best)
        if m.over_way >= 0:
            way = int64(m.over_way)
            entry.over_end = _end_of(work, channel, way)
            entry.over_acoustic = _acoustic_of(space, work, way)
            entry.over_trace = _extend(work, channel, way)
        if m.on_way >= 0:
            way = int64(m.on_way)
            entry.on_acoustic = _acoustic_of(space, work, way)
            entry.on_trace = _extend(work, channel, way)
    channel.counts[k.FRONTIER] = num_entries
    channel.base[0] += np.float64(best)


@inlined
def _less(a, b):
    """Whether entry `a` stands before `b` where their costs are equal."""
    if a.state != b.state:
        return a.state < b.state
    if a.node != b.node:
        return a.node < b.node
    if a.boost != b.boost:
        return a.boost < b.boost
    return a.text < b.text


@inlined
def _order_ties(keys, made, count):
    """Put entries of equal cost into the order of what they are."""
    for i in range(1, count):
        key = keys[i]
        j = i
        while (
            j > 0
            and keys[j - 1] >> uint64(32) == key >> uint64(32)
            and _less(made[index_of(key)], made[index_of(keys[j - 1])])
        ):
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@kernel
def _choose_texts(scales, work, count):
    """Keep the texts that may matter at the `beam_size` best places.

    The entries of a place are linked by `before`, the last one found as entries are.
    """
    keys, made = work.keys, work.made
    work.counts[k.STAMP] += 1
    stamp, kept, places = work.counts[k.STAMP], 0, 0
    for r in range(count):
        e = index_of(keys[r])
        m = made[e]
        slot, last = _place_of(work, stamp, m)
        if last < 0 and places == scales.beam_size:
            continue
        over, on, other = 0, 0, last
        while other >= 0:
            over += int64(made[other].over <= m.over)
            on += int64(made[other].on <= m.on)
            other = int64(made[other].before)
        if (m.over == _INF or over >= scales.nbest) and (
            m.on == _INF or on >= scales.nbest
        ):
            continue
        places += int64(last < 0)
        m.before = last
        work.slots[slot] = (stamp << 32) | e
        keys[kept] = keys[r]
        kept += 1
    return kept


@inlined
def _place_of(work, stamp, m):
    """The slot of a place, and the last entry that was put there or -1."""
    slots, made = work.slots, work.made
    mask = uint64(len(slots) - 1)
    slot = _hash(m.state, m.node, m.boost, uint64(0)) & mask
    while slots[slot] >> 32 == stamp:
        e = slots[slot] & int64(0xFFFFFFFF)
        o = made[e]
        if o.state == m.state and o.node == m.node and o.boost == m.boost:
            return slot, e
        slot = (slot + uint64(1)) & mask
    return slot, int64(-1)


@inlined
def _end_of(work, channel, way):
    """One behind the last frame of the token before a way, where that is over."""
    c = work.candidates[way]
    if c.from_on:
        return int64(channel.counts[k.FRAMES])
    return int64(work.before[c.source].over_end)


@inlined
def _acoustic_of(space, work, way):
    """The acoustic cost of a way from the beginning, float64."""
    c = work.candidates[way]
    source = work.before[c.source]
    total = source.on_acoustic if c.from_on else source.over_acoustic
    if not c.to_on:
        return total + np.float64(work.unscaled[space.blank])
    token = int64(c.token)
    if token < 0:
        token = int64(space.node_token[source.node])
    return total + np.float64(work.unscaled[token])


@inlined
def _extend(work, channel, way):
    """The trace of a way, with a node for the token that begins."""
    c = work.candidates[way]
    source = work.before[c.source]
    previous = source.on_trace if c.from_on else source.over_trace
    if c.token < 0:
        return int64(previous)
    at = channel.counts[k.TRACE]
    node = channel.trace[at]
    node.previous, node.token, node.said = previous, c.token, c.said
    node.start, node.end = channel.counts[k.FRAMES], _end_of(work, channel, way)
    channel.counts[k.TRACE] = at + 1
    return at
