"""Rows of figures, and tables of them.

row = {"decoder": "trie"} | word_errors(references, texts)
print(format_table({"decoder": lambda row: row["decoder"]}, [row]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from wfstdec.metrics import WordErrors, score_texts

Row = dict[str, Any]
Columns = Mapping[str, Callable[[Row], str]]


def figure(name: str, form: str, missing: str = "-") -> Callable[[Row], str]:
    """A column of numbers; `missing` where a row has none."""

    def cell(row: Row) -> str:
        value = row.get(name)
        return missing if value is None else format(value, form)

    return cell


def text_figure(name: str) -> Callable[[Row], str]:
    """A column of texts."""
    return lambda row: str(row[name])


def format_table(columns: Columns, rows: Sequence[Row]) -> str:
    """Columns in line: headings, then a line for each row; "" for no rows."""
    if not rows:
        return ""
    cells = [list(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  " + "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True))
        for line in cells
    )


def errors_of(errors: WordErrors) -> list[int]:
    """Insertions, deletions, substitutions."""
    return [errors.insertions, errors.deletions, errors.substitutions]


def word_errors(
    references: Mapping[str, Sequence[str]], texts: Mapping[str, str]
) -> Row:
    """The word error rate, the errors by kind and the words of the references."""
    words = {utterance: text.split() for utterance, text in texts.items()}
    score = score_texts(references, words)
    errors = score.errors
    return {
        "wer": score.wer,
        "errors": errors_of(errors),
        "words": errors.reference_words,
    }


def speed(audio_s: float, seconds: Sequence[float]) -> Row:
    """Seconds of all turns, and real-time factors of the fastest and the median."""
    return {
        "cpu_s": [round(one, 6) for one in seconds],
        "rtfx": round(audio_s / min(seconds), 2),
        "rtfx_median": round(audio_s / median(seconds), 2),
    }


def range_percent(seconds: Sequence[float]) -> float:
    """How much longer the slowest turn took than the fastest, per cent."""
    return 100 * (max(seconds) / min(seconds) - 1)


def on_front(rows: Sequence[Row], measure: str) -> list[Row]:
    """Rows of one decoder that none of the others beats.

    Beaten is what another one is faster than, with the measure no higher: a comparison
    with it would flatter the other side.

    Args:
        rows: With `cpu_s`, of the same utterances.
        measure: What is to be low, such as `"wer"`.
    """
    return [
        row
        for row in rows
        if not any(
            other[measure] <= row[measure] and min(other["cpu_s"]) < min(row["cpu_s"])
            for other in rows
        )
    ]
