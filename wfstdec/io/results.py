"""Hypotheses and alignments as text: plain, JSON lines, CTM, subtitles, TextGrid.

    write = result_writer("ctm")                    # alignment_writer for alignments
    write(utterance, [hypothesis])                  # the text of an utterance

`FORMATS` is the one list of formats: the command line offers what it has. Files are
opened by `wfstdec.io.outputs`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from wfstdec.align.alignment import Alignment, Misfit
from wfstdec.errors import OptionError
from wfstdec.io.subtitles import (
    SUBTITLES,
    SubtitleOptions,
    Timed,
    srt_text,
    textgrid_text,
    vtt_text,
)
from wfstdec.search.hypothesis import Hypothesis, Token, Word
from wfstdec.text.files import PathLike


def text_line(utterance: str, hypothesis: Hypothesis) -> str:
    """`utterance words...`, those that were found."""
    return f"{utterance} {hypothesis.text}".rstrip(" ") + "\n"


def json_line(utterance: str, hypothesis: Hypothesis) -> str:
    """Format a JSON object: id, text, words with times, costs, how the search ended."""
    return _json({"id": utterance, **hypothesis.to_dict()})


def nbest_json_line(utterance: str, hypotheses: Sequence[Hypothesis]) -> str:
    """The object of the best one, and an array `nbest` of all, best first."""
    each = [hypothesis.to_dict() for hypothesis in hypotheses]
    nbest = [{n: x for n, x in one.items() if n not in _OF_ALL} for one in each]
    best = each[0]
    return _json({"id": utterance, **best, "nbest": nbest})


def ctm_lines(utterance: str, hypothesis: Timed) -> str:
    """`utterance 1 start_s duration_s word [confidence]` for each word."""
    # The channel is always 1.
    return "".join(
        f"{utterance} 1 {word.start_s:.3f} {word.end_s - word.start_s:.3f} "
        f"{word.text}{'' if (c := word.confidence) is None else f' {c:.3f}'}\n"
        for word in hypothesis.words
    )


FORMATS: dict[str, Callable[[str, Hypothesis], str]] = {
    "text": text_line,
    "jsonl": json_line,
    "ctm": ctm_lines,
    "srt": lambda _, hypothesis: srt_text(hypothesis.words),
    "vtt": lambda _, hypothesis: vtt_text(hypothesis.words),
    "textgrid": lambda _, hypothesis: textgrid_text(hypothesis),
}
"""Formatters of an utterance's part of a file, newline included, by format name."""

ENDINGS = {name: f".{name}" for name in ("jsonl", "ctm", "srt", "vtt")}
ENDINGS |= {"text": ".txt", "textgrid": ".TextGrid"}
"""Endings of file names by format."""

NBEST_FORMATS: dict[str, Callable[[str, Sequence[Hypothesis]], str]] = {
    "jsonl": nbest_json_line,
}
"""Formatters of several hypotheses, by the formats that can hold them."""

Write = Callable[[str, Sequence[Hypothesis]], str]
"""Formatter of an utterance and its hypotheses, best first."""


def format_named(format: str | None, path: PathLike | None = None) -> str:
    """The name of a format; `None` goes by the name of the file, and is else text."""
    if format is None:
        ending = "" if path is None else os.path.splitext(path)[1].lower()
        known = {ending.lower(): name for name, ending in ENDINGS.items()}
        return known.get(ending, "text")
    if format not in FORMATS:
        expected = ", ".join(map(repr, FORMATS))
        raise OptionError(f"format={format!r}, expected one of {expected}")
    return format


def result_writer(
    format: str, *, nbest: int = 1, subtitles: SubtitleOptions | None = None
) -> Write:
    """Make a writer of hypotheses in a format.

    Args:
        format: One of `FORMATS`.
        nbest: How many hypotheses there may be of an utterance.
        subtitles: How words are cut into subtitles, in formats that have them.

    Raises:
        OptionError: Unknown format, or one that cannot hold several texts.
    """
    format = format_named(format)
    if nbest == 1 and format in SUBTITLES:
        made = SUBTITLES[format]
        return lambda _, hypotheses: made(hypotheses[0].words, subtitles)
    if nbest == 1:
        return lambda utterance, hypotheses: FORMATS[format](utterance, hypotheses[0])
    if format not in NBEST_FORMATS:
        known = " or ".join(map(repr, NBEST_FORMATS))
        raise OptionError(
            f"nbest={nbest} with format={format!r}, expected format {known}, which "
            "can hold them"
        )
    return NBEST_FORMATS[format]


_OF_ALL = frozenset({"num_frames", "died_at_frame"})
"""Fields that all hypotheses of an utterance have in common."""


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


_OF_MISFITS = ("kind", "first_word", "end_word", "text")
_DIGITS = 6  # frame * shift leaves more, like 0.6000000000000001


def alignment_json_line(utterance: str, alignment: Alignment) -> str:
    """Format a JSON object: words, tokens, times, confidences, misfits, costs."""
    cost, excess = alignment.total_cost, alignment.excess
    fields = {
        "id": utterance,
        "text": alignment.text,
        "words": [
            {
                "word": word.text,
                "position": position,
                **_times(word),
                "tokens": [
                    {"token": token.text, **_times(token)}
                    for token in alignment.tokens[first:end]
                ],
            }
            for word, position, (first, end) in zip(
                *(alignment.words, alignment.positions, alignment.word_tokens),
                strict=True,
            )
        ],
        "fits": alignment.fits,
        "misfits": [
            {name: getattr(one, name) for name in _OF_MISFITS} | _times(one)
            for one in alignment.misfits
        ],
        "total_cost": float(cost) if math.isfinite(cost) else None,
        "excess": float(excess) if math.isfinite(excess) else None,
        "exact": alignment.exact,
        "reached_end": alignment.reached_end,
        "num_frames": int(alignment.num_frames),
    }
    return _json(fields)


def alignment_writer(
    format: str, *, subtitles: SubtitleOptions | None = None
) -> Callable[[str, Alignment], str]:
    """Make a writer of alignments in one of `FORMATS`."""
    if format_named(format) == "jsonl":
        return alignment_json_line
    # All others have words with times, as hypotheses do.
    write: Callable[[str, Any], str] = result_writer(format, subtitles=subtitles)
    return lambda utterance, alignment: write(utterance, [alignment])


def _times(item: Word | Token | Misfit) -> dict[str, float | None]:
    confidence = item.confidence
    return {
        "start_s": round(float(item.start_s), _DIGITS),
        "end_s": round(float(item.end_s), _DIGITS),
        "confidence": None if confidence is None else round(confidence, _DIGITS),
    }
