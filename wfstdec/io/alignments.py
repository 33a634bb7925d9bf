"""Alignments as text: the formats of hypotheses, with more in the JSON lines.

write = alignment_writer("ctm")
write(utterance, alignment)                     # what a file gets of an utterance
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from wfstdec.align.alignment import Alignment, Misfit
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.search.hypothesis import Token, Word

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
    return json.dumps(fields, ensure_ascii=False) + "\n"


def alignment_writer(
    format: str, *, subtitles: SubtitleOptions | None = None
) -> Callable[[str, Alignment], str]:
    """Make a writer of alignments in one of `FORMATS`.

    Args:
        format: Its name.
        subtitles: How words are cut into subtitles, in formats that have them.

    Raises:
        OptionError: No such format.
    """
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
