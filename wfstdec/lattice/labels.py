"""What labels mean in lattices of searches that have no graph.

    tables = word_tables(tokens, words, lexicon, fillers, separated)
    tables = token_tables(tokens, separator)            # words are the tokens themselves
    label = ilabel_of_steps(tokens, repeats)

In these a word stands where it ends: on the arc of the token behind it, or on the arc
to the end. Its tokens are those since the word before, fillers apart: nothing has to
be matched with pronunciations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.graph.tables import OPEN_WORD, GraphTables, OpenWord, Pronunciations
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.open_spelling import Kind
from wfstdec.text.symbols import EPSILON, EPSILON_WORD, TokenTable, ilabel_of

TRIE, TOKENS = "trie", "tokens"
"""In the place of a topology: words stand where they end; words are tokens."""
REPEATED, WORD = REPEAT, CARRIES_WORD
"""Flags of ilabels: the token goes on; `olabel` is a word."""
OPEN = 0xFFFFFFFF
"""Stands for the label of open words where that is not known yet."""


def word_tables(
    tokens: TokenTable,
    words: Sequence[str],
    pronunciations: Pronunciations,
    *,
    separator: int | None,
    separator_optional: bool = False,
    open_kind: Kind | None = None,
    open_token_cost: float = 0.0,
) -> GraphTables:
    """The tables of a search of words.

    Args:
        tokens: The token table.
        words: The words by id, `<eps>` first.
        pronunciations: Of these words.
        separator: The token between words, or None.
        separator_optional: Whether it may be missing.
        open_kind: What spells open words; None where there are none. Their label is
            that of a word `OPEN_WORD`, the last.
        open_token_cost: What each token of an open word costs.
    """
    opened = None
    if open_kind is not None:
        opened = OpenWord(len(words), open_kind, open_token_cost)
        words = (*words, OPEN_WORD)
    return GraphTables(
        tokens=tokens,
        words=tuple(words),
        pronunciations=pronunciations,
        fillers=() if separator is None else (separator,),
        separated=separator is not None and not separator_optional,
        topology=TRIE,
        marks_repeats=True,
        open_word=opened,
    )


def token_tables(tokens: TokenTable, separator: int | None) -> GraphTables:
    """The tables of a search of bare tokens: each is a word, by its ilabel."""
    return GraphTables(
        tokens=tokens,
        words=(EPSILON_WORD, *tokens.names),
        fillers=() if separator is None else (separator,),
        topology=TOKENS,
        marks_repeats=True,
    )


def pronunciations_of(
    lexicon: Lexicon, words: Sequence[str], more: Sequence[tuple[int, tuple[int, ...]]]
) -> Pronunciations:
    """The pronunciations of those words of a lexicon that have an id, and others.

    Args:
        lexicon: The lexicon.
        words: The words by id.
        more: Further ones, word id and tokens, without costs.
    """
    ids = {word: i for i, word in enumerate(words)}
    costs = lexicon.costs.tolist()
    said = list(zip(lexicon.words, lexicon.pronunciations, costs, strict=True))
    known = [(ids[word], spelt, cost) for word, spelt, cost in said if word in ids]
    pairs = [*((word, spelt) for word, spelt, _ in known), *more]
    return Pronunciations.from_lists(
        pairs, [*(cost for *_, cost in known), *(0.0 for _ in more)]
    )


def is_of_trie(tables: GraphTables) -> bool:
    """Whether words stand where they end."""
    return tables.topology in (TRIE, TOKENS)


def is_of_tokens(tables: GraphTables) -> bool:
    """Whether its words are tokens."""
    return tables.topology == TOKENS


def begins_token(lattice: Lattice) -> np.ndarray:
    """The arcs on which a token begins that is no blank, bool [A]."""
    return starts_token(lattice.arcs["ilabel"], lattice.tokens)


def starts_token(ilabel: np.ndarray, tokens: TokenTable) -> np.ndarray:
    """The same of ilabels where repeats are marked."""
    label, repeats = ilabel & LABEL_MASK, ilabel & REPEAT != 0
    return (label != EPSILON) & (label != ilabel_of(tokens.blank)) & ~repeats
