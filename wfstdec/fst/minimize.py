"""Minimization of FSTs in arrays: states with equal continuations become one.

    lg = minimize(lg)

The FST is taken for an acceptor of (input, output, rounded cost), as Kaldi's
fstminimizeencoded does. All states begin in blocks of equal final cost. Then

    signature of a state = its arcs as a set of (label, label, cost, block of nextstate)
    states whose signature is not that of their block leave it, alike ones together
    states with an arc to one that has left are looked at again

until none leaves. Signatures are compared by 64-bit hashes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wfstdec.graph.arcs import FstArrays
from wfstdec.jit import jit

ROUNDING = 1e-6
"""Nats; costs that round to the same multiple count as equal. Kaldi's 1/1024 makes a
real LG another 0.6 % smaller, and moves costs of sentences by half of that per arc."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


class _Graph(NamedTuple):
    """The arcs forwards and backwards.

    Attributes:
        splits: int64 [S + 1].
        key: uint64 [A], a hash of labels and cost.
        nextstate: int32 [A].
        entering_splits: int64 [S + 1].
        entering_state: int32 [A], the states that arcs into each state leave.
    """

    splits: np.ndarray
    key: np.ndarray
    nextstate: np.ndarray
    entering_splits: np.ndarray
    entering_state: np.ndarray


def minimize(fst: FstArrays) -> FstArrays:
    """Merge states with equal continuations; of each set the first one stays."""
    # Rounded for comparing alone: what stays has its own costs.
    finals, block = np.unique(_rounded(fst.final_cost), return_inverse=True)
    block = block.astype(np.int32)
    slots = np.full(1 << (2 * fst.num_states).bit_length(), -1, np.int32)
    _refine(_graph(fst), block, len(finals), slots)
    _, first, block = np.unique(block, return_index=True, return_inverse=True)
    # Blocks in the order of their first states: numbers stay local, as they were.
    order = np.argsort(first)
    number = np.empty(len(first), np.int32)  # of a block, by its first state
    number[order] = np.arange(len(first))
    kept = first[order]
    lengths = np.diff(fst.state_arc_splits)[kept]
    splits = np.concatenate([[0], np.cumsum(lengths)])
    arc = np.arange(splits[-1]) + np.repeat(
        fst.state_arc_splits[kept] - splits[:-1], lengths
    )
    return FstArrays(
        start=int(number[block[fst.start]]),
        final_cost=fst.final_cost[kept],
        state_arc_splits=splits,
        ilabel=fst.ilabel[arc],
        olabel=fst.olabel[arc],
        nextstate=number[block[fst.nextstate[arc]]],
        cost=fst.cost[arc],
    )


def _graph(fst: FstArrays) -> _Graph:
    key = fst.ilabel.astype(np.uint64) << np.uint64(32)
    key = _mixed(key | fst.olabel.astype(np.uint64))
    key = _mixed(key + _rounded(fst.cost).view(np.uint64))
    entering = np.argsort(fst.nextstate, kind="stable")
    num_entering = np.bincount(fst.nextstate, minlength=fst.num_states)
    return _Graph(
        fst.state_arc_splits,
        key,
        fst.nextstate,
        np.concatenate([[0], np.cumsum(num_entering)]),
        fst.arc_state().astype(np.int32)[entering],
    )


def _rounded(cost: np.ndarray) -> np.ndarray:
    """Multiples of `ROUNDING`, int64; infinity is beyond all of them."""
    multiples = np.round(cost.astype(np.float64) / ROUNDING)
    return np.where(np.isinf(cost), 2.0**62, multiples).astype(np.int64)


@jit
def _mixed(value: Any) -> Any:
    """A hash of a uint64, or of each in an array: the finish of splitmix64."""
    value = (value ^ (value >> _SHIFTS[0])) * _FIRST
    value = (value ^ (value >> _SHIFTS[1])) * _SECOND
    return value ^ (value >> _SHIFTS[2])


@jit
def _signature(graph: _Graph, block: np.ndarray, state: int) -> Any:
    """A hash of a state's arcs, whatever their order; uint64."""
    total = np.uint64(0)
    for arc in range(graph.splits[state], graph.splits[state + 1]):
        target = np.uint64(block[graph.nextstate[arc]]) * _GOLDEN
        total += _mixed(graph.key[arc] ^ target)
    return total


@jit
def _refine(
    graph: _Graph, block: np.ndarray, num_blocks: int, slots: np.ndarray
) -> None:
    """Split blocks, as little as needed, until all states of each have one signature.

    `slots` is a hash table: new blocks by the block left and the signature.
    """
    num_states = len(block)
    size = np.zeros(num_states, np.int32)  # of each block
    for state in range(num_states):
        size[block[state]] += 1
    of_block = np.zeros(num_states, np.uint64)  # signature of each block
    left = np.zeros(num_states, np.int32)  # the block that each block came from
    slot_of = np.zeros(num_states, np.int64)
    mask = len(slots) - 1
    num_looked_at = np.zeros(num_states, np.int32)  # in each block
    signature = np.zeros(num_states, np.uint64)
    waiting = np.ones(num_states, np.bool_)
    queue, moved = np.arange(num_states), np.empty(num_states, np.int64)
    queued = num_states
    while queued > 0:
        # Signatures of all before any is moved: they must be of one partition.
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
        # Only what leads to a moved state can have another signature now.
        for state in moved[:num_moved]:
            for i in range(
                graph.entering_splits[state], graph.entering_splits[state + 1]
            ):
                before = graph.entering_state[i]
                if not waiting[before]:
                    waiting[before] = True
                    queue[queued] = before
                    queued += 1
