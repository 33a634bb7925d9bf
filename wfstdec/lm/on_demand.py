"""A user's language model in a search: each query is made once and cached.

class Bigrams:
    def start(self):                       # the state before an utterance
        return "<s>"

    def score(self, state, word):          # nats, and the next state
        return -math.log(p[state, word]), word

    def finish(self, state):               # nats, for ending here
        return -math.log(p[state, "</s>"])

decoder = TrieDecoder(tokens=tokens, lexicon=lexicon, lm=Bigrams(), options=options)

States are numbered in order of occurrence, which depends on the threads; nothing else
does. Ties are decided by `order`: a digest of the state or, for states that only
identity distinguishes, of the words that led there.

    with LmArrays(lm) as arrays:                   # an `Automaton` or a `OnDemandLM`
        kernel(arrays.now, ...)
        while arrays.answer():                     # something was missing
            kernel(arrays.now, ...)                # the same once more
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import numbers
import threading
from collections.abc import Callable, Collection, Container, Hashable, Sequence
from functools import partial
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from wfstdec.errors import LanguageModelError, check_listed
from wfstdec.jit import read_only
from wfstdec.jit.records import Pool, longer
from wfstdec.lm import kernels
from wfstdec.lm.automaton import Automaton, Unit
from wfstdec.lm.kernels import FINAL, FULL, MISSES, OnDemandTable, new_table
from wfstdec.text.tokens import TokenTable

MAX_PAIRS = 1 << 20
"""Size of the cache at which new searches begin with an empty one."""
FIRST_SLOTS = 1 << 12
_BY_HISTORY = object()  # marks states that only identity distinguishes
_Found = TypeVar("_Found")
UNK = "<unk>"  # text of words that the model lacks


@runtime_checkable
class UserLM(Protocol):
    """Methods of a user's model of words; costs are nats, lower is better.

    A state is anything hashable that never changes. States that are equal are one to
    the search; objects whose class has no `==` of its own differ by the words that led
    to them. A cost of `inf`: the word is impossible. Results must be deterministic;
    each is queried once, never from two threads at a time.

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
        """Return the cost of a word in a state, -ln p, and the next state."""

    def finish(self, state: Any, /) -> float:
        """The cost of ending in a state."""


class OnDemandLM:
    """A user's model over the words or tokens of a decoder; its answers are checked."""

    # `labels`: a word table, position 0 being `<eps>`, or a token table.

    def __init__(
        self,
        model: UserLM,
        labels: Sequence[str] | TokenTable,
        max_pairs: int = MAX_PAIRS,
    ) -> None:
        check_listed("labels", labels)
        self.model = model
        self.unit: Unit = "token" if isinstance(labels, TokenTable) else "word"
        self.labels = labels if isinstance(labels, TokenTable) else tuple(labels)
        self.names = tuple(labels.names if isinstance(labels, TokenTable) else labels)
        self.num_labels = len(self.names)
        self._words: Container[str] | None = getattr(model, "words", None)
        self.least_cost = float(getattr(model, "least_cost", 0.0))
        if not -1e6 < self.least_cost <= 0:
            raise LanguageModelError(
                f"{type(model).__name__}.least_cost is {self.least_cost!r}, expected "
                "nats, 0 or below"
            )
        self.lock = threading.Lock()
        self._max_pairs = max_pairs
        self._word_costs: np.ndarray | None = None
        self._answers = ScoreCache(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.labels, self._max_pairs)

    def answers(self) -> ScoreCache:
        """Table of the model's answers; a search keeps to one until it ends."""
        with self.lock:
            if self._answers.num_pairs > self._max_pairs:
                self._answers = ScoreCache(self)
            return self._answers

    def word_costs(self) -> np.ndarray:
        """Cost of each label at the empty history, float32 [L]; asked in one batch."""
        if self._word_costs is None:
            self._word_costs = read_only(self._costs(self.names))
        return self._word_costs

    def unk_cost(self) -> float:
        """Cost of `<unk>` at the empty history; inf where there is none."""
        return float(self._costs((UNK,))[0])

    def _costs(self, texts: Sequence[str]) -> np.ndarray:
        costs = np.full(len(texts), np.inf, np.float32)
        names = {i: self.name_of(text) for i, text in enumerate(texts)}
        known = {i: name for i, name in names.items() if name is not None}
        with self.lock:
            state = getattr(self.model, "empty", self.model.start)()
            found = self.scores([state] * len(known), list(known.values()))
        costs[list(known)] = [cost for cost, _ in found]
        return costs

    def name_of(self, word: str) -> str | None:
        """Return the text of a word for the model, or None."""
        if self._words is None or word in self._words:
            return word
        return UNK if UNK in self._words else None

    def scores(
        self, states: Sequence[Any], words: Sequence[str]
    ) -> list[tuple[float, Any]]:
        """Costs and next states of N words in N states."""
        found = []
        answers = self._ask("score", states, words)
        for answer, word in zip(answers, words, strict=True):
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                expected = "a cost and a state"
                raise self._error("score", f"{answer!r} for {word!r}", expected)
            cost = self._checked("score", answer[0], word)
            if cost < self.least_cost:
                least = f"{self.least_cost:g} or more: nats, or a lower least_cost"
                raise self._error("score", f"the cost {cost!r} for {word!r}", least)
            found.append((cost, answer[1]))
        return found

    def finals(self, states: Sequence[Any]) -> list[float]:
        """The costs of ending in N states; errors as above."""
        costs = self._ask("finish", states)
        return [self._checked("finish", cost, "</s>") for cost in costs]

    def _ask(self, method: str, *columns: Sequence[Any]) -> list[Any]:
        """Query N scores, in a batch if the model supports it."""
        batch = getattr(self.model, f"{method}_batch", None)
        if batch is None:
            return list(map(getattr(self.model, method), *columns))
        answers, expected = list(batch(*columns)), len(columns[0])
        if len(answers) != expected:
            found, wanted = f"{len(answers)} answers", f"{expected}, one for each state"
            raise self._error(f"{method}_batch", found, wanted)
        return answers

    def _checked(self, method: str, cost: Any, word: str) -> float:
        try:
            found = float(cost)
        except (TypeError, ValueError):
            found = math.nan
        if math.isnan(found) or found == -math.inf:
            raise self._error(method, f"the cost {cost!r} for {word!r}", "nats")
        return found

    def _error(self, method: str, found: str, expected: str) -> LanguageModelError:
        name = type(self.model).__name__
        return LanguageModelError(f"{name}.{method} gave {found}, expected {expected}")


class ScoreCache:
    """States by number, and the answers of the model in them; for all threads."""

    def __init__(self, lm: OnDemandLM) -> None:
        self._lm, num_labels = lm, lm.num_labels
        self._texts = [*lm.names, UNK]
        self._labels: dict[str, int] = {}  # of words after the table
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.order = np.zeros(FIRST_SLOTS, np.uint64)  # of states: breaks ties
        self._free = Pool(partial(new_table, FIRST_SLOTS, num_labels))
        self._known: dict[int, tuple[float, int]] = {}  # by the keys of tables
        self.empty = new_table(2, num_labels)  # no question was put to it

    @property
    def num_pairs(self) -> int:
        """Number of answers."""
        return len(self._known)

    def labels_of(self, texts: Sequence[str]) -> np.ndarray:
        """Return labels of OOV words, int32 [N]."""
        with self._lm.lock:
            for text in texts:
                if text not in self._labels:
                    self._labels[text] = len(self._texts)
                    self._texts.append(text)
            return np.array([self._labels[text] for text in texts], np.int32)

    def take(self, aliases: np.ndarray) -> OnDemandTable:
        """Return a table for one thread; `aliases`: int32, labels after the table's."""
        with self._lm.lock:
            if not self._states:
                self._number(self._lm.model.start(), b"")
            return self._fitted(self._free.take(), read_only(aliases))

    def _fitted(self, table: OnDemandTable, aliases: np.ndarray) -> OnDemandTable:
        """The table with the orders of now; itself where it has them, for handles."""
        if len(table.order) == len(self.order) and table.aliases is aliases:
            return table
        return table._replace(order=read_only(self.order[:]), aliases=aliases)

    def give(self, table: OnDemandTable) -> None:
        """Take a table back; one with open questions is dropped."""
        if not kernels.unanswered(table):
            self._free.give(table)

    def answered(self, table: OnDemandTable) -> OnDemandTable:
        """Return the table with the scores of its recorded pairs."""
        misses = table.misses[: table.counts[MISSES]]
        keys = table.keys[misses].tolist()
        with self._lm.lock:
            if unknown := [key for key in keys if key not in self._known]:
                self._known |= self._ask(unknown)
            if table.counts[FULL]:
                # Empty: the search repeats its queries, which are cached.
                larger = new_table(2 * len(table.keys), table.num_labels)
                return self._fitted(larger, table.aliases)
            for slot, key in zip(misses.tolist(), keys, strict=True):
                table.cost[slot], table.next[slot] = self._known[key]
            table.counts[MISSES] = 0
            return self._fitted(table, table.aliases)

    def _ask(self, keys: list[int]) -> dict[int, tuple[float, int]]:
        """Query costs and next states, ends and words in a batch each."""
        lm, answers = self._lm, {key: (math.inf, key >> 32) for key in keys}
        ends = [key for key in keys if key & FINAL == FINAL]
        texts = {key: key & FINAL for key in keys if key & FINAL != FINAL}
        names = {key: lm.name_of(self._texts[at]) for key, at in texts.items()}
        words = {key: name for key, name in names.items() if name is not None}
        costs = lm.finals([self._states[key >> 32] for key in ends])
        for key, cost in zip(ends, costs, strict=True):
            answers[key] = cost, key >> 32
        states = [self._states[key >> 32] for key in words]
        found = lm.scores(states, list(words.values()))
        for (key, name), (cost, state) in zip(words.items(), found, strict=True):
            if np.float32(cost) < np.inf:
                before = self.order[key >> 32].tobytes()
                answers[key] = cost, self._number(state, before + name.encode())
        return answers

    def _number(self, state: Any, history: bytes) -> int:
        """The number of a state, a new one where it has none."""
        order, key = digest(state), state
        if order is None:
            order = hashlib.blake2b(history, digest_size=8).digest()
            key = _BY_HISTORY, order
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            if number == len(self.order):
                self.order = longer(self.order, 2 * number)
            self.order[number] = int.from_bytes(order, "little")
            self._states.append(state)
        return number


AnyModel = Automaton | OnDemandLM
"""Language models of a search space."""


class LmArrays:
    """The arrays of a model for one search; its table is borrowed from a pool."""

    now: Automaton | OnDemandTable  # argument of kernels

    def __init__(self, lm: AnyModel, oov_words: Sequence[str] = ()) -> None:
        self._answers: ScoreCache | None = None
        if isinstance(lm, OnDemandLM):
            self._answers = lm.answers()
            self._aliases = self._answers.labels_of(oov_words)
            self.now = self._answers.empty
        else:
            self.now = lm

    def __enter__(self) -> Self:
        if self._answers is not None:
            self.now = self._answers.take(self._aliases)
        return self

    def __exit__(self, *error: object) -> None:
        if self._answers is not None:
            assert isinstance(self.now, OnDemandTable)
            self._answers.give(self.now)
            self.now = self._answers.empty

    def answer(self) -> bool:
        """Query the model for missing pairs; return whether there were any."""
        if not kernels.unanswered(self.now):
            return False
        assert self._answers is not None and isinstance(self.now, OnDemandTable)
        self.now = self._answers.answered(self.now)
        return True

    def orders(self, states: np.ndarray) -> np.ndarray:
        """Order of states among those of equal cost, [N]."""
        # Not those of `now`, which has no states while no table is borrowed.
        return states if self._answers is None else self._answers.order[states]

    @property
    def start(self) -> int:
        """The state before an utterance."""
        return int(self.now.model_start[0])

    def step(self, state: int, label: int) -> tuple[np.float32, int]:
        """The cost of a label in a state, and the next state."""
        cost, after = self._until_answered(lambda lm: kernels.step(lm, 0, state, label))
        return np.float32(cost), int(after)

    def final(self, state: int) -> np.float32:
        """The cost of ending in a state."""
        return np.float32(self._until_answered(lambda lm: kernels.final(lm, state)))

    def total(self, labels: np.ndarray, *, complete: bool) -> float:
        """The cost of labels in a row, float64; `complete` with that of ending."""
        costs = np.empty(len(labels), np.float32)
        state = self._until_answered(
            lambda lm: kernels.walk(lm, 0, self.start, labels, costs)
        )
        final = float(self.final(int(state))) if complete else 0.0
        return float(costs.sum(dtype=np.float64)) + final

    def _until_answered(self, query: Callable[[Any], _Found]) -> _Found:
        found = query(self.now)
        while self.answer():
            found = query(self.now)
        return found


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
