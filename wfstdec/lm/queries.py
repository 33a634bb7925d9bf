"""A language model of whichever kind, for the kernels of one search or in Python.

with LmArrays(lm) as arrays:                   # an `Automaton` or a `LazyLM`
    kernel(arrays.now, ...)
    while arrays.answer():                     # something was missing
        kernel(arrays.now, ...)                # the same once more

queries = LmQueries(arrays)                    # one by one, in Python
cost, state = queries.step(queries.start, label)
total = queries.total(labels, complete=True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from wfstdec.jit import kernel
from wfstdec.lm import kernels
from wfstdec.lm.automaton_arrays import Automaton
from wfstdec.lm.lazy import Answers, LazyLM
from wfstdec.lm.lazy_table import LazyTable

AnyModel = Automaton | LazyLM
"""What a search space holds."""
_Found = TypeVar("_Found")


class LmArrays:
    """The arrays of a model for one search; a table of answers is borrowed for a while.

    Args:
        lm: The model.
        added: Words that the labels behind its table stand for.

    Attributes:
        now: What kernels take.
    """

    now: Automaton | LazyTable

    def __init__(self, lm: AnyModel, added: Sequence[str] = ()) -> None:
        self._answers: Answers | None = None
        if isinstance(lm, LazyLM):
            self._answers = lm.answers()
            self._aliases = self._answers.labels_of(added)
            self.now = self._answers.empty
        else:
            self.now = lm

    def __enter__(self) -> Self:
        if self._answers is not None:
            self.now = self._answers.take(self._aliases)
        return self

    def __exit__(self, *error: object) -> None:
        if self._answers is not None:
            assert isinstance(self.now, LazyTable)
            self._answers.give(self.now)
            self.now = self._answers.empty

    def answer(self) -> bool:
        """Ask the model for what was missing; whether anything was.

        Raises:
            LanguageModelError: The model gives what it must not. What it raises itself
                is passed on.
        """
        if self._answers is None:
            return False
        assert isinstance(self.now, LazyTable)
        if not kernels.unanswered(self.now):
            return False
        self.now = self._answers.answered(self.now)
        return True

    def labels_of(self, words: Sequence[str]) -> np.ndarray:
        """Labels by which a model without a table is asked for words, int32 [N]."""
        assert self._answers is not None
        return self._answers.labels_of(words)

    def orders(self, states: np.ndarray) -> np.ndarray:
        """By what states stand where costs are equal, [N]."""
        return states if self._answers is None else self._answers.orders(states)


class LmQueries:
    """Queries one by one; errors as of `LmArrays.answer`.

    Args:
        arrays: Of the model, borrowed.

    Attributes:
        start: The state before an utterance.
    """

    def __init__(self, arrays: LmArrays) -> None:
        self._arrays = arrays
        self.start = int(arrays.now.model_start[0])

    def step(self, state: int, label: int) -> tuple[np.float32, int]:
        """The cost of a label in a state, and the next state."""
        cost, after = self._until_answered(lambda lm: _step(lm, state, label))
        return np.float32(cost), int(after)

    def unknown(self, state: int) -> tuple[np.float32, int]:
        """The same of a label that is none of the table."""
        return self.step(state, int(kernels.unknown_label(self._arrays.now)))

    def final(self, state: int) -> np.float32:
        """The cost of ending in a state."""
        return np.float32(self._until_answered(lambda lm: _final(lm, state)))

    def order(self, state: int) -> int:
        """By which states stand where costs are equal."""
        return int(_order(self._arrays.now, state))

    def total(self, labels: np.ndarray, *, complete: bool) -> float:
        """The cost of labels in a row, float64; `complete` with that of ending."""
        costs = np.empty(len(labels), np.float32)
        state = int(
            self._until_answered(
                lambda lm: kernels.walk(lm, 0, self.start, labels, costs)
            )
        )
        final = float(self.final(state)) if complete else 0.0
        return float(costs.sum(dtype=np.float64)) + final

    def _until_answered(self, query: Callable[[Any], _Found]) -> _Found:
        found = query(self._arrays.now)
        while self._arrays.answer():
            found = query(self._arrays.now)
        return found


# Ways in from Python, which parts of kernels have not.
@kernel
def _step(lm, state, label):
    return kernels.step(lm, 0, state, label)


@kernel
def _final(lm, state):
    return kernels.final(lm, 0, state)


@kernel
def _order(lm, state):
    return kernels.state_order(lm, state)
