"""Pronounce words that a decoder does not have and no list has pronunciations for.

    pronouncer = Pronouncer(tokens, lexicon, separators, g2p)
    result = pronouncer.say(["fuchs"])      # G2pResult
    result.pronunciations["fuchs"]          # [(8, 23, 13, 19)], token ids
    result.unknown_tokens                   # {"x": ["loch"]}

    oov_words(result.pronunciations, bonuses, word_ids, num_known)   # OovWords

`g2p` is anything that `boost.g2p` takes; None takes the spelling where most words of
the decoder's lexicon are what their tokens spell, letters or pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wfstdec.boost.g2p import G2p, G2pLike
from wfstdec.boost.spelling import Speller, Spelling, by_table
from wfstdec.errors import BoostError
from wfstdec.text.lexicon import WORD_START, Lexicon
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import OovWords

_SAMPLE = 200
"""Number of words of a lexicon that decide whether it is one of spellings."""


class G2pResult(NamedTuple):
    """Pronunciations of words.

    Attributes:
        pronunciations: Word to pronunciations, token ids; without words that have none.
        unknown_tokens: Names that the token table lacks, and the words that have them;
            these pronunciations are left out.
    """

    pronunciations: dict[str, list[Spelling]]
    unknown_tokens: dict[str, list[str]]


class Pronouncer:
    """Pronounce words that no list gives pronunciations for."""

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | Callable[[], Lexicon],
        separators: Sequence[int] = (),
        g2p: G2pLike | None = None,
    ) -> None:
        self._tokens, self._lexicon = tokens, lexicon
        self._barred = {tokens.blank, *separators}
        self._separator = separators[0] if len(separators) == 1 else None
        self._g2p = None if g2p is None else G2p.of(g2p)

    def say(self, words: Sequence[str]) -> G2pResult:
        """The pronunciations of words; without those that cannot be said."""
        g2p = self._g2p
        if g2p is None:
            spells = bool(words) and self._spells_by_itself
            return G2pResult(self._spelt(words) if spells else {}, {})
        if g2p.spells:
            return G2pResult(self._spelt(words), {})
        found: dict[str, list[Spelling]] = {}
        unknown_tokens: dict[str, list[str]] = {}
        for word, ways in g2p.say(words, self._tokens).items():
            for names in ways:
                unknown = [name for name in names if name not in self._tokens.ids]
                for name in dict.fromkeys(unknown):
                    unknown_tokens.setdefault(name, []).append(word)
                # A way with one unknown token is left out, others of the word stay.
                if names and not unknown:
                    found.setdefault(word, []).append(self._ids(word, names))
        return G2pResult(found, unknown_tokens)

    def read(self, word: str, prons: Sequence[tuple[str, ...]]) -> list[Spelling]:
        """Token ids of pronunciations."""
        return [self._ids(word, names) for names in prons]

    def known(self, word: str) -> set[Spelling]:
        """Look up how the decoder says a word already."""
        return self._known.get(word, set())

    def _ids(self, word: str, names: Sequence[str]) -> Spelling:
        ids = self._tokens.ids
        try:
            found = tuple([ids[name] for name in names])
        except KeyError as error:
            lacking = self._tokens.lacks(error.args[0])
            raise BoostError(
                f"a pronunciation of {word!r} uses token {lacking}"
            ) from None
        if not self._barred.isdisjoint(found):
            bad = next(name for name in names if ids[name] in self._barred)
            raise BoostError(
                f"a pronunciation of {word!r} has {bad!r} in it, expected neither the "
                "blank nor what stands between words"
            )
        return found

    def _spelt(self, words: Sequence[str]) -> dict[str, list[Spelling]]:
        spelt = zip(words, self._spell(words), strict=True)
        return {word: [tuple(one) for one in ways] for word, ways in spelt if ways}

    @cached_property
    def _spell(self) -> Speller:
        model = None if self._g2p is None else self._g2p.sentencepiece_model
        return by_table(
            self._tokens, separator=self._separator, sentencepiece_model=model
        )

    @cached_property
    def _known(self) -> dict[str, set[Spelling]]:
        made, found = self._lexicon, dict[str, set[Spelling]]()
        lexicon = made if isinstance(made, Lexicon) else made()
        for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
            found.setdefault(word, set()).add(tuple(tokens))
        return found

    @cached_property
    def _spells_by_itself(self) -> bool:
        """Tell from a sample whether most words are what their tokens spell.

        However they are cut: a model may have cut them otherwise than into the fewest
        pieces.
        """
        words = list(itertools.islice(self._known, _SAMPLE))
        spelled = [
            any(self._text(one) == word for one in self._known[word]) for word in words
        ]
        return 2 * sum(spelled) > len(words)

    def _text(self, tokens: Spelling) -> str:
        text = "".join(self._tokens.names[token] for token in tokens)
        return text.removeprefix(WORD_START)


def oov_words(
    prons: Mapping[str, Sequence[Spelling]],
    bonuses: Mapping[str, float],
    word_ids: Mapping[str, int],
    num_known: int,
) -> OovWords | None:
    """The words and pronunciations of a list; None where there is nothing to add."""
    # Sorted: ids, and with them ties of the search, must not depend on the list's
    # order.
    words = tuple(sorted(word for word in prons if word not in word_ids))
    ids = {word: num_known + i for i, word in enumerate(words)}
    rows = sorted(
        (ids[word] if word in ids else word_ids[word], one, word)
        for word, ways in prons.items()
        for one in {tuple(way) for way in ways}
    )
    if not rows:
        return None
    # Further pronunciations of known words have no bonus here: it comes by the id.
    bonus = [bonuses.get(word, 0.0) if word in ids else 0.0 for *_, word in rows]
    return OovWords(
        words=words,
        num_known=num_known,
        word=np.array([word for word, *_ in rows], np.int32),
        splits=np.cumsum([0, *(len(one) for _, one, _ in rows)]).astype(np.int32),
        tokens=np.array([token for _, one, _ in rows for token in one], np.int32),
        bonus=np.array(bonus, np.float32),
    )
