"""The pronunciations of words as arrays: token sequences in rows, sorted by word id."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wfstdec.text.lexicon import Lexicon


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

    def __repr__(self) -> str:
        """Show the number of pronunciations."""
        num_words = len(np.unique(self.word))
        return f"Pronunciations({len(self):,} of {num_words:,} words)"

    @classmethod
    def from_lists(
        cls,
        entries: Iterable[tuple[int, tuple[int, ...]]],
        costs: Iterable[float] | None = None,
    ) -> Pronunciations:
        """Pack `(word id, tokens)` pairs; equal pairs are kept once, at the least cost.

        `costs`: nats, one for each pair; None where they are not known.
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
    def of_lexicon(
        cls, lexicon: Lexicon, word_ids: Mapping[str, int]
    ) -> Pronunciations:
        """Pack the entries of a lexicon; those of words without an id are left out."""
        known = [word in word_ids for word in lexicon.words]
        entries = zip(lexicon.words, lexicon.pronunciations, strict=True)
        return cls.from_lists(
            [(word_ids[word], tokens) for word, tokens in entries if word in word_ids],
            lexicon.costs[np.array(known, bool)].tolist(),
        )

    @classmethod
    def empty(cls) -> Pronunciations:
        """No pronunciation at all, as in a graph that came from elsewhere."""
        return cls.from_lists([])

    def joined_with(self, others: Pronunciations) -> Pronunciations:
        """Join other pronunciations to these; those of a word stand in this order."""
        word = np.concatenate([self.word, others.word])
        order = np.argsort(word, kind="stable")
        lengths = np.concatenate([np.diff(self.splits), np.diff(others.splits)])
        tokens = np.concatenate([self.tokens, others.tokens])
        # `argsort(order)` is the new place of each: sorted by it, whole pronunciations
        # move and the tokens in one keep their order.
        row = np.argsort(np.repeat(np.argsort(order), lengths), kind="stable")
        return Pronunciations(
            word=word[order],
            splits=np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int32),
            tokens=tokens[row],
            cost=np.concatenate([self.cost, others.cost])[order],
        )

    def lexicon(self, words: Sequence[str]) -> Lexicon:
        """Make a lexicon of them; `words` are those of the ids."""
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
