"""Costs of an open vocabulary: of words that no lexicon and no list has.

    vocabulary = OpenVocabulary(word_cost=2.0, token_cost=0.5)
    decoder = TrieDecoder(..., open_vocabulary=vocabulary)
    graph = build_graph(..., open_vocabulary=vocabulary)

An open word is said by any tokens that stand for something: not the blank, not the
separator, no mark such as `<unk>`. It is like a word that the language model calls
`<unk>`, with a pronunciation that costs `word_cost + token_cost * tokens`. Which
tokens, and what it is called, says `text/open_spelling.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from wfstdec.search.options import MAX_NATS, CheckedOptions

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
