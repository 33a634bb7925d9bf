"""A language model that the user brings: any Python object with three methods.

class Bigrams:
    def start(self):                       # the state before an utterance
        return "<s>"

    def score(self, state, word):          # nats, and the state behind the word
        return -math.log(p[state, word]), word

    def finish(self, state):               # nats, for ending here
        return -math.log(p[state, "</s>"])

decoder = TrieDecoder(tokens=tokens, lexicon=lexicon, lm=Bigrams(), options=options)
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import numbers
from collections.abc import Collection, Container, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from wfstdec.errors import LanguageModelError

UNK = "<unk>"
"""Text that stands for words which the model has no text for."""


@runtime_checkable
class UserLM(Protocol):
    """Methods of a user's model of words; costs are nats, lower is better.

    A state is anything hashable that never changes. States that are equal are one to
    the search; objects whose class has no `==` of its own differ by the words that led
    to them. A cost of `inf`: the word is impossible. The same question must have the
    same answer; it is asked once, and never from two threads at a time.

    A model may also have:

        score_batch(states, words) -> list of (cost, state)    in the place of `score`
        finish_batch(states) -> list of costs                  in the place of `finish`
        words: Container[str]      words that it knows; `<unk>` takes the place of
                                   others, if it is among them
        empty() -> state           the empty history, for the look-ahead
        least_cost: float          no word costs less; 0 if there is none
    """

    def start(self) -> Hashable:
        """The state before an utterance."""

    def score(self, state: Any, word: str, /) -> tuple[float, Hashable]:
        """The cost of a word in a state, -ln p, and the state behind it."""

    def finish(self, state: Any, /) -> float:
        """The cost of ending in a state."""


class CheckedLM:
    """A model with all that it may have, its answers checked."""

    def __init__(self, model: UserLM) -> None:
        self._model, self._name = model, type(model).__name__
        self._words: Container[str] | None = getattr(model, "words", None)
        self.least_cost = float(getattr(model, "least_cost", 0.0))
        if not -1e6 < self.least_cost <= 0:
            raise LanguageModelError(
                f"{self._name}.least_cost is {self.least_cost!r}, expected nats, 0 or "
                "below"
            )

    def name_of(self, word: str) -> str | None:
        """Text that the model is asked for in place of a word; None: it cannot be."""
        if self._words is None or word in self._words:
            return word
        return UNK if UNK in self._words else None

    def scores(
        self, states: Sequence[Any], words: Sequence[str]
    ) -> list[tuple[float, Any]]:
        """Costs and next states of N words in N states."""
        found = []
        answers = self._answers("score", states, words)
        for answer, word in zip(answers, words, strict=True):
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise self._error(
                    "score", f"{answer!r} for {word!r}", "a cost and a state"
                )
            cost = self._number("score", answer[0], word)
            if cost < self.least_cost:
                raise self._error(
                    *("score", f"the cost {cost!r} for {word!r}"),
                    f"{self.least_cost:g} or more: nats, -ln p, or let the model's "
                    "least_cost say how low they are",
                )
            found.append((cost, answer[1]))
        return found

    def finals(self, states: Sequence[Any]) -> list[float]:
        """The costs of ending in N states; errors as above."""
        costs = self._answers("finish", states)
        return [self._number("finish", cost, "</s>") for cost in costs]

    def _answers(self, method: str, *columns: Sequence[Any]) -> list[Any]:
        """Ask N questions: all at once where the model can, else one by one."""
        batch = f"{method}_batch"
        together = getattr(self._model, batch, None)
        if together is None:
            return list(map(getattr(self._model, method), *columns))
        answers, expected = list(together(*columns)), len(columns[0])
        if len(answers) != expected:
            one_each = f"{expected}, one for each state"
            raise self._error(batch, f"{len(answers)} answers", one_each)
        return answers

    def _number(self, method: str, cost: Any, word: str) -> float:
        try:
            found = float(cost)
        except (TypeError, ValueError):
            found = math.nan
        if math.isnan(found) or found == -math.inf:
            raise self._error(method, f"the cost {cost!r} for {word!r}", "nats")
        return found

    def _error(self, method: str, found: str, expected: str) -> LanguageModelError:
        return LanguageModelError(
            f"{self._name}.{method} gave {found}, expected {expected}"
        )


def digest(state: Any) -> bytes | None:
    """Bytes that equal states have in common, the same in every run; None: identity."""
    if type(state) is int and 0 <= state < 1 << 63:
        return state.to_bytes(8, "little")  # in their order
    parts = _parts(state)
    if parts is None:
        return None
    return hashlib.blake2b(parts, digest_size=8).digest()


def _parts(state: Any) -> bytes | None:
    kind = type(state)
    if isinstance(state, str):
        return b"s%d:" % len(state) + state.encode("utf-8", "surrogatepass")
    if isinstance(state, bytes):
        return b"b%d:" % len(state) + state
    if state is None:
        return b"-"
    if isinstance(state, numbers.Number):
        return b"n%d:" % hash(state)  # equal for 1, 1.0 and numpy's
    if isinstance(state, tuple):
        return _joined(b"(", state)
    if isinstance(state, frozenset):
        return _joined(b"{", state, is_sorted=True)
    if kind.__hash__ is object.__hash__:
        return None
    if dataclasses.is_dataclass(state):
        values = [getattr(state, field.name) for field in dataclasses.fields(state)]
        return _joined(kind.__qualname__.encode(), values)
    try:
        return b"h%d:" % hash(state)
    except TypeError:
        raise LanguageModelError(
            f"a state of the class {kind.__name__!r}, expected one that can be hashed: "
            "a string, a number, a tuple of such, a frozen dataclass"
        ) from None


def _joined(
    first: bytes, states: Collection[Any], *, is_sorted: bool = False
) -> bytes | None:
    parts = [part for part in map(_parts, states) if part is not None]
    if len(parts) < len(states):
        return None
    parts = sorted(parts) if is_sorted else parts
    return first + b"%d:" % len(parts) + b"".join(parts)
