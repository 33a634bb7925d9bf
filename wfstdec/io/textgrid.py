"""TextGrid files for Praat: a tier of words, and one of tokens.

    text = textgrid_text(hypothesis)             # or an alignment

Intervals of a tier follow each other without gaps, from 0 to the end of the utterance;
where nothing is said they are empty. A word without frames shares the interval of the
next one, since Praat has no intervals without length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from wfstdec.search.hypothesis import Token, Word


class Timed(Protocol):
    """Words and tokens with times: hypotheses, alignments."""

    @property
    def words(self) -> Sequence[Word]:
        """The words, in order."""

    @property
    def tokens(self) -> Sequence[Token]:
        """The tokens, in order."""

    @property
    def num_frames(self) -> int:
        """Frames of the utterance."""

    @property
    def frame_shift_s(self) -> float:
        """Seconds per frame."""


class _Interval(NamedTuple):
    """Frames, and what is said in them."""

    first: int
    end: int
    text: str


def textgrid_text(timed: Timed) -> str:
    """A whole TextGrid, in Praat's long text format."""
    frames = max(1, timed.num_frames)
    tiers: dict[str, Sequence[Word | Token]]
    tiers = {"words": timed.words, "tokens": timed.tokens}
    shift_s = timed.frame_shift_s
    head = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {_seconds(frames, shift_s)}",
        "tiers? <exists>",
        f"size = {len(tiers)}",
        "item []:",
    ]
    for i, (name, items) in enumerate(tiers.items(), 1):
        intervals = list(_covering(items, frames))
        head += [
            f"    item [{i}]:",
            '        class = "IntervalTier"',
            f"        name = {_quoted(name)}",
            "        xmin = 0",
            f"        xmax = {_seconds(frames, shift_s)}",
            f"        intervals: size = {len(intervals)}",
        ]
        for j, interval in enumerate(intervals, 1):
            head += [
                f"        intervals [{j}]:",
                f"            xmin = {_seconds(interval.first, shift_s)}",
                f"            xmax = {_seconds(interval.end, shift_s)}",
                f"            text = {_quoted(interval.text)}",
            ]
    return "\n".join(head) + "\n"


def _covering(items: Sequence[Word | Token], num_frames: int) -> Iterator[_Interval]:
    """Intervals from 0 to the end, each with a length."""
    at, waiting = 0, ""
    last: _Interval | None = None
    for item in items:
        text = f"{waiting} {item.text}".strip()
        first = max(item.start_frame, at)
        # Praat takes no interval without a length: such a text joins its neighbour.
        if item.end_frame <= first:
            waiting = text
            continue
        if last is not None:
            yield last
        if first > at:
            yield _Interval(at, first, "")
        last, at, waiting = _Interval(first, item.end_frame, text), item.end_frame, ""
    if last is not None:
        yield last._replace(text=f"{last.text} {waiting}".strip())
        waiting = ""
    if at < num_frames:
        yield _Interval(at, num_frames, waiting)


def _seconds(frame: int, shift_s: float) -> str:
    """To the microsecond: frame * shift leaves digits like 0.6000000000000001."""
    return f"{frame * shift_s:.6f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
