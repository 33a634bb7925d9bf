"""Readers of what searches found: what those of all decoders have in common.

class TrieReader(FoundReader[list[TokenPath]]):    # adds what is the search's own
    def best(self, found): return found[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.contract import Reader
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.hypotheses import FoundPath, PathReader
from wfstdec.search.paths.partial import PartialReader
from wfstdec.search.paths.so_far import PathSoFar
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
