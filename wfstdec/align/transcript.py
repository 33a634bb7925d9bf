"""Texts to align: their words, and how these are said.

    words = Pronouncer(table, lexicon, separator=token, g2p="spelling")
    transcript = words.transcript("the cat sat")
    transcript.words                    # ('the', 'cat', 'sat')
    transcript.entries[0]               # all pronunciations of 'the', and their costs
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from wfstdec.errors import LexiconError
from wfstdec.text.lexicon import Lexicon, Pronunciation, spelling_lexicon
from wfstdec.text.symbols import TokenTable

SPELLING = "spelling"
_NAMED_AT_MOST = 5

G2P = Callable[[str], Sequence[str | Sequence[str]]]
"""A function word -> pronunciations: token names between spaces, or a sequence."""
Said = tuple[tuple[Pronunciation, float], ...]
"""The pronunciations of a word and what they cost, nats."""


@dataclass(frozen=True)
class Transcript:
    """The words of a text.

    Attributes:
        words: In order.
        entries: How each may be said.
    """

    words: tuple[str, ...]
    entries: tuple[Said, ...]


class Pronouncer:
    """Knows how words are said: by a lexicon, by spelling, by a function.

    Args:
        tokens: The token table.
        lexicon: Pronunciations; None where all words are spelt.
        separator: The token between words, if there is one.
        g2p: For words that the lexicon lacks: `"spelling"`, a function, or None,
            where they are errors.
        sentencepiece_model: What cuts words into pieces where they are spelt.
    """

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | None,
        *,
        separator: int | None = None,
        g2p: G2P | str | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
    ) -> None:
        self._tokens, self._separator = tokens, separator
        self._g2p = SPELLING if lexicon is None and g2p is None else g2p
        self._known: dict[str, list[tuple[Pronunciation, float]]] = {}
        if lexicon is not None:
            rows = zip(lexicon.words, lexicon.pronunciations, strict=True)
            for (word, said), cost in zip(rows, lexicon.costs.tolist(), strict=True):
                self._known.setdefault(word, []).append((said, cost))
        self._spell = partial(
            spelling_lexicon,
            tokens=tokens,
            separator=separator,
            sentencepiece_model=sentencepiece_model,
        )

    def transcript(self, text: str | Sequence[str]) -> Transcript:
        """The words of a text, cut at white space, or as they are given.

        Raises:
            LexiconError: Words that nobody can say: a few of them, and their places.
        """
        words = tuple(text.split()) if isinstance(text, str) else tuple(text)
        missing = list(dict.fromkeys(w for w in words if w not in self._known))
        if missing and self._g2p is None:
            raise LexiconError(_unknown(words, missing))
        if missing and self._g2p == SPELLING:
            spelt = self._spell(missing)
            for word, said in zip(spelt.words, spelt.pronunciations, strict=True):
                self._known[word] = [(said, 0.0)]
            missing = [word for word in missing if word not in self._known]
            if missing:  # <unk> and its like
                raise LexiconError(_unknown(words, missing))
        for word in missing:
            self._known[word] = [(said, 0.0) for said in self._asked(word)]
        return Transcript(words, tuple(tuple(self._known[word]) for word in words))

    def _asked(self, word: str) -> list[Pronunciation]:
        """What the user's function says.

        Raises:
            LexiconError: No pronunciation, or one that does not fit the tokens.
        """
        assert callable(self._g2p)
        found = []
        for said in self._g2p(word) or ():
            names = said.split() if isinstance(said, str) else list(said)
            for name in names:
                if name not in self._tokens.ids:
                    lacks = self._tokens.lacks(name)
                    raise LexiconError(f"g2p says {word!r} with token {lacks}")
            tokens = tuple(self._tokens.ids[name] for name in names)
            if not tokens or {self._tokens.blank, self._separator} & set(tokens):
                raise LexiconError(
                    f"g2p says {word!r} as {said!r}, expected tokens, none of them "
                    "the blank or the separator"
                )
            found.append(tokens)
        if not found:
            raise LexiconError(f"g2p has no pronunciation of {word!r}, expected some")
        return list(dict.fromkeys(found))


def _unknown(words: Sequence[str], missing: Sequence[str]) -> str:
    named = ", ".join(
        f"{word!r} (word {words.index(word) + 1})" for word in missing[:_NAMED_AT_MOST]
    )
    more = ", ..." if len(missing) > _NAMED_AT_MOST else ""
    return (
        f"the text has {len(missing)} words that the lexicon does not have: "
        f"{named}{more}; expected its words as they stand there, or g2p for others"
    )
