"""What the labels of a graph mean: tokens, words, pronunciations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wfstdec.text.lexicon import Lexicon
from wfstdec.text.open_spelling import Kind, OpenSpelling, spelling_of
from wfstdec.text.symbols import TokenTable


@dataclass(frozen=True, eq=False)
class Pronunciations:
    """The token sequences of each word, in rows, sorted by word id.

    Attributes:
        word: int32 [P], the word id of each pronunciation, non-decreasing.
        splits: int32 [P + 1], where each pronunciation's tokens stand.
        tokens: int32, the token ids.
        cost: float32 [P], -ln of the pronunciation's probability, 0 where none is
            known. Costs stand on the graph's arcs; these decide between two ways to
            cut the same tokens into the same words.
    """

    word: np.ndarray
    splits: np.ndarray
    tokens: np.ndarray
    cost: np.ndarray

    @classmethod
    def from_lists(
        cls,
        entries: Iterable[tuple[int, tuple[int, ...]]],
        costs: Iterable[float] | None = None,
    ) -> Pronunciations:
        """Pack `(word id, tokens)` pairs; equal pairs are kept once, at the least cost.

        Args:
            entries: The pairs.
            costs: Nats, one for each pair; None where they are not known.
        """
        entries = list(entries)
        least: dict[tuple[int, tuple[int, ...]], float] = {}
        for entry, cost in zip(entries, costs or [0.0] * len(entries), strict=True):
            least[entry] = min(cost, least.get(entry, cost))
        rows = sorted(least)
        lengths = [len(tokens) for _, tokens in rows]
        return cls(
            word=np.array([word for word, _ in rows], np.int32),
            splits=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            tokens=np.array([t for _, tokens in rows for t in tokens], np.int32),
            cost=np.array([least[row] for row in rows], np.float32),
        )

    @classmethod
    def empty(cls) -> Pronunciations:
        """No pronunciation at all, as in a graph that came from elsewhere."""
        return cls.from_lists([])

    def joined_with(self, others: Pronunciations) -> Pronunciations:
        """These and others; those of a word stand in this order."""
        word = np.concatenate([self.word, others.word])
        order = np.argsort(word, kind="stable")
        lengths = np.concatenate([np.diff(self.splits), np.diff(others.splits)])
        tokens = np.concatenate([self.tokens, others.tokens])
        row = np.argsort(np.repeat(np.argsort(order), lengths), kind="stable")
        return Pronunciations(
            word=word[order],
            splits=np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int32),
            tokens=tokens[row],
            cost=np.concatenate([self.cost, others.cost])[order],
        )

    def lexicon(self, words: Sequence[str]) -> Lexicon:
        """The same as a lexicon; `words` are those of the ids."""
        pairs = itertools.pairwise(self.splits.tolist())
        tokens = self.tokens.tolist()
        return Lexicon(
            tuple(words[word] for word in self.word.tolist()),
            tuple(tuple(tokens[begin:end]) for begin, end in pairs),
            self.cost,
        )

    def __len__(self) -> int:
        return len(self.word)

    @cached_property
    def word_splits(self) -> np.ndarray:
        """Where each word's pronunciations stand, int32 [max word id + 2]."""
        top = int(self.word[-1]) if len(self.word) else 0
        return np.searchsorted(self.word, np.arange(top + 2)).astype(np.int32)


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

    own: GraphTables
    said: Pronunciations


@dataclass(frozen=True, eq=False)
class GraphTables:
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
    def own(self) -> GraphTables:
        """Those of the graph, without what an utterance has beside."""
        return self if self.added is None else self.added.own

    @cached_property
    def open_spelling(self) -> OpenSpelling | None:
        """How tokens make open words, if the graph has any."""
        if self.open_word is None:
            return None
        return spelling_of(self.open_word.kind, self.tokens, self.fillers)


def with_words(
    tables: GraphTables, words: tuple[str, ...], said: Pronunciations
) -> GraphTables:
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
