"""Automata with back-off links: one array form for language models and boosts.

    model = NgramLM.from_arpa(...)  |  compiler.compile(...)
    state = model.start
    cost, state = model.step(state, label)      # once per word or token
    costs, nextstates = model.row(state)        # of all labels
    total += model.final(state)                 # at the end, always

A state has arcs for some labels, sorted, and a link to a state that stands for a
shorter history; a label that it lacks costs the link's cost and what it costs there.
The chain ends at a root, which has every label. Several models stand in one set of
arrays, so that a list for all, a list per utterance and several language models are
one code path: a row of a batch carries the id of its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from wfstdec.errors import InputError, ShapeError
from wfstdec.jit import read_only
from wfstdec.lm import kernels

Unit = Literal["word", "token"]


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
    """The same in the right types, read-only: kernels are then compiled once."""
    arrays = []
    for name, dtype in DTYPES.items():
        array = np.ascontiguousarray(getattr(automaton, name), dtype).view(np.ndarray)
        arrays.append(read_only(array))
    return Automaton(*arrays)


@dataclass(frozen=True, eq=False)
class BackoffModel:
    """An automaton and its unit; language models and boosts are kinds of it.

    States are int32 and mean nothing outside their model. Costs are nats, unscaled;
    below 0 favours. Methods take one query; those named `*_batch` take N in arrays.

    Attributes:
        automaton: The arrays; what kernels take.
        unit: What its labels are: `"word"` (word ids) or `"token"` (tokens).
        num_labels: The size of the table of words or tokens; a label beyond it is
            one that no model knows.
    """

    automaton: Automaton
    unit: Unit
    num_labels: int

    @property
    def num_models(self) -> int:
        """The number of models, M."""
        return len(self.automaton.model_start)

    @property
    def num_states(self) -> int:
        """The number of states of all models, S."""
        return len(self.automaton.final_cost)

    @property
    def num_arcs(self) -> int:
        """The number of arcs of all models, A."""
        return len(self.automaton.arc_cost)

    @property
    def num_bytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self.automaton)

    @property
    def start(self) -> int:
        """The state before an utterance, of model 0."""
        return int(self.automaton.model_start[0])

    def start_batch(self, models: np.ndarray | Sequence[int]) -> np.ndarray:
        """The states before N utterances, int32 [N]; 0 where the model id is -1."""
        models = self._checked_models(models)
        return np.where(models < 0, 0, self.automaton.model_start[models])

    def step(self, state: int, label: int, model: int = 0) -> tuple[float, int]:
        """The cost of one label, and the next state."""
        costs, nextstates = self.step_batch([state], [label], [model])
        return float(costs[0]), int(nextstates[0])

    def row(self, state: int, model: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Costs and next states of all labels, float32 [L] and int32 [L]."""
        costs, nextstates = self.row_batch([state], [model])
        return costs[0], nextstates[0]

    def final(self, state: int, model: int = 0) -> float:
        """The cost of ending here: `</s>`, or the refund of a phrase half said."""
        return float(self.final_batch([state], [model])[0])

    def step_batch(
        self,
        states: np.ndarray | Sequence[int],
        labels: np.ndarray | Sequence[int],
        models: np.ndarray | Sequence[int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """N queries: costs float32 [N], next states int32 [N].

        Args:
            states: int [N].
            labels: int [N], 0 or more.
            models: int [N], the model of each row, -1 for none; all 0 when left out.

        Raises:
            ShapeError: The arrays differ in length.
            InputError: A state, label or model that does not exist.
        """
        states, models = self._checked(states, models)
        labels = _checked_labels(labels)
        if labels.shape != states.shape:
            raise ShapeError(f"{len(labels)} labels, expected {len(states)} as states")
        costs = np.empty(len(states), np.float32)
        nextstates = np.empty(len(states), np.int32)
        kernels.steps(self.automaton, models, states, labels, costs, nextstates)
        return costs, nextstates

    def row_batch(
        self,
        states: np.ndarray | Sequence[int],
        models: np.ndarray | Sequence[int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """N rows: costs float32 [N, L], next states int32 [N, L]; errors as above."""
        states, models = self._checked(states, models)
        costs = np.empty((len(states), self.num_labels), np.float32)
        nextstates = np.empty((len(states), self.num_labels), np.int32)
        kernels.rows(self.automaton, models, states, costs, nextstates)
        return costs, nextstates

    def final_batch(
        self,
        states: np.ndarray | Sequence[int],
        models: np.ndarray | Sequence[int] | None = None,
    ) -> np.ndarray:
        """The costs of ending in N states, float32 [N]; errors as above."""
        states, models = self._checked(states, models)
        found = self.automaton.final_cost[states]
        return np.where(models < 0, np.float32(0), found)

    def total(self, labels: np.ndarray | Sequence[int], model: int = 0) -> float:
        """The cost of a whole utterance, float64, `final` included; errors as above."""
        labels = _checked_labels(labels)
        state = self.start_batch([model])[0]
        costs = np.empty(len(labels), np.float32)
        state = kernels.walk(self.automaton, model, state, labels, costs)
        return float(costs.sum(dtype=np.float64)) + self.final(state, model)

    def _checked(
        self, states: np.ndarray | Sequence[int], models: np.ndarray | Sequence | None
    ) -> tuple[np.ndarray, np.ndarray]:
        states = _integers("states", states)
        if models is None:
            models = np.zeros(len(states), np.int32)
        models = self._checked_models(models)
        if models.shape != states.shape:
            raise ShapeError(f"{len(models)} models, expected {len(states)} as states")
        bad = states[(states < 0) | (states >= self.num_states)]
        if len(bad):
            raise InputError(f"state {bad[0]}, expected 0 to {self.num_states - 1}")
        return states, models

    def _checked_models(self, models: np.ndarray | Sequence) -> np.ndarray:
        models = _integers("models", models)
        bad = models[(models < -1) | (models >= self.num_models)]
        if len(bad):
            raise InputError(
                f"model {bad[0]}, expected -1 (none) to {self.num_models - 1}"
            )
        return models


def _checked_labels(labels: np.ndarray | Sequence[int]) -> np.ndarray:
    labels = _integers("labels", labels)
    if (labels < 0).any():
        raise InputError(f"label {labels.min()}, expected 0 or more")
    return labels


def _integers(name: str, values: np.ndarray | Sequence) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ShapeError(
            f"{name} is {array.dtype} {array.shape}, expected integers, one axis"
        )
    return array.astype(np.int32)
