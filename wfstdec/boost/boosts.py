"""What a user may boost in an utterance, and the form in which searches take it.

    BoostsLike, Boosts      what users give
    CompiledBoosts          what every search takes: `words` and `phrases`
    WordBoosts              a hash map of word ids (`boost.words`)
    PhraseBoosts            an automaton over words or tokens (`boost.phrases`)

For instance:

    boosts = ["bartley", "new york"]                     # as much as is safe
    boosts = {"bartley": 4.0}                            # words, nats
    boosts = {"bartley": 4.0, "new york": 3.0}           # and phrases, nats each time
    boosts = compiler.compile(["new york"])              # phrases, token by token
    boosts = Boosts({"bartley": 4.0}, compiler.compile(["new york"]))
    boosts = [None, boosts]                              # a list for each utterance

Both kinds are credited in the search itself and reported apart from other costs.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from wfstdec.boost.defaults import DefaultBonuses
from wfstdec.boost.phrases import PhraseBoosts, PhraseCompiler, PhraseOptions
from wfstdec.boost.scaling import scaled_phrases, scaled_words
from wfstdec.boost.spelling import by_words
from wfstdec.boost.words import WordBoosts, check_bonus, compile_word_boosts
from wfstdec.errors import BoostError, BoostWarning, ShapeError

_Numbers = dict[str, float | None]
_MAX_SHOWN = 10
"""Unknown words that a warning shows."""
_ONLY_TOKENS = (
    "but this decoder has no words, expected phrases of tokens: compile them by a "
    "PhraseCompiler with the token table"
)


@dataclass(frozen=True, eq=False)
class Boosts:
    """The boosts of an utterance.

    Attributes:
        words: Word to bonus, nats; above 0 favours. A key of several words is a
            phrase, worth its bonus each time it is said. Where the bonus is None it
            follows from the list (`boost.defaults`); a sequence of words and phrases
            has none.
        phrases: From `PhraseCompiler.compile`; not with phrases among `words`.
    """

    words: Mapping[str, float | None] | Sequence[str] = field(default_factory=dict)
    phrases: PhraseBoosts | None = None


BoostsLike = Boosts | Mapping[str, float | None] | Sequence[str] | PhraseBoosts | None
"""What a user may give for an utterance."""


@dataclass(frozen=True, eq=False)
class CompiledBoosts:
    """Compiled boosts of an utterance; every search takes them.

    Attributes:
        words: The hash map of boosted words; may be empty.
        phrases: The automaton of boosted phrases, of words or of tokens.
    """

    words: WordBoosts
    phrases: PhraseBoosts | None = None

    def __bool__(self) -> bool:
        return bool(self.words) or self.phrases is not None

    @property
    def of_tokens(self) -> bool:
        """Whether there are phrases of tokens."""
        return self.phrases is not None and self.phrases.unit == "token"

    def cost(self, words: Sequence[int], tokens: Sequence[int] | np.ndarray) -> float:
        """What an utterance is credited, as a cost: negative nats.

        Args:
            words: The ids of its words.
            tokens: The tokens that begin in it; only phrases of tokens ask for them.
        """
        total = 0.0
        if self.words:
            total -= self.words.total(words)
        if self.phrases is not None:
            total += self.phrases.total(tokens if self.of_tokens else words)
        return total + 0.0  # no -0.0


class BoostCompiler:
    """Compiles what users give, for the words and tokens of one decoder.

    Args:
        words: The word table, `words[0]` being `<eps>`; empty where there is none.
        word_ids: The ids of these words.
        num_tokens: V.
        defaults: Makes what finds the bonuses of lists without numbers; None where all
            words are as likely, and nothing is known of how they sound.
    """

    _MAX_REMEMBERED = 64

    def __init__(
        self,
        words: Sequence[str],
        word_ids: Mapping[str, int],
        num_tokens: int,
        defaults: Callable[[], DefaultBonuses] | None = None,
    ) -> None:
        self._word_ids = word_ids
        self._num_labels = {"word": len(words), "token": num_tokens}
        options = PhraseOptions(weights_are_totals=True)
        self._phrases = PhraseCompiler(by_words(word_ids), words, options)
        self._defaults = functools.cache(defaults or (lambda: DefaultBonuses(words)))
        self._remembered: OrderedDict[tuple, _Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def compile(
        self, boosts: BoostsLike | Sequence, n: int, scale: float = 1.0
    ) -> list[CompiledBoosts]:
        """The compiled boosts of each utterance; equal lists are compiled once.

        Args:
            boosts: For all utterances, or a sequence with one for each. A sequence of
                strings is one list, for all.
            n: The number of utterances.
            scale: All of it times this.

        Raises:
            BoostError: A boost of the wrong kind, or phrases of other tables; has the
                utterance where each has boosts of its own.
            ShapeError: Not as many lists as utterances.

        Warns:
            BoostWarning: Words that the decoder does not have; names them.
        """
        if _is_one_list(boosts):
            one = self._compile_one(boosts, scale)
            _warn_of(set(one.unknown))
            return [one.boosts] * n
        if not isinstance(boosts, Sequence) or isinstance(boosts, str):
            raise BoostError(
                f"boosts is a {type(boosts).__name__}, expected a mapping from word to "
                "bonus, a sequence of words, compiled phrases, Boosts, or a sequence "
                "of them"
            )
        if len(boosts) != n:
            raise ShapeError(
                f"{len(boosts)} boost lists, expected {n}, one per utterance"
            )
        done: dict[int, _Compiled] = {}
        for i, one in enumerate(boosts):
            try:
                if id(one) not in done:
                    done[id(one)] = self._compile_one(one, scale)
            except BoostError as error:
                error.utterance = i
                raise
        _warn_of({word for one in done.values() for word in one.unknown})
        return [done[id(one)].boosts for one in boosts]

    def _compile_one(self, given: BoostsLike, scale: float) -> _Compiled:
        """What a search takes, and the words that the decoder does not have."""
        boosts = _as_boosts(given)
        words = _as_mapping(boosts.words)
        content = tuple(sorted(words.items(), key=lambda item: item[0]))
        key = content, boosts.phrases and id(boosts.phrases), scale
        with self._lock:
            compiled = self._remembered.pop(key, None)
            if compiled is None:
                compiled = self._compile(words, boosts.phrases, scale)
            self._remembered[key] = compiled
            if len(self._remembered) > self._MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return compiled

    def _compile(
        self, words: dict[str, float | None], phrases: PhraseBoosts | None, scale: float
    ) -> _Compiled:
        """The same, of a checked mapping and of phrases."""
        if words and not self._num_labels["word"]:
            raise BoostError(f"boosts has words such as {min(words)!r}, {_ONLY_TOKENS}")
        without = [text for text, bonus in words.items() if bonus is None]
        bonuses = self._defaults().of(without) if without else {}
        numbers = {
            text: bonuses[text] if bonus is None else bonus
            for text, bonus in words.items()
        }
        several = {text: bonus for text, bonus in numbers.items() if " " in text}
        single = {text: bonus for text, bonus in numbers.items() if " " not in text}
        compiled, unknown = compile_word_boosts(single, self._word_ids)
        given = phrases
        if several:
            if phrases is not None:
                raise BoostError(
                    f"boosts has compiled phrases and {min(several)!r} among its "
                    "words, expected phrases in one place"
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BoostWarning)  # named with the words
                phrases = self._phrases.compile(several)
            unknown += phrases.unknown
        if phrases is not None:
            phrases = self._checked(phrases)
        if scale != 1:
            compiled = scaled_words(compiled, scale)
            phrases = phrases and scaled_phrases(phrases, scale)
        return _Compiled(CompiledBoosts(compiled, phrases), unknown, given)

    def _checked(self, phrases: PhraseBoosts) -> PhraseBoosts | None:
        """The phrases, None where they cannot change anything."""
        if phrases.unit == "word" and not self._num_labels["word"]:
            raise BoostError(f"boosts has phrases of words, {_ONLY_TOKENS}")
        if phrases.num_labels != self._num_labels[phrases.unit]:
            raise BoostError(
                f"boosts has phrases over {phrases.num_labels} {phrases.unit}s, "
                f"expected {self._num_labels[phrases.unit]}: compile them for the "
                f"{phrases.unit} table of this decoder"
            )
        costless = not phrases.automaton.model_default_cost[0]
        return None if costless and phrases.num_arcs == 0 else phrases


class _Compiled(NamedTuple):
    """Boosts, the words that the decoder does not have, and phrases kept alive."""

    boosts: CompiledBoosts
    unknown: list[str]
    phrases: PhraseBoosts | None


def _is_one_list(boosts: BoostsLike | Sequence) -> bool:
    """Whether boosts are those of all utterances."""
    if boosts is None or isinstance(boosts, Boosts | Mapping | PhraseBoosts):
        return True
    if isinstance(boosts, str) or not isinstance(boosts, Sequence):
        return False
    return len(boosts) > 0 and all(isinstance(one, str) for one in boosts)


def _as_boosts(given: BoostsLike) -> Boosts:
    if isinstance(given, PhraseBoosts):
        return Boosts(phrases=given)
    if given is None or isinstance(given, Mapping):
        return Boosts(words=given or {})
    if isinstance(given, Boosts):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Boosts(words=given)
    raise BoostError(
        f"boosts is a {type(given).__name__}, expected a mapping from word to bonus, "
        "a sequence of words, compiled phrases, Boosts, or None"
    )


def _as_mapping(words: Mapping[str, float | None] | Sequence[str]) -> _Numbers:
    """Texts with one space between their words, and their bonuses."""
    pairs = words.items() if isinstance(words, Mapping) else zip(words, repeat(None))
    found: _Numbers = {}
    for given, bonus in pairs:
        if not isinstance(given, str) or not given.strip():
            raise BoostError(f"boosted word {given!r}, expected a string of words")
        if bonus is not None:
            check_bonus(given, bonus)
        text = " ".join(given.split())
        if found.get(text, bonus) != bonus:
            raise BoostError(
                f"{text!r} has the bonuses {found[text]!r} and {bonus!r}, expected one"
            )
        found[text] = bonus
    return found


def _warn_of(unknown: set[str]) -> None:
    if not unknown:
        return
    shown = ", ".join(map(repr, sorted(unknown)[:_MAX_SHOWN]))
    over = len(unknown) - _MAX_SHOWN
    more = f" and {over} more" if over > 0 else ""
    warnings.warn(
        f"{len(unknown)} boosted words are not in the decoder's table and have no "
        f"effect: {shown}{more}",
        BoostWarning,
        stacklevel=_levels_inside(),
    )


def _levels_inside() -> int:
    """The `stacklevel` of whoever called the package, for its caller."""
    package, level = str(Path(__file__).parents[1]), 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level
