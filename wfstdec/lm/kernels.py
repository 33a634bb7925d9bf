"""Kernels of back-off automata in numba, for the searches of all decoders.

    cost, nextstate = step(automaton, model, state, label)
    cost = final(automaton, state)

`automaton` is an `Automaton`, shared by all threads; `model` is the index of a model in
it. Costs are float32, added in the order of `tests/reference/lm_reference.py`, with
equal bits.

`step`, `final` and others also take an `OnDemandTable`, which has the scores of a
user's model. A missing pair costs `inf` and is recorded; the model then scores all
recorded pairs, and the kernel runs again.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32, uint64

from wfstdec.jit import by_class, inlined, kernel, read_only

FINAL = 0xFFFFFFFF  # label of the end of the utterance
UNKNOWN = (1 << 31) - 1  # label in no table of words: `<unk>`
USED, MISSES, FULL = range(3)
"""Positions in counts: pairs, recorded pairs, whether one had no room."""
_FREE = uint64(0xFFFFFFFFFFFFFFFF)
_FACTOR = uint64(0x9E3779B97F4A7C15)
_INF = float32(np.inf)
_PENDING = int32(-1)


class OnDemandTable(NamedTuple):
    """Hash table of H pairs of a state and a label, for one thread at a time."""

    # uint64 [H], state and label; all bits set in free slots. H is a power of 2, at
    # most half of which is used.
    keys: np.ndarray
    cost: np.ndarray  # float32 [H], nats; inf if not known yet
    next: np.ndarray  # int32 [H], the next state; -1 if not known yet
    misses: np.ndarray  # int32 [H / 2], slots of missing pairs
    counts: np.ndarray  # int64 [4]
    # uint64 [S], tie order of states of equal cost, independent of their numbers
    order: np.ndarray
    aliases: np.ndarray  # int32, of labels from `num_labels` on
    num_labels: int  # L; labels below it have no alias
    model_start: np.ndarray  # int32 [1]


def new_table(size: int, num_labels: int) -> OnDemandTable:
    """Return an empty table; `size` is a power of two."""
    return OnDemandTable(
        keys=np.full(size, _FREE, np.uint64),
        cost=np.full(size, np.inf, np.float32),
        next=np.full(size, -1, np.int32),
        misses=np.zeros(size // 2, np.int32),
        counts=np.zeros(4, np.int64),
        order=read_only(np.zeros(0, np.uint64)),
        aliases=read_only(np.zeros(0, np.int32)),
        num_labels=num_labels,
        model_start=read_only(np.zeros(1, np.int32)),
    )


@inlined
def _table_step(lm, model, state, label):
    """Look up a step; a missing pair costs inf, and leads to -1."""
    if state < 0:  # after a missing pair
        return _INF, _PENDING
    label = int64(label)
    if label >= lm.num_labels:
        beyond = label - lm.num_labels
        label = int64(lm.num_labels)
        if beyond < len(lm.aliases):
            label = int64(lm.aliases[beyond])
    return _asked(lm, (uint64(uint32(state)) << uint64(32)) | uint64(label))


@inlined
def _table_final(lm, state):
    if state < 0:
        return _INF
    return _asked(lm, (uint64(uint32(state)) << uint64(32)) | uint64(FINAL))[0]


@inlined
def _table_unanswered(lm):
    return lm.counts[MISSES] + lm.counts[FULL] > 0


@inlined
def _table_order(lm, state):
    return lm.order[state]


@inlined
def _table_row(lm, state):
    return int64(0)


@inlined
def _slot_of(keys, key):
    """Return the slot of a pair, or the free one where it belongs."""
    mixed = key * _FACTOR
    mixed ^= mixed >> uint64(29)
    mask = uint64(len(keys) - 1)
    slot = (mixed * _FACTOR >> uint64(20)) & mask
    # Terminates: `_asked` leaves half of the slots free.
    while keys[slot] != key and keys[slot] != _FREE:
        slot = (slot + uint64(1)) & mask
    return slot


@inlined
def _asked(lm, key):
    """Return cost and next state of a pair; record it if it is new."""
    slot = _slot_of(lm.keys, key)
    if lm.keys[slot] != key:
        used, noted = lm.counts[USED], lm.counts[MISSES]
        if 2 * (used + 1) > len(lm.keys):
            lm.counts[FULL] = 1
            return _INF, _PENDING
        lm.keys[slot], lm.cost[slot], lm.next[slot] = key, _INF, _PENDING
        lm.misses[noted] = slot
        lm.counts[USED], lm.counts[MISSES] = used + 1, noted + 1
    return lm.cost[slot], lm.next[slot]


class Automaton(NamedTuple):
    """Packed arrays of M models with S states and A arcs, for kernels."""

    # A model with a label table (L > 0 entries) has a dense root: L + 1 arcs, the last
    # one for labels outside the table; arcs have the alias of a label. A model without
    # one has a sparse root: labels without an arc lead back to it at the default cost.

    state_arc_splits: np.ndarray  # int64 [S + 1], row of each state
    arc_label: np.ndarray  # int32 [A], increasing in each row
    arc_next: np.ndarray  # int32 [A]
    arc_cost: np.ndarray  # float32 [A], nats
    backoff_state: np.ndarray  # int32 [S], less than the state; -1 at roots
    backoff_cost: np.ndarray  # float32 [S], 0 at roots
    final_cost: np.ndarray  # float32 [S], including back-off
    model_start: np.ndarray  # int32 [M]
    model_label_splits: np.ndarray  # int64 [M + 1], of the label tables
    # float32 [M], of labels without an arc at a sparse root
    model_default_cost: np.ndarray
    label_alias: np.ndarray  # int32, 0..L of each label of each table


_KINDS = {"splits": np.int64, "cost": np.float32}
DTYPES = {name: _KINDS.get(name.split("_")[-1], np.int32) for name in Automaton._fields}
"""Type of each array of an `Automaton`, by the end of its name."""


def frozen(automaton: Automaton) -> Automaton:
    """Convert arrays to their types, read-only, so that kernels compile once."""
    arrays = []
    for name, dtype in DTYPES.items():
        array = np.ascontiguousarray(getattr(automaton, name), dtype).view(np.ndarray)
        arrays.append(read_only(array))
    return Automaton(*arrays)


@inlined
def canonical(automaton, model, label):
    """Return the label of the arcs of `model` for a label."""
    first = automaton.model_label_splits[model]
    count = automaton.model_label_splits[model + 1] - first
    if count == 0:
        return label
    if label >= count:
        return count
    return np.int64(automaton.label_alias[first + label])


@inlined
def find_arc(arc_label, begin, end, label):
    """Return the first arc of a row whose label is not below `label`, or `end`."""
    while begin < end:
        middle = (begin + end) >> 1
        if arc_label[middle] < label:
            begin = middle + 1
        else:
            end = middle
    return begin


@inlined
def _automaton_step(automaton, model, state, label):
    total = np.float32(0)
    state = np.int64(state)
    label = canonical(automaton, model, np.int64(label))
    splits = automaton.model_label_splits
    dense = splits[model + 1] > splits[model]
    while True:
        begin = np.int64(automaton.state_arc_splits[state])
        backoff = np.int64(automaton.backoff_state[state])
        # The root has an arc for each label, in order: no search.
        if backoff < 0 and dense:
            arc = begin + label
            break
        end = np.int64(automaton.state_arc_splits[state + 1])
        arc = find_arc(automaton.arc_label, begin, end, label)
        if arc < end and automaton.arc_label[arc] == label:
            break
        if backoff < 0:
            return total + automaton.model_default_cost[model], np.int32(state)
        # float32, in order from the state down: the sum of GPUs and `row`.
        total += automaton.backoff_cost[state]
        state = backoff
    return total + automaton.arc_cost[arc], automaton.arc_next[arc]


@inlined
def _automaton_final(automaton, state):
    return automaton.final_cost[state]


@inlined
def _automaton_unanswered(automaton):
    return False


@inlined
def _automaton_order(automaton, state):
    return np.uint64(state)


@inlined
def _automaton_row(automaton, state):
    return np.int64(state)


step = by_class({Automaton: _automaton_step, OnDemandTable: _table_step})
"""Return the cost of a label in a state, float32, and the next state, int32."""
final = by_class({Automaton: _automaton_final, OnDemandTable: _table_final})
"""Return the cost of ending in a state, float32."""
unanswered = by_class(
    {Automaton: _automaton_unanswered, OnDemandTable: _table_unanswered}
)
"""Return whether the model must be queried, and the step repeated."""
state_order = by_class({Automaton: _automaton_order, OnDemandTable: _table_order})
"""Return the tie order of a state among those of equal cost, uint64."""
row_of_state = by_class({Automaton: _automaton_row, OnDemandTable: _table_row})
"""Return the row of a state in arrays over the states of a model."""


@inlined
def _fill_root(automaton, model, root, total, costs, nextstates):
    """Fill the row of the root, which has every label."""
    begin = np.int64(automaton.state_arc_splits[root])
    first = automaton.model_label_splits[model]
    if automaton.model_label_splits[model + 1] > first:
        for label in range(len(costs)):
            arc = begin + canonical(automaton, model, label)
            costs[label] = total + automaton.arc_cost[arc]
            nextstates[label] = automaton.arc_next[arc]
        return
    for label in range(len(costs)):
        costs[label] = total + automaton.model_default_cost[model]
        nextstates[label] = root
    _overwrite(automaton, model, root, total, costs, nextstates)


@inlined
def _overwrite(automaton, model, state, total, costs, nextstates):
    count = automaton.model_label_splits[model + 1]
    count -= automaton.model_label_splits[model]
    begin = np.int64(automaton.state_arc_splits[state])
    end = np.int64(automaton.state_arc_splits[state + 1])
    for arc in range(begin, end):
        label = np.int64(automaton.arc_label[arc])
        if count > 0 and label == count:  # one arc for all labels of this alias
            for alias in range(len(costs)):
                if canonical(automaton, model, alias) == count:
                    costs[alias] = total + automaton.arc_cost[arc]
                    nextstates[alias] = automaton.arc_next[arc]
        elif label < len(costs):
            costs[label] = total + automaton.arc_cost[arc]
            nextstates[label] = automaton.arc_next[arc]


@kernel
def row(automaton, model, state, costs, nextstates):
    """Write `step` for the labels 0..L-1; float32 [L], int32 [L]."""
    depth = 0
    below = np.int64(state)
    while automaton.backoff_state[below] >= 0:
        below = np.int64(automaton.backoff_state[below])
        depth += 1
    for level in range(depth, -1, -1):  # the root first, longer histories override it
        # Summed from the state again for each level: in the order of `step`.
        total = np.float32(0)
        below = np.int64(state)
        for _ in range(level):
            total += automaton.backoff_cost[below]
            below = np.int64(automaton.backoff_state[below])
        if level == depth:
            _fill_root(automaton, model, below, total, costs, nextstates)
        else:
            _overwrite(automaton, model, below, total, costs, nextstates)


@kernel
def steps(automaton, models, states, labels, costs, nextstates):
    """Run `step` for each of N queries."""
    for i in range(len(states)):
        costs[i], nextstates[i] = step(automaton, models[i], states[i], labels[i])


@kernel
def walk(automaton, model, state, labels, costs):
    """Run `step` for N successive labels; return the last state."""
    for i in range(len(labels)):
        costs[i], state = step(automaton, model, state, labels[i])
    return np.int32(state)


@kernel
def rows(automaton, models, states, costs, nextstates):
    """Run `row` for each of N states; costs and nextstates are [N, L]."""
    for i in range(len(states)):
        row(automaton, models[i], states[i], costs[i], nextstates[i])
