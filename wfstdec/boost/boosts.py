"""What a user may boost in an utterance, and the form in which searches take it.

    BoostsLike, Boosts      what users give
    CompiledBoosts          what every search takes: `words` and `phrases`
    WordBoosts              a hash map of word ids (`boost.words`)
    PhraseBoosts            an automaton over words or tokens (`boost.phrases`)

For instance:

    boosts = {"bartley": 4.0}                            # words, nats
    boosts = {"bartley": 4.0, "new york": 3.0}           # and phrases, nats each time
    boosts = compiler.compile(["new york"])              # phrases, token by token
    boosts = Boosts({"bartley": 4.0}, compiler.compile(["new york"]))
    boosts = [None, boosts]                              # a list for each utterance

Both kinds are credited in the search itself and reported apart from other costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts, PhraseCompiler, PhraseOptions
from wfstdec.boost.spelling import by_words
from wfstdec.boost.words import WordBoosts, compile_word_boosts
from wfstdec.errors import BoostError, BoostWarning, ShapeError

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
            phrase, worth its bonus each time it is said.
        phrases: From `PhraseCompiler.compile`; not with phrases among `words`.
    """

    words: Mapping[str, float] = field(default_factory=dict)
    phrases: PhraseBoosts | None = None


BoostsLike = Boosts | Mapping[str, float] | PhraseBoosts | None
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
            total -= sum(self.words.bonus(word) for word in words)
        if self.phrases is not None:
            total += self.phrases.total(tokens if self.of_tokens else words)
        return total + 0.0  # no -0.0


class BoostCompiler:
    """Compiles what users give, for the words and tokens of one decoder.

    Args:
        words: The word table, `words[0]` being `<eps>`; empty where there is none.
        word_ids: The ids of these words.
        num_tokens: V.
    """

    def __init__(
        self, words: Sequence[str], word_ids: Mapping[str, int], num_tokens: int
    ) -> None:
        self._word_ids = word_ids
        self._num_labels = {"word": len(words), "token": num_tokens}
        options = PhraseOptions(weights_are_totals=True)
        self._phrases = PhraseCompiler(by_words(word_ids), words, options)

    def compile(self, boosts: BoostsLike | Sequence, n: int) -> list[CompiledBoosts]:
        """The compiled boosts of each utterance; equal objects are compiled once.

        Args:
            boosts: For all utterances, or a sequence with one for each.
            n: The number of utterances.

        Raises:
            BoostError: A boost of the wrong kind, or phrases of other tables; has the
                utterance where each has boosts of its own.
            ShapeError: Not as many lists as utterances.

        Warns:
            BoostWarning: Words that the decoder does not have; names them.
        """
        if boosts is None or isinstance(boosts, Boosts | Mapping | PhraseBoosts):
            compiled, unknown = self._compile_one(boosts)
            _warn_of(set(unknown))
            return [compiled] * n
        if not isinstance(boosts, Sequence) or isinstance(boosts, str):
            raise BoostError(
                f"boosts is a {type(boosts).__name__}, expected a mapping from word to "
                "bonus, compiled phrases, Boosts, or a sequence of them"
            )
        if len(boosts) != n:
            raise ShapeError(
                f"{len(boosts)} boost lists, expected {n}, one per utterance"
            )
        done: dict[int, tuple[CompiledBoosts, list[str]]] = {}
        for i, one in enumerate(boosts):
            try:
                if id(one) not in done:
                    done[id(one)] = self._compile_one(one)
            except BoostError as error:
                error.utterance = i
                raise
        _warn_of({word for _, unknown in done.values() for word in unknown})
        return [done[id(one)][0] for one in boosts]

    def _compile_one(self, given: BoostsLike) -> tuple[CompiledBoosts, list[str]]:
        """What a search takes, and the words that the decoder does not have."""
        boosts = _as_boosts(given)
        if boosts.words and not self._num_labels["word"]:
            raise BoostError(
                f"boosts has words such as {next(iter(boosts.words))!r}, {_ONLY_TOKENS}"
            )
        several = {
            key: bonus
            for key, bonus in boosts.words.items()
            if isinstance(key, str) and len(key.split()) > 1
        }
        single = {
            key: bonus for key, bonus in boosts.words.items() if key not in several
        }
        words, unknown = compile_word_boosts(single, self._word_ids)
        phrases = boosts.phrases
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
        return CompiledBoosts(words, phrases), unknown

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


def _as_boosts(given: BoostsLike) -> Boosts:
    if isinstance(given, PhraseBoosts):
        return Boosts(phrases=given)
    if given is None or isinstance(given, Mapping):
        return Boosts(words=given or {})
    if isinstance(given, Boosts):
        return given
    raise BoostError(
        f"boosts is a {type(given).__name__}, expected a mapping from word to bonus, "
        "compiled phrases, Boosts, or None"
    )


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
        stacklevel=4,
    )
