"""Subtitles (SubRip, WebVTT) and TextGrids of words with times.

    for cue in cues(words, SubtitleOptions(max_s=7.0)): cue.lines, cue.start_s
    srt_text(words), vtt_text(words)             # whole files
    textgrid_text(hypothesis)                    # for Praat; or an alignment

Words are cut into cues from left to right: at every long pause, or, before a word that
would make a cue too long, at the longest pause in its second half. Intervals of a
TextGrid are contiguous.
"""

import html
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wfstdec.align.alignment import Alignment
from wfstdec.search.hypothesis import Hypothesis, Token, Word
from wfstdec.search.options import CheckedOptions
from wfstdec.text.display import join_words


@dataclass(frozen=True)
class SubtitleOptions(CheckedOptions):
    """Limits of subtitles, with customary defaults; a single word may exceed them."""

    # Characters of a line at most; wide ones, such as Han, count as two
    max_chars: int = 42
    max_lines: int = 2  # Lines of a cue at most
    max_s: float = 7.0  # Seconds of a cue at most
    min_s: float = 1.0  # A cue is shown at least this long, unless the next one begins
    pause_s: float = 0.8  # Pause that always ends a cue, seconds
    join: str | None = None  # Between words; None: the usual separator of their script

    def __post_init__(self) -> None:
        self.check_count("max_chars")
        self.check_count("max_lines")
        for name in ("max_s", "min_s", "pause_s"):
            self.check(name, lambda x: 0 < x < 1e6, "seconds, above 0")


_SENTENCE_S, _MARK_S = 0.6, 0.2
_ENDS, _MARKS = ".?!\u3002\uff1f\uff01", ",;:\uff0c\u3001"
"""Marks that end a sentence and other marks, which count as additional pause."""


class Cue(NamedTuple):
    """A subtitle."""

    start_ms: int  # Time of appearance
    end_ms: int  # Time of disappearance, after `start_ms`
    lines: tuple[str, ...]


def cues(
    words: Sequence[Word], options: SubtitleOptions | None = None
) -> Iterator[Cue]:
    """Cut words into cues, which do not overlap."""
    options = options or SubtitleOptions()
    bounds = list(cue_bounds(words, options))
    starts = [_ms(words[first].start_s) for first, _ in bounds]
    for i, (first, end) in enumerate(bounds):
        stays = max(_ms(words[end - 1].end_s), starts[i] + _ms(options.min_s))
        if i + 1 < len(bounds):
            stays = min(stays, max(_ms(words[end - 1].end_s), starts[i + 1]))
        texts = [word.text for word in words[first:end]]
        lines = tuple(_balanced(texts, options))
        yield Cue(starts[i], max(stays, starts[i] + 1), lines)


def cue_bounds(
    words: Sequence[Word], options: SubtitleOptions | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the first word of each cue, and the one after its last."""
    options = options or SubtitleOptions()
    first, at = 0, 1
    while first < len(words):
        if at == len(words) or _pause(words, at) >= options.pause_s:
            yield first, at
            first, at = at, at + 1
        elif _fits(words[first : at + 1], options):
            at += 1
        else:
            middle = first + (at + 1 - first) // 2
            places = range(max(middle, first + 1), at + 1)
            cut = max(places, key=lambda place: (_rest(words, place), place))
            yield first, cut
            first, at = cut, cut + 1


def _pause(words: Sequence[Word], at: int) -> float:
    return round(words[at].start_s - words[at - 1].end_s, 6)


def _rest(words: Sequence[Word], at: int) -> float:
    """Return seconds before word `at`, plus a bonus for punctuation."""
    mark = words[at - 1].text[-1:]
    return _pause(words, at) + (
        _SENTENCE_S if mark in _ENDS else _MARK_S * (mark in _MARKS)
    )


def _fits(words: Sequence[Word], options: SubtitleOptions) -> bool:
    if round(words[-1].end_s - words[0].start_s, 6) > options.max_s:
        return False
    lines = list(_wrapped([word.text for word in words], options.max_chars, options))
    return len(lines) <= options.max_lines and all(
        _width(line) <= options.max_chars for line in lines
    )


def _width(text: str) -> int:
    """Return the number of characters, wide ones counted twice."""
    wide = () if text.isascii() else map(unicodedata.east_asian_width, text)
    return len(text) + sum(kind in "WF" for kind in wide)


def _wrapped(
    texts: Sequence[str], max_chars: int, options: SubtitleOptions
) -> Iterator[str]:
    """Wrap into as few lines as possible; a longer word has its own."""
    line = texts[0]
    for text in texts[1:]:
        longer = join_words((line, text), options.join)
        if _width(longer) > max_chars:
            yield line
            line = text
        else:
            line = longer
    yield line


def _balanced(texts: Sequence[str], options: SubtitleOptions) -> list[str]:
    """Wrap into as few lines as possible, with the shortest longest line."""
    lines = list(_wrapped(texts, options.max_chars, options))
    widths = range(max(map(_width, texts)), max(map(_width, lines)) + 1)
    tried = (list(_wrapped(texts, width, options)) for width in widths)
    return next(found for found in tried if len(found) <= len(lines))


def srt_text(words: Sequence[Word], options: SubtitleOptions | None = None) -> str:
    """Return a SubRip file, whose text has no escapes."""
    parts = enumerate(cues(words, options), 1)
    return "\n".join(
        "\n".join([str(i), _span(cue, ","), *cue.lines, ""]) for i, cue in parts
    )


def vtt_text(words: Sequence[Word], options: SubtitleOptions | None = None) -> str:
    """Return a WebVTT file, with `&`, `<` and `>` escaped."""
    parts = ["WEBVTT"]
    for cue in cues(words, options):
        escaped = (html.escape(line, quote=False) for line in cue.lines)
        parts += ["", _span(cue, "."), *escaped]
    return "\n".join([*parts, ""])


SUBTITLES: dict[str, Callable[[Sequence[Word], SubtitleOptions | None], str]] = {
    "srt": srt_text,
    "vtt": vtt_text,
}
"""Formatters of a whole file from words, by format."""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _span(cue: Cue, point: str) -> str:
    return " --> ".join(_clock(ms, point) for ms in cue[:2])


def _clock(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{ms:03d}"


Timed = Hypothesis | Alignment


def textgrid_text(timed: Timed) -> str:
    """Return a TextGrid in Praat's long text format."""
    frames = max(1, timed.num_frames)
    tiers: dict[str, Sequence[Word | Token]]
    tiers = {"words": timed.words, "tokens": timed.tokens}
    end_s = _seconds(frames, timed.frame_shift_s)
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += ["xmin = 0", f"xmax = {end_s}"]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for i, (name, items) in enumerate(tiers.items(), 1):
        intervals = _covering(items, frames)
        lines += [
            f"    item [{i}]:",
            '        class = "IntervalTier"',
            f"        name = {_quoted(name)}",
            "        xmin = 0",
            f"        xmax = {end_s}",
            f"        intervals: size = {len(intervals)}",
        ]
        for j, (*ends, text) in enumerate(intervals, 1):
            first_s, last_s = (_seconds(end, timed.frame_shift_s) for end in ends)
            fields = f"xmin = {first_s}", f"xmax = {last_s}", f"text = {_quoted(text)}"
            lines.append(f"        intervals [{j}]:")
            lines += [f"            {field}" for field in fields]
    return "\n".join(lines) + "\n"


def _covering(
    items: Sequence[Word | Token], num_frames: int
) -> list[tuple[int, int, str]]:
    """Return contiguous intervals of positive length from frame 0, with text."""
    at, waiting = 0, ""
    found: list[tuple[int, int, str]] = []
    for item in items:
        text = f"{waiting} {item.text}".strip()
        first = max(item.start_frame, at)
        # Praat has no empty interval: such a text joins its neighbour.
        if item.end_frame <= first:
            waiting = text
            continue
        if first > at:
            found.append((at, first, ""))
        found.append((first, item.end_frame, text))
        at, waiting = item.end_frame, ""
    if found:
        first, end, text = found[-1]
        found[-1] = first, end, f"{text} {waiting}".strip()
        waiting = ""
    if at < num_frames:
        found.append((at, num_frames, waiting))
    return found


def _seconds(frame: int, shift_s: float) -> str:
    """Round to the microsecond: frame * shift leaves digits like 0.6000000000000001."""
    return f"{frame * shift_s:.6f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
