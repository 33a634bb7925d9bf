"""Language models of flashlight's search: none, n-grams, and a user's own class.

    model = file_model("lm.arpa", words)            # or null_model(), OwnModel(custom)
    model.first_scores(labels)                      # log10 of each as a first word
    history = model.begin()                         # of one utterance
    history.answer(arc_of), history.finish(states, lm_states)

Labels are numbers of words or tokens. Scores are what the model says, unconverted:
KenLM's log10. States of n-grams are flashlight's: a history of labels, however short
the model's own memory is; those of a user's class are its objects.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from wfstdec.adapters.torchaudio.lexicon import Names
from wfstdec.errors import FormatError, LanguageModelError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.loading import read_any_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.user import UserLM
from wfstdec.text.arpa import ArpaModel, NgramTable
from wfstdec.text.symbols import EPSILON_WORD

MISSING_UNKNOWN = -100.0
"""KenLM's log10 of `<unk>` where a model has none."""
_LOG10 = 1 / math.log(10)
_SLACK = 1e-3
_log = logging.getLogger("wfstdec.adapters")

Answers = tuple[np.ndarray, np.ndarray]
"""States and scores, int32 [N] and float32 [N]."""


class History(Protocol):
    """States that a model made in an utterance; state 0 is the start."""

    def answer(self, arc_of: np.ndarray) -> Answers:
        """Find the states that follow by labels, both in int32 [N, 2]."""

    def finish(self, states: np.ndarray, lm_states: np.ndarray) -> Answers:
        """Find the states behind the end of the utterance, int32 [N] both."""


class Model(Protocol):
    """A language model of the search.

    Attributes:
        automaton: Over labels from 1; that of no model where `asked`.
        asked: Whether the search has to ask for every arc.
    """

    automaton: Automaton
    asked: bool

    def bounds(self, num_labels: int) -> np.ndarray:
        """No score of a label is above this, float64 [L]; inf where nobody knows."""

    def first_scores(self, labels: Sequence[int]) -> np.ndarray:
        """The score of each label as the first one, float32 [N]."""

    def begin(self) -> History:
        """Begin an utterance."""


class AutomatonModel:
    """A model in arrays, which the kernels read themselves; see `Model`.

    Args:
        automaton: Over labels from 1.
        order: The number of words in its longest n-grams.
    """

    asked = False

    def __init__(self, automaton: Automaton, order: int) -> None:
        self.automaton, self._order = automaton, order

    def bounds(self, num_labels: int) -> np.ndarray:
        """See `Model`: the best n-gram after the best back-offs there are."""
        automaton = self.automaton
        if len(automaton.label_alias) == 0:
            return np.zeros(num_labels)
        least = np.full(len(automaton.label_alias) + 1, np.inf)
        np.minimum.at(least, automaton.arc_label, automaton.arc_cost)
        least += (self._order - 1) * float(automaton.backoff_cost.min(initial=0.0))
        labels = automaton.label_alias[1 : num_labels + 1]
        return -least[labels] * _LOG10 + _SLACK

    def first_scores(self, labels: Sequence[int]) -> np.ndarray:
        """See `Model`."""
        count = len(labels)
        costs, nextstates = np.empty(count, np.float32), np.empty(count, np.int32)
        start = np.full(count, self.automaton.model_start[0], np.int32)
        wanted = np.asarray(labels, np.int32) + np.int32(1)
        kernels.steps(
            self.automaton, np.zeros_like(start), start, wanted, costs, nextstates
        )
        return _log10(costs)

    def begin(self) -> AutomatonModel:
        """See `Model`; it remembers nothing of an utterance."""
        return self

    def answer(self, arc_of: np.ndarray) -> Answers:
        """See `History`; kernels look arrays up themselves and note nothing."""
        raise AssertionError("models in arrays are not asked")

    def finish(self, states: np.ndarray, lm_states: np.ndarray) -> Answers:
        """See `History`."""
        return states, _log10(self.automaton.final_cost[lm_states])


class OwnModel:
    """A user's class with `start`, `score` and `finish`; see `Model`.

    Args:
        custom: The user's model.
        most: No score of a label is above this.
    """

    automaton = NULL_AUTOMATON
    asked = True

    def __init__(self, custom: Any, most: float = math.inf) -> None:
        self.custom, self._most = custom, most

    def bounds(self, num_labels: int) -> np.ndarray:
        """See `Model`."""
        return np.full(num_labels, self._most)

    def first_scores(self, labels: Sequence[int]) -> np.ndarray:
        """See `Model`."""
        state = self.custom.start(False)
        scores = [self.custom.score(state, int(label))[1] for label in labels]
        return np.array([float(score) for score in scores], np.float32)

    def begin(self) -> OwnHistory:
        """See `Model`."""
        return OwnHistory(self.custom)


class OwnHistory:
    """The states that a user's model gave in one utterance; see `History`.

    Args:
        custom: The user's model.
    """

    def __init__(self, custom: Any) -> None:
        self._custom = custom
        self._states: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._number(custom.start(False))

    def answer(self, arc_of: np.ndarray) -> Answers:
        """See `History`: asked one by one, in the order of the states."""
        found = [
            self._checked("score", self._custom.score(self._states[state], label))
            for state, label in arc_of.tolist()
        ]
        return _as_answers(found)

    def finish(self, states: np.ndarray, lm_states: np.ndarray) -> Answers:
        """See `History`."""
        kept = {
            state: self._checked("finish", self._custom.finish(self._states[state]))
            for state in dict.fromkeys(states.tolist())
        }
        return _as_answers([kept[state] for state in states.tolist()])

    def _checked(self, method: str, answer: Any) -> tuple[int, float]:
        """The number of the state and the score that a model gave."""
        try:
            state, score = answer
            score = float(score)
        except (TypeError, ValueError):
            state, score = None, math.nan
        if not score < math.inf:  # NaN is not less either
            raise LanguageModelError(
                f"{type(self._custom).__name__}.{method} gave {answer!r}, expected a "
                "state and a score"
            )
        return self._number(state), score

    def _number(self, state: Any) -> int:
        """The number of a state: states are the same where the object is."""
        if id(state) not in self._numbers:
            self._numbers[id(state)] = len(self._states)
            self._states.append(state)
        return self._numbers[id(state)]


def _as_answers(found: list[tuple[int, float]]) -> Answers:
    states = np.array([state for state, _ in found], np.int32)
    return states, np.array([score for _, score in found], np.float32)


def null_model() -> AutomatonModel:
    """No language model: flashlight's `ZeroLM`."""
    return AutomatonModel(NULL_AUTOMATON, 0)


def file_model(path: str | os.PathLike[str], labels: Names) -> Model:
    """A model of KenLM's over labels, by name; names that it lacks are its `<unk>`.

    Args:
        path: An ARPA file, or a KenLM binary.
        labels: What it is to score.

    Raises:
        ArpaError: A malformed file.
        FormatError: The file cannot be read, or is none of these.
        BackendError: A binary that KenLM alone can score, and no `kenlm`.
    """
    found = read_any_lm(path)
    if isinstance(found, ArpaModel):
        _warn_of_unknown(found.index, labels)
        # Label 0 of our models is no word: all others move up by one.
        names = [EPSILON_WORD, *labels.names]
        lm = NgramLM.from_arpa(_with_unknown(found), names)
        return AutomatonModel(lm.automaton, found.order)
    if isinstance(found, UserLM):
        _warn_of_unknown(getattr(found, "words", labels.names), labels)
        least = float(getattr(found, "least_cost", 0.0))
        return OwnModel(_InLog10(found, labels), _SLACK - least * _LOG10)
    raise FormatError(
        f"{os.fspath(path)}: a language model over labels of its own, expected an ARPA "
        "file or a KenLM binary"
    )


class _InLog10:
    """A model that costs nats, as torchaudio asks one; each answer is a new state.

    Args:
        model: The model.
        labels: The names of the words.
    """

    def __init__(self, model: UserLM, labels: Names) -> None:
        self._model, self._names = model, labels.names

    def start(self, start_with_nothing: bool) -> list[Any]:
        return [self._model.start()]

    def score(self, state: list[Any], label: int) -> tuple[list[Any], float]:
        cost, after = self._model.score(state[0], self._names[label])
        return [after], -_LOG10 * cost

    def finish(self, state: list[Any]) -> tuple[list[Any], float]:
        return state, -_LOG10 * self._model.finish(state[0])


def _warn_of_unknown(known: Container[str], labels: Names) -> None:
    """Say so if less than half of the labels are in a model."""
    lacking = [name for name in labels.names if name not in known]
    if 2 * len(lacking) > len(labels):
        _log.warning(
            "the language model has %d of the %d %s (%r, for example, not): all others "
            "are unknown to it",
            *(len(labels) - len(lacking), len(labels), labels.what, lacking[0]),
        )


def check_size(labels: Names, num_tokens: int) -> None:
    """Check that each token has a label, where a model is over tokens.

    Raises:
        ShapeError: There are fewer labels.
    """
    if len(labels) < num_tokens:
        raise ShapeError(
            f"lm_dict has {len(labels)} entries, expected one for each of the "
            f"{num_tokens} tokens, in their order"
        )


def _with_unknown(arpa: ArpaModel) -> ArpaModel:
    """Add an `<unk>` as KenLM does where there is none."""
    if arpa.unk is not None:
        return arpa
    first = arpa.ngrams[0]
    unknown = NgramTable(
        words=np.append(first.words, np.full((1, 1), len(arpa.words), np.int32), 0),
        cost=np.append(first.cost, np.full(1, -MISSING_UNKNOWN / _LOG10, np.float32)),
        backoff=np.append(first.backoff, np.zeros(1, np.float32)),
    )
    return replace(
        arpa, words=(*arpa.words, "<unk>"), ngrams=(unknown, *arpa.ngrams[1:])
    )


def _log10(costs: np.ndarray) -> np.ndarray:
    """Log10 of nats, float32, rounded as the kernels do it."""
    return (costs.astype(np.float64) * -_LOG10).astype(np.float32)
