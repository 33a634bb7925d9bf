"""Names of words that no lexicon and no list has: the spelling of their tokens.

    spelling = open_spelling(tokens, separator, lexicon)
    spelling.text([17, 4])      # 'fuchs' of pieces or letters, '<f j u k s>' of phones

An open word is said by any tokens that stand for something: not the blank, not what
stands between words, no mark such as `<unk>`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wfstdec.text.lexicon import WORD_START, Lexicon, is_mark
from wfstdec.text.symbols import TokenTable

Kind = Literal["pieces", "letters", "phones"]
KINDS: tuple[Kind, ...] = ("pieces", "letters", "phones")


@dataclass(frozen=True, eq=False)
class OpenSpelling:
    """How tokens make open words.

    Attributes:
        kind: What the tokens are: `"pieces"` (U+2581 begins a word), `"letters"`, or
            `"phones"` (the words of the lexicon are not spelled by them).
        texts: What each of the V tokens adds to the text.
        begins: bool [V], tokens that may begin an open word.
        extends: bool [V], tokens that may follow inside one.
    """

    kind: Kind
    texts: tuple[str, ...]
    begins: np.ndarray
    extends: np.ndarray

    @property
    def is_spelled(self) -> bool:
        """Tell whether the text of an open word is a spelling, and no phones."""
        return self.kind != "phones"

    def text(self, tokens: Sequence[int]) -> str:
        """Spell an open word; empty if its tokens spell nothing."""
        text = "".join(self.texts[token] for token in tokens)
        return text if self.is_spelled else f"<{text.rstrip()}>"


def open_spelling(
    tokens: TokenTable, separator: int | None, lexicon: Lexicon | None
) -> OpenSpelling:
    """How tokens make open words.

    Args:
        tokens: The token table.
        separator: The token between words, or None.
        lexicon: Tells letters from phones: most of its words are spelled by letters.
            None where words are spelled.
    """
    fillers = () if separator is None else (separator,)
    if separator is None:
        pieces = spelling_of("pieces", tokens, fillers)
        if pieces.begins.any():
            return pieces
    if lexicon is None or _is_spelled(lexicon, tokens.names):
        return spelling_of("letters", tokens, fillers)
    return spelling_of("phones", tokens, fillers)


def spelling_of(
    kind: Kind, tokens: TokenTable, fillers: Collection[int]
) -> OpenSpelling:
    """How tokens of a kind make open words.

    Args:
        kind: What the tokens are.
        tokens: The token table.
        fillers: Those that stand between words: separator, silence.
    """
    names = tokens.names
    usable = np.array(
        [
            token != tokens.blank and token not in fillers and not is_mark(name)
            for token, name in enumerate(names)
        ]
    )
    if kind == "letters":
        return OpenSpelling(kind, names, usable, usable)
    if kind == "phones":
        return OpenSpelling(kind, tuple(f"{name} " for name in names), usable, usable)
    marked = np.array([name.startswith(WORD_START) for name in names])
    # A piece with the mark inside goes over the end of a word.
    whole = usable & np.array([WORD_START not in name[1:] for name in names])
    texts = tuple(name.removeprefix(WORD_START) for name in names)
    return OpenSpelling(kind, texts, whole & marked, whole & ~marked)


def _is_spelled(lexicon: Lexicon, names: Sequence[str]) -> bool:
    """Tell whether most entries are what their tokens spell, in either case."""
    spelled = sum(
        "".join(names[token] for token in tokens).casefold() == word.casefold()
        for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True)
    )
    return 2 * spelled > len(lexicon)
