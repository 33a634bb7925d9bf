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

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from wfstdec.errors import InputError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.kernels import DTYPES as DTYPES
from wfstdec.lm.kernels import Automaton as Automaton
from wfstdec.lm.kernels import frozen as frozen

Unit = Literal["word", "token"]
NULL_AUTOMATON = frozen(
    Automaton(
        **dict.fromkeys(("arc_label", "arc_next", "arc_cost"), np.zeros(0)),
        **dict.fromkeys(("state_arc_splits", "model_label_splits"), np.zeros(2)),
        **dict.fromkeys(("backoff_cost", "final_cost", "model_start"), np.zeros(1)),
        backoff_state=np.full(1, -1),
        model_default_cost=np.zeros(1),
        label_alias=np.zeros(0),
    )
)
"""The language model where there is none: one state, the root, to which each label
leads back at cost 0. Searches step it like any other, and need not ask for one."""


@dataclass(frozen=True, eq=False, repr=False)
class BackoffModel:
    """An automaton and its unit; language models and boosts are kinds of it."""

    # States are int32 and mean nothing outside their model. Costs are nats, unscaled;
    # below 0 favours. Methods take one query; those named `*_batch` take N in arrays.

    automaton: Automaton  # The arrays; what kernels take
    unit: Unit  # What its labels are: `"word"` (word ids) or `"token"` (tokens)
    # The size of the table of words or tokens; a label beyond it is one that no model
    # knows
    num_labels: int

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays of a pickle read-only again, as kernels are compiled for."""
        self.__dict__.update(state)
        for array in self.automaton:
            array.setflags(write=False)

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
        """Memory of the arrays."""
        return sum(array.nbytes for array in self.automaton)

    def __repr__(self) -> str:
        """Show the sizes and the labels of the model."""
        return (
            f"{type(self).__name__}(over {self.num_labels:,} {self.unit}s, "
            f"{self.num_states:,} states, {self.num_arcs:,} arcs)"
        )

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits over the arrays: equal means the same costs."""
        digest = hashlib.blake2b(self.unit.encode(), digest_size=16)
        for array in self.automaton:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

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
        """The cost of ending here: `</s>`, or the refund of an incomplete phrase."""
        return float(self.final_batch([state], [model])[0])

    def step_batch(
        self,
        states: np.ndarray | Sequence[int],
        labels: np.ndarray | Sequence[int],
        models: np.ndarray | Sequence[int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """N queries: costs float32 [N], next states int32 [N]."""
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
        costs, [start] = np.empty(len(labels), np.float32), self.start_batch([model])
        state = kernels.walk(self.automaton, model, start, labels, costs)
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
