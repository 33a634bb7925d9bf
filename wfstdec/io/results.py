r"""Write hypotheses: as text, JSON lines, or CTM.

    write = result_writer("ctm")
    with open_output(path) as file:                 # None or "-": standard output
        file.write(write(utterance, [hypothesis]))

`FORMATS` is the one list of formats: the command line offers what it has.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from wfstdec.errors import OptionError
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.text.files import atomic_write

STDOUT = "-"


def text_line(utterance: str, hypothesis: Hypothesis) -> str:
    """`utterance words...`."""
    return f"{utterance} {hypothesis.text}".rstrip(" ") + "\n"


def json_line(utterance: str, hypothesis: Hypothesis) -> str:
    """One JSON object: id, text, words with times, costs, how the search ended."""
    return _json(_fields(utterance, hypothesis))


def nbest_json_line(utterance: str, hypotheses: Sequence[Hypothesis]) -> str:
    """The object of the best one, and an array `nbest` of all, best first."""
    nbest = [_fields_of_text(hypothesis) for hypothesis in hypotheses]
    return _json({**_fields(utterance, hypotheses[0]), "nbest": nbest})


def ctm_lines(utterance: str, hypothesis: Hypothesis) -> str:
    """`utterance 1 start_s duration_s word [confidence]` for each word.

    The channel is always 1.
    """
    return "".join(
        f"{utterance} 1 {word.start_s:.3f} {word.end_s - word.start_s:.3f} "
        f"{word.text}{'' if (c := word.confidence) is None else f' {c:.3f}'}\n"
        for word in hypothesis.words
    )


FORMATS: dict[str, Callable[[str, Hypothesis], str]] = {
    "text": text_line,
    "jsonl": json_line,
    "ctm": ctm_lines,
}
"""What an utterance adds to a result file, newline included, by format name."""

NBEST_FORMATS: dict[str, Callable[[str, Sequence[Hypothesis]], str]] = {
    "jsonl": nbest_json_line,
}
"""The same for several hypotheses, by the names of those formats that can hold them."""

Write = Callable[[str, Sequence[Hypothesis]], str]
"""What an utterance and its hypotheses, best first, add to a result file."""


def result_writer(format: str, *, nbest: int = 1) -> Write:
    """What writes hypotheses in a format.

    Args:
        format: One of `FORMATS`.
        nbest: How many hypotheses there may be of an utterance.

    Raises:
        OptionError: No such format, or it cannot hold so many.
    """
    if format not in FORMATS:
        known = ", ".join(map(repr, FORMATS))
        raise OptionError(f"format={format!r}, expected one of {known}")
    if nbest == 1:
        return lambda utterance, hypotheses: FORMATS[format](utterance, hypotheses[0])
    if format not in NBEST_FORMATS:
        known = " or ".join(map(repr, NBEST_FORMATS))
        raise OptionError(
            f"nbest={nbest} with format={format!r}, expected format {known}, which "
            "can hold them"
        )
    return NBEST_FORMATS[format]


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str] | None) -> Iterator[IO[str]]:
    """Open a text file that appears whole or not at all, or standard output.

    Raises:
        FormatError: The file cannot be written.
    """
    if path is None or os.fspath(path) == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with atomic_write(path, "w") as file:
        yield file


def _fields(utterance: str, hypothesis: Hypothesis) -> dict[str, Any]:
    return {
        "id": utterance,
        **_fields_of_text(hypothesis),
        "num_frames": int(hypothesis.num_frames),
        "died_at_frame": hypothesis.died_at_frame,
    }


def _fields_of_text(hypothesis: Hypothesis) -> dict[str, Any]:
    """What differs between the hypotheses of an utterance."""
    words = [_fields_of_word(word) for word in hypothesis.words]
    return {
        "text": hypothesis.text,
        "words": words,
        "total_cost": _number(hypothesis.total_cost),
        "graph_cost": _number(hypothesis.graph_cost),
        "acoustic_cost": _number(hypothesis.acoustic_cost),
        "insertion_cost": _number(hypothesis.insertion_cost),
        "boost_cost": _number(hypothesis.boost_cost),
        "reached_final": bool(hypothesis.reached_final),
    }


def _fields_of_word(word: Word) -> dict[str, Any]:
    times = {"start_s": _time(word.start_s), "end_s": _time(word.end_s)}
    known = {} if word.confidence is None else {"confidence": round(word.confidence, 6)}
    return {"word": word.text, **times, **known}


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _time(seconds: float) -> float:
    """To the microsecond: frame * shift leaves digits like 0.6000000000000001."""
    return round(float(seconds), 6)


def _number(cost: float) -> float | None:
    """JSON knows no infinity: null."""
    return float(cost) if math.isfinite(cost) else None
