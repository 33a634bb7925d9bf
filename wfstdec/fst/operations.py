"""Composition and minimization of FSTs in arrays.

A state of a composition is a pair of states, numbered in order of discovery. From (a,
b) it has

    an arc to (a', b)  for each arc a -> a' of the left with no output,
    an arc to (a', b') for each arc a -> a' of the left and b -> b' of the right whose
                       output and input label are the same.

The right side must have no epsilons on its input side. Paths are then unique without a
composition filter.

Minimization treats the FST as an acceptor of (input, output, rounded cost), as Kaldi's
fstminimizeencoded does. Initial blocks have equal final costs. States whose arcs differ
from those of their block leave it, and their predecessors are examined again. Sets of
arcs are compared by 64-bit hashes.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst
from wfstdec.jit import jit
from wfstdec.jit.arrays import enter, longer, slot_of_pair, twice
from wfstdec.text.tokens import EPSILON

_FIRST_SIZE = 1 << 12
_NO_ARC = -1


class _Side(NamedTuple):
    """Side of a composition; arcs of each state are sorted by the label to match."""

    start: int  # Start state
    splits: np.ndarray  # int64 [S + 1]
    epsilon_end: np.ndarray  # int64 [S], end of each state's epsilons
    label: np.ndarray  # int32 [A], sorted within each state
    arc: np.ndarray  # int32 [A], arc of each label, an index into `nextstate`
    nextstate: np.ndarray  # int32 [A]


def compose(left: FstArrays, right: FstArrays) -> FstArrays:
    """Return the trimmed composition; it has no states if it accepts nothing."""
    assert (right.ilabel != EPSILON).all(), "the right side has input epsilons"
    for side in (left, right):  # kernels do not check bounds
        if side.num_states:
            check_fst(side)
    a, b = _side(left, left.olabel), _side(right, right.ilabel)
    states, splits, arcs, nextstate = _join(a, b)
    left_arc, right_arc = arcs[:, 0], arcs[:, 1]
    # `_NO_ARC` indexes the appended value.
    cost = left.cost[left_arc]
    cost += np.append(right.cost, np.float32(0))[right_arc]
    return trimmed(
        FstArrays(
            start=0,
            final_cost=left.final_cost[states[:, 0]] + right.final_cost[states[:, 1]],
            state_arc_splits=splits,
            ilabel=left.ilabel[left_arc],
            olabel=np.append(right.olabel, np.int32(EPSILON))[right_arc],
            nextstate=nextstate,
            cost=cost,
        )
    )


def _side(fst: FstArrays, label: np.ndarray) -> _Side:
    key = fst.arc_state() * (int(label.max(initial=0)) + 1) + label
    arc = np.argsort(key, kind="stable").astype(np.int32)
    is_epsilon = np.concatenate([[0], np.cumsum(label == EPSILON)])
    splits = fst.state_arc_splits
    epsilon_end = splits[:-1] + is_epsilon[splits[1:]] - is_epsilon[splits[:-1]]
    return _Side(fst.start, splits, epsilon_end, label[arc], arc, fst.nextstate)


@jit
def _lower_bound(labels, begin, end, label):
    """Return the first position of begin..end whose label is not below `label`."""
    # In doubling steps: a short row skips through a long one.
    step = 1
    while begin + step < end and labels[begin + step] < label:
        begin += step
        step *= 2
    end = min(end, begin + step + 1)
    while begin < end:
        middle = (begin + end) // 2
        if labels[middle] < label:
            begin = middle + 1
        else:
            end = middle
    return begin


@jit
def _arcs_from(left, right, a, b, arcs, num_arcs):
    """Append pairs of arcs that leave (a, b); also count those without room."""
    # Epsilons of the left side move alone: see the top.
    for x in range(left.splits[a], left.epsilon_end[a]):
        if num_arcs < len(arcs):
            arcs[num_arcs, 0], arcs[num_arcs, 1] = left.arc[x], _NO_ARC
        num_arcs += 1
    x, x_end = left.epsilon_end[a], left.splits[a + 1]
    y, y_end = right.splits[b], right.splits[b + 1]
    while x < x_end and y < y_end:
        label, other = left.label[x], right.label[y]
        # Bisection, not a step: one side often has thousands of arcs, the other few.
        if label < other:
            x = _lower_bound(left.label, x + 1, x_end, other)
        elif other < label:
            y = _lower_bound(right.label, y + 1, y_end, label)
        else:
            run = y
            while run < y_end and right.label[run] == label:
                if num_arcs < len(arcs):
                    arcs[num_arcs, 0] = left.arc[x]
                    arcs[num_arcs, 1] = right.arc[run]
                num_arcs += 1
                run += 1
            # The right position is kept: the next arc of the left may have this label.
            x += 1
    return num_arcs


@jit
def _join(left, right):
    # Returns int32 [S, 2], the pair of each state; int64 [S + 1], first arcs; int32 [A,
    # 2], the pair of each arc, -1 for none on the right; int32 [A], its next state.
    slots = np.full(4 * _FIRST_SIZE, -1, np.int32)
    pairs = np.empty((_FIRST_SIZE, 2), np.int32)
    splits = np.zeros(_FIRST_SIZE, np.int64)
    arcs = np.empty((_FIRST_SIZE, 2), np.int32)
    nextstate = np.empty(_FIRST_SIZE, np.int32)
    (pairs, slots), num_states, _ = enter((pairs, slots), 0, left.start, right.start)
    num_arcs, state = 0, 0
    while state < num_states:
        if state + 1 == len(splits):
            splits = longer(splits, 0)
        splits[state] = num_arcs
        a, b = int(pairs[state, 0]), int(pairs[state, 1])
        end = _arcs_from(left, right, a, b, arcs, num_arcs)
        # Counted past the end, then grown: the loop over arcs does not check room.
        while end > len(arcs):
            arcs, nextstate = twice(arcs), longer(nextstate, 0)
            end = _arcs_from(left, right, a, b, arcs, num_arcs)
        for arc in range(num_arcs, end):
            next_a, next_b = int(left.nextstate[arcs[arc, 0]]), b
            if arcs[arc, 1] != _NO_ARC:
                next_b = int(right.nextstate[arcs[arc, 1]])
            number = np.int64(slots[slot_of_pair(slots, pairs, next_a, next_b)])
            if number < 0:  # called only for new pairs: tuples of arrays are slow
                table = pairs, slots
                table, num_states, number = enter(table, num_states, next_a, next_b)
                pairs, slots = table
            nextstate[arc] = number
        num_arcs = end
        state += 1
    splits[num_states] = num_arcs
    splits = splits[: num_states + 1]
    return pairs[:num_states], splits, arcs[:num_arcs], nextstate[:num_arcs]


def trimmed(fst: FstArrays) -> FstArrays:
    """Return the part from which a final state can be reached."""
    # All states are reached from the start, which remains 0.
    useful = np.isfinite(fst.final_cost)
    _mark_sources(*_entering(fst), useful)
    useful &= useful[fst.start]
    if useful.all():
        return fst
    return part_of(fst, useful, useful[fst.arc_state()] & useful[fst.nextstate])


def part_of(fst: FstArrays, states: np.ndarray, arcs: np.ndarray) -> FstArrays:
    """Return the FST of these states and arcs, bool [S] and [A], renumbered."""
    number, arc = np.cumsum(states) - 1, np.flatnonzero(arcs)
    counts = np.bincount(number[fst.arc_state()[arc]], minlength=int(states.sum()))
    return FstArrays(
        start=max(int(number[fst.start]), 0),
        final_cost=fst.final_cost[states],
        state_arc_splits=np.concatenate([[0], np.cumsum(counts)]),
        ilabel=fst.ilabel[arc],
        olabel=fst.olabel[arc],
        nextstate=number[fst.nextstate[arc]].astype(np.int32),
        cost=fst.cost[arc],
    )


def _entering(fst: FstArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the source states of arcs into each state: int64 [S + 1], int32 [A]."""
    order = np.argsort(fst.nextstate, kind="stable")
    counts = np.bincount(fst.nextstate, minlength=fst.num_states)
    splits = np.concatenate([[0], np.cumsum(counts)])
    return splits, fst.arc_state().astype(np.int32)[order]


@jit
def _mark_sources(splits, source, marked):
    waiting, size = np.empty(len(marked), np.int64), 0
    for state in np.flatnonzero(marked):
        waiting[size] = state
        size += 1
    while size > 0:
        size -= 1
        state = waiting[size]
        for i in range(splits[state], splits[state + 1]):
            if not marked[source[i]]:
                marked[source[i]] = True
                waiting[size] = source[i]
                size += 1


ROUNDING = 1e-6
"""Nats; costs that round to the same multiple are equal. Kaldi's 1/1024 makes a real LG
0.6 % smaller, and changes costs of sentences by half of that per arc.
"""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


class _Graph(NamedTuple):
    splits: np.ndarray  # int64 [S + 1]
    key: np.ndarray  # uint64 [A], a hash of labels and cost
    nextstate: np.ndarray  # int32 [A]
    entering_splits: np.ndarray  # int64 [S + 1]
    entering_state: np.ndarray  # int32 [A], source states of arcs into each state


def minimize(fst: FstArrays) -> FstArrays:
    """Merge states with equal continuations; the first of each set is kept."""
    # Rounded only for comparison: kept states have their exact costs.
    finals, block = np.unique(_rounded(fst.final_cost), return_inverse=True)
    block = block.astype(np.int32)
    slots = np.full(1 << (2 * fst.num_states).bit_length(), -1, np.int32)
    _refine(_graph(fst), block, len(finals), slots)
    _, first, block = np.unique(block, return_index=True, return_inverse=True)
    alike = first[block].astype(np.int32)  # first state of each one's block
    kept = alike == np.arange(fst.num_states)
    start, nextstate = int(alike[fst.start]), alike[fst.nextstate]
    fst = replace(fst, start=start, nextstate=nextstate)
    return part_of(fst, kept, kept[fst.arc_state()])


def _graph(fst: FstArrays) -> _Graph:
    key = fst.ilabel.astype(np.uint64) << np.uint64(32)
    key = _mixed(key | fst.olabel.astype(np.uint64))
    key = _mixed(key + _rounded(fst.cost).view(np.uint64))
    return _Graph(fst.state_arc_splits, key, fst.nextstate, *_entering(fst))


def _rounded(cost: np.ndarray) -> np.ndarray:
    """Return multiples of `ROUNDING`, int64; infinity is beyond all of them."""
    multiples = np.round(cost.astype(np.float64) / ROUNDING)
    return np.where(np.isinf(cost), 2.0**62, multiples).astype(np.int64)


@jit
def _mixed(value):
    """Return the hash of a uint64, or of each in an array: splitmix64's finish."""
    value = (value ^ (value >> _SHIFTS[0])) * _FIRST
    value = (value ^ (value >> _SHIFTS[1])) * _SECOND
    return value ^ (value >> _SHIFTS[2])


@jit
def _signature(graph, block, state):
    """Return an order-independent hash of a state's arcs, uint64."""
    total = np.uint64(0)
    for arc in range(graph.splits[state], graph.splits[state + 1]):
        target = np.uint64(block[graph.nextstate[arc]]) * _GOLDEN
        total += _mixed(graph.key[arc] ^ target)
    return total


@jit
def _refine(graph, block, num_blocks, slots):
    """Split blocks, minimally, until states of each have one signature."""
    # `slots` is a hash table: new blocks by the block left and the signature.
    num_states = len(block)
    size = np.zeros(num_states, np.int32)  # of each block
    for state in range(num_states):
        size[block[state]] += 1
    of_block = np.zeros(num_states, np.uint64)  # signature of each block
    left = np.zeros(num_states, np.int32)  # the block that each block was split from
    slot_of = np.zeros(num_states, np.int64)
    mask = len(slots) - 1
    num_looked_at = np.zeros(num_states, np.int32)  # in each block
    signature = np.zeros(num_states, np.uint64)
    waiting = np.ones(num_states, np.bool_)
    queue, moved = np.arange(num_states), np.empty(num_states, np.int64)
    queued = num_states
    while queued > 0:
        # Compute all signatures before any move: they must be of one partition.
        for state in queue[:queued]:
            signature[state] = _signature(graph, block, state)
            num_looked_at[block[state]] += 1
            waiting[state] = False
        for state in queue[:queued]:  # if all are here, the first one's counts
            if num_looked_at[block[state]] == size[block[state]]:
                of_block[block[state]] = signature[state]
            num_looked_at[block[state]] = 0
        num_moved, first_new = 0, num_blocks
        for state in queue[:queued]:
            old = block[state]
            if signature[state] == of_block[old]:
                continue
            key = _mixed(signature[state] + np.uint64(old) * _GOLDEN)
            slot = np.int64(key & np.uint64(mask))
            # Terminates: there are twice as many slots as states.
            while slots[slot] >= 0 and not (
                left[slots[slot]] == old and of_block[slots[slot]] == signature[state]
            ):
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                slots[slot], slot_of[num_blocks] = num_blocks, slot
                left[num_blocks], of_block[num_blocks] = old, signature[state]
                num_blocks += 1
            size[old] -= 1
            size[slots[slot]] += 1
            block[state] = slots[slot]
            moved[num_moved] = state
            num_moved += 1
        # The table is of this round: slots are freed one by one, as it is large.
        for new in range(first_new, num_blocks):
            slots[slot_of[new]] = -1
        queued = 0
        # Only predecessors of a moved state can change their signature.
        for state in moved[:num_moved]:
            first, end = graph.entering_splits[state], graph.entering_splits[state + 1]
            for before in graph.entering_state[first:end]:
                if not waiting[before]:
                    waiting[before] = True
                    queue[queued] = before
                    queued += 1
