"""Vocabularies of graphs with the words that are added for an utterance."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.oov import AddedWords
from wfstdec.search.paths.word_cut import Aligner
from wfstdec.text.pronunciations import Pronunciations
from wfstdec.text.vocabulary import Vocabulary, with_words


class Readings:
    """What reads the paths of one graph.

    Args:
        tables: Of the graph.
    """

    def __init__(self, tables: Vocabulary) -> None:
        self._own, self._lock = (tables, Aligner(tables)), threading.Lock()
        self._made: WeakKeyDictionary[AddedWords, tuple[Vocabulary, Aligner]]
        self._made = WeakKeyDictionary()

    def of(self, added: AddedWords | None) -> tuple[Vocabulary, Aligner]:
        """The tables with the words that are added, and an aligner; made once."""
        if added is None:
            return self._own
        with self._lock:
            if added not in self._made:
                tables = tables_with(self._own[0], added)
                self._made[added] = tables, Aligner(tables)
            return self._made[added]


def tables_with(tables: Vocabulary, added: AddedWords) -> Vocabulary:
    """The tables of a graph with the words that are added."""
    said = Pronunciations(
        added.word, added.splits, added.tokens, np.zeros(len(added.word), np.float32)
    )
    return with_words(tables, added.words, said)
