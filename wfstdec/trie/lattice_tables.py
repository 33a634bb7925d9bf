"""What the labels of a trie decoder's lattices mean, by the words that are added.

tables = LatticeTables(decoder, space)
tables.of(boosts.added)
"""

from __future__ import annotations

import itertools
import threading
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from wfstdec.boost.oov import OovWords
from wfstdec.lattice.labels import token_tables, with_added, word_tables
from wfstdec.trie.search_space import SearchSpace


class LatticeTables:
    """The tables of one decoder; made when they are asked for, once.

    Args:
        decoder: For its tokens, words, lexicon, separator, and how open words are
            spelled.
        space: What it searches.
    """

    def __init__(self, decoder: Any, space: SearchSpace) -> None:
        self._decoder, self._space = decoder, space
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[OovWords, Any] = WeakKeyDictionary()

    def of(self, added: OovWords | None) -> Any:
        """The tables with the words that are added."""
        with self._lock:
            if added is None:
                return self._of_decoder
            if added not in self._made:
                self._made[added] = self._make(added)
            return self._made[added]

    def _make(self, added: OovWords) -> Any:
        splits, tokens = added.splits.tolist(), added.tokens.tolist()
        spelt = [tuple(tokens[a:b]) for a, b in itertools.pairwise(splits)]
        said = list(zip(added.word.tolist(), spelt, strict=True))
        return with_added(self._of_decoder, added.words, said)

    @cached_property
    def _of_decoder(self) -> Any:
        decoder, spelling = self._decoder, self._decoder.open_spelling
        opened = self._space.open
        if not self._space.has_lexicon:
            return token_tables(decoder.tokens, decoder.separator)
        return word_tables(
            decoder.tokens,
            decoder.words,
            decoder.lexicon,
            separator=decoder.separator,
            separator_optional=decoder.separator_optional,
            open_kind=None if spelling is None else spelling.kind,
            open_costs=(float(opened.word_cost), float(opened.token_cost)),
        )
