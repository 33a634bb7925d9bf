"""Queries of a back-off automaton in plain Python: what the kernels equal bit for bit.

step:   down the back-off links to the first state that has the label;
        cost = ((b1 + b2) + ...) + arc cost        (float32, in this order)
        a root has every label: in its arcs, or at its model's default cost
row:    `step` for the labels 0..L-1
"""

from __future__ import annotations

import numpy as np

from wfstdec.lm.automaton import Automaton

F = np.float32


def step(
    automaton: Automaton, model: int, state: int, label: int
) -> tuple[np.float32, int]:
    first, last = automaton.model_label_splits[model : model + 2].tolist()
    if last > first:
        in_table = label < last - first
        label = int(automaton.label_alias[first + label]) if in_table else last - first
    total = F(0)
    while True:
        begin, end = automaton.state_arc_splits[state : state + 2].tolist()
        found = np.flatnonzero(automaton.arc_label[begin:end] == label)
        if len(found):
            arc = begin + int(found[0])
            return total + automaton.arc_cost[arc], int(automaton.arc_next[arc])
        if automaton.backoff_state[state] < 0:
            return total + automaton.model_default_cost[model], state
        total = total + automaton.backoff_cost[state]
        state = int(automaton.backoff_state[state])


def row(
    automaton: Automaton, model: int, state: int, num_labels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Costs, float32 [L], and next states, int32 [L], of the first L labels."""
    found = [step(automaton, model, state, label) for label in range(num_labels)]
    costs, nextstates = zip(*found, strict=True) if found else ((), ())
    return np.array(costs, np.float32), np.array(nextstates, np.int32)
