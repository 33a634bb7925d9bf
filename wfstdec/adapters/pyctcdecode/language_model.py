"""Language models as pyctcdecode has them: scores in nats, rewards included.

    lm = LanguageModel("lm.arpa", unigrams, alpha=0.5, beta=1.5)
    score, state = lm.score(lm.get_start_state(), "the")
    score = alpha * (log p(word | state) [+ unk_score_offset, unknown]) + beta

`LanguageModel` is read into arrays, which the search asks without Python. Whatever else
has the four methods of `AbstractLanguageModel` can take part in the search too, and is
asked for each word and each beginning of a word once.
"""

from __future__ import annotations

import abc
import copy
import json
import logging
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import numpy as np

from wfstdec.adapters.pyctcdecode.constants import (
    AVG_TOKEN_LEN,
    DEFAULT_ALPHA,
    DEFAULT_BETA,
    DEFAULT_SCORE_LM_BOUNDARY,
    DEFAULT_UNK_LOGP_OFFSET,
    LOG_BASE_CHANGE_FACTOR,
)
from wfstdec.adapters.pyctcdecode.folder import (
    ATTRS,
    MODEL_SUFFIXES,
    UNIGRAMS,
    names_in,
    read_text,
    write_text,
)
from wfstdec.adapters.pyctcdecode.ngrams import NgramScorer, Scorer, open_scorer
from wfstdec.adapters.pyctcdecode.word_tree import WordTree, build_tree
from wfstdec.errors import FormatError, OptionError
from wfstdec.jit import read_only

_log = logging.getLogger("wfstdec.adapters")
_FEW_UNIGRAMS = 1000
_FEW_KNOWN = 0.1


class AbstractLanguageModel(abc.ABC):
    """Interface of a language model, as a search asks it."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """Number of words that it looks at, the predicted one among them."""

    @abc.abstractmethod
    def get_start_state(self) -> Any:
        """The state before an utterance."""

    @abc.abstractmethod
    def score_partial_token(self, partial_token: str) -> float:
        """Score the beginning of a word, until the word is complete; nats."""

    @abc.abstractmethod
    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """The score of a word in a state, in nats, and the state behind it.

        Args:
            prev_state: The state.
            word: The word.
            is_last_word: The score is then also that of the utterance's end.
        """

    def save_to_dir(self, filepath: str) -> None:
        """Write the model into a folder.

        Raises:
            NotImplementedError: Models of this kind cannot be written.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be saved")

    @classmethod
    def load_from_dir(cls, filepath: str) -> AbstractLanguageModel:
        """Read a model from a folder.

        Raises:
            NotImplementedError: Models of this kind cannot be read.
        """
        raise NotImplementedError(f"{cls.__name__} cannot be loaded")

    def reset_params(self, **params: Any) -> None:  # noqa: B027 (may be left out)
        """Change parameters in place."""


class LanguageModel(AbstractLanguageModel):
    """An n-gram model with the rewards of pyctcdecode.

    Args:
        kenlm_model: An ARPA file, a KenLM binary, what `kenlm.Model` made of one, or a
            model of one's own with `start`, `score` and `finish`.
        unigrams: The words that are known; those that the model lacks are left out.
            None: all words of the model are known, and no beginning of a word is.
        alpha: Weight of the model's log-probs.
        beta: Reward of a word, nats.
        unk_score_offset: Added to the log10-prob of unknown words, and to the score of
            beginnings of words that no known word has.
        score_boundary: Whether utterances are sentences: begun by `<s>`, ended by
            `</s>`.

    Attributes:
        scorer: Scorer that has the probabilities.

    Raises:
        InputError: The file is damaged or cannot be read.
        OptionError: A parameter is out of range.
    """

    JSON_ATTRS = ("alpha", "beta", "unk_score_offset", "score_boundary")
    tree: WordTree

    def __init__(
        self,
        kenlm_model: Any,
        unigrams: Collection[str] | None = None,
        alpha: float = DEFAULT_ALPHA,
        beta: float = DEFAULT_BETA,
        unk_score_offset: float = DEFAULT_UNK_LOGP_OFFSET,
        score_boundary: bool = DEFAULT_SCORE_LM_BOUNDARY,
    ) -> None:
        self.scorer: Scorer = open_scorer(kenlm_model)
        self.alpha, self.beta = alpha, beta
        self.unk_score_offset, self.score_boundary = unk_score_offset, score_boundary
        self._check()
        self._unigram_set: set[str] = set()
        if unigrams is None:
            _log.warning(
                "no unigrams: every beginning of a word counts as unknown; give the "
                "words that may be said (of an ARPA file they are taken)"
            )
        else:
            self._unigram_set = self._known(unigrams)
        self._prefixes: set[str] | None = None
        self.is_listed: np.ndarray | None = None
        # Kernels have such a model, and lay out which words are known; others are asked
        # word by word.
        if isinstance(self.scorer, NgramScorer):
            words, known = self.scorer.words, self._unigram_set
            listed = np.array([word in known for word in words], np.bool_)
            self.tree = build_tree(words, listed)
            self.is_listed = read_only(listed if known else np.ones_like(listed))

    def __deepcopy__(self, memo: dict) -> LanguageModel:
        """All but the parameters never changes, and is shared."""
        return copy.copy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays are to be read-only again where they were pickled."""
        vars(self).update(state)
        if self.is_listed is not None:
            self.is_listed = read_only(self.is_listed)
            self.tree = WordTree(*(read_only(array) for array in self.tree))

    def _known(self, unigrams: Collection[str]) -> set[str]:
        if isinstance(unigrams, str):
            raise OptionError(f"unigrams {unigrams!r}, expected a list of words")
        wanted = set(unigrams)
        if len(wanted) < _FEW_UNIGRAMS:
            _log.warning("only %d unigrams: is this small or made data?", len(wanted))
        found = {word for word in wanted if self.scorer.has(word)}
        if wanted and len(found) / len(wanted) < _FEW_KNOWN:
            _log.warning(
                "the language model has %.1f %% of %d unigrams: are they of its kind?",
                *(100 * len(found) / len(wanted), len(wanted)),
            )
        return found

    def _check(self) -> None:
        for name in self.JSON_ATTRS[:3]:
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number):
                raise OptionError(f"{name}={value!r}, expected a number")
        if not isinstance(self.score_boundary, bool | np.bool_):
            raise OptionError(
                f"score_boundary={self.score_boundary!r}, expected a bool"
            )

    def check_usable(self) -> None:
        """Raise where nothing can be decoded: NaN is taken, as there, until then.

        Raises:
            OptionError: A parameter is NaN.
        """
        for name in self.JSON_ATTRS[:3]:
            if np.isnan(getattr(self, name)):
                raise OptionError(f"{name}=nan, expected a number to decode with")

    def reset_params(self, **params: Any) -> None:
        """Change alpha, beta, unk_score_offset or score_boundary; None changes nothing.

        Raises:
            OptionError: A value is out of range; nothing is changed.
        """
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
        """The order of the model."""
        return self.scorer.order

    @property
    def unigrams(self) -> frozenset[str]:
        """The words that are known; empty where none were given."""
        return frozenset(self._unigram_set)

    @property
    def serializable_attrs(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self.JSON_ATTRS}

    def get_start_state(self) -> Any:
        """The state before a sentence, or without a history."""
        return self.scorer.start(bool(self.score_boundary))

    def score_partial_token(self, partial_token: str) -> float:
        """`unk_score_offset`, if no known word begins so; more for long ones."""
        if self._prefixes is None:
            self._prefixes = {
                word[:end] for word in self._unigram_set for end in range(len(word) + 1)
            }
        if partial_token in self._prefixes:
            return 0.0
        length = max(len(partial_token), AVG_TOKEN_LEN)
        return self.unk_score_offset * length / AVG_TOKEN_LEN

    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """See `AbstractLanguageModel`."""
        logp, state = self.scorer.score(prev_state, word)
        unlisted = self._unigram_set and word not in self._unigram_set
        if unlisted or not self.scorer.has(word):
            logp += self.unk_score_offset * LOG_BASE_CHANGE_FACTOR
        score = self.alpha * logp + self.beta
        return score + (self.score_end(state) if is_last_word else 0.0), state

    def score_end(self, state: Any) -> float:
        """The score of the end of an utterance in a state; nats."""
        return self.alpha * self.scorer.end(state) if self.score_boundary else 0.0

    def save_to_dir(self, filepath: str, unigram_encoding: str | None = None) -> None:
        """Write attrs.json, unigrams.txt and the model's file into a folder.

        Raises:
            FormatError: They cannot be written, or the model has no file.
        """
        folder, source = Path(filepath), self.scorer.path
        if source is None:
            raise FormatError(
                f"{folder}: the language model has no file, expected one that was read "
                "from a path"
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
        """Find the files of a model's folder: attributes, unigrams, the model.

        Raises:
            FormatError: It has other files than three.
        """
        folder = Path(filepath)
        names = names_in(folder)
        models = [name for name in names if name.endswith(MODEL_SUFFIXES)]
        if len(names) != 3 or len(models) != 1 or not {ATTRS, UNIGRAMS} < set(names):
            raise FormatError(
                f"{folder}: found {names}, expected {ATTRS!r}, {UNIGRAMS!r} and a "
                f"model ({', '.join(MODEL_SUFFIXES)})"
            )
        found = {"json_attrs": ATTRS, "unigrams": UNIGRAMS, "kenlm": models[0]}
        return {name: str(folder / file) for name, file in found.items()}

    @classmethod
    def load_from_dir(cls, filepath: str, unigram_encoding: str | None = None) -> Self:
        """Read what `save_to_dir` wrote, or pyctcdecode's.

        Raises:
            FormatError: The folder has other files, or one is damaged.
        """
        files = LanguageModel.parse_directory_contents(filepath)
        path, text = files["json_attrs"], read_text(Path(files["json_attrs"]))
        try:
            attrs = json.loads(text)
        except ValueError as error:
            raise FormatError(f"{path}: no JSON ({error})") from error
        if not isinstance(attrs, dict) or set(attrs) != set(cls.JSON_ATTRS):
            found = sorted(attrs) if isinstance(attrs, dict) else attrs
            raise FormatError(
                f"{path}: found {found!r}, expected {sorted(cls.JSON_ATTRS)}"
            )
        lines = read_text(Path(files["unigrams"]), unigram_encoding).splitlines()
        return cls(files["kenlm"], lines, **attrs)


class MultiLanguageModel(AbstractLanguageModel):
    """Several models: scores are their mean. Asked in Python.

    Args:
        language_models: Two or more.

    Raises:
        OptionError: There are fewer.
    """

    def __init__(self, language_models: list[LanguageModel]) -> None:
        if len(language_models) < 2:
            raise OptionError(
                f"{len(language_models)} language models, expected 2 or more"
            )
        self._language_models = list(language_models)

    def check_usable(self) -> None:
        """Check all of them; see `LanguageModel.check_usable`."""
        for lm in self._language_models:
            lm.check_usable()

    @property
    def order(self) -> int:
        """The highest order."""
        return max(lm.order for lm in self._language_models)

    def get_start_state(self) -> list[Any]:
        """The state of each."""
        return [lm.get_start_state() for lm in self._language_models]

    def score_partial_token(self, partial_token: str) -> float:
        """The mean."""
        scores = [lm.score_partial_token(partial_token) for lm in self._language_models]
        return sum(scores) / len(scores)

    def score(
        self, prev_state: Any, word: str, is_last_word: bool = False
    ) -> tuple[float, Any]:
        """See `AbstractLanguageModel`."""
        scored = [
            lm.score(state, word, is_last_word)
            for lm, state in zip(self._language_models, prev_state, strict=True)
        ]
        return sum(score for score, _ in scored) / len(scored), [s for _, s in scored]

    def score_end(self, state: Any) -> float:
        """The mean of the scores of the end."""
        scores = [
            lm.score_end(one)
            for lm, one in zip(self._language_models, state, strict=True)
        ]
        return sum(scores) / len(scores)
