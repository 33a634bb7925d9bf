"""Readers of what searches found: what those of all decoders have in common.

class GreedyReader(FoundReader[TokenPath]):    # adds what is the search's own
    def hypothesis(self, found): return self._paths.hypothesis(found, self._boosts)
"""

from __future__ import annotations

from typing import Any, TypeVar

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.contract import Reader
from wfstdec.search.paths.hypotheses import PathReader
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

    def partial(self, look: PathSoFar[Any]) -> Partial:
        """Read how far the search has come."""
        return self._partial.read(look)
