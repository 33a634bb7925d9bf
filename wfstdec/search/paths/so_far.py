"""How far a search has come: what every search hands over where it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

_Said = TypeVar("_Said")
_Said_co = TypeVar("_Said_co", covariant=True)


class Settled(Protocol[_Said_co]):
    """Tokens and words that all paths of a search have in common."""

    @property
    def num_words(self) -> int:
        """Count the words, also those whose times are not settled.

        0 where nothing but tokens tells words.
        """

    def whole_since(self, token: int, word: int) -> _Said_co:
        """All but the first tokens and words, and no token whose end is in question.

        Costs are not known.
        """


class PathSoFar(NamedTuple, Generic[_Said]):
    """How far the best path of a search has come.

    Attributes:
        settled: What it has in common with all others.
        said_since: Given how many tokens and words to leave out at the beginning,
            settled ones: the others.
        num_frames: Frames decoded.
        final_cost: What ending here costs more than the best path, nats, scaled; `inf`
            where no path can end.
    """

    settled: Settled[_Said]
    said_since: Callable[[int, int], _Said]
    num_frames: int
    final_cost: float
