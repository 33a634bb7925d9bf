"""What the labels of a graph mean: tokens, words, pronunciations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wfstdec.text.open_spelling import Kind, OpenSpelling, spelling_of
from wfstdec.text.pronunciations import Pronunciations
from wfstdec.text.symbols import TokenTable

OPEN_WORD = "<open>"
"""Stands in a word table for all words that are spelled by tokens."""


class OpenWord(NamedTuple):
    """The label of words that are spelled by tokens: `fst/open_words.py`.

    Attributes:
        word: Its word id; the text is `OPEN_WORD`.
        kind: What the tokens are.
        token_cost: What each of their tokens costs, nats.
        word_cost: What each word costs beside, nats; None where that is not known.
    """

    word: int
    kind: Kind
    token_cost: float
    word_cost: float | None = None


class Added(NamedTuple):
    """What the tables of an utterance have beside those of the graph.

    Attributes:
        own: Those of the graph.
        said: Pronunciations of the words that follow its own, and more of these.
    """

    own: Vocabulary
    said: Pronunciations


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """What a graph's labels mean.

    Attributes:
        tokens: The token table of the acoustic model.
        words: The words by id; `words[0]` is `<eps>`.
        pronunciations: The token sequences of each word; may be empty.
        fillers: Tokens that may stand between words: separator, silence.
        separated: Whether one of these always stands between two words.
        topology: The name of the CTC topology, or "" where it is not known.
        marks_repeats: Whether `REPEAT` tells repeats of a token from new ones.
        word_cost: float32 [W], what each word costs whatever was said before, nats,
            `inf` where that is not known; empty where no language model says it.
        open_word: The label of open words; None where the graph has none.
        silence_prob: How probable the filler is in each place, if it is a silence whose
            costs stand on arcs; None if not, and where that is not known.
        added: What an utterance has beside these words; None for nothing.
    """

    tokens: TokenTable
    words: tuple[str, ...]
    pronunciations: Pronunciations = field(default_factory=Pronunciations.empty)
    fillers: tuple[int, ...] = ()
    separated: bool = False
    topology: str = ""
    marks_repeats: bool = False
    word_cost: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    open_word: OpenWord | None = None
    silence_prob: float | None = None
    added: Added | None = None

    @property
    def own(self) -> Vocabulary:
        """Those of the graph, without what an utterance has beside."""
        return self if self.added is None else self.added.own

    @cached_property
    def open_spelling(self) -> OpenSpelling | None:
        """How tokens make open words, if the graph has any."""
        if self.open_word is None:
            return None
        return spelling_of(self.open_word.kind, self.tokens, self.fillers)


def with_words(
    tables: Vocabulary, words: tuple[str, ...], said: Pronunciations
) -> Vocabulary:
    """Tables with more words and pronunciations.

    Args:
        tables: Of a graph.
        words: Texts of the word ids behind those of the table.
        said: Pronunciations of these, and of words of the table.
    """
    return replace(
        tables,
        words=(*tables.words, *words),
        pronunciations=tables.pronunciations.joined_with(said),
        word_cost=np.zeros(0, np.float32),
        added=Added(tables, said),
    )
