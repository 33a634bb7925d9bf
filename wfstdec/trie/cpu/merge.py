"""From candidates to the next frontier: merging, choosing, and the trace.

merge     candidates within the cutoff become entries, `scratch.new_entries`
choose    those that go on, in order: `scratch.keys`
settle    makes the new frontier of them, and its trace
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.boost.kernels import state_of
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.jit.sorting import index_of, key_of, sort_few_keys, sort_keys
from wfstdec.lm.kernels import state_order
from wfstdec.search.log_add import log_add
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu.nodes import token_of

LEAST_SLOTS = 64
"""The table has no fewer slots, if it has been made so large."""
FEW_KEYS = 128
"""So many are sorted by counting."""
_INF = float32(np.inf)


@inlined
def _hash(state, node, boost, text):
    """A hash of a key: multiply and shift; the text with the spelling."""
    mixed = uint64(state) * uint64(0x9E3779B97F4A7C15)
    mixed ^= (uint64(node) + uint64(0x165667B19E3779F9)) * uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= (uint64(boost) + text) * uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> uint64(29)
    mixed *= uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> uint64(32))


@inlined
def slot_of(scratch, stamp, c):
    """The slot of a candidate's entry, taken or free, and the entry there or -1."""
    slots, entries = scratch.slots, scratch.new_entries
    mask = uint64(scratch.counts[k.SLOT_MASK])
    slot = _hash(c.state, c.node, c.boost, c.text ^ c.spelling) & mask
    while slots[slot] >> 32 == stamp:
        i = slots[slot] & int64(0xFFFFFFFF)
        e = entries[i]
        same_place = e.state == c.state and e.node == c.node and e.boost == c.boost
        if same_place and e.text == c.text and e.spelling == c.spelling:
            return slot, i
        slot = (slot + uint64(1)) & mask
    return slot, int64(-1)


@kernel
def merge(search, scratch, frontier, num_candidates, cutoff):
    """Merge the candidates within the cutoff into `scratch.new_entries`; how many."""
    params = search.params
    candidates, entries = scratch.candidates, scratch.new_entries
    # Slots of former frames have other stamps and count as free: the table is never
    # cleared.
    scratch.counts[k.STAMP] += 1
    stamp = scratch.counts[k.STAMP]
    # No more of the table than these need: the whole of it would not stay in the cache.
    num_slots = int64(LEAST_SLOTS)
    while num_slots < 2 * num_candidates:
        num_slots <<= 1
    scratch.counts[k.SLOT_MASK] = min(num_slots, len(scratch.slots)) - 1
    count, staying, stayed = int64(0), int64(-1), int64(-1)
    for q in range(num_candidates):
        c = candidates[q]
        if c.cost > cutoff:
            continue
        # A blank and the same token again come one after the other, to one entry.
        if c.token < 0 and c.source == staying:
            _enter(search, scratch, frontier, stayed, q)
            continue
        slot, i = slot_of(scratch, stamp, c)
        if i < 0:
            i = count
            count += 1
            scratch.slots[slot] = (stamp << 32) | i
            e = entries[i]
            e.state, e.node, e.boost, e.text = c.state, c.node, c.boost, c.text
            e.spelling = c.spelling
            e.lookahead_cost = c.lookahead_cost
            e.blank_cost, e.nonblank_cost = _INF, _INF
            e.blank_candidate, e.nonblank_candidate = -1, -1
        # In the order of candidates, which is that of sources: sums of float32 depend
        # on it.
        _enter(search, scratch, frontier, i, q)
        if c.token < 0:
            staying, stayed = int64(c.source), i
    for i in range(count):
        e = entries[i]
        if params.sums:
            e.cost = log_add(e.blank_cost, e.nonblank_cost)
        else:
            e.cost = min(e.blank_cost, e.nonblank_cost)
    return count


@inlined
def _enter(search, scratch, frontier, i, q):
    """Candidate `q` leads into entry `i`."""
    lm, params = search.space.automaton, search.params
    e, c = scratch.new_entries[i], scratch.candidates[q]
    if c.to_nonblank:
        best, cost = e.nonblank_candidate, e.nonblank_cost
        if best < 0 or _goes_before(lm, scratch, frontier, q, best):
            e.nonblank_candidate = q
        e.nonblank_cost = log_add(cost, c.cost) if params.sums else min(cost, c.cost)
    else:
        best, cost = e.blank_candidate, e.blank_cost
        if best < 0 or _goes_before(lm, scratch, frontier, q, best):
            e.blank_candidate = q
        e.blank_cost = log_add(cost, c.cost) if params.sums else min(cost, c.cost)


@inlined
def _goes_before(lm, scratch, frontier, q, other):
    """Tell whether a later candidate wins: by cost, then by order of the sources."""
    a, b = scratch.candidates[q], scratch.candidates[other]
    if a.cost != b.cost:
        return a.cost < b.cost
    # Two ways from one entry are in their order already: the earlier one stays.
    if a.source == b.source:
        return False
    source, former = frontier[a.source], frontier[b.source]
    if source.cost != former.cost:
        return source.cost < former.cost
    return _less(lm, source, former)


@kernel
def choose(search, scratch, count):
    """Put the entries that go on into `scratch.keys`, in their order; how many.

    The order is that of re-based costs: rounding may have made some of them equal.
    Where all entries go on, and nothing is summed, only the best one must come first:
    equal candidates are told apart by their sources.
    """
    lm, params = search.space.automaton, search.params
    keys, entries = scratch.keys, scratch.new_entries
    best = 0
    for i in range(count):
        keys[i] = np.uint64(i)
        if entries[i].cost < entries[best].cost:
            best = i
    if not params.by_text and count <= params.beam_size:
        keys[0], keys[best] = keys[best], keys[0]
        return count
    for i in range(count):
        keys[i] = key_of(float32(entries[i].cost - entries[best].cost), i)
    if count <= FEW_KEYS and 2 * count <= len(keys):
        sort_few_keys(keys, count)
    else:
        sort_keys(keys, count, scratch.stack)
    # Sorting was by cost, then by the order in which entries came up: what they are
    # decides instead, as in the reference.
    _order_ties(lm, keys, entries, count)
    if not params.by_text:
        return min(count, params.beam_size)
    if params.sums and count <= params.beam_size:
        return count
    return _choose_texts(params, scratch, count)


@kernel
def settle(search, scratch, utterance, num_entries):
    """Make the trace of what goes on, re-base; the next frontier."""
    trie = search.space.trie
    keys, entries, frontier = scratch.keys, scratch.new_entries, utterance.frontier
    # Candidates name their sources by position, and the frontier is written over.
    for i in range(utterance.counts[k.FRONTIER]):
        scratch.sources[i] = frontier[i]
    best = entries[index_of(keys[0])].cost
    for r in range(num_entries):
        new, entry = entries[index_of(keys[r])], frontier[r]
        entry.state, entry.node, entry.boost = new.state, new.node, new.boost
        # Read in the next frame, from somewhere in large arrays: they may come
        # meanwhile. Nodes that no array has do no harm.
        prefetch(search.phrases.rows, uint64(state_of(new.boost)))
        prefetch(trie.node_child_bits, uint64(new.node))
        prefetch(trie.node_child_splits, uint64(new.node))
        prefetch(trie.node_pron_splits, uint64(new.node))
        entry.text, entry.lookahead_cost = new.text, new.lookahead_cost
        entry.spelling = new.spelling
        entry.cost = float32(new.cost - best)
        entry.blank_cost = float32(new.blank_cost - best)
        entry.nonblank_cost = float32(new.nonblank_cost - best)
        if new.blank_candidate >= 0:
            c = scratch.candidates[int64(new.blank_candidate)]
            entry.token_end = _token_end(scratch, utterance, c)
            entry.blank_acoustic = _acoustic(search, scratch, c)
            entry.blank_trace = _extend_trace(scratch, utterance, c)
        if new.nonblank_candidate >= 0:
            c = scratch.candidates[int64(new.nonblank_candidate)]
            entry.nonblank_acoustic = _acoustic(search, scratch, c)
            entry.nonblank_trace = _extend_trace(scratch, utterance, c)
    utterance.counts[k.FRONTIER] = num_entries
    utterance.base[0] += np.float64(best)


@inlined
def _less(lm, a, b):
    """Tell whether entry `a` stands before `b` where their costs are equal."""
    if a.state != b.state:
        return state_order(lm, a.state) < state_order(lm, b.state)
    if a.node != b.node:
        return a.node < b.node
    if a.boost != b.boost:
        return a.boost < b.boost
    if a.spelling != b.spelling:
        return a.spelling < b.spelling
    return a.text < b.text


@inlined
def _order_ties(lm, keys, entries, count):
    """Put entries of equal cost into the order of what they are."""
    for i in range(1, count):
        key = keys[i]
        j = i
        while (
            j > 0
            and keys[j - 1] >> uint64(32) == key >> uint64(32)
            and _less(lm, entries[index_of(key)], entries[index_of(keys[j - 1])])
        ):
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@part
def _choose_texts(params, scratch, count):
    """Keep the texts that may matter at the `beam_size` best places.

    The kept entries of a place are linked by `same_place`, from the last one on.
    """
    keys, entries = scratch.keys, scratch.new_entries
    scratch.counts[k.STAMP] += 1
    stamp, kept, places = scratch.counts[k.STAMP], 0, 0
    for r in range(count):
        i = index_of(keys[r])
        e = entries[i]
        slot, last = _place_of(scratch, stamp, e)
        # A new place, and all are taken. Texts at places that are kept may still
        # follow.
        if last < 0 and places == params.beam_size:
            continue
        blank, nonblank, other = 0, 0, last
        while other >= 0:
            blank += int64(entries[other].blank_cost <= e.blank_cost)
            nonblank += int64(entries[other].nonblank_cost <= e.nonblank_cost)
            other = int64(entries[other].same_place)
        # So many texts before it cost no more in this phase, and go wherever it goes:
        # it cannot be among the best in the end.
        if (e.blank_cost == _INF or blank >= params.nbest) and (
            e.nonblank_cost == _INF or nonblank >= params.nbest
        ):
            continue
        places += int64(last < 0)
        e.same_place = last
        scratch.slots[slot] = (stamp << 32) | i
        keys[kept] = keys[r]
        kept += 1
    return kept


@inlined
def _place_of(scratch, stamp, entry):
    """The slot of an entry's place, and the last entry that was kept there or -1."""
    slots, entries = scratch.slots, scratch.new_entries
    mask = uint64(scratch.counts[k.SLOT_MASK])
    slot = _hash(entry.state, entry.node, entry.boost, entry.spelling) & mask
    while slots[slot] >> 32 == stamp:
        i = slots[slot] & int64(0xFFFFFFFF)
        e = entries[i]
        same_node = e.state == entry.state and e.node == entry.node
        same_boost = e.boost == entry.boost
        if same_node and same_boost and e.spelling == entry.spelling:
            return slot, i
        slot = (slot + uint64(1)) & mask
    return slot, int64(-1)


@inlined
def _token_end(scratch, utterance, c):
    """Frame behind the token before a candidate, where that is over."""
    if c.from_nonblank:
        return int64(utterance.counts[k.FRAMES])
    return int64(scratch.sources[c.source].token_end)


@inlined
def _acoustic(search, scratch, c):
    """The acoustic cost of a candidate from the beginning, float64."""
    source = scratch.sources[c.source]
    total = source.nonblank_acoustic if c.from_nonblank else source.blank_acoustic
    if not c.to_nonblank:
        return total + np.float64(scratch.unscaled[search.space.blank])
    token = int64(c.token)
    if token < 0:
        token = token_of(search, source.node)
    return total + np.float64(scratch.unscaled[token])


@inlined
def _extend_trace(scratch, utterance, c):
    """The trace of a candidate, with a node for the token that begins."""
    source = scratch.sources[c.source]
    previous = source.nonblank_trace if c.from_nonblank else source.blank_trace
    if c.token < 0:
        return int64(previous)
    at = utterance.counts[k.TRACE]
    node = utterance.trace[at]
    node.previous, node.token, node.pron = previous, c.token, c.pron
    node.start = utterance.counts[k.FRAMES]
    node.previous_end = _token_end(scratch, utterance, c)
    utterance.counts[k.TRACE] = at + 1
    return at
