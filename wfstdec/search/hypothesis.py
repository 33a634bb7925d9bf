"""What the user gets: words with times, and where the cost comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self


class Word(NamedTuple):
    """A word of a hypothesis.

    Attributes:
        text: The word as the graph's table has it.
        start_s: Seconds to where its first token starts.
        end_s: Seconds to where its last token ends.
        start_frame: The first frame of its first token.
        end_frame: One behind the last frame of its last token.
        confidence: The probability that it was said, 0 to 1; None where nobody asked.
    """

    text: str
    start_s: float
    end_s: float
    start_frame: int
    end_frame: int
    confidence: float | None = None


class Token(NamedTuple):
    """A token of a hypothesis, blanks left out; fields as in `Word`."""

    text: str
    start_s: float
    end_s: float
    start_frame: int
    end_frame: int
    confidence: float | None = None


@dataclass(frozen=True)
class Hypothesis:
    """The best path of one utterance.

        total_cost = acoustic_scale * acoustic_cost + lm_scale * graph_cost
                     + insertion_cost + boost_cost

    Costs are in nats, lower is better, added in float64 along the path.

    A decoder may leave it to the first look at a hypothesis to make what it says.

    Attributes:
        words: In order.
        token_ids: The tokens, blanks left out, in order.
        token_frames: The first frame of each and one behind its last, two tuples.
        token_names: The token table's names.
        frame_shift_s: Seconds per frame.
        total_cost: The cost that the search made least.
        graph_cost: Arcs and final cost, before `lm_scale`.
        acoustic_cost: Negated log-probs, before `acoustic_scale`.
        insertion_cost: `word_insertion` times the number of words.
        boost_cost: Minus the boosts that were credited.
        reached_final: Whether the path ends in a final state of the graph; if not,
            it is the best of the unfinished ones.
        num_frames: Frames decoded.
        died_at_frame: The frame at which no path survived, or None.
    """

    words: tuple[Word, ...]
    token_ids: tuple[int, ...] = field(repr=False)
    token_frames: tuple[tuple[int, ...], tuple[int, ...]] = field(repr=False)
    token_names: tuple[str, ...] = field(repr=False)
    frame_shift_s: float
    total_cost: float
    graph_cost: float
    acoustic_cost: float
    insertion_cost: float
    boost_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int | None = None

    @classmethod
    def when_asked(
        cls, make: Callable[[str], dict[str, Any]], died_at_frame: int | None
    ) -> Self:
        """One whose other attributes are made when they are looked at.

        Args:
            make: Given the name of an attribute, it and others by name, always the
                same; not of `died_at_frame`.
            died_at_frame: See above.
        """
        hypothesis = object.__new__(cls)
        hypothesis.__dict__["died_at_frame"] = died_at_frame
        hypothesis.__dict__["_make"] = make
        return hypothesis

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there, or not yet."""
        known = self.__dict__
        make = known.get("_make")
        if make is not None and name in self.__dataclass_fields__:
            known |= make(name)  # by two threads: the same twice
            if all(field in known for field in self.__dataclass_fields__):
                known.pop("_make", None)
        if name in known:
            return known[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """All attributes, for pickles and copies."""
        for name in self.__dataclass_fields__:
            getattr(self, name)
        return dict(self.__dict__)

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(word.text for word in self.words)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens with their times, in order."""
        shift = self.frame_shift_s
        return tuple(
            Token(self.token_names[token], start * shift, end * shift, start, end)
            for token, start, end in zip(
                self.token_ids, *self.token_frames, strict=True
            )
        )
