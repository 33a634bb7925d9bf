"""Queries of a back-off automaton in numba: what the kernels of all decoders call.

    cost, nextstate = step(automaton, model, state, label)
    cost = final(automaton, model, state)
    row(automaton, model, state, costs, nextstates)      # of the labels 0..len(costs)-1

`automaton` is an `Automaton`, shared by all threads; `model` says which of its models
a row of the batch uses, and below 0 is none at all: cost 0, the same state. Costs are
float32, added in the order of `reference.py`, whose bits these have.

`step` and `final` take a `LazyTable` as well, and so do those below them; which one is
chosen when a kernel is compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import by_class, inlined, kernel, read_only
from wfstdec.lm.on_demand_table import (
    LazyTable,
    table_final,
    table_order,
    table_row,
    table_step,
    table_unanswered,
    table_unknown,
)


class Automaton(NamedTuple):
    """M models of S states and A arcs together, as the kernels take them.

    Labels are word ids or tokens. A model with a label table (L > 0 entries) has a
    dense root: L + 1 arcs, the last one for whatever is not in the table; a label's
    arcs stand under its alias. A model without one has a sparse root, and labels that
    the root lacks lead back to it at the default cost.

    Attributes:
        state_arc_splits: int64 [S + 1], the row of each state.
        arc_label: int32 [A], increasing in each row.
        arc_next: int32 [A].
        arc_cost: float32 [A], nats.
        backoff_state: int32 [S], less than the state itself; -1 at roots.
        backoff_cost: float32 [S], 0 at roots.
        final_cost: float32 [S], backing off included.
        model_start: int32 [M].
        model_label_splits: int64 [M + 1], where each model's label table stands.
        model_default_cost: float32 [M], of a label that a sparse root lacks.
        label_alias: int32, 0..L of each label of each table.
    """

    state_arc_splits: np.ndarray
    arc_label: np.ndarray
    arc_next: np.ndarray
    arc_cost: np.ndarray
    backoff_state: np.ndarray
    backoff_cost: np.ndarray
    final_cost: np.ndarray
    model_start: np.ndarray
    model_label_splits: np.ndarray
    model_default_cost: np.ndarray
    label_alias: np.ndarray


_KINDS = {"splits": np.int64, "cost": np.float32}
DTYPES = {name: _KINDS.get(name.split("_")[-1], np.int32) for name in Automaton._fields}
"""The type of each array of an `Automaton`, by the end of its name."""


def frozen(automaton: Automaton) -> Automaton:
    """Convert an automaton to its types, read-only: kernels are compiled once."""
    arrays = []
    for name, dtype in DTYPES.items():
        array = np.ascontiguousarray(getattr(automaton, name), dtype).view(np.ndarray)
        arrays.append(read_only(array))
    return Automaton(*arrays)


@inlined
def canonical(automaton, model, label):
    """The label under which the arcs of `model` have it."""
    first = automaton.model_label_splits[model]
    count = automaton.model_label_splits[model + 1] - first
    if count == 0:
        return label
    if label >= count:
        return count
    return np.int64(automaton.label_alias[first + label])


@inlined
def find_arc(arc_label, begin, end, label):
    """The first arc of a row whose label is not below `label`; `end` if none is."""
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
    if model < 0:
        return total, np.int32(state)
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
        # A root that lacks labels: phrases, whose other labels cost one and the same,
        # and stay there.
        if backoff < 0:
            return total + automaton.model_default_cost[model], np.int32(state)
        # float32, in the order of the way down: the sum that GPUs and `row` make.
        total += automaton.backoff_cost[state]
        state = backoff
    return total + automaton.arc_cost[arc], automaton.arc_next[arc]


@inlined
def _automaton_final(automaton, model, state):
    return np.float32(0) if model < 0 else automaton.final_cost[state]


@inlined
def _automaton_unanswered(automaton):
    return False


@inlined
def _automaton_unknown(automaton):
    return np.int64(len(automaton.label_alias))


@inlined
def _automaton_order(automaton, state):
    return np.uint64(state)


@inlined
def _automaton_row(automaton, state):
    return np.int64(state)


step = by_class({Automaton: _automaton_step, LazyTable: table_step})
"""The cost of a label in a state, float32, and where it leads, int32."""
final = by_class({Automaton: _automaton_final, LazyTable: table_final})
"""The cost of ending in a state, float32."""
unanswered = by_class({Automaton: _automaton_unanswered, LazyTable: table_unanswered})
"""Tell whether the model must be asked, and the step be done again."""
unknown_label = by_class({Automaton: _automaton_unknown, LazyTable: table_unknown})
"""A label that is none of the table: what it costs is the cost of `<unk>`."""
state_order = by_class({Automaton: _automaton_order, LazyTable: table_order})
"""Order of a state among those of equal cost, uint64."""
row_of_state = by_class({Automaton: _automaton_row, LazyTable: table_row})
"""Row of a state in arrays that are made for the states of a model."""


@inlined
def _fill_root(automaton, model, root, total, costs, nextstates):
    """The row of the root; every label has something there."""
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
    """Put the arcs of a state into the row."""
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
    """Fill in what `step` gives for the labels 0..L-1; float32 [L], int32 [L]."""
    if model < 0:
        costs[:] = 0
        nextstates[:] = state
        return
    depth = 0
    below = np.int64(state)
    while automaton.backoff_state[below] >= 0:
        below = np.int64(automaton.backoff_state[below])
        depth += 1
    for level in range(depth, -1, -1):  # the root first, longer histories over it
        # Summed from the state again for each level: in the order of `step`, to the
        # bit.
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
    """`step` for each of N queries."""
    for i in range(len(states)):
        costs[i], nextstates[i] = step(automaton, models[i], states[i], labels[i])


@kernel
def walk(automaton, model, state, labels, costs):
    """`step` for N labels in a row; the last state."""
    for i in range(len(labels)):
        costs[i], state = step(automaton, model, state, labels[i])
    return np.int32(state)


@kernel
def rows(automaton, models, states, costs, nextstates):
    """`row` for each of N states; costs and nextstates are [N, L]."""
    for i in range(len(states)):
        row(automaton, models[i], states[i], costs[i], nextstates[i])
