"""Readers of what searches found: what those of all decoders have in common.

class TrieReader(FoundReader[list[TokenPath]]):    # adds what is the search's own
    def best(self, found): return found[0]

Of a search under way, the words that are settled are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.contract import Reader
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.paths.hypotheses import FoundPath, PathReader
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.words import BEGINNING, Cutter, timed
from wfstdec.search.sessions import Partial

_Found_contra = TypeVar("_Found_contra", contravariant=True)


class FoundReader(Reader[_Found_contra]):
    """Reads searches of one boost list; see `Reader`.

    Args:
        paths: Makes hypotheses of their paths.
        boosts: The boost list.
    """

    def __init__(self, paths: PathReader, boosts: CompiledBoosts) -> None:
        self._paths, self._boosts = paths, boosts
        self._partial = PartialReader(paths.cutter, paths.frame_shift_s)

    def best(self, found: Any) -> FoundPath:
        """Find the best path of what a search found; here it is that."""
        return found

    def hypothesis(self, found: _Found_contra) -> Hypothesis:
        """Read the best path."""
        return self.hypotheses([found], [self._boosts])[0]

    def hypotheses(
        self, found: Sequence[_Found_contra], boosts: Sequence[CompiledBoosts]
    ) -> list[Hypothesis]:
        """Read many together, whose boosts add the same words as the reader's."""
        return self._paths.hypotheses(list(map(self.best, found)), boosts)

    def partial(self, look: PathSoFar[Any]) -> Partial:
        """Read how far the search has come."""
        return self._partial.read(look)


class PartialReader:
    """Reads one session.

    Args:
        cutter: How its paths are cut into words.
        frame_shift_s: Seconds per frame.
    """

    def __init__(self, cutter: Cutter[Any], frame_shift_s: float) -> None:
        self._cutter, self._shift = cutter, frame_shift_s
        self._timed: list[Word] = []  # settled words
        self._cut = BEGINNING  # behind them

    def read(self, path: PathSoFar[Any]) -> Partial:
        """The words of a search, as of now."""
        whole = path.settled.whole_since(self._cut.tokens, self._cut.words)
        words, self._cut = self._cutter.settled_words(whole, self._cut)
        self._timed += timed(words, self._shift)
        rest = path.said_since(self._cut.tokens, self._cut.words)
        begun = timed(self._cutter.words(rest, self._cut), self._shift)
        return Partial(
            words=(*self._timed, *begun),
            num_settled=max(path.settled.num_words, len(self._timed)),
            num_timed=len(self._timed),
            num_frames=path.num_frames,
            silent_frames=path.num_frames - self._speech_end(rest),
            final_cost=path.final_cost,
        )

    def _speech_end(self, rest: Any) -> int:
        """Frame behind the last token that is spoken, 0 for none."""
        spoken = np.flatnonzero(self._cutter.are_spoken(rest))
        if len(spoken):
            return int(rest.end[spoken[-1]])
        return self._timed[-1].end_frame if self._timed else 0
