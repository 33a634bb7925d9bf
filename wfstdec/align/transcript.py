"""Texts to align: their words, and the pronunciations of these."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compile import unknown_tokens_message
from wfstdec.boost.g2p import SPELLING, G2pLike, Pronouncer
from wfstdec.errors import BoostError, LexiconError, OptionError
from wfstdec.text.lexicon import Lexicon, Pronunciation, show, spelling_lexicon
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer, check_words
from wfstdec.text.tokens import TokenTable

_NAMED_AT_MOST = 5

WeightedPronunciations = tuple[tuple[Pronunciation, float], ...]
"""The pronunciations of a word and what they cost, nats."""


class Transcript(NamedTuple):
    """The words of a text."""

    words: tuple[str, ...]
    entries: tuple[WeightedPronunciations, ...]  # The pronunciations of each word


class Transcriber:
    """Finds the pronunciations of texts: by a lexicon, by `g2p`, by spelling."""

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | None,
        separators: Sequence[int] = (),
        *,
        g2p: G2pLike | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
        normalizer: Normalizer = AS_IT_STANDS,
    ) -> None:
        self._normalizer = normalizer
        self._known: dict[str, WeightedPronunciations] = {}
        if sentencepiece_model is not None and (lexicon or g2p) is not None:
            raise OptionError(
                "sentencepiece_model with a lexicon or g2p, expected one of them"
            )
        given = lexicon or Lexicon((), (), np.zeros(0, np.float32))
        rows = zip(given.words, given.pronunciations, strict=True)
        for (word, tokens_), cost in zip(rows, given.costs.tolist(), strict=True):
            self._known[word] = (*self._known.get(word, ()), (tokens_, cost))
        self._lexicon_words = tuple(self._known)
        self._compared: dict[tuple[str, ...], WeightedPronunciations] = {}
        for word in self._lexicon_words if normalizer.flag else ():
            parts = normalizer.word(word)
            ways = dict.fromkeys((*self._compared.get(parts, ()), *self._known[word]))
            self._compared[parts] = tuple(ways)
        if lexicon is None and g2p is None:
            g2p = SPELLING
        self._spells_all = lexicon is None and not callable(g2p)
        self._spell: Callable[[Sequence[str]], Lexicon] | None = None
        if sentencepiece_model is not None:
            self._spell = partial(
                spelling_lexicon,
                tokens=tokens,
                separator=separators[0] if separators else None,
                sentencepiece_model=sentencepiece_model,
            )
        self._lacking = ""
        self._pronouncer = Pronouncer(tokens, given, separators, g2p)

    def transcript(self, text: str | Sequence[str]) -> Transcript:
        """Look up the words of a text, cut at white space, or as they are given."""
        words = tuple(text.split()) if isinstance(text, str) else tuple(text)
        if self._normalizer.flag:
            words = tuple(one for word in words for one in self._looked_up(word))
        missing = list(dict.fromkeys(w for w in words if w not in self._known))
        if missing:
            self._known |= self._prons_of(missing)
            missing = [word for word in missing if word not in self._known]
        if missing:
            some = missing[:_NAMED_AT_MOST]
            named = ", ".join(f"{show(w)} (word {words.index(w) + 1})" for w in some)
            more = ", ..." if len(missing) > _NAMED_AT_MOST else ""
            raise LexiconError(
                f"the text has {len(missing)} words that the lexicon does not have: "
                f"{named}{more}; expected its words as they stand there, or g2p for "
                "others" + self._lacking + self._case_hint(missing)
            )
        return Transcript(words, tuple(self._known[word] for word in words))

    def check(self, words: Iterable[str]) -> None:
        """Check that words of texts are written as those of the lexicon."""
        given = words, self._lexicon_words, self._normalizer
        check_words(*given, ("the texts", "the lexicon"), error=LexiconError)

    def _case_hint(self, missing: Sequence[str]) -> str:
        """Count the words that could be said in another case, where case counts."""
        if self._normalizer.flag:
            return ""
        written = {write(word) for word in missing for write in (str.lower, str.upper)}
        known = written & self._known.keys()
        if self._spells_all:  # and no function of a user is asked
            with contextlib.suppress(LexiconError):
                known |= dict(self._pronounced(sorted(written - known))).keys()
        number = sum(not known.isdisjoint((w.lower(), w.upper())) for w in missing)
        return f"; {number} of them in another case: --ignore-case" if number else ""

    def _looked_up(self, word: str) -> tuple[str, ...]:
        """A word of a text: as it is if it is known, its parts, or nothing."""
        if word in self._known:
            return (word,)
        parts = self._normalizer.word(word)
        if parts in self._compared:
            self._known[word] = self._compared[parts]
            return (word,)
        if len(parts) == 1:
            return (word,) if parts[0].casefold() == word.casefold() else parts
        return tuple(one for part in parts for one in self._looked_up(part))

    def _prons_of(self, words: Sequence[str]) -> dict[str, WeightedPronunciations]:
        """Pronunciations of words that the lexicon lacks, where they have any."""
        # Where case is ignored, a word is written as it is, then small, then large.
        spellings: list[Callable[[str], str]] = [str]
        if self._normalizer.flag:
            spellings += [str.casefold, str.upper]
        prons: dict[str, WeightedPronunciations] = {}
        for write in spellings:
            left = {write(word): word for word in words if word not in prons}
            try:
                found = self._pronounced(list(left)) if left else ()
                prons |= {left[w]: tuple((t, 0.0) for t in ways) for w, ways in found}
            except LexiconError:
                if write is spellings[-1]:
                    raise
        return prons

    def _pronounced(
        self, words: Sequence[str]
    ) -> Iterable[tuple[str, Sequence[Pronunciation]]]:
        if self._spell is not None:
            spelt = self._spell(words)
            ways = ([tokens] for tokens in spelt.pronunciations)
            return zip(spelt.words, ways, strict=True)
        try:
            result = self._pronouncer.say(words)
        except BoostError as error:
            raise LexiconError(error.message) from None
        self._lacking = unknown_tokens_message([result.unknown_tokens])
        return result.pronunciations.items()
