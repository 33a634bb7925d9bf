"""Labels inside graph building: tokens, words, and symbols beside them.

    input side of L, LG    epsilon | tokens | class token | #0 #1 ... #(D-1)
    input side of T, TLG   epsilon | tokens | repeats of tokens | exits | returns
    output side            epsilon | words  | #0, the back-off of the grammar | class

The class stands for all words that the lexicon lacks: `fst/oov_exits.py`.

Repeats are the labels of T's self-loops: the engine keeps them apart from tokens, so
that a packed arc knows whether it starts its token. Files for others have tokens there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from wfstdec.text.symbols import TokenTable, ilabel_of

_Number = TypeVar("_Number", int, np.ndarray)


@dataclass(frozen=True)
class LabelSpace:
    """The labels that one build uses.

    Attributes:
        tokens: The token table of the acoustic model.
        words: The words by id, `words[0]` is `<eps>`.
        num_disambig: D, the disambiguation symbols, `#0` included.
        has_exits: Whether T has OOV exits and returns.
        used: Tokens that LG has; None for all.
    """

    tokens: TokenTable
    words: tuple[str, ...]
    num_disambig: int = 1
    has_exits: bool = False
    used: frozenset[int] | None = None

    @property
    def blank(self) -> int:
        """The input label of the blank."""
        return ilabel_of(self.tokens.blank)

    @property
    def backoff_word(self) -> int:
        """`#0` on the side of words: one beyond the last word."""
        return len(self.words)

    @property
    def class_word(self) -> int:
        """The class on the side of words."""
        return self.backoff_word + 1

    @property
    def class_token(self) -> int:
        """The class on the side of tokens."""
        return ilabel_of(len(self.tokens))

    def disambig(self, k: _Number) -> _Number:
        """`#k` on the side of tokens."""
        return ilabel_of(k + len(self.tokens) + 1)

    def units(self) -> np.ndarray:
        """The input labels of the U tokens that are used and are not the blank."""
        tokens = range(len(self.tokens)) if self.used is None else sorted(self.used)
        units = [token for token in tokens if token != self.tokens.blank]
        return ilabel_of(np.array(units, np.int32))

    def repeat(self, ilabel: np.ndarray) -> np.ndarray:
        """The labels that repeat the tokens of these input labels."""
        return ilabel + len(self.tokens)

    def exit(self, last: _Number) -> _Number:
        """The exit for a word behind the token of this input label, 0 for none."""
        return last + (2 * len(self.tokens) + 1)

    def after(self, ilabel: _Number) -> _Number:
        """The return from a word whose last token has this input label."""
        return ilabel + self.exit(len(self.tokens) + 1)

    def split_repeats(self, ilabel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The token labels of T's or TLG's input side, and which are repeats."""
        repeats = ilabel > len(self.tokens)
        return np.where(repeats, ilabel - len(self.tokens), ilabel), repeats
