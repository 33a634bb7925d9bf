"""What words cost that no lexicon and no list has: an open vocabulary.

    vocabulary = OpenVocabulary(word_cost=2.0, token_cost=0.5)
    decoder = TrieDecoder(..., open_vocabulary=vocabulary)

An open word is said by any tokens that stand for something: not the blank, not the
separator, no mark such as `<unk>`. It is like a word that the language model calls
`<unk>`, with a pronunciation that costs `word_cost + token_cost * tokens`. What it is
called says `OpenSpelling`:

    spelling = open_spelling(tokens, separator, lexicon)
    spelling.text([17, 4])      # 'fuchs' of pieces or letters, '<f j u k s>' of phones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wfstdec.search.option_checks import MAX_NATS, CheckedOptions
from wfstdec.text.lexicon import WORD_START, Lexicon, is_mark
from wfstdec.text.symbols import TokenTable

MAX_OPEN_TOKENS = 1000
"""An open word has no more tokens."""


@dataclass(frozen=True)
class OpenVocabulary(CheckedOptions):
    """The price of words that are spelled by tokens; nats, lower is better.

        graph cost of an open word = LM's cost of `<unk>` + word_cost
                                     + token_cost * tokens

    It is a cost of the graph, as those of pronunciations are: `lm_scale` multiplies it.

    Attributes:
        word_cost: For each open word, beside what the language model asks for
            `<unk>`; below 0 where that is too much.
        token_cost: For each token of an open word, 0 or more.

    Raises:
        OptionError: A value is out of range.
    """

    word_cost: float
    token_cost: float

    def __post_init__(self) -> None:
        """Check both."""
        self.check_nats("word_cost")
        self.check(
            "token_cost",
            lambda x: 0 <= x <= MAX_NATS,
            f"a number of nats, 0 to {MAX_NATS:g}",
        )


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

    kind: Literal["pieces", "letters", "phones"]
    texts: tuple[str, ...]
    begins: np.ndarray
    extends: np.ndarray

    @property
    def is_spelled(self) -> bool:
        """Whether the text of an open word is a spelling, and no phones."""
        return self.kind != "phones"

    def text(self, tokens: Sequence[int]) -> str:
        """What an open word is called; empty if its tokens spell nothing."""
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
    names = tokens.names
    usable = np.array(
        [
            token not in (tokens.blank, separator) and not is_mark(name)
            for token, name in enumerate(names)
        ]
    )
    marked = np.array([name.startswith(WORD_START) for name in names])
    if separator is None and (marked & usable).any():
        usable &= np.array([WORD_START not in name[1:] for name in names])
        texts = tuple(name.removeprefix(WORD_START) for name in names)
        return OpenSpelling("pieces", texts, usable & marked, usable & ~marked)
    if lexicon is None or _is_spelled(lexicon, names):
        return OpenSpelling("letters", names, usable, usable)
    texts = tuple(f"{name} " for name in names)
    return OpenSpelling("phones", texts, usable, usable)


def _is_spelled(lexicon: Lexicon, names: Sequence[str]) -> bool:
    """Whether most entries are what their tokens spell, in either case."""
    spelled = sum(
        "".join(names[token] for token in tokens).casefold() == word.casefold()
        for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True)
    )
    return 2 * spelled > len(lexicon)
