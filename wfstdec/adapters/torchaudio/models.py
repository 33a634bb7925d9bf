"""Language models, token lists and lexicons of flashlight's search.

    class MyLM(CTCDecoderLM):
        def start(self, start_with_nothing):
            return CTCDecoderLMState()
        def score(self, state, usr_token_idx):
            return state.child(usr_token_idx), -1.5
        def finish(self, state):
            return state, 0.0

    ctc_decoder(lexicon, tokens, lm=MyLM(), lm_dict="words.txt")

States are equal if they are the same object. Labels are numbers of words or tokens.
Scores are not converted: KenLM's are log10. Each line of a list is one entry; further
names on it are aliases. Each line of a lexicon is a word and its tokens.
"""

from __future__ import annotations

import logging
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.errors import (
    FormatError,
    InputError,
    LexiconError,
    OptionError,
    TokenTableError,
)
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton, BackoffModel
from wfstdec.lm.loading import read_any_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import UserLM
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.files import read_lines
from wfstdec.text.tokens import EPSILON_WORD

UNKNOWN = "<unk>"  # flashlight's name, for any `unk_word`
_UNKNOWN_LOG10 = -100.0  # KenLM's, for models without `<unk>`
_LOG10 = 1 / math.log(10)
_SLACK = 1e-3
_SPACE = re.compile(r"[ \t\n\r\v\f]+")
_log = logging.getLogger("wfstdec.adapters")

Spellings = dict[str, list[list[str]]]  # of each word; `<unk>` has none


class CTCDecoderLMState:
    """State of a language model: a history, and its successors."""

    def __init__(self) -> None:
        self._children: dict[int, CTCDecoderLMState] = {}

    @property
    def children(self) -> dict[int, CTCDecoderLMState]:
        """Successor states by label."""
        return self._children

    def child(self, usr_index: int) -> CTCDecoderLMState:
        """Return the successor by a label, the same object each time."""
        index = int(usr_index)
        if index not in self._children:
            self._children[index] = CTCDecoderLMState()
        return self._children[index]

    def compare(self, state: CTCDecoderLMState) -> int:
        """Return 0 for the same object; else -1 or 1."""
        if self is state:
            return 0
        return -1 if id(self) < id(state) else 1


class CTCDecoderLM(ABC):
    """User-defined language model over words of a lexicon or over tokens."""

    # Labels are positions in `lm_dict`. Without it they are those of the lexicon's
    # words in the order of its file (`<unk>` the last), or tokens. Higher scores are
    # better. Each pair of state and label is scored once per utterance.

    @abstractmethod
    def start(self, start_with_nothing: bool) -> CTCDecoderLMState:
        """Return the state before an utterance; called at the beginning of each."""

    @abstractmethod
    def score(
        self, state: CTCDecoderLMState, usr_token_idx: int
    ) -> tuple[CTCDecoderLMState, float]:
        """Return the state after a label, and the label's score."""

    @abstractmethod
    def finish(self, state: CTCDecoderLMState) -> tuple[CTCDecoderLMState, float]:
        """Return the state after the end of an utterance, and the end's score."""


@dataclass(frozen=True, eq=False)
class Model:
    """Language model: n-grams in arrays, or an object that the host calls."""

    automaton: Automaton = NULL_AUTOMATON  # over labels from 1
    order: int = 0  # of its longest n-grams
    custom: Any = None  # an object with `start`, `score` and `finish`
    most: float = math.inf  # upper bound of the scores of `custom`

    def bounds(self, num_labels: int) -> np.ndarray:
        """Return upper bounds of scores of labels, float64 [L]; inf for no bound."""
        automaton = self.automaton
        if self.custom is not None:
            return np.full(num_labels, self.most)
        if len(automaton.label_alias) == 0:
            return np.zeros(num_labels)
        # The best n-gram after the best back-offs.
        least = np.full(len(automaton.label_alias) + 1, np.inf)
        np.minimum.at(least, automaton.arc_label, automaton.arc_cost)
        least += (self.order - 1) * float(automaton.backoff_cost.min(initial=0.0))
        labels = automaton.label_alias[1 : num_labels + 1]
        return -least[labels] * _LOG10 + _SLACK

    def first_scores(self, labels: Sequence[int]) -> np.ndarray:
        """Return the score of each label as the first one, float32 [N]."""
        if self.custom is not None:
            state = self.custom.start(False)
            scores = [self.custom.score(state, int(label))[1] for label in labels]
            return np.array([float(score) for score in scores], np.float32)
        model = BackoffModel(self.automaton, "word", 0)
        start = [model.start] * len(labels)
        return log10_of(model.step_batch(start, [label + 1 for label in labels])[0])


def model_of(source: Any, labels: Names) -> Model:
    """Return the model of a file over labels (others are `<unk>`), or of an object."""
    if source is None:
        return Model()
    if not isinstance(source, str | os.PathLike):
        for name in ("start", "score", "finish"):
            if not callable(getattr(source, name, None)):
                raise OptionError(
                    f"lm is a {type(source).__name__} without {name}(), expected it"
                )
        return Model(custom=source)
    lm = read_any_lm(source)
    if isinstance(lm, ArpaModel):
        _warn_of_unknown(lm.index, labels)
        # Label 0 of an automaton is no word: all others are shifted by one.
        names = [EPSILON_WORD, *labels.names]
        unk_cost = -_UNKNOWN_LOG10 / _LOG10 if lm.unk is None else None
        ngrams = NgramLM.from_arpa(lm, names, unk_cost=unk_cost)
        return Model(ngrams.automaton, lm.order)
    if isinstance(lm, UserLM):
        _warn_of_unknown(getattr(lm, "words", labels.names), labels)
        least = float(getattr(lm, "least_cost", 0.0))
        return Model(custom=_InLog10(lm, labels), most=_SLACK - least * _LOG10)
    raise FormatError(f"{os.fspath(source)}: expected an ARPA file or a KenLM binary")


class _InLog10:
    """Model in nats with torchaudio's methods; each state is a new object."""

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
    lacking = [name for name in labels.names if name not in known]
    if 2 * len(lacking) > len(labels):
        _log.warning(
            "the language model has %d of the %d %s (%r, for example, not): all others "
            "are unknown to it",
            *(len(labels) - len(lacking), len(labels), labels.what, lacking[0]),
        )


def log10_of(costs: np.ndarray) -> np.ndarray:
    """Convert nats to log10, float32, rounded as in the kernels."""
    return (costs.astype(np.float64) * -_LOG10).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Names:
    """Names and their numbers."""

    names: tuple[str, ...]  # first name of each number
    numbers: Mapping[str, int]
    what: str  # name of the list in errors
    default: int | None = None  # number of other names; None for an error

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str, role: str = "", used_by: str = "") -> int:
        """Return the number of a name; `role` and `used_by` are for the error."""
        number = self.numbers.get(name, self.default)
        if number is None:
            place, role = f"{used_by}: " * bool(used_by), f"{role}=" * bool(role)
            raise TokenTableError(
                f"{place}{role}{name!r}, expected one of the {len(self)} {self.what}"
            )
        return number


def read_names(source: str | os.PathLike[str] | Sequence[str], what: str) -> Names:
    """Read a file of names, or a list."""
    if isinstance(source, str | os.PathLike):
        place = f"{os.fspath(source)}: "
        lines = [_fields(line) for line in read_lines(source)]
    else:
        place, lines = "", [[str(name)] for name in source]
    numbers: dict[str, int] = {}
    names: list[str] = []
    for line in filter(None, lines):
        for name in line:
            if name in numbers:
                raise TokenTableError(
                    f"{place}{name!r} comes twice, expected it once in the {what}"
                )
            numbers[name] = len(names)
        names.append(line[0])
    if not names:
        raise TokenTableError(f"{place}no {what}, expected at least one")
    return Names(tuple(names), numbers, what)


def read_spellings(path: str | os.PathLike[str]) -> Spellings:
    """Read a lexicon; words in the order of the file, `<unk>` the last."""
    spellings: Spellings = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = _fields(line)
        if len(fields) == 1:
            raise LexiconError(
                f"{path}:{number}: {fields[0]!r} has no tokens, expected some"
            )
        if fields:
            spellings.setdefault(fields[0], []).append(fields[1:])
    spellings.pop(UNKNOWN, None)
    spellings[UNKNOWN] = []
    return spellings


def spelt_entries(
    lexicon: Spellings, words: Names, tokens: Names
) -> list[tuple[tuple[int, ...], int, str]]:
    """Return all spellings as tokens, with word number and word; sorted."""
    entries = []
    for word, spellings in filter(lambda item: item[1], lexicon.items()):
        try:
            number = words.index(word)
            for spelling in spellings:
                spelt = (tokens.index(token, used_by=repr(word)) for token in spelling)
                entries.append((tuple(spelt), number, word))
        except InputError as error:
            raise LexiconError(f"lexicon: {error.message}") from None
    return sorted(entries)


def _fields(line: str) -> list[str]:
    return [field for field in _SPACE.split(line) if field]
