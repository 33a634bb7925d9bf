"""Back-off automata: the array form of language models and boosts.

    model = NgramLM.from_arpa(...)  |  compiler.compile(...)
    state = model.start
    cost, state = model.step(state, label)      # once per word or token
    costs, nextstates = model.row(state)        # for all labels
    total += model.final(state)                 # at the end, always

A state has arcs for some labels, sorted, and a back-off link to the state of a shorter
history. The cost of a missing label is that of the link plus its cost there. The chain
ends at a root, which has every label. Several models share one set of arrays, so that a
list for all, a list per utterance and several language models have one code path: a row
of a batch has the id of its model.
"""

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
"""The empty language model: one state, the root, where each label leads back at cost 0.
Searches step it like any other.
"""


@dataclass(frozen=True, eq=False, repr=False)
class BackoffModel:
    """Automaton with its unit; base of language models and boosts."""

    # States are int32, valid only in their model. Costs are nats, unscaled; below 0
    # favours. Methods take one query; `*_batch` take N in arrays.

    automaton: Automaton  # Arrays for kernels
    unit: Unit  # Kind of labels: `"word"` (word ids) or `"token"` (tokens)
    # Size of the table of words or tokens; larger labels are unknown to all models
    num_labels: int

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Kernels are compiled for read-only arrays, and pickles do not keep that.
        self.__dict__.update(state)
        for array in self.automaton:
            array.setflags(write=False)

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.automaton.final_cost)

    @property
    def num_arcs(self) -> int:
        """Number of arcs, A."""
        return len(self.automaton.arc_cost)

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return sum(array.nbytes for array in self.automaton)

    def __repr__(self) -> str:
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
        """State before an utterance."""
        return int(self.automaton.model_start[0])

    def step(self, state: int, label: int) -> tuple[float, int]:
        """Return the cost of a label, and the next state."""
        costs, nextstates = self.step_batch([state], [label])
        return float(costs[0]), int(nextstates[0])

    def row(self, state: int) -> tuple[np.ndarray, np.ndarray]:
        """Return costs and next states of all labels, float32 [L] and int32 [L]."""
        costs, nextstates = self.row_batch([state])
        return costs[0], nextstates[0]

    def final(self, state: int) -> float:
        """Return the cost of ending: `</s>`, or the refund of an incomplete phrase."""
        return float(self.final_batch([state])[0])

    def step_batch(
        self, states: np.ndarray | Sequence[int], labels: np.ndarray | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the costs of N queries, float32 [N], and next states, int32 [N]."""
        states, labels = self._checked(states), _integers("label", labels)
        if labels.shape != states.shape:
            raise ShapeError(f"{len(labels)} labels, expected {len(states)} as states")
        costs, nextstates = np.empty(len(states), np.float32), np.empty_like(states)
        models = np.zeros_like(states)
        kernels.steps(self.automaton, models, states, labels, costs, nextstates)
        return costs, nextstates

    def row_batch(
        self, states: np.ndarray | Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return N rows of costs, float32 [N, L], and next states, int32 [N, L]."""
        states = self._checked(states)
        costs = np.empty((len(states), self.num_labels), np.float32)
        nextstates, models = np.empty(costs.shape, np.int32), np.zeros_like(states)
        kernels.rows(self.automaton, models, states, costs, nextstates)
        return costs, nextstates

    def final_batch(self, states: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the costs of ending in N states, float32 [N]; errors as above."""
        return self.automaton.final_cost[self._checked(states)]

    def total(self, labels: np.ndarray | Sequence[int]) -> float:
        """Return the cost of an utterance, float64, with `final`; errors as above."""
        labels = _integers("label", labels)
        costs, start = np.empty(len(labels), np.float32), self.automaton.model_start[0]
        state = kernels.walk(self.automaton, 0, start, labels, costs)
        return float(costs.sum(dtype=np.float64)) + self.final(state)

    def _checked(self, states: np.ndarray | Sequence[int]) -> np.ndarray:
        return _integers("state", states, self.num_states)


def _integers(
    name: str, values: np.ndarray | Sequence, end: int | None = None
) -> np.ndarray:
    """Return validated integers from 0 to below `end`, int32 [N]."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ShapeError(
            f"{name}s is {array.dtype} {array.shape}, expected integers, one axis"
        )
    bad = array[(array < 0) | (array >= (np.inf if end is None else end))]
    if len(bad):
        most = "or more" if end is None else f"to {end - 1}"
        raise InputError(f"{name} {bad[0]}, expected 0 {most}")
    return array.astype(np.int32)
