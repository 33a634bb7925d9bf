"""The probabilities behind a language model: n-grams in arrays, or the kenlm module.

scorer = open_scorer("lm.arpa")           # or .arpa.gz, a KenLM binary, kenlm.Model
logp, state = scorer.score(scorer.start(True), "the")     # nats
scorer.end(state), scorer.has("the"), scorer.order
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from wfstdec.adapters.pyctcdecode.constants import LOG_BASE_CHANGE_FACTOR
from wfstdec.adapters.pyctcdecode.word_tree import WordTree, build_tree
from wfstdec.errors import BackendError, FormatError, OptionError
from wfstdec.lm.automaton import frozen
from wfstdec.lm.ngram import NgramLM
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import read_lines

_NO_UNK_LOG10 = -100.0
"""What KenLM gives `<unk>` where a file has none."""
_MARKS = {"<s>", "</s>", "<unk>", "<UNK>"}
_EPSILON = "<eps>"


class LMState(NamedTuple):
    """A state of an n-gram model; it means nothing to another model."""

    state: int


class Scorer(Protocol):
    """Probabilities of words, nats, by state."""

    @property
    def path(self) -> str | None:
        """Its file."""
        ...

    @property
    def order(self) -> int:
        """The highest n of its n-grams."""
        ...

    def has(self, word: str) -> bool:
        """Whether it has the word."""
        ...

    def start(self, boundary: bool) -> Any:
        """The state behind `<s>`, or without a history."""
        ...

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """The log-prob of a word, and the state behind it."""
        ...

    def end(self, state: Any) -> float:
        """The log-prob of `</s>`."""
        ...


class NgramScorer:
    """N-grams in arrays, scored as KenLM does.

    Args:
        model: What was read from an ARPA file.
        path: The file, for saving.

    Attributes:
        words: All words but marks, sorted; the label of each is its position + 1.
        lm: Over these labels.
    """

    def __init__(self, model: ArpaModel, path: str | None = None) -> None:
        self.path: str | None = path
        self.order = model.order
        self.words = tuple(sorted(set(model.words) - _MARKS - {_EPSILON}))
        unk_cost = None
        if model.unk is None:
            unk_cost = -_NO_UNK_LOG10 * LOG_BASE_CHANGE_FACTOR
        self.lm = NgramLM.from_arpa(model, (_EPSILON, *self.words), unk_cost=unk_cost)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays are to be read-only again where they were pickled."""
        vars(self).update(state)
        self.lm = replace(self.lm, automaton=frozen(self.lm.automaton))

    @cached_property
    def labels(self) -> dict[str, int]:
        """The label of each word."""
        return {word: i for i, word in enumerate(self.words, start=1)}

    def tree_of(self, listed: np.ndarray) -> WordTree:
        """The words as a tree; `listed` ones, bool [W], count as known."""
        return build_tree(self.words, listed)

    def has(self, word: str) -> bool:
        """See `Scorer`."""
        return word in self.labels

    def start(self, boundary: bool) -> LMState:
        """See `Scorer`."""
        return LMState(self.lm.start if boundary else 0)

    def check(self, state: Any) -> LMState:
        """A state that a user gave.

        Raises:
            OptionError: It is none of this model.
        """
        is_state = isinstance(state, LMState)
        if not is_state or not 0 <= state.state < self.lm.num_states:
            raise OptionError(
                f"language model state {state!r}, expected one that a decoder with "
                "this model has returned"
            )
        return state

    def score(self, state: Any, word: str) -> tuple[float, LMState]:
        """See `Scorer`."""
        label = self.labels.get(word, self.lm.num_labels)
        cost, after = self.lm.step(self.check(state).state, label)
        return -cost, LMState(after)

    def end(self, state: Any) -> float:
        """See `Scorer`."""
        return -self.lm.final(self.check(state).state)


class KenlmScorer:
    """A model of the kenlm module, asked word by word.

    Args:
        model: A `kenlm.Model`.
        path: Its file.
    """

    def __init__(self, model: Any, path: str) -> None:
        self._model, self.path = model, path
        self._make_state = _kenlm().State
        self.order = int(model.order)

    def has(self, word: str) -> bool:
        """See `Scorer`."""
        return word in self._model

    def start(self, boundary: bool) -> Any:
        """See `Scorer`."""
        state = self._make_state()
        write = self._model.BeginSentenceWrite if boundary else None
        (write or self._model.NullContextWrite)(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """See `Scorer`."""
        after = self._make_state()
        found = self._model.BaseScore(state, word, after)
        return found * LOG_BASE_CHANGE_FACTOR, after

    def end(self, state: Any) -> float:
        """See `Scorer`."""
        return self.score(state, "</s>")[0]


def open_scorer(model: Any) -> Scorer:
    """Open a model.

    Args:
        model: An ARPA file, plain or gzip, a KenLM binary, a `kenlm.Model`, or what
            `read_arpa` gave.

    Raises:
        FormatError: There is no such file, or it cannot be read.
        ArpaError: The file is malformed.
        BackendError: A binary, and the kenlm module is not installed.
        OptionError: It is none of these.
    """
    if isinstance(model, ArpaModel):
        return NgramScorer(model)
    if isinstance(model, NgramScorer | KenlmScorer):
        return model
    is_path = isinstance(model, str | os.PathLike)
    path = os.fspath(model) if is_path else getattr(model, "path", None)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str):
        raise OptionError(f"language model {model!r}, expected a path or a kenlm.Model")
    if not Path(path).is_file():
        if not is_path:
            return KenlmScorer(model, path)
        raise FormatError(f"{path}: no such file, expected a language model")
    if not _is_binary(path):
        return NgramScorer(read_arpa(path), path)
    if is_path:
        model = _open_kenlm(path)
    return KenlmScorer(model, path)


def _is_binary(path: str) -> bool:
    """Whether a file begins as KenLM's binaries do."""
    try:
        with open(path, "rb") as file:
            return file.read(6) == b"mmap l"
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error


def _open_kenlm(path: str) -> Any:
    kenlm = _kenlm(path)
    try:
        return kenlm.Model(path)
    except (OSError, RuntimeError) as error:
        raise FormatError(f"{path}: kenlm cannot read it ({error})") from error


def _kenlm(path: str | None = None) -> Any:
    try:
        import kenlm
    except ImportError as error:
        what = f"{path}: a KenLM binary needs" if path else "its states need"
        raise BackendError(
            f"{what} the kenlm module ({error}): pip install kenlm, or take the ARPA "
            "file"
        ) from error
    return kenlm


def unigrams_of(scorer: Scorer, faithful: bool) -> list[str] | None:
    """The words of an ARPA file; None where the model cannot tell.

    Args:
        scorer: The model.
        faithful: Only those whose line has a back-off weight, as pyctcdecode does.
    """
    if not isinstance(scorer, NgramScorer):
        return None
    if not faithful or scorer.path is None:
        return list(scorer.words)
    return sorted(load_unigram_set_from_arpa(scorer.path) & set(scorer.words))


def load_unigram_set_from_arpa(arpa_path: str) -> set[str]:
    """The words of an ARPA file whose lines have a back-off weight.

    Raises:
        FormatError: It cannot be read, or has no unigrams.
    """
    lines = read_lines(arpa_path)
    sections = [i for i, line in enumerate(lines) if line.startswith("\\")]
    begin = next((i for i in sections if lines[i].strip() == "\\1-grams:"), len(lines))
    end = next((i for i in sections if i > begin), len(lines))
    fields = [line.strip().split("\t") for line in lines[begin:end]]
    words = {one[1] for one in fields if len(one) == 3}
    if not words:
        raise FormatError(
            f"{arpa_path}: no unigrams with a back-off weight, expected an ARPA file "
            "of order 2 or more"
        )
    return words
