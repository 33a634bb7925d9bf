"""Readers of subtitles and TextGrids, written from what the formats' owners say.

SubRip: blocks between blank lines: a number from 1 on, `hh:mm:ss,mmm --> hh:mm:ss,mmm`,
lines of text. WebVTT (W3C): `WEBVTT`, a blank line, blocks of an optional identifier,
`[hh:]mm:ss.mmm --> ...` with the end after the start, and cue text without `-->`, where
`&amp;`, `&lt;`, `&gt;` are escapes and a bare `&` or `<` begins something else.
TextGrid (Praat manual, "TextGrid file formats"): of a text file only free-standing
numbers, quoted strings (`""` is a quote) and `<flags>` are read; all else is comment.
"""

import re
from html import unescape

_SRT_TIME = re.compile(r"(\d{2,}):([0-5]\d):([0-5]\d),(\d{3})")
_VTT_TIME = re.compile(r"(?:(\d{2,}):)?([0-5]\d):([0-5]\d)\.(\d{3})")


def _ms(match):
    hours, minutes, seconds, ms = (int(part or 0) for part in match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms


def _span(line, pattern):
    start, arrow, end = line.split(" ")
    assert arrow == "-->"
    span = _ms(pattern.fullmatch(start)), _ms(pattern.fullmatch(end))
    assert span[0] < span[1]
    return span


def read_srt(text):
    """(start_ms, end_ms, lines) of each cue."""
    found = []
    if not text:
        return found
    assert text.endswith("\n") and not text.endswith("\n\n")
    for number, block in enumerate(text.removesuffix("\n").split("\n\n"), 1):
        first, span, *lines = block.split("\n")
        assert first == str(number) and lines and all(lines)
        found.append((*_span(span, _SRT_TIME), lines))
    return found


def read_vtt(text):
    """(start_ms, end_ms, lines) of each cue."""
    head, *blocks = text.removesuffix("\n").split("\n\n")
    assert head == "WEBVTT"
    found = []
    for block in blocks:
        span, *lines = block.split("\n")
        assert lines and all(lines) and "-->" not in "".join(lines)
        assert "<" not in "".join(lines)
        assert not re.search("&(?!amp;|lt;|gt;)", "".join(lines))
        found.append((*_span(span, _VTT_TIME), [unescape(line) for line in lines]))
    return found


def read_textgrid(text):
    """The end in seconds, and (start, end, text) of the intervals of each tier."""
    values = re.findall(
        r'"(?:[^"]|"")*"|<\w+>|(?<![^\s])-?\d+(?:\.\d+)?(?![^\s])', text
    )
    values = [v[1:-1].replace('""', '"') if v[0] == '"' else v for v in values]
    assert values[:2] == ["ooTextFile", "TextGrid"] and values[4] == "<exists>"
    begin, end, num_tiers = float(values[2]), float(values[3]), int(values[5])
    at, tiers = 6, {}
    for _ in range(num_tiers):
        kind, name, first, last, size = values[at : at + 5]
        assert kind == "IntervalTier" and (float(first), float(last)) == (begin, end)
        at += 5
        intervals = []
        for _ in range(int(size)):
            start, stop, label = values[at : at + 3]
            intervals.append((float(start), float(stop), label))
            at += 3
        assert intervals[0][0] == begin and intervals[-1][1] == end
        for one, other in zip(intervals, intervals[1:], strict=False):
            assert one[1] == other[0]
        assert all(start < stop for start, stop, _ in intervals)
        tiers[name] = intervals
    assert at == len(values)
    return end, tiers
