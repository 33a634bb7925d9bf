"""Automata with back-off links: one array form for language models and boosts.

    model = NgramLM.from_arpa(...)  |  compiler.compile(...)
    state = model.start
    cost, state = model.step(state, label)      # once per word or token
    costs, nextstates = model.row(state)        # of all labels
    total += model.final(state)                 # at the end, always

A state has arcs for some labels, sorted, and a link to a state that stands for a
shorter history; a label that it lacks costs the link's cost and what it costs there.
The chain ends at a root, which has every label.
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
"""No language model: one state, the root, to which each label leads back at cost 0."""


@dataclass(frozen=True, eq=False, repr=False)
class BackoffModel:
    """An automaton and its unit; language models and boosts are kinds of it.

    Costs are nats, unscaled; below 0 favours. States mean nothing outside their model.
    """

    automaton: Automaton  # the arrays that kernels take
    unit: Unit  # what its labels are: word ids or tokens
    num_labels: int  # the size of their table; no model knows a label beyond it

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays of a pickle read-only again, as kernels are compiled for."""
        self.__dict__.update(state)
        for array in self.automaton:
            array.setflags(write=False)

    @property
    def num_states(self) -> int:
        """The number of states, S."""
        return len(self.automaton.final_cost)

    @property
    def num_arcs(self) -> int:
        """The number of arcs, A."""
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
        """The state before an utterance."""
        return int(self.automaton.model_start[0])

    def step(self, state: int, label: int) -> tuple[float, int]:
        """The cost of one label, and the next state."""
        costs = np.empty(1, np.float32)
        after = self._walk(state, _checked_labels([label]), costs)
        return float(costs[0]), after

    def row(self, state: int) -> tuple[np.ndarray, np.ndarray]:
        """Costs and next states of all labels, float32 [L] and int32 [L]."""
        costs = np.empty(self.num_labels, np.float32)
        nextstates = np.empty(self.num_labels, np.int32)
        kernels.row(self.automaton, 0, self._checked(state), costs, nextstates)
        return costs, nextstates

    def final(self, state: int) -> float:
        """The cost of ending here: `</s>`, or the refund of an incomplete phrase."""
        return float(self.automaton.final_cost[self._checked(state)])

    def total(self, labels: np.ndarray | Sequence[int]) -> float:
        """The cost of a whole utterance, float64, `final` included; errors as above."""
        labels = _checked_labels(labels)
        costs = np.empty(len(labels), np.float32)
        after = self._walk(self.start, labels, costs)
        return float(costs.sum(dtype=np.float64)) + self.final(after)

    def _walk(self, state: int, labels: np.ndarray, costs: np.ndarray) -> int:
        first = np.int32(self._checked(state))
        return int(kernels.walk(self.automaton, 0, first, labels, costs))

    def _checked(self, state: int) -> int:
        if not 0 <= state < self.num_states:
            raise InputError(f"state {state}, expected 0 to {self.num_states - 1}")
        return state


def _checked_labels(labels: np.ndarray | Sequence[int]) -> np.ndarray:
    array = np.asarray(labels)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ShapeError(
            f"labels is {array.dtype} {array.shape}, expected integers, one axis"
        )
    if (array < 0).any():
        raise InputError(f"label {array.min()}, expected 0 or more")
    return array.astype(np.int32)
