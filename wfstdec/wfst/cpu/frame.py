"""The token-passing search in numba: one utterance, one frame after the other.

The specification is `reference.py`; this computes the same bits faster:

    for each frame:   keep       prune the frontier by beam and max_active
                      price      the acoustic cost of each label
                      emit       candidates: arcs that may survive
                      recombine  one entry per state, within the cutoff
                      close      epsilon arcs, in rank order
                      settle     trace nodes, re-base

With phrases, and where a bonus is paid in several instalments, entries also carry a
boost state. Without, `phrases` is None, and numba leaves out all that is for it. So it
is with `added`: words that the graph does not have, in `oov.py`.

What made it fast, on real graphs: two passes (candidates, then recombination, so that
cache misses overlap), one 32-byte row per state, prefetching, and a map from states
to entries that needs no clearing. `emitting.py` says how candidates are found.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.sorting import cost_of, key_of
from wfstdec.search.acoustics import price
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.arc_costs import arc_of_flagged, most_credited
from wfstdec.wfst.cpu.emitting import emit
from wfstdec.wfst.cpu.lattice_kernels import commit, finish_noting
from wfstdec.wfst.cpu.lattice_notes import start_noting
from wfstdec.wfst.cpu.oov import (
    append_added,
    close_added,
    emit_added,
    label_at,
    least_from_best_added,
    recombine_added,
)
from wfstdec.wfst.cpu.recombination import (
    close,
    insert,
    insert_alone,
    recombine,
    start_table,
)

_ONE = uint64(1)
_NO_NODE = uint32(k.NONE)
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_TOKENS = ilabel_of(0)
"""Where costs by ilabel begin to be those of tokens."""
_ZERO = uint64(0)


@kernel
def restart(utterance):
    """Make a state that of an utterance whose first frame is to come."""
    utterance.counts[:] = 0
    utterance.counts[k.DIED] = -1
    utterance.base[0] = 0.0


@kernel
def advance(
    graph, params, words, phrases, added, scratch, utterance, logprobs, first, record
):
    """Pass the frontier through the frames `first` and on of a chunk.

    `record`: a `Record`, or None where nobody asks for a lattice.

    Returns:
        (status, frame): OK and T, or what must grow and the frame to go on from.
    """
    num_frames = logprobs.shape[0]
    counts = utterance.counts
    if counts[k.FRONTIER] == 0:
        status = _begin(
            graph, params, words, phrases, added, scratch, utterance, record
        )
        # The caller makes room, and the frame is done again: pruned as it is, the
        # frontier stays so.
        if status != k.OK:
            return status, first
    for frame in range(first, num_frames):
        # A search that died stays where it was: later chunks change nothing.
        if counts[k.DIED] >= 0:
            break
        beam = _keep(params, phrases, scratch, utterance)
        unscaled, costs = scratch.unscaled[_TOKENS:], scratch.token_costs[_TOKENS:]
        price(params.pricing, graph.blank, logprobs[frame], unscaled, costs)
        status, of_graph, count, made = _next_frontier(
            graph, params, words, phrases, added, scratch, utterance, beam, record
        )
        kept = counts[k.FRONTIER]
        if status == k.OK and count > _ZERO:
            status = _settle(
                graph,
                params,
                words,
                phrases,
                added,
                scratch,
                utterance,
                of_graph,
                count,
            )
        if status != k.OK:
            return status, frame
        if count == _ZERO:
            counts[k.DIED] = counts[k.FRAMES]
            break
        if record is not None:
            commit(phrases, scratch, utterance, record, count)
        counts[k.FRAMES] += 1
        counts[k.ACTIVE] += kept
        counts[k.ARCS] += np.int64(made)
    return k.OK, num_frames


@inlined
def _begin(graph, params, words, phrases, added, scratch, utterance, record):
    """Make the frontier before the first frame; returns OK or what must grow."""
    if phrases is None:
        entry = scratch.candidates[0]
        entry.state, entry.cost = uint32(0), float32(0)
        entry.node, entry.arc = _NO_NODE, _NO_NODE
        insert_alone(phrases, scratch, _ZERO, entry)
    else:
        first = scratch.side[0]
        first.state, first.cost = uint32(0), float32(0)
        first.node, first.arc = _NO_NODE, _NO_NODE
        first.boost, first.source_boost = phrases.start, _NO_NODE
        start_table(phrases, scratch, _ONE)
        insert(phrases, scratch, _ZERO, first)
    scratch.waiting[0] = uint32(0)
    waiting = uint64(graph.rows[0].begin < graph.rows[0].emit)
    # Epsilon arcs may lead on before any frame, within the beam.
    cutoff = min(params.beam, NO_CUTOFF)
    start_noting(record)
    count, fits = close(
        graph, params, words, phrases, scratch, record, _ONE, waiting, cutoff
    )
    if not fits:
        return k.GROW_SCRATCH
    if record is not None:
        if not finish_noting(graph, added, scratch, utterance, record, count):
            return k.GROW_NOTED
    status = _settle(
        graph, params, words, phrases, added, scratch, utterance, count, count
    )
    if record is not None:
        if status == k.OK:
            commit(phrases, scratch, utterance, record, count)
    return status


@inlined
def _next_frontier(
    graph, params, words, phrases, added, scratch, utterance, beam, record
):
    """Emit, recombine, close.

    Returns:
        (status, entries of the graph's states in `scratch.next`, all entries: 0 if none
        survives, candidates made).
    """
    status, made, least = _emit(
        graph, params, words, phrases, added, scratch, utterance, beam, False
    )
    # Fixed before epsilon arcs are followed, as the specification has it.
    cutoff = min(float32(least + beam), NO_CUTOFF)
    count, more, waiting = _ZERO, _ZERO, _ZERO
    if status == k.OK:
        status, count, more, waiting = _reach(
            graph, phrases, added, scratch, record, made, cutoff
        )
    some = count + more
    # The frame is done once more without a bound: how many would survive was not known
    # before, and it is rare.
    few = some < params.min_active and some > _ZERO
    if status == k.OK and few and cutoff < NO_CUTOFF:
        status, made, least = _emit(
            graph, params, words, phrases, added, scratch, utterance, beam, True
        )
        if status == k.OK:
            status, cutoff = _wider(
                graph, params, phrases, added, scratch, record, made, cutoff
            )
        if status == k.OK:
            status, count, more, waiting = _reach(
                graph, phrases, added, scratch, record, made, cutoff
            )
    if status == k.OK and count > _ZERO:
        count, fits = close(
            graph, params, words, phrases, scratch, record, count, waiting, cutoff
        )
        status = k.OK if fits else k.GROW_SCRATCH
    if added is not None:
        if status == k.OK and more > _ZERO:
            more, status = close_added(phrases, added, scratch, record, count, more)
    if record is not None:
        if status == k.OK and count + more > _ZERO:
            if not finish_noting(graph, added, scratch, utterance, record, count):
                status = k.GROW_NOTED
    return status, count, count + more, made[0] + made[1] + made[2]


@inlined
def _emit(graph, params, words, phrases, added, scratch, utterance, beam, unbounded):
    """Candidates: (status, (candidates, side ones, those in `added`), least cost)."""
    from_added, known = _ZERO, float32(np.inf)
    if added is not None:
        if utterance.counts[k.BEST] >= utterance.counts[k.GRAPH]:
            # The best entry is in an OOV word: its arcs give the first bound instead.
            known = least_from_best_added(
                graph, params, words, phrases, added, scratch, utterance
            )
    made, side, least = emit(
        graph, params, words, phrases, scratch, utterance, beam, unbounded, known
    )
    if made == _NO_NODE:
        return k.GROW_SCRATCH, (_ZERO, _ZERO, _ZERO), least
    if added is not None:
        width = float32(np.inf) if unbounded else beam
        from_added, least = emit_added(
            graph, params, words, phrases, added, scratch, utterance, width, least
        )
        if from_added == _NO_NODE:
            return k.GROW_ADDED, (_ZERO, _ZERO, _ZERO), least
    return k.OK, (made, side, from_added), least


@inlined
def _reach(graph, phrases, added, scratch, record, made, cutoff):
    """Candidates to entries.

    Returns:
        (status, entries in `scratch.next`, those in `added.next`, how many of the
        former have epsilon arcs).
    """
    start_noting(record)
    count, waiting, fits = recombine(
        graph, phrases, scratch, record, made[0], made[1], cutoff
    )
    more, status = _ZERO, k.OK if fits else k.GROW_SCRATCH
    if added is not None:
        if fits and made[2] > _ZERO:
            count, waiting, more, status = recombine_added(
                phrases, added, scratch, record, made[2], cutoff, count, waiting
            )
    return status, count, more, waiting


@inlined
def _wider(graph, params, phrases, added, scratch, record, made, cutoff):
    """(status, the cutoff raised to the `min_active`-th least of all candidates)."""
    status, count, more, _ = _reach(
        graph, phrases, added, scratch, record, made, NO_CUTOFF
    )
    if added is not None:
        if status == k.OK and not append_added(phrases, added, scratch, count, more):
            status = k.GROW_SCRATCH
    if status == k.OK:
        number = params.min_active
        worst = nth_least(scratch.next, count + more, number, NO_CUTOFF, scratch)
        cutoff = max(cutoff, cost_of(worst))
    return status, cutoff


@inlined
def _keep(params, phrases, scratch, utterance):
    """Prune the frontier in place by beam, max_active, min_active; this frame's beam.

    Most frames have nothing to prune: what is over the beam was cut before re-basing.
    Done again after arrays grew, it changes nothing.
    """
    counts = utterance.counts
    count, within = uint64(counts[k.FRONTIER]), uint64(counts[k.WITHIN])
    if within > params.max_active:
        worst = _keep_least(phrases, scratch, utterance, params.max_active, params.beam)
        if params.beam_delta >= float32(0):
            utterance.beam[0] = min(params.beam, float32(worst + params.beam_delta))
    elif within < params.min_active and within < count:
        _keep_least(
            phrases, scratch, utterance, min(params.min_active, count), NO_CUTOFF
        )
    elif within < count:
        _keep_least(phrases, scratch, utterance, within, params.beam)
    return utterance.beam[0]


@part
def _keep_least(phrases, scratch, utterance, keep, limit):
    """Keep the `keep` entries with the least (cost, state); the cost of the worst."""
    frontier, counts = utterance.frontier, utterance.counts
    count = uint64(counts[k.FRONTIER])
    last = nth_least(frontier, count, keep, limit, scratch)
    # Keys have a cost and a graph state; entries of one state in several boost states
    # tie in both.
    last_boost = _NO_NODE
    if phrases is not None:
        boosts = utterance.boosts["boost"]
        last_boost = last_of_tie(frontier, boosts, count, keep, last, scratch)
    kept, of_graph, kept_of_graph = _ZERO, counts[k.GRAPH], _ZERO
    for i in range(count):
        cost = frontier[i].cost
        key = key_of(cost, frontier[i].state)
        if phrases is not None:
            if key == last and utterance.boosts[i].boost > last_boost:
                continue
        if key <= last:
            # Costs are relative to the best entry.
            if cost == float32(0):
                counts[k.BEST] = np.int64(kept)
            frontier[kept] = frontier[i]
            if phrases is not None:
                utterance.boosts[kept] = utterance.boosts[i]
            kept += _ONE
            if np.int64(i) < of_graph:
                kept_of_graph = kept
    counts[k.FRONTIER] = counts[k.WITHIN] = np.int64(kept)
    counts[k.GRAPH] = np.int64(kept_of_graph)
    return cost_of(last)


@part
def _settle(graph, params, words, phrases, added, scratch, utterance, of_graph, count):
    """Make trace nodes, re-base, and hand the entries to the utterance."""
    entries, frontier, trace = scratch.next, utterance.frontier, utterance.trace
    counts = utterance.counts
    first = uint64(counts[k.TRACE])
    if count > uint64(len(frontier)):
        return k.GROW_FRONTIER
    # Checked before anything is written: a frame is done whole or not at all.
    if first + count > uint64(len(trace)):
        return k.GROW_TRACE
    best = entries[0].cost
    for i in range(count):
        best = min(best, entries[i].cost)
    within, top_credit, quiet_credit = _ZERO, float32(0), float32(0)
    if phrases is not None:
        quiet_credit = most_credited(params, words, phrases, uint32(0))
        top_credit = quiet_credit
    for i in range(count):
        arc, node = entries[i].arc, entries[i].node
        made = first + uint64(i)
        cost = float32(entries[i].cost - best)
        acoustic = float32(0)
        if arc == _NO_NODE:
            trace[made].previous = _NO_NODE
        elif arc & _EPSILON_ARC:
            arc = arc_of_flagged(arc ^ _EPSILON_ARC)
            # An epsilon arc's source is of this frame, and may come later than what it
            # leads to.
            trace[made].previous = uint32(first) + node
        else:
            arc = arc_of_flagged(arc)
            acoustic = scratch.unscaled[label_at(graph, added, arc)]
            trace[made].previous = node
        trace[made].arc = arc
        trace[made].acoustic = acoustic
        frontier[i].cost = cost
        frontier[i].state = entries[i].state
        frontier[i].node = uint32(made)
        if phrases is not None:
            credit, boost = quiet_credit, scratch.next_boosts[i].boost
            if boost != phrases.quiet:
                credit = most_credited(params, words, phrases, boost)
                top_credit = max(top_credit, credit)
            utterance.boosts[i].boost, utterance.boosts[i].credit = boost, credit
        if cost <= params.beam:
            within += _ONE
        if cost == float32(0):
            counts[k.BEST] = np.int64(i)
    counts[k.FRONTIER], counts[k.GRAPH] = np.int64(count), np.int64(of_graph)
    counts[k.WITHIN] = np.int64(within)
    counts[k.TRACE] += np.int64(count)
    # float64, or hours of speech would round away what tells entries apart.
    utterance.base[0] += np.float64(best)
    utterance.beam[0], utterance.top_credit[0] = params.beam, top_credit
    return k.OK


@part
def nth_least(entries, count, n, limit, scratch):
    """The key of the n-th least entry among those that cost at most `limit`.

    A histogram over the costs finds the bin of the n-th; only that bin is sorted.

    Args:
        entries: ENTRY [>= count].
        count: How many entries there are.
        n: 1 or more; more than there are gives the key of the last.
        limit: float32, entries over it do not count.
        scratch: `Scratch`, for `bins` and `keys`.
    """
    bins, keys = scratch.bins, scratch.keys
    top = float32(len(bins) - 1)
    least, worst, within = float32(np.inf), float32(-np.inf), uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            least, worst = min(least, cost), max(worst, cost)
            within += _ONE
    n = min(n, within)
    # All costs equal: one bin has them all.
    scale = top / max(float32(worst - least), float32(1e-30))
    for b in range(uint64(len(bins))):
        bins[b] = uint32(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit:
            bins[_bin(cost, least, scale, top)] += uint32(1)
    before, last = uint64(0), uint64(0)
    while before + uint64(bins[last]) < n:
        before += uint64(bins[last])
        last += _ONE
    found = uint64(0)
    for i in range(count):
        cost = entries[i].cost
        if cost <= limit and _bin(cost, least, scale, top) == last:
            keys[found] = key_of(cost, entries[i].state)
            found += _ONE
    return _nth_of(keys, found, n - before - _ONE)


@part
def last_of_tie(entries, boosts, count, n, last, scratch):
    """The boost state of the n-th least entry, ties going to the lower one.

    Args:
        entries: ENTRY [>= count].
        boosts: uint32 [>= count], their boost states.
        count: How many entries there are.
        n: 1 or more, at most as many as do not come after `last`.
        last: The key of the n-th, from `nth_least`.
        scratch: `Scratch`, for `keys`.
    """
    before, found = uint64(0), uint64(0)
    for i in range(count):
        key = key_of(entries[i].cost, entries[i].state)
        before += uint64(key < last)
        if key == last:
            scratch.keys[found] = uint64(boosts[i])
            found += _ONE
    return uint32(_nth_of(scratch.keys, found, n - before - _ONE))


@part
def _nth_of(keys, count, n):
    """The key that stands at `n` once `keys[:count]` is sorted; Hoare's quickselect."""
    low, high = uint64(0), count - _ONE
    while low < high:
        pivot = keys[(low + high) >> _ONE]
        i, j = low, high
        while True:
            while keys[i] < pivot:
                i += _ONE
            while keys[j] > pivot:
                j -= _ONE
            if i >= j:
                break
            keys[i], keys[j] = keys[j], keys[i]
            i += _ONE
            j -= _ONE
        # Only the part that has the n-th is looked at again.
        if n <= j:
            high = j
        else:
            low = j + _ONE
    return keys[n]


@inlined
def _bin(cost, least, scale, top):
    """Monotone in `cost`."""
    return uint64(min(float32(float32(cost - least) * scale), top))
