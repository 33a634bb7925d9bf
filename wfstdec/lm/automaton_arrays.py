"""The arrays of automata with back-off; see `automaton.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import read_only


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


DTYPES = {
    "state_arc_splits": np.int64,
    "arc_label": np.int32,
    "arc_next": np.int32,
    "arc_cost": np.float32,
    "backoff_state": np.int32,
    "backoff_cost": np.float32,
    "final_cost": np.float32,
    "model_start": np.int32,
    "model_label_splits": np.int64,
    "model_default_cost": np.float32,
    "label_alias": np.int32,
}
"""The type of each array of an `Automaton`."""


def frozen(automaton: Automaton) -> Automaton:
    """Convert an automaton to its types, read-only: kernels are compiled once."""
    arrays = []
    for name, dtype in DTYPES.items():
        array = np.ascontiguousarray(getattr(automaton, name), dtype).view(np.ndarray)
        arrays.append(read_only(array))
    return Automaton(*arrays)
