"""Candidates of one frame: merged as they come, cut, and the best chosen.

begin_frame(rules, scratch)
add(rules, scratch, score, ...)                    # any number of times
count = choose(rules, scratch)              # scratch.order[:count], the best first
clear(scratch)                                     # before another try, or frame
"""

from __future__ import annotations

import math

import numpy as np
from numpy import int64, uint64

import wfstdec.adapters.torchaudio.records as k
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.hashing import hash_of

_INF = np.inf


@part
def begin_frame(rules, scratch):
    """Nothing has been found yet, and nothing is too bad."""
    scratch.counts[k.COUNT], scratch.counts[k.STATUS] = 0, k.DONE
    scratch.counts[k.NEXT_CUT] = 2 * rules.beam_size
    scratch.limits[k.BEST] = scratch.limits[k.CUT] = -_INF


@kernel
def clear(scratch):
    """Empty the slots."""
    for i in range(scratch.counts[k.COUNT]):
        if scratch.taken[i] >= 0:
            scratch.slots[scratch.taken[i]] = -1


@inlined
def add(rules, scratch, score, lm, label, node, token, word, parent, blank):
    """A way into a hypothesis; where it is kept, its position, else -1."""
    limits, counts = scratch.limits, scratch.counts
    if not (score >= limits[k.CUT] and score > -_INF):
        return int64(-1)
    i = counts[k.COUNT]
    if i == len(scratch.candidates):
        counts[k.STATUS] = k.MORE_CANDIDATES
        return int64(-1)
    # The cut rises with the best, and only rises: what it drops now would be dropped in
    # the end.
    if score > limits[k.BEST]:
        limits[k.BEST] = score
        limits[k.CUT] = max(limits[k.CUT], score - rules.beam_threshold)
    c = scratch.candidates[i]
    c.score = c.single = score
    c.lm, c.label, c.node, c.token = lm, label, node, token
    c.word, c.parent, c.blank = word, parent, blank
    if rules.log_add:  # which may be summed is known at the end alone
        scratch.taken[i] = -1
        counts[k.COUNT] = i + 1
        return i
    at = merge(scratch.candidates, scratch.slots, scratch.taken, i, False)
    if at == i:
        counts[k.COUNT] = i + 1
        if i + 1 >= counts[k.NEXT_CUT]:
            counts[k.NEXT_CUT] = 2 * (i + 1)
            raise_cut(rules, scratch)
    return at


@kernel
def merge(candidates, slots, taken, i, log_add):
    """Give candidate `i`, the last, its place; where it is, or -1 where it is lost.

    It takes few arrays: many are many arguments of a call.
    """
    c = candidates[i]
    mask = uint64(len(slots) - 1)
    frame = int64(c.token) * 2 + int64(c.blank)
    key = hash_of(c.lm, c.node, uint64(frame) + (uint64(c.label) << uint64(20)))
    slot = key & mask
    while slots[slot] >= 0 and not _same(candidates[slots[slot]], c):
        slot = (slot + uint64(1)) & mask
    j = int64(slots[slot])
    if j < 0:
        slots[slot] = i
        taken[i] = slot
        return i
    # It leads where `j` does; where it is the better way it takes over.
    other = candidates[j]
    low, high = min(c.score, other.score), max(c.score, other.score)
    other.score = high + math.log1p(math.exp(low - high)) if log_add else high
    better = c.single > other.single
    # Ties by the parent, then the word: whatever came first.
    if c.single == other.single:
        better = c.parent < other.parent or (
            c.parent == other.parent and c.word < other.word
        )
    if not better:
        return int64(-1)
    other.single, other.word, other.parent = c.single, c.word, c.parent
    return j


@inlined
def _same(a, b):
    """Tell whether two candidates are one hypothesis."""
    same = a.lm == b.lm and a.label == b.label and a.node == b.node
    return same and a.token == b.token and a.blank == b.blank


@part
def raise_cut(rules, scratch):
    """Nothing below the `beam_size`th of what is there will live."""
    count = scratch.counts[k.COUNT]
    if count < rules.beam_size or rules.log_add:
        return
    for i in range(count):
        scratch.values[i] = scratch.candidates[i].score
    cut = kth_best(scratch.values, count, rules.beam_size)
    scratch.limits[k.CUT] = max(scratch.limits[k.CUT], cut)


@kernel
def choose(rules, scratch):
    """The candidates that live on into `scratch.order`, the best first; how many."""
    candidates, cut = scratch.candidates, scratch.limits[k.CUT]
    count = scratch.counts[k.COUNT]
    if rules.log_add:
        # What is within the threshold is merged, in the order that it came in.
        total, count = count, int64(0)
        for i in range(total):
            if candidates[i].score >= cut:
                if count < i:
                    candidates[count] = candidates[i]
                at = merge(candidates, scratch.slots, scratch.taken, count, True)
                count += int64(at == count)
        scratch.counts[k.COUNT] = count
    # Only those at the K-th score or above are sorted.
    if count > rules.beam_size:
        for i in range(count):
            scratch.values[i] = candidates[i].score
        cut = max(cut, kth_best(scratch.values, count, rules.beam_size))
    chosen = 0
    for i in range(count):
        if candidates[i].score >= cut:
            scratch.order[chosen] = i
            chosen += 1
    _sort(scratch, chosen)
    return min(chosen, rules.beam_size)


@part
def kth_best(values, count, rank):
    """The `rank`th highest of `values[:count]`, which are put into another order."""
    low, high, wanted = 0, count - 1, rank - 1
    while low < high:
        a, b, c = values[low], values[(low + high) >> 1], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return values[wanted]


@inlined
def _goes_before(a, b):
    """The order of hypotheses: no two are alike in all of these."""
    if a.score != b.score:
        return a.score > b.score
    if a.parent != b.parent:
        return a.parent < b.parent
    if a.token != b.token:
        return a.token < b.token
    if a.word != b.word:
        return a.word < b.word
    if a.node != b.node:
        return a.node < b.node
    return b.blank and not a.blank


@part
def _sort(scratch, count):
    """Sort `scratch.order[:count]`: runs by insertion, then merged by twos."""
    candidates, order, beside = scratch.candidates, scratch.order, scratch.beside
    run = 16
    for begin in range(0, count, run):
        for i in range(begin + 1, min(begin + run, count)):
            one = order[i]
            j = i
            while j > begin and _goes_before(candidates[one], candidates[order[j - 1]]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = one
    while run < count:
        for begin in range(0, count - run, 2 * run):
            middle, end = begin + run, min(begin + 2 * run, count)
            # Half of each pair is copied, and the other merged in place.
            for i in range(begin, middle):
                beside[i] = order[i]
            i, j = begin, middle
            for at in range(begin, end):
                if i == middle:
                    break
                if j < end and _goes_before(
                    candidates[order[j]], candidates[beside[i]]
                ):
                    order[at] = order[j]
                    j += 1
                else:
                    order[at] = beside[i]
                    i += 1
        run *= 2
