"""What labels mean in lattices of searches that have no graph.

    tables = word_tables(tokens, words, lexicon, separator=separator)
    tables = with_added(tables, added.words, added_pronunciations)
    tables = token_tables(tokens, separator)         # words are the tokens themselves

In these a word stands where it ends: on the arc of the token behind it, or on the arc
to the end. Its tokens are those since the word before, fillers apart: nothing has to
be matched with pronunciations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.open_spelling import Kind
from wfstdec.text.pronunciations import Pronunciations
from wfstdec.text.symbols import EPSILON, EPSILON_WORD, TokenTable, ilabel_of, token_of
from wfstdec.text.vocabulary import OPEN_WORD, OpenWord, Vocabulary, with_words

REPEATED, WORD = REPEAT, CARRIES_WORD
"""Flags of ilabels: the token goes on; `olabel` is a word."""
OPEN = 0xFFFFFFFF
"""Stands for the label of open words where that is not known yet."""
TRIE, TOKENS = "trie", "tokens"
"""In the place of a topology: words stand where they end; words are tokens."""


def word_tables(
    tokens: TokenTable,
    words: Sequence[str],
    lexicon: Lexicon,
    *,
    separator: int | None,
    separator_optional: bool = False,
    open_kind: Kind | None = None,
    open_costs: tuple[float, float] = (0.0, 0.0),
) -> Vocabulary:
    """The tables of a search of words.

    Args:
        tokens: The token table.
        words: The words by id, `<eps>` first.
        lexicon: How they are said; what it has of other words is left out.
        separator: The token between words, or None.
        separator_optional: Whether it may be missing.
        open_kind: What spells open words; None where there are none. Their label is
            that of a word `OPEN_WORD`, behind the others.
        open_costs: What an open word costs beside what the language model asks, and
            each of its tokens.
    """
    ids = {word: i for i, word in enumerate(words)}
    entries = zip(lexicon.words, lexicon.pronunciations, strict=True)
    known = [word in ids for word in lexicon.words]
    said = [(ids[word], spelt) for word, spelt in entries if word in ids]
    opened = None
    if open_kind is not None:
        word_cost, token_cost = open_costs
        opened = OpenWord(len(words), open_kind, token_cost, word_cost)
        words = (*words, OPEN_WORD)
    return Vocabulary(
        tokens=tokens,
        words=tuple(words),
        pronunciations=Pronunciations.from_lists(
            said, lexicon.costs[np.array(known, bool)].tolist()
        ),
        fillers=() if separator is None else (separator,),
        separated=separator is not None and not separator_optional,
        topology=TRIE,
        marks_repeats=True,
        open_word=opened,
    )


def with_added(
    tables: Vocabulary,
    words: tuple[str, ...],
    said: Sequence[tuple[int, tuple[int, ...]]],
) -> Vocabulary:
    """Tables with the words that are added for an utterance.

    Args:
        tables: Of the decoder.
        words: What they are called. Their ids in the search follow those of its words;
            their labels follow all words of the table: see `label_of_word`.
        said: Word ids of the search and tokens; also of words of the table.
    """
    labels = label_of_word(tables, np.array([word for word, _ in said], np.int64))
    spelt = [tokens for _, tokens in said]
    pairs = zip(labels.tolist(), spelt, strict=True)
    return with_words(tables, words, Pronunciations.from_lists(pairs))


def label_of_word(tables: Vocabulary, words: np.ndarray) -> np.ndarray:
    """The labels of word ids of a search, `OPEN` being that of open words."""
    if tables.open_word is None:
        return words
    opened = tables.open_word.word
    labels = np.where(words >= opened, words + 1, words)
    return np.where(words == OPEN, opened, labels).astype(words.dtype)


def token_tables(tokens: TokenTable, separator: int | None) -> Vocabulary:
    """The tables of a search of bare tokens: each is a word, by its ilabel."""
    return Vocabulary(
        tokens=tokens,
        words=(EPSILON_WORD, *tokens.names),
        fillers=() if separator is None else (separator,),
        topology=TOKENS,
        marks_repeats=True,
    )


def is_of_trie(tables: Vocabulary) -> bool:
    """Whether words stand where they end."""
    return tables.topology in (TRIE, TOKENS)


def is_of_tokens(tables: Vocabulary) -> bool:
    """Whether its words are tokens."""
    return tables.topology == TOKENS


def begins_token(lattice: Lattice) -> np.ndarray:
    """The arcs on which a token begins that is no blank, bool [A]."""
    return starts_token(lattice.arcs["ilabel"], lattice.tokens)


def starts_token(ilabel: np.ndarray, tokens: TokenTable) -> np.ndarray:
    """The same of ilabels where repeats are marked."""
    label, repeats = ilabel & LABEL_MASK, ilabel & REPEATED != 0
    return (label != EPSILON) & (label != ilabel_of(tokens.blank)) & ~repeats


def tokens_of(ilabel: np.ndarray) -> np.ndarray:
    """The tokens of ilabels that have one, without flags, int32."""
    return token_of((ilabel & LABEL_MASK).astype(np.int32))
