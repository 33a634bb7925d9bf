"""Words that a decoder does not have, added for an utterance with how they are said.

    pronouncer = Pronouncer(tokens, lexicon, separators, g2p)
    added = oov_words(pronouncer.say(words), bonuses, word_ids, num_known)   # OovWords

Where a list does not say how a word is pronounced, `g2p` does: a function of the word,
a lexicon that has it or its file, or "spelling", the tokens that spell it; None takes
the spelling where all words of the decoder's lexicon have theirs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wfstdec.boost.spelling import Spelling, by_table
from wfstdec.errors import BoostError, OptionError
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.symbols import TokenTable

G2p = Callable[[str], Sequence[str | Sequence[str]] | str]
"""A word to its pronunciations, each the names of tokens; none where it has none."""
G2pLike = G2p | Lexicon | str | os.PathLike[str] | None
"""What users may give: see above."""
SPELLING = "spelling"
_SAMPLE = 200
"""So many words of a lexicon tell whether it is one of spellings."""


@dataclass(frozen=True, eq=False)
class OovWords:
    """Words that a decoder does not have, and more ways to say those that it has.

    The same whatever the order of the list: sorted by (word id, tokens).

    Attributes:
        words: The texts of the ids `num_known` and on: what the decoder's table lacks,
            sorted.
        num_known: W, the size of the decoder's word table; ids below it are its words.
        word: int32 [P], the word id of each pronunciation.
        splits: int32 [P + 1], where each pronunciation's tokens stand.
        tokens: int32, token ids; never the blank, at least one for each.
        bonus: float32 [P], nats for each time the word is said this way, above 0
            favours; 0 for words of the decoder, which `CompiledBoosts.words` has.
    """

    words: tuple[str, ...]
    num_known: int
    word: np.ndarray
    splits: np.ndarray
    tokens: np.ndarray
    bonus: np.ndarray

    def __len__(self) -> int:
        return len(self.word)

    def total(self, words: Sequence[int]) -> float:
        """The bonuses of some word ids together, each as often as it is there, nats."""
        bonus = dict(zip(self.word.tolist(), self.bonus.tolist(), strict=True))
        return sum(bonus.get(int(word), 0.0) for word in words)


class Pronouncer:
    """How words are said that no list gives pronunciations for.

    Args:
        tokens: The token table.
        lexicon: Makes the pronunciations that the decoder has; asked for when needed.
        separators: Tokens that stand between words: no pronunciation has them.
        g2p: See above.

    Raises:
        OptionError: `g2p` is nothing of the kind.
        LexiconError, FormatError: As `read_lexicon`.
    """

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Callable[[], Lexicon],
        separators: Sequence[int] = (),
        g2p: G2pLike = None,
    ) -> None:
        if isinstance(g2p, str | os.PathLike) and g2p != SPELLING:
            g2p = read_lexicon(g2p, tokens)
        known = isinstance(g2p, Lexicon) or g2p in (None, SPELLING)
        if not (known or callable(g2p)):
            raise OptionError(
                f"g2p={g2p!r}, expected a function of a word, a lexicon, {SPELLING!r} "
                "or None"
            )
        self._tokens, self._lexicon = tokens, lexicon
        self._g2p, self._barred = g2p, {tokens.blank, *separators}
        separator = separators[0] if len(separators) == 1 else None
        self._spell = by_table(tokens, separator=separator)

    def say(self, words: Sequence[str]) -> dict[str, list[Spelling]]:
        """The pronunciations of words; without those that cannot be said.

        Raises:
            BoostError: What `g2p` gives for a word is no pronunciation.
        """
        if isinstance(self._g2p, Lexicon):
            found = {word: sorted(self._others.get(word, ())) for word in words}
        elif callable(self._g2p):
            found = {word: self._asked(self._g2p, word) for word in words}
        elif self._g2p == SPELLING or (words and self._spells_by_itself):
            spelt = zip(words, self._spell(words), strict=True)
            found = {word: [tuple(one) for one in ways] for word, ways in spelt}
        else:
            return {}
        return {word: ways for word, ways in found.items() if ways}

    def read(self, word: str, said: Sequence[tuple[str, ...]]) -> list[Spelling]:
        """Token ids of pronunciations.

        Raises:
            BoostError: A token that the table does not have, the blank or a separator.
        """
        return [self._ids(word, names) for names in said]

    def known(self, word: str) -> set[Spelling]:
        """How the decoder says a word already."""
        return self._known.get(word, set())

    def _ids(self, word: str, names: tuple[str, ...]) -> Spelling:
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

    def _asked(self, g2p: G2p, word: str) -> list[Spelling]:
        said = g2p(word)
        ways = [said] if isinstance(said, str) else list(said or ())
        names = [tuple(one.split() if isinstance(one, str) else one) for one in ways]
        return self.read(word, [one for one in names if one])

    @cached_property
    def _known(self) -> dict[str, set[Spelling]]:
        return _by_word(self._lexicon())

    @cached_property
    def _others(self) -> dict[str, set[Spelling]]:
        """What the lexicon that is `g2p` has."""
        assert isinstance(self._g2p, Lexicon)
        return _by_word(self._g2p)

    @cached_property
    def _spells_by_itself(self) -> bool:
        """Whether all words of the lexicon are said as they are spelt, in a sample."""
        words = list(itertools.islice(self._known, _SAMPLE))
        pairs = zip(words, self._spell(words), strict=True)
        return bool(words) and all(
            any(tuple(one) in self._known[word] for one in spelt)
            for word, spelt in pairs
        )


def _by_word(lexicon: Lexicon) -> dict[str, set[Spelling]]:
    found: dict[str, set[Spelling]] = {}
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        found.setdefault(word, set()).add(tuple(tokens))
    return found


def oov_words(
    said: Mapping[str, Sequence[Spelling]],
    bonuses: Mapping[str, float],
    word_ids: Mapping[str, int],
    num_known: int,
) -> OovWords | None:
    """The words and pronunciations of a list; None where there is nothing to add.

    Args:
        said: Word to pronunciations that the decoder does not have.
        bonuses: Nats, of words that the decoder does not have; 0 for others.
        word_ids: The decoder's words.
        num_known: The size of its word table.
    """
    words = tuple(sorted(word for word in said if word not in word_ids))
    ids = {word: num_known + i for i, word in enumerate(words)}
    rows = sorted(
        (ids.get(word, -1) if word in ids else word_ids[word], one, word)
        for word, ways in said.items()
        for one in {tuple(way) for way in ways}
    )
    if not rows:
        return None
    lengths = [len(one) for _, one, _ in rows]
    return OovWords(
        words=words,
        num_known=num_known,
        word=np.array([row[0] for row in rows], np.int32),
        splits=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        tokens=np.fromiter(
            itertools.chain.from_iterable(row[1] for row in rows),
            np.int32,
            sum(lengths),
        ),
        bonus=np.array(
            [bonuses.get(row[2], 0.0) if row[2] in ids else 0.0 for row in rows],
            np.float32,
        ),
    )
