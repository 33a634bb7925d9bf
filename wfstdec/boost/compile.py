"""What a user may boost in an utterance, and the form in which searches take it.

    BoostsLike, Boosts      what users give
    CompiledBoosts          what every search takes: `words` and `phrases`
    WordBoosts              a hash map of word ids (`boost.words`)
    AddedWords              words that the decoder does not have (`boost.added`)
    PhraseBoosts            an automaton over words or tokens (`boost.phrases`)

For instance:

    boosts = ["bartley", "new york"]                     # as much as is safe
    boosts = {"bartley": 4.0}                            # words, nats
    boosts = {"bartley": 4.0, "new york": 3.0}           # and phrases, nats each time
    boosts = [BoostEntry("fuchs", ["f j u k s"]), "new york"]  # and words it lacks
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
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.boost.lists import BoostEntry, Entries, Listed, read_entries
from wfstdec.boost.oov import AddedWords, Pronouncer, add_words
from wfstdec.boost.phrases import GRAIN, PhraseBoosts, PhraseCompiler, PhraseOptions
from wfstdec.boost.spelling import Spelling, by_words
from wfstdec.boost.words import WordBoosts, compile_word_boosts
from wfstdec.errors import BoostError, BoostWarning, ShapeError
from wfstdec.jit import jit
from wfstdec.lm.automaton import frozen


def scaled_words(words: WordBoosts, scale: float) -> WordBoosts:
    """All bonuses times a number, 0 or more."""
    bonuses = (words.bonuses * np.float64(scale)).astype(np.float32)
    return WordBoosts(words.keys, bonuses, max(np.float32(0), bonuses.max()))


def scaled_phrases(phrases: PhraseBoosts, scale: float) -> PhraseBoosts:
    """All amounts and credits times a number, 0 or more."""
    automaton = phrases.automaton
    credit = _credits_of(automaton.backoff_state, automaton.backoff_cost)
    source = np.repeat(np.arange(len(credit)), np.diff(automaton.state_arc_splits))
    done = credit[source] - credit[automaton.arc_next] - automaton.arc_cost
    left = automaton.final_cost - credit
    credit, done, left = (_rounded_to_grain(x * scale) for x in (credit, done, left))
    backoff = automaton.backoff_state
    return replace(
        phrases,
        automaton=frozen(
            automaton._replace(
                arc_cost=credit[source] - (credit[automaton.arc_next] + done),
                backoff_cost=np.where(backoff < 0, 0, credit - credit[backoff]),
                final_cost=credit + left,
                model_default_cost=automaton.model_default_cost * np.float64(scale),
            )
        ),
    )


def _rounded_to_grain(amounts: np.ndarray) -> np.ndarray:
    return np.round(amounts / GRAIN) * GRAIN


@jit
def _credits_of(backoff_state, backoff_cost):
    """What each state was credited in advance, float64 [S]: 0 at the root."""
    credit = np.zeros(len(backoff_cost))
    for state in range(1, len(credit)):
        credit[state] = credit[backoff_state[state]] + np.float64(backoff_cost[state])
    return credit


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
            has none. In either, a `BoostEntry` says how a word is pronounced: one that
            the decoder does not have is added.
        phrases: From `PhraseCompiler.compile`; not with phrases among `words`.
    """

    words: Listed = field(default_factory=dict)
    phrases: PhraseBoosts | None = None


BoostsLike = Boosts | Listed | PhraseBoosts | None
"""What a user may give for an utterance."""


@dataclass(frozen=True, eq=False)
class CompiledBoosts:
    """Compiled boosts of an utterance; every search takes them.

    Attributes:
        words: The hash map of boosted words; may be empty.
        phrases: The automaton of boosted phrases, of words or of tokens. Where words
            are added, phrases of words may have labels behind the decoder's.
        added: Words that the decoder does not have.
    """

    words: WordBoosts
    phrases: PhraseBoosts | None = None
    added: AddedWords | None = None

    def __bool__(self) -> bool:
        found = bool(self.words) or self.phrases is not None
        return found or self.added is not None

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
        if self.added is not None:
            total -= self.added.total(words)
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
        pronouncer: How words are said that the decoder does not have; or why it can
            add none, the end of an error's sentence.
    """

    _MAX_REMEMBERED = 64

    def __init__(
        self,
        words: Sequence[str],
        word_ids: Mapping[str, int],
        num_tokens: int,
        defaults: Callable[[], DefaultBonuses] | None = None,
        pronouncer: Pronouncer | str = "this decoder has no words",
    ) -> None:
        self._words, self._word_ids = words, word_ids
        self._pronouncer = pronouncer
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
        entries = read_entries(boosts.words)
        content = tuple(sorted(entries.numbers.items(), key=lambda item: item[0]))
        said = tuple(sorted(entries.said.items()))
        key = content, said, boosts.phrases and id(boosts.phrases), scale
        with self._lock:
            compiled = self._remembered.pop(key, None)
            if compiled is None:
                compiled = self._compile(entries, boosts.phrases, scale)
            self._remembered[key] = compiled
            if len(self._remembered) > self._MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return compiled

    def _compile(
        self, entries: Entries, phrases: PhraseBoosts | None, scale: float
    ) -> _Compiled:
        """The same, of a checked list and of phrases."""
        words = entries.numbers
        if words and not self._num_labels["word"]:
            raise BoostError(f"boosts has words such as {min(words)!r}, {_ONLY_TOKENS}")
        said = self._said(entries)
        numbers = self._with_defaults(words, said)
        several = {text: bonus for text, bonus in numbers.items() if " " in text}
        single = {text: bonus for text, bonus in numbers.items() if " " not in text}
        added = add_words(said, single, self._word_ids, len(self._words))
        new = added.words if added else ()
        known = {text: single[text] for text in single.keys() - new}
        compiled, unknown = compile_word_boosts(known, self._word_ids)
        given = phrases
        if several:
            if phrases is not None:
                raise BoostError(
                    f"boosts has compiled phrases and {min(several)!r} among its "
                    "words, expected phrases in one place"
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BoostWarning)  # named with the words
                phrases = self._phrases_with(new).compile(several)
            unknown += phrases.unknown
        if phrases is not None:
            phrases = self._checked(phrases, len(new))
        if scale != 1:
            compiled = scaled_words(compiled, scale)
            phrases = phrases and scaled_phrases(phrases, scale)
            added = added and _scaled(added, scale)
        return _Compiled(CompiledBoosts(compiled, phrases, added), unknown, given)

    def _said(self, entries: Entries) -> dict[str, list[Spelling]]:
        """Pronunciations that the decoder does not have, of the words of a list."""
        pronouncer = self._pronouncer
        if isinstance(pronouncer, str):
            if entries.said:
                raise BoostError(
                    f"{min(entries.said)!r} has pronunciations, but {pronouncer}"
                )
            return {}
        said = {
            word: [
                one
                for one in pronouncer.read(word, given)
                if one not in pronouncer.known(word)
            ]
            for word, given in entries.said.items()
        }
        words = dict.fromkeys(word for text in entries.numbers for word in text.split())
        lacking = [w for w in words if w not in self._word_ids and w not in said]
        return {**said, **(pronouncer.say(lacking) if lacking else {})}

    def _with_defaults(
        self, numbers: Mapping[str, float | None], said: Mapping[str, list[Spelling]]
    ) -> dict[str, float]:
        """All bonuses of a list, and those of added words that only phrases have."""
        new = {word: s for word, s in said.items() if word not in self._word_ids}
        without = {text: None for text, bonus in numbers.items() if bonus is None}
        without |= dict.fromkeys(word for word in new if word not in numbers)
        bonuses = self._defaults().of(without, new) if without else {}
        given = {text: one for text, one in numbers.items() if one is not None}
        return {**bonuses, **given}

    def _phrases_with(self, new: Sequence[str]) -> PhraseCompiler:
        """The compiler of phrases of words, some of them added."""
        if not new:
            return self._phrases
        known = len(self._words)
        ids = ChainMap({word: known + i for i, word in enumerate(new)}, self._word_ids)  # type: ignore[arg-type]
        return PhraseCompiler(
            by_words(ids), (*self._words, *new), self._phrases.options
        )

    def _checked(self, phrases: PhraseBoosts, num_added: int) -> PhraseBoosts | None:
        """The phrases, None where they cannot change anything."""
        if phrases.unit == "word" and not self._num_labels["word"]:
            raise BoostError(f"boosts has phrases of words, {_ONLY_TOKENS}")
        most = self._num_labels[phrases.unit] + num_added * (phrases.unit == "word")
        if phrases.num_labels not in (self._num_labels[phrases.unit], most):
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
    return len(boosts) > 0 and all(isinstance(one, str | BoostEntry) for one in boosts)


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


def _scaled(added: AddedWords, scale: float) -> AddedWords:
    bonus = (added.bonus * np.float64(scale)).astype(np.float32)
    return replace(added, bonus=bonus)


def _warn_of(unknown: set[str]) -> None:
    if not unknown:
        return
    shown = ", ".join(map(repr, sorted(unknown)[:_MAX_SHOWN]))
    over = len(unknown) - _MAX_SHOWN
    more = f" and {over} more" if over > 0 else ""
    warnings.warn(
        f"{len(unknown)} boosted words are not in the decoder's table and have no "
        f"effect, expected pronunciations or g2p for them: {shown}{more}",
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
