"""Texts to align: their words, and the pronunciations of these.

words = Pronouncer(table, lexicon, separator=token, g2p="spelling")
transcript = words.transcript("the cat sat")
transcript.words                    # ('the', 'cat', 'sat')
transcript.entries[0]               # all pronunciations of 'the', and their costs
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from wfstdec.boost.compile import lacking_told
from wfstdec.boost.g2p import SPELLING, G2pLike
from wfstdec.boost.pronouncer import Pronouncer
from wfstdec.errors import BoostError, LexiconError, OptionError
from wfstdec.text.lexicon import Lexicon, Pronunciation, spelling_lexicon
from wfstdec.text.symbols import TokenTable

_NAMED_AT_MOST = 5

Said = tuple[tuple[Pronunciation, float], ...]
"""The pronunciations of a word and what they cost, nats."""


@dataclass(frozen=True)
class Transcript:
    """The words of a text.

    Attributes:
        words: In order.
        entries: The pronunciations of each word.
    """

    words: tuple[str, ...]
    entries: tuple[Said, ...]


class Transcriber:
    """Finds the pronunciations of texts: by a lexicon, by `g2p`, by spelling.

    Args:
        tokens: The token table.
        lexicon: Pronunciations; None where all words are spelt.
        separators: Tokens that stand between words.
        g2p: For words that the lexicon lacks, as decoders take it for added words.
        sentencepiece_model: What cuts words into pieces where all are spelt.

    Raises:
        OptionError: `g2p` is nothing of the kind, or both it and a model are given.
    """

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | None,
        separators: Sequence[int] = (),
        *,
        g2p: G2pLike | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
    ) -> None:
        self._known: dict[str, Said] = {}
        if sentencepiece_model is not None and (lexicon or g2p) is not None:
            raise OptionError(
                "sentencepiece_model with a lexicon or g2p, expected one of them"
            )
        given = lexicon or Lexicon((), (), np.zeros(0, np.float32))
        rows = zip(given.words, given.pronunciations, strict=True)
        for (word, tokens_), cost in zip(rows, given.costs.tolist(), strict=True):
            self._known[word] = (*self._known.get(word, ()), (tokens_, cost))
        if lexicon is None and g2p is None:
            g2p = SPELLING
        self._spell: Callable[[Sequence[str]], Lexicon] | None = None
        if sentencepiece_model is not None:
            self._spell = partial(
                spelling_lexicon,
                tokens=tokens,
                separator=separators[0] if separators else None,
                sentencepiece_model=sentencepiece_model,
            )
        self._lacking = ""
        self._pronouncer = Pronouncer(tokens, lambda: given, separators, g2p)

    def transcript(self, text: str | Sequence[str]) -> Transcript:
        """The words of a text, cut at white space, or as they are given.

        Raises:
            LexiconError: Words that nobody can say: a few of them, and their places.
        """
        words = tuple(text.split()) if isinstance(text, str) else tuple(text)
        missing = list(dict.fromkeys(w for w in words if w not in self._known))
        if missing:
            found = self._pronounced(missing)
            self._known |= {w: tuple((t, 0.0) for t in ways) for w, ways in found}
            missing = [word for word in missing if word not in self._known]
        if missing:
            raise LexiconError(_unknown(words, missing) + self._lacking)
        return Transcript(words, tuple(self._known[word] for word in words))

    def _pronounced(
        self, words: Sequence[str]
    ) -> Iterable[tuple[str, Sequence[Pronunciation]]]:
        if self._spell is not None:
            spelt = self._spell(words)
            ways = ([tokens] for tokens in spelt.pronunciations)
            return zip(spelt.words, ways, strict=True)
        try:
            said = self._pronouncer.say(words)
        except BoostError as error:
            raise LexiconError(error.message) from None
        self._lacking = lacking_told([said.lacking])
        return said.ways.items()


def _unknown(words: Sequence[str], missing: Sequence[str]) -> str:
    named = ", ".join(
        f"{word!r} (word {words.index(word) + 1})" for word in missing[:_NAMED_AT_MOST]
    )
    more = ", ..." if len(missing) > _NAMED_AT_MOST else ""
    return (
        f"the text has {len(missing)} words that the lexicon does not have: "
        f"{named}{more}; expected its words as they stand there, or g2p for others"
    )
