"""Language models, hotwords and their folders, compatible with pyctcdecode.

    lm = LanguageModel("lm.arpa", unigrams, alpha=0.5, beta=1.5)
    score, state = lm.score(lm.get_start_state(), "the")
    score = alpha * (log p(word | state) [+ unk_score_offset, unknown]) + beta

`LanguageModel` is compiled into arrays for the kernels if its n-grams can be listed.
Other objects with the four methods of `AbstractLanguageModel` are called from Python,
once for each text and each partial word. A folder has attrs.json (the parameters),
unigrams.txt (one word per line) and the model's file.
"""

from __future__ import annotations

import abc
import copy
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from wfstdec.adapters.pyctcdecode import alphabet
from wfstdec.adapters.pyctcdecode.search import WordTree, build_tree
from wfstdec.errors import BoostError, FormatError, OptionError
from wfstdec.jit import read_only
from wfstdec.lm.loading import KenlmModel
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import UNK, UserLM
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import atomic_write, read_lines, reading
from wfstdec.text.kenlm import read_kenlm_header

ATTRS, UNIGRAMS = "attrs.json", "unigrams.txt"
MODEL_SUFFIXES = (".arpa", ".bin", ".binary", ".gz")
_NO_UNK_LOG10 = -100.0  # KenLM's log-prob of `<unk>` for files without it
_MARKS = {"<s>", "</s>", "<unk>", "<UNK>"}
_EPSILON = "<eps>"
_ALL_WORDS = 1 << 20
_FEW_UNIGRAMS = 1000
_FEW_KNOWN = 0.1
_log = logging.getLogger("wfstdec.adapters")


class AbstractLanguageModel(abc.ABC):
    """Interface of a language model of the search."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """Number of words that a score depends on, including the predicted one."""

    @abc.abstractmethod
    def get_start_state(self) -> Any:
        """Return the state before an utterance."""

    @abc.abstractmethod
    def score_partial_token(self, partial_token: str) -> float:
        """Return the score of an incomplete word; nats."""

    @abc.abstractmethod
    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """Return the score of a word after a state, nats, and the next state."""
        # With `is_last_word` the score includes that of the utterance's end.

    def save_to_dir(self, filepath: str) -> None:
        """Write the model into a folder, if supported."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved")

    @classmethod
    def load_from_dir(cls, filepath: str) -> AbstractLanguageModel:
        """Read a model from a folder, if supported."""
        raise NotImplementedError(f"{cls.__name__} cannot be loaded")

    def reset_params(self, **params: Any) -> None:  # noqa: B027 (may be left out)
        """Change parameters in place."""


class LanguageModel(AbstractLanguageModel):
    """N-gram model with the word rewards of pyctcdecode."""

    JSON_ATTRS = ("alpha", "beta", "unk_score_offset", "score_boundary")
    tree: WordTree

    def __init__(
        self,
        kenlm_model: Any,
        unigrams: Collection[str] | None = None,
        alpha: float = alphabet.DEFAULT_ALPHA,
        beta: float = alphabet.DEFAULT_BETA,
        unk_score_offset: float = alphabet.DEFAULT_UNK_LOGP_OFFSET,
        score_boundary: bool = alphabet.DEFAULT_SCORE_LM_BOUNDARY,
    ) -> None:
        self.scorer = open_scorer(kenlm_model)
        self.alpha, self.beta = alpha, beta
        self.unk_score_offset, self.score_boundary = unk_score_offset, score_boundary
        self._check()
        self._unigram_set: set[str] = set()
        if unigrams is None:
            _log.warning(
                "no unigrams: every beginning of a word counts as unknown; give the "
                "words that may occur (an ARPA file lists them)"
            )
        elif isinstance(unigrams, str):
            raise OptionError(f"unigrams {unigrams!r}, expected a list of words")
        else:
            self._unigram_set = {word for word in unigrams if self._has(word)}
            count, num_known = len(set(unigrams)), len(self._unigram_set)
            if count < _FEW_UNIGRAMS:
                _log.warning("only %d unigrams: is this a test model?", count)
            if num_known < _FEW_KNOWN * count:
                _log.warning(
                    "the language model has %.1f %% of %d unigrams: are they of its "
                    "kind?",
                    *(100 * num_known / count, count),
                )
        self.is_listed: np.ndarray | None = None
        if isinstance(self.scorer, NgramScorer):
            words, known = list(self.scorer.words), self._unigram_set
            listed = np.array([word in known for word in words], np.bool_)
            self.tree = build_tree(words, listed)
            self.is_listed = read_only(listed if known else np.ones_like(listed))

    def __deepcopy__(self, memo: dict) -> LanguageModel:
        """Share everything except the parameters: the rest is immutable."""
        return copy.copy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays of a pickle read-only again."""
        vars(self).update(state)
        if self.is_listed is not None:
            self.is_listed = read_only(self.is_listed)
            self.tree = WordTree(*(read_only(array) for array in self.tree))

    def _check(self) -> None:
        for name, value in self.serializable_attrs.items():
            is_flag = name == "score_boundary"
            kinds = bool | np.bool_ if is_flag else int | float | np.number
            if not isinstance(value, kinds):
                expected = "a bool" if is_flag else "a number"
                raise OptionError(f"{name}={value!r}, expected {expected}")

    def check_usable(self) -> None:
        """Raise `OptionError` for NaN parameters, which pyctcdecode lets users set."""
        for name in self.JSON_ATTRS[:3]:
            if np.isnan(getattr(self, name)):
                raise OptionError(f"{name}=nan, expected a number to decode with")

    def reset_params(self, **params: Any) -> None:
        """Change parameters by name, all or none; None keeps a value."""
        before = self.serializable_attrs
        for name in self.JSON_ATTRS:
            if params.get(name) is not None:
                setattr(self, name, params[name])
        try:
            self._check()
        except OptionError:
            vars(self).update(before)
            raise

    @property
    def order(self) -> int:
        """Order of the model; for a user's model without one, all words."""
        return int(getattr(self.scorer, "order", _ALL_WORDS))

    @property
    def unigrams(self) -> frozenset[str]:
        """Known words; empty if none were given."""
        return frozenset(self._unigram_set)

    @property
    def serializable_attrs(self) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self.JSON_ATTRS}

    def get_start_state(self) -> Any:
        """Return the state before a sentence, or without a history."""
        bare = None if self.score_boundary else getattr(self.scorer, "empty", None)
        return (bare or self.scorer.start)()

    def _has(self, word: str) -> bool:
        words = getattr(self.scorer, "words", None)
        return word != "" and (words is None or word in words)

    @cached_property
    def _prefixes(self) -> set[str]:
        known = self._unigram_set
        return {word[:end] for word in known for end in range(len(word) + 1)}

    def score_partial_token(self, partial_token: str) -> float:
        """Return `unk_score_offset` if no known word begins so; more for long parts."""
        if partial_token in self._prefixes:
            return 0.0
        length = max(len(partial_token), alphabet.AVG_TOKEN_LEN)
        return self.unk_score_offset * length / alphabet.AVG_TOKEN_LEN

    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """Return a word's score, nats, and the next state; see the base class."""
        is_known = self._has(word)
        cost, state = self.scorer.score(prev_state, word if is_known else UNK)
        logp = -cost
        if not is_known or (self._unigram_set and word not in self._unigram_set):
            logp += self.unk_score_offset * alphabet.LOG_BASE_CHANGE_FACTOR
        score = self.alpha * logp + self.beta
        return score + (self.score_end(state) if is_last_word else 0.0), state

    def score_end(self, state: Any) -> float:
        """Return the score of the end of an utterance after a state; nats."""
        return self.alpha * -self.scorer.finish(state) if self.score_boundary else 0.0

    def save_to_dir(self, filepath: str, unigram_encoding: str | None = None) -> None:
        """Write attrs.json, unigrams.txt and the model's file into a folder."""
        folder, source = Path(filepath), None
        if isinstance(self.scorer, NgramScorer | KenlmModel):
            source = self.scorer.path
        if source is None:
            raise FormatError(
                f"{folder}: the language model has no file, expected one from a path"
            )
        write_text(folder / ATTRS, json.dumps(self.serializable_attrs))
        lines = "".join(f"{word}\n" for word in sorted(self.unigrams))
        write_text(folder / UNIGRAMS, lines, unigram_encoding)
        try:
            shutil.copy2(source, folder / Path(source).name)
        except OSError as error:
            raise FormatError(
                f"{folder}: cannot copy {source}: {error.strerror}"
            ) from error

    @staticmethod
    def parse_directory_contents(filepath: str) -> dict[str, str]:
        """Return the files of a model's folder: attributes, unigrams, the model."""
        folder = Path(filepath)
        names = names_in(folder)
        models = [name for name in names if name.endswith(MODEL_SUFFIXES)]
        if len(names) != 3 or len(models) != 1 or not {ATTRS, UNIGRAMS} < set(names):
            raise FormatError(
                f"{folder}: found {names}, expected {ATTRS!r}, {UNIGRAMS!r} and a "
                f"model ({', '.join(MODEL_SUFFIXES)})"
            )
        files = {"json_attrs": ATTRS, "unigrams": UNIGRAMS, "kenlm": models[0]}
        return {name: str(folder / file) for name, file in files.items()}

    @classmethod
    def load_from_dir(cls, filepath: str, unigram_encoding: str | None = None) -> Self:
        """Read the output of `save_to_dir`, of this class or of pyctcdecode."""
        files = LanguageModel.parse_directory_contents(filepath)
        path, text = files["json_attrs"], read_text(Path(files["json_attrs"]))
        try:
            attrs = json.loads(text)
        except ValueError as error:
            raise FormatError(f"{path}: no JSON ({error})") from error
        if not isinstance(attrs, dict) or set(attrs) != set(cls.JSON_ATTRS):
            keys = sorted(attrs) if isinstance(attrs, dict) else attrs
            raise FormatError(
                f"{path}: found {keys!r}, expected {sorted(cls.JSON_ATTRS)}"
            )
        lines = read_text(Path(files["unigrams"]), unigram_encoding).splitlines()
        return cls(files["kenlm"], lines, **attrs)


class MultiLanguageModel(AbstractLanguageModel):
    """Mean of two or more models, called from Python."""

    def __init__(self, language_models: list[LanguageModel]) -> None:
        if len(language_models) < 2:
            raise OptionError(
                f"{len(language_models)} language models, expected 2 or more"
            )
        self._language_models = list(language_models)

    @property
    def order(self) -> int:
        """Highest order."""
        return max(lm.order for lm in self._language_models)

    def get_start_state(self) -> list[Any]:
        """Return the state of each model."""
        return [lm.get_start_state() for lm in self._language_models]

    def score_partial_token(self, partial_token: str) -> float:
        """Return the mean score."""
        scores = [lm.score_partial_token(partial_token) for lm in self._language_models]
        return sum(scores) / len(scores)

    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """Return the mean score, nats, and the next states."""
        pairs = zip(self._language_models, prev_state, strict=True)
        scored = [lm.score(state, word, is_last_word) for lm, state in pairs]
        return sum(score for score, _ in scored) / len(scored), [s for _, s in scored]

    def score_end(self, state: Any) -> float:
        """Return the mean of the scores of the end."""
        pairs = zip(self._language_models, state, strict=True)
        return sum(lm.score_end(one) for lm, one in pairs) / len(self._language_models)


class LMState(NamedTuple):
    """State of an n-gram model, valid for this model only."""

    state: int


class NgramScorer:
    """N-grams in arrays as a `UserLM`, scored as KenLM does."""

    # `path` is the model's file, `order` the highest n of its n-grams, `words` their
    # labels, sorted.

    def __init__(
        self, model: ArpaModel, path: str | None = None, is_arpa: bool = True
    ) -> None:
        self.path, self.is_arpa, self.order = path, is_arpa, model.order
        words = sorted(set(model.words) - _MARKS - {_EPSILON})
        self.words = {word: label for label, word in enumerate(words, start=1)}
        unk_cost = None
        if model.unk is None:
            unk_cost = -_NO_UNK_LOG10 * alphabet.LOG_BASE_CHANGE_FACTOR
        self.lm = NgramLM.from_arpa(model, (_EPSILON, *words), unk_cost=unk_cost)

    def start(self) -> LMState:
        """Return the state after `<s>`."""
        return LMState(self.lm.start)

    def empty(self) -> LMState:
        """Return the state without a history."""
        return LMState(0)

    def check(self, state: Any) -> LMState:
        """Validate a user's state."""
        is_state = isinstance(state, LMState)
        if not is_state or not 0 <= state.state < self.lm.num_states:
            raise OptionError(
                f"language model state {state!r}, expected one that it returned"
            )
        return state

    def score(self, state: Any, word: str) -> tuple[float, LMState]:
        """Return the score of a word, and the next state."""
        label = self.words.get(word, self.lm.num_labels)
        cost, after = self.lm.step(self.check(state).state, label)
        return cost, LMState(after)

    def finish(self, state: Any) -> float:
        """Return the score of `</s>`."""
        return self.lm.final(self.check(state).state)


def open_scorer(model: Any) -> UserLM:
    """Open a file, a `kenlm.Model`, an ARPA model or a `UserLM`."""
    if isinstance(model, NgramScorer):
        return model
    if isinstance(model, ArpaModel):
        return NgramScorer(model)
    is_path = isinstance(model, str | os.PathLike)
    path = os.fspath(model) if is_path else getattr(model, "path", None)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not (is_path or hasattr(model, "BaseScore")):
        if isinstance(model, UserLM):
            return model
        raise OptionError(
            f"language model {model!r}, expected a path, a kenlm.Model, or an object "
            "with start, score and finish"
        )
    if Path(path).is_file():
        header = read_kenlm_header(path)
        if header is None or (header.is_trie and header.has_words):
            return NgramScorer(read_arpa(path), path, is_arpa=header is None)
    elif is_path:
        raise FormatError(f"{path}: no such file, expected a language model")
    return KenlmModel(path, None if is_path else model)


def unigrams_of(scorer: UserLM, faithful: bool) -> list[str] | None:
    """Return the words of an ARPA file; None if the model does not list them."""
    if not isinstance(scorer, NgramScorer) or not scorer.is_arpa:
        return None
    if not faithful or scorer.path is None:
        return list(scorer.words)
    return sorted(load_unigram_set_from_arpa(scorer.path) & set(scorer.words))


def load_unigram_set_from_arpa(arpa_path: str) -> set[str]:
    """Return the words of an ARPA file whose lines have a back-off weight."""
    lines = read_lines(arpa_path)
    sections = [i for i, line in enumerate(lines) if line.startswith("\\")]
    begin = next((i for i in sections if lines[i].strip() == "\\1-grams:"), len(lines))
    end = next((i for i in sections if i > begin), len(lines))
    fields = [line.strip().split("\t") for line in lines[begin:end]]
    words = {one[1] for one in fields if len(one) == 3}
    if not words:
        raise FormatError(
            f"{arpa_path}: no unigrams with a back-off weight, expected order 2 or more"
        )
    return words


def split_hotwords(hotwords: Iterable[str] | None) -> tuple[str, ...]:
    """Return the words of a list of hotwords, sorted, without duplicates."""
    if hotwords is None:
        return ()
    if isinstance(hotwords, str):
        raise BoostError(
            f"hotwords {hotwords!r}, expected a list of words: [{hotwords!r}]"
        )
    words: set[str] = set()
    for one in hotwords:
        if not isinstance(one, str):
            raise BoostError(f"hotword {one!r}, expected a string")
        words.update(one.split())
    return tuple(sorted(words))


class HotwordScorer:
    """Scorer of hotwords in Python; words of phrases count singly; `weight` in nats."""

    def __init__(self, words: Iterable[str], weight: float) -> None:
        self._words = frozenset(words)
        self.words, self.weight = sorted(self._words), weight
        self._shortest: dict[str, int] = {}
        for word in sorted(self._words, key=len, reverse=True):
            for end in range(len(word) + 1):
                self._shortest[word[:end]] = len(word)

    @classmethod
    def build_scorer(
        cls,
        hotwords: Iterable[str] | None = None,
        weight: float = alphabet.DEFAULT_HOTWORD_WEIGHT,
    ) -> HotwordScorer:
        """Return the scorer of a list of hotwords."""
        return cls(split_hotwords(hotwords), weight)

    def __contains__(self, item: str) -> bool:
        return item in self._shortest

    def score(self, text: str) -> float:
        """Return the score of the hotwords in a text."""
        return self.weight * sum(word in self._words for word in text.split())

    def score_partial_token(self, token: str) -> float:
        """Return the score of the beginning of a hotword."""
        shortest = self._shortest.get(token)
        return self.weight * len(token) / shortest if shortest else 0.0


def names_in(folder: Path) -> list[str]:
    """Return the files of a folder that are not hidden."""
    with reading(folder, "folder"):
        names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if not name.startswith((".", "__"))]


def read_text(path: Path, encoding: str | None = None) -> str:
    """Return the text of a file."""
    with reading(path, "file", "text"):
        return path.read_text(encoding or "utf-8")


def write_text(path: Path, text: str, encoding: str | None = None) -> None:
    """Write a file atomically."""
    try:
        with atomic_write(path, "wb") as file:
            file.write(text.encode(encoding or "utf-8"))
    except (UnicodeEncodeError, LookupError) as error:
        raise FormatError(f"{path}: cannot write: {error}") from error
