"""What the labels of a trie decoder's lattices mean, by the words that are added.

    tables = LatticeTables(decoder, space)
    tables.of(boosts.added)
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from wfstdec.boost.added import AddedWords
from wfstdec.lattice.labels import pronunciations_of, token_tables, word_tables
from wfstdec.trie.space import SearchSpace


class LatticeTables:
    """The tables of one decoder; made when they are asked for, once.

    Args:
        decoder: For its tokens, words, lexicon, separator, and how open words are
            spelled.
        space: What it searches.
    """

    def __init__(self, decoder: Any, space: SearchSpace) -> None:
        self._decoder, self._space = decoder, space
        self._own: Any = None
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[AddedWords, Any] = WeakKeyDictionary()

    def of(self, added: AddedWords | None) -> Any:
        """The tables with the words that are added."""
        with self._lock:
            if added is None:
                self._own = self._own or self._make(None)
                return self._own
            if added not in self._made:
                self._made[added] = self._make(added)
            return self._made[added]

    def _make(self, added: AddedWords | None) -> Any:
        decoder = self._decoder
        if not self._space.has_lexicon:
            return token_tables(decoder.tokens, decoder.separator)
        words, more = decoder.words, []
        if added is not None:
            words = (*words, *added.words)
            splits, tokens = added.splits.tolist(), added.tokens.tolist()
            for i, word in enumerate(added.word.tolist()):
                more.append((word, tuple(tokens[splits[i] : splits[i + 1]])))
        spelling = decoder.open_spelling
        return word_tables(
            decoder.tokens,
            words,
            pronunciations_of(decoder.lexicon, decoder.words, more),
            separator=decoder.separator,
            separator_optional=decoder.separator_optional,
            open_kind=None if spelling is None else spelling.kind,
            open_token_cost=float(self._space.open.token_cost),
        )
