"""From candidates to the next frontier: merge, choose, and trace.

merge     candidates within the cutoff become entries, `scratch.new_entries`
choose    the surviving entries, in order: `scratch.keys`
settle    the new frontier and its trace
"""

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.boost.kernels import state_of
from wfstdec.jit import inlined, part
from wfstdec.jit.arrays import hash_of
from wfstdec.jit.sorting import index_of, key_of, sort_few_keys, sort_keys
from wfstdec.jit.vectors import prefetch
from wfstdec.lm.kernels import state_order
from wfstdec.search.log_add import log_add
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.nodes import token_of

LEAST_SLOTS = 64
"""Least number of slots, if the table is that large."""
MAX_STAMP = (1 << 31) - 1
"""Largest stamp that fits above an entry's position in a slot."""
FEW_KEYS = 128
"""Up to this number, keys are sorted by counting."""
_INF = float32(np.inf)


@inlined
def new_table(scratch, most):
    """Empty the hash table, for up to `most` entries; return the stamp of its slots."""
    # Slots with other stamps are free. There are twice as many as `most`, or as all of
    # `new_entries`, so that probing ends at a free one.
    counts = scratch.counts
    if counts[arrays.STAMP] == MAX_STAMP:
        scratch.slots[:] = 0
        counts[arrays.STAMP] = 0
    counts[arrays.STAMP] += 1
    # Uses only a part of the table, which stays in the cache.
    num_slots = int64(LEAST_SLOTS)
    while num_slots < 2 * most:
        num_slots <<= 1
    counts[arrays.SLOT_MASK] = min(num_slots, len(scratch.slots)) - 1
    return counts[arrays.STAMP]


@inlined
def slot_of(scratch, stamp, c, by_text):
    """Return the slot of an entry like `c`, and the entry there or -1."""
    slots, entries = scratch.slots, scratch.new_entries
    mask = uint64(scratch.counts[arrays.SLOT_MASK])
    spelt = c.text ^ c.spelling if by_text else c.spelling
    slot = hash_of(c.state, c.node, uint64(c.boost) + spelt) & mask
    while slots[slot] >> 32 == stamp:
        i = slots[slot] & int64(0xFFFFFFFF)
        e = entries[i]
        same = e.state == c.state and e.node == c.node and e.boost == c.boost
        same = same and e.spelling == c.spelling
        if same and (e.text == c.text or not by_text):
            return slot, i
        slot = (slot + uint64(1)) & mask
    return slot, int64(-1)


@inlined
def merge(search, scratch, frontier, num_candidates, cutoff):
    """Merge candidates within the cutoff into `scratch.new_entries`."""
    # The frontier's own entries come first, at their positions, then those that tokens
    # begin. Sums of float32 depend on their order, which is that of sources; for one
    # source a blank comes first, then its last token again, then tokens that begin.
    params, entries, keys = search.params, scratch.new_entries, scratch.keys
    count, blank = int64(len(frontier)), scratch.costs[search.space.blank]
    for i in range(count):
        # An entry with its own key: a blank, and its last token again.
        e, source = entries[i], frontier[i]
        _begin_entry(e, source)
        from_blank = float32(source.blank_cost + blank)
        from_nonblank = float32(source.nonblank_cost + blank)
        # With "max" only the phase of lower cost repeats; at equal costs the blank.
        if from_blank <= cutoff:
            if params.sums or source.blank_cost <= source.nonblank_cost:
                e.blank_cost, e.blank_candidate = from_blank, arrays.FROM_BLANK
        if from_nonblank <= cutoff:
            if params.sums:
                if from_nonblank < from_blank or e.blank_cost == _INF:
                    e.blank_candidate = arrays.FROM_NONBLANK
                e.blank_cost = log_add(e.blank_cost, from_nonblank)
            elif source.blank_cost > source.nonblank_cost:
                e.blank_cost, e.blank_candidate = from_nonblank, arrays.FROM_NONBLANK
        if scratch.again_costs[i] <= cutoff:
            # With "sum" the candidates of earlier sources are summed first.
            if params.sums:
                e.waits = 1
            else:
                _add_again(search, scratch, frontier, i)
    if num_candidates > 0:
        stamp, num_sources = new_table(scratch, num_candidates + count), count
        for i in range(num_sources):
            slot, _ = slot_of(scratch, stamp, entries[i], True)
            scratch.slots[slot] = (stamp << 32) | i
        for q in range(num_candidates):
            c = scratch.candidates[q]
            if c.cost > cutoff:
                continue
            slot, i = slot_of(scratch, stamp, c, True)
            if i < 0:
                i = count
                count += 1
                scratch.slots[slot] = (stamp << 32) | i
                _begin_entry(entries[i], c)
            if params.sums and entries[i].waits and c.source >= i:
                _add_again(search, scratch, frontier, i)
            _add_nonblank(search, scratch, frontier, i, q, c.cost)
    num_merged = int64(0)
    for i in range(count):
        e = entries[i]
        if params.sums:
            if e.waits:
                _add_again(search, scratch, frontier, i)
            e.cost = log_add(e.blank_cost, e.nonblank_cost)
        else:
            e.cost = min(e.blank_cost, e.nonblank_cost)
        keys[num_merged] = np.uint64(i)
        num_merged += int64(e.cost < _INF)
    return num_merged


@inlined
def _begin_entry(e, key):
    e.state, e.node, e.boost = key.state, key.node, key.boost
    e.text, e.spelling, e.lookahead_cost = key.text, key.spelling, key.lookahead_cost
    e.blank_cost, e.nonblank_cost, e.nonblank_least = _INF, _INF, _INF
    e.blank_candidate, e.nonblank_candidate = arrays.NO_CANDIDATE, arrays.NO_CANDIDATE
    e.previous_same, e.waits = -1, 0


@inlined
def _add_again(search, scratch, frontier, i):
    scratch.new_entries[i].waits = 0
    cost = scratch.again_costs[i]
    _add_nonblank(search, scratch, frontier, i, int64(arrays.FROM_NONBLANK), cost)


@inlined
def _add_nonblank(search, scratch, frontier, i, q, cost):
    """Move candidate `q`, or `FROM_NONBLANK`, into the nonblank phase of entry `i`."""
    e = scratch.new_entries[i]
    wins = cost < e.nonblank_least
    if cost == e.nonblank_least:
        # The order of the sources decides. Two candidates of one source are already in
        # order: the earlier one stays.
        here = _source_of(scratch, i, q)
        there = _source_of(scratch, i, int64(e.nonblank_candidate))
        if here != there:
            source, former = frontier[here], frontier[there]
            wins = source.cost < former.cost
            if source.cost == former.cost:
                wins = is_before(search.space.automaton, source, former)
    if wins:
        e.nonblank_least, e.nonblank_candidate = cost, q
    if search.params.sums:
        e.nonblank_cost = log_add(e.nonblank_cost, cost)
    else:
        e.nonblank_cost = min(e.nonblank_cost, cost)


@inlined
def _source_of(scratch, i, q):
    return i if q == arrays.FROM_NONBLANK else int64(scratch.candidates[q].source)


@inlined
def choose(search, scratch, count, cutoff):
    """Put surviving entries into `scratch.keys`, in order; return count and cutoff."""
    # The order is that of re-based costs: rounding may have equalised some of them. If
    # all survive, and nothing is summed, only the best one must come first: equal
    # candidates are distinguished by their sources.
    lm, params, size = search.space.automaton, search.params, search.params.beam_size
    keys, entries = scratch.keys, scratch.new_entries
    if not params.by_text and count <= size:
        first, worst = 0, entries[index_of(keys[0])].cost
        for r in range(count):
            cost = entries[index_of(keys[r])].cost
            worst = max(worst, cost)
            if cost < entries[index_of(keys[first])].cost:
                first = r
        keys[0], keys[first] = keys[first], keys[0]
        if count == size and worst < cutoff:
            cutoff = worst
            _drop_phases(scratch, count, cutoff)
        return count, cutoff
    for r in range(count):
        i = index_of(keys[r])
        keys[r] = key_of(entries[i].cost, i)
    if count <= FEW_KEYS and 2 * count <= len(keys):
        sort_few_keys(keys, count)
    else:
        sort_keys(keys, count, scratch.stack)
    if not params.by_text:
        cutoff = entries[index_of(keys[size - 1])].cost
        kept = size
        while kept < count and entries[index_of(keys[kept])].cost == cutoff:
            kept += 1
        count = kept
        _drop_phases(scratch, count, cutoff)
    best = entries[index_of(keys[0])].cost
    for r in range(count):
        i = index_of(keys[r])
        keys[r] = key_of(float32(entries[i].cost - best), i)
    # Equal costs were sorted by arrival: now their keys decide, as in the reference.
    for i in range(1, count):
        key = keys[i]
        j = i
        while (
            j > 0
            and keys[j - 1] >> uint64(32) == key >> uint64(32)
            and is_before(lm, entries[index_of(key)], entries[index_of(keys[j - 1])])
        ):
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key
    if not params.by_text:
        return size, cutoff
    if params.sums and count <= size:
        return count, cutoff
    return _choose_texts(params, scratch, count), cutoff


@inlined
def _drop_phases(scratch, count, cutoff):
    for r in range(count):
        e = scratch.new_entries[index_of(scratch.keys[r])]
        if e.blank_cost > cutoff:
            e.blank_cost, e.blank_candidate = _INF, arrays.NO_CANDIDATE
        if e.nonblank_cost > cutoff:
            e.nonblank_cost, e.nonblank_candidate = _INF, arrays.NO_CANDIDATE


@inlined
def settle(search, scratch, utterance, num_entries):
    """Append the trace of surviving entries and re-base; return the next frontier."""
    trie = search.space.trie
    keys, entries, frontier = scratch.keys, scratch.new_entries, utterance.frontier
    # Candidates refer to sources by position, and the frontier is overwritten.
    for i in range(utterance.counts[arrays.FRONTIER]):
        scratch.sources[i] = frontier[i]
    best, frames = entries[index_of(keys[0])].cost, utterance.counts[arrays.FRAMES]
    blank_acoustic = np.float64(scratch.unscaled[search.space.blank])
    for r in range(num_entries):
        i = index_of(keys[r])
        new, entry = entries[i], frontier[r]
        entry.state, entry.node, entry.boost = new.state, new.node, new.boost
        # Read in the next frame, from large arrays. Nodes outside any array do no harm.
        prefetch(search.phrases.rows, uint64(state_of(new.boost)))
        prefetch(trie.node_child_bits, uint64(new.node))
        prefetch(trie.node_child_splits, uint64(new.node))
        prefetch(trie.node_pron_splits, uint64(new.node))
        entry.text, entry.lookahead_cost = new.text, new.lookahead_cost
        entry.spelling = new.spelling
        entry.cost = float32(new.cost - best)
        entry.blank_cost = float32(new.blank_cost - best)
        entry.nonblank_cost = float32(new.nonblank_cost - best)
        # A blank after either phase of source `i`, which is the same entry.
        if new.blank_candidate != arrays.NO_CANDIDATE:
            source = scratch.sources[i]
            entry.token_end, entry.blank_trace = source.token_end, source.blank_trace
            total = source.blank_acoustic
            if new.blank_candidate == arrays.FROM_NONBLANK:  # the token ends here
                entry.token_end, entry.blank_trace = frames, source.nonblank_trace
                total = source.nonblank_acoustic
            entry.blank_acoustic = total + blank_acoustic
        if new.nonblank_candidate == arrays.NO_CANDIDATE:
            continue
        if new.nonblank_candidate == arrays.FROM_NONBLANK:
            source, token = scratch.sources[i], token_of(search, new.node)
            entry.nonblank_trace = source.nonblank_trace
            total = source.nonblank_acoustic
        else:
            at = utterance.counts[arrays.TRACE]
            c, node = scratch.candidates[new.nonblank_candidate], utterance.trace[at]
            source, token = scratch.sources[c.source], int64(c.token)
            total, node.previous_end = source.blank_acoustic, source.token_end
            node.previous = source.blank_trace
            if c.from_nonblank:
                total, node.previous_end = source.nonblank_acoustic, frames
                node.previous = source.nonblank_trace
            node.token, node.pron, node.start = token, c.pron, frames
            entry.nonblank_trace = at
            utterance.counts[arrays.TRACE] = at + 1
        entry.nonblank_acoustic = total + np.float64(scratch.unscaled[token])
    utterance.counts[arrays.FRONTIER] = num_entries
    utterance.base[0] += np.float64(best)


@inlined
def is_before(lm, a, b):
    """Return whether entry `a` is before `b` at equal costs."""
    if a.state != b.state:
        return state_order(lm, a.state) < state_order(lm, b.state)
    if a.node != b.node:
        return a.node < b.node
    if a.boost != b.boost:
        return a.boost < b.boost
    if a.spelling != b.spelling:
        return a.spelling < b.spelling
    return a.text < b.text


@part
def _choose_texts(params, scratch, count):
    """Keep the texts that may matter at the `beam_size` best places."""
    # The kept entries of a place are linked by `previous_same`, from the last one on.
    keys, entries = scratch.keys, scratch.new_entries
    stamp, kept, num_nodes = new_table(scratch, count), 0, 0
    for r in range(count):
        i = index_of(keys[r])
        e = entries[i]
        slot, last = slot_of(scratch, stamp, e, False)
        # A new place, but all are taken. Texts at known places may still follow.
        if last < 0 and num_nodes == params.beam_size:
            continue
        blank, nonblank, other = 0, 0, last
        while other >= 0:
            blank += int64(entries[other].blank_cost <= e.blank_cost)
            nonblank += int64(entries[other].nonblank_cost <= e.nonblank_cost)
            other = int64(entries[other].previous_same)
        # `nbest` earlier texts cost no more in this phase and have the same future: it
        # cannot be among the best in the end.
        if (e.blank_cost == _INF or blank >= params.nbest) and (
            e.nonblank_cost == _INF or nonblank >= params.nbest
        ):
            continue
        num_nodes += int64(last < 0)
        e.previous_same = last
        scratch.slots[slot] = (stamp << 32) | i
        keys[kept] = keys[r]
        kept += 1
    return kept
