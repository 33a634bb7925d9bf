"""The texts of words on a path: from the table, or of open words as spelled."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wfstdec.graph.tables import GraphTables
from wfstdec.text.symbols import token_of
from wfstdec.wfst.path import JoinedPaths, PathTokens


class WordTexts:
    """The words of one graph.

    Args:
        tables: Of the graph, perhaps with words that are added.
    """

    def __init__(self, tables: GraphTables) -> None:
        self._words, self._spelling = tables.words, tables.open_spelling
        self._open = tables.open_word.word if tables.open_word else -1

    def of(self, path: PathTokens, frames: np.ndarray) -> list[str]:
        """Of the first words of a path.

        Args:
            path: The path.
            frames: int32 [W', 2], of these words.
        """
        word = path.word[: len(frames)]
        texts = list(map(self._words.__getitem__, word.tolist()))
        for w in self._open_words(word):
            texts[w] = self._spelled(path, frames[w])
        return texts

    def of_all(self, joined: JoinedPaths, frames: np.ndarray) -> list[str]:
        """Of all words of whole paths.

        Args:
            joined: The paths.
            frames: int32 [W, 2], of the words.
        """
        said, token_splits, word_splits = joined
        texts = list(map(self._words.__getitem__, said.word.tolist()))
        for w in self._open_words(said.word):
            i = int(np.searchsorted(word_splits, w, "right")) - 1
            first, end = token_splits[i : i + 2].tolist()
            own = said._replace(
                ilabel=said.ilabel[first:end], start=said.start[first:end]
            )
            texts[w] = self._spelled(own, frames[w])
        return texts

    def _open_words(self, word: np.ndarray) -> Iterable[int]:
        return np.flatnonzero(word == self._open).tolist() if self._open >= 0 else ()

    def _spelled(self, path: PathTokens, frames: np.ndarray) -> str:
        """What the tokens in these frames spell."""
        assert self._spelling is not None
        first, end = np.searchsorted(path.start, frames)
        return self._spelling.text(token_of(path.ilabel[first:end]).tolist())
