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

from wfstdec.adapters.pyctcdecode.constants import LOG_BASE_CHANGE_FACTOR
from wfstdec.errors import FormatError, OptionError, needs
from wfstdec.lm.automaton import frozen
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.user import UNK, UserLM
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import read_lines
from wfstdec.text.kenlm_binary import read_kenlm_header

_NO_UNK_LOG10 = -100.0
"""Log-prob that KenLM gives `<unk>` where a file has none."""
_MARKS = {"<s>", "</s>", "<unk>", "<UNK>"}
_EPSILON = "<eps>"
_MOST_KNOWN = 1 << 20
"""So many answers are kept at most."""
_ALL_WORDS = 1 << 20


class LMState(NamedTuple):
    """A state of an n-gram model; it means nothing to another model."""

    state: int


class Scorer(Protocol):
    """Probabilities of words, nats, by state."""

    @property
    def path(self) -> str | None:
        """Name its file."""

    @property
    def order(self) -> int:
        """The highest n of its n-grams."""

    def has(self, word: str) -> bool:
        """Tell whether the model has the word."""

    def start(self, boundary: bool) -> Any:
        """The state behind `<s>`, or without a history."""

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """The log-prob of a word, and the state behind it."""

    def end(self, state: Any) -> float:
        """The log-prob of `</s>`."""


class NgramScorer:
    """N-grams in arrays, scored as KenLM does.

    Args:
        model: What was read from an ARPA file.
        path: The file, for saving.
        is_arpa: Whether it is an ARPA file.

    Attributes:
        words: All words but marks, sorted; the label of each is its position + 1.
        lm: Over these labels.
    """

    def __init__(
        self, model: ArpaModel, path: str | None = None, is_arpa: bool = True
    ) -> None:
        self.path: str | None = path
        self.is_arpa = is_arpa
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
    """A model of the kenlm module, asked word by word; what it said is kept.

    Args:
        model: A `kenlm.Model`.
        path: Its file.
    """

    def __init__(self, model: Any, path: str) -> None:
        self._model, self.path = model, path
        self._make_state = _kenlm().State
        self._known: dict[tuple[Any, str], tuple[float, Any]] = {}
        self.order = int(model.order)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles open the file again."""
        return open_scorer, (self.path,)

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
        found = self._known.get((state, word))
        if found is None:
            after = self._make_state()
            logp = self._model.BaseScore(state, word, after) * LOG_BASE_CHANGE_FACTOR
            found = logp, after
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[state, word] = found
        return found

    def end(self, state: Any) -> float:
        """See `Scorer`."""
        return self.score(state, "</s>")[0]


class OwnScorer:
    """A user's own model: `start`, `score` and `finish`, as `wfstdec.lm.user` has it.

    Args:
        model: The model; its `order` says how many words, the predicted one among
            them, it looks at; without one all.
    """

    path = None

    def __init__(self, model: UserLM) -> None:
        self._model = model
        self._words = getattr(model, "words", None)
        self.order = int(getattr(model, "order", _ALL_WORDS))

    def has(self, word: str) -> bool:
        """See `Scorer`."""
        return word != "" and (self._words is None or word in self._words)

    def start(self, boundary: bool) -> Any:
        """See `Scorer`."""
        empty = None if boundary else getattr(self._model, "empty", None)
        return (empty or self._model.start)()

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """See `Scorer`."""
        cost, after = self._model.score(state, word if self.has(word) else UNK)
        return -cost, after

    def end(self, state: Any) -> float:
        """See `Scorer`."""
        return -self._model.finish(state)


def open_scorer(model: Any) -> Scorer:
    """Open a model.

    Args:
        model: An ARPA file, plain or gzip, a KenLM binary, a `kenlm.Model`, what
            `read_arpa` gave, or a `UserLM`.

    Raises:
        FormatError: There is no such file, or it cannot be read.
        ArpaError: The file is malformed.
        BackendError: A binary of the probing format, and the kenlm module is not
            installed.
        OptionError: It is none of these.
    """
    if isinstance(model, NgramScorer | KenlmScorer | OwnScorer):
        return model
    if isinstance(model, ArpaModel):
        return NgramScorer(model)
    is_path = isinstance(model, str | os.PathLike)
    path = os.fspath(model) if is_path else getattr(model, "path", None)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, str) and (is_path or hasattr(model, "BaseScore")):
        return _open_file(path, None if is_path else model)
    if isinstance(model, UserLM):
        return OwnScorer(model)
    raise OptionError(
        f"language model {model!r}, expected a path, a kenlm.Model, or an object with "
        "start, score and finish"
    )


def _open_file(path: str, model: Any) -> Scorer:
    """Read a file, or ask the kenlm module where that cannot be; `model` is its own."""
    if not Path(path).is_file():
        if model is not None:
            return KenlmScorer(model, path)
        raise FormatError(f"{path}: no such file, expected a language model")
    header = read_kenlm_header(path)
    if header is None or (header.is_trie and header.has_words):
        return NgramScorer(read_arpa(path), path, is_arpa=header is None)
    return KenlmScorer(model or _open_kenlm(path), path)


def _open_kenlm(path: str) -> Any:
    kenlm = _kenlm(path)
    config = kenlm.Config()
    config.show_progress = False
    try:
        return kenlm.Model(path, config)
    except (OSError, RuntimeError) as error:
        raise FormatError(f"{path}: kenlm cannot read it ({error})") from error


def _kenlm(path: str | None = None) -> Any:
    what = f"{path}: a KenLM binary needs" if path else "its states need"
    with needs(
        f"{what} the kenlm module", ": pip install kenlm, or take the ARPA file"
    ):
        import kenlm
    return kenlm


def unigrams_of(scorer: Scorer, faithful: bool) -> list[str] | None:
    """The words of an ARPA file; None where the model cannot tell.

    Args:
        scorer: The model.
        faithful: Only those whose line has a back-off weight, as pyctcdecode does.
    """
    if not isinstance(scorer, NgramScorer) or not scorer.is_arpa:
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
