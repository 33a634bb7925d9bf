"""A comparison as a table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.phrase_scores import PhraseScore

NONE = "-"
"""Stands where a search does not tell."""

Columns = Mapping[str, Callable[[Point], str]]

COLUMNS: Columns = {
    "setting": lambda point: point.label,
    "WER %": lambda point: f"{point.wer:.2f}",
    "95 %": lambda point: str(point.wer_interval or NONE),
    "ins/del/sub": lambda point: (
        f"{point.errors.insertions}/{point.errors.deletions}/{point.errors.substitutions}"
    ),
    "RTFx": lambda point: f"{point.rtfx:,.0f}",
    "search errors %": lambda point: percent(point.search_errors),
    "unfinished %": lambda point: percent(point.unfinished),
    "MB": lambda point: f"{point.memory_mb:,.0f}",
}
PHRASE_COLUMNS: Columns = {
    "phrases: P %": lambda point: percent(_phrases(point).precision),
    "R %": lambda point: percent(_phrases(point).recall),
    "F %": lambda point: percent(_phrases(point).f_score),
}

ORACLE_COLUMNS: Columns = {
    "best of list %": lambda point: _wer(point, "list_wer"),
    "of lattice %": lambda point: _wer(point, "lattice_wer"),
}
MODEL_COLUMNS: Columns = {
    "model s": lambda point: _model_s(point)[0],
    "search s": lambda point: _model_s(point)[1],
}


def table(comparison: Comparison) -> str:
    """A block of lines for each search and boost list; `*` marks the Pareto front."""
    has_phrases = any(point.phrases for point in comparison.points)
    has_models = any(point.model_s for point in comparison.points)
    columns = {**COLUMNS, **(PHRASE_COLUMNS if has_phrases else {})}
    columns |= ORACLE_COLUMNS if any(p.kept for p in comparison.points) else {}
    columns |= MODEL_COLUMNS if has_models else {}
    fronts = [point for name in comparison.lists for point in comparison.front(name)]
    rows = [["", *columns]]
    series = None
    for point in comparison.points:
        if point.series != series:
            series = point.series
            rows.append([comparison.heading(point)])
        mark = " *" if any(point is other for other in fronts) else ""
        setting, *others = [cell(point) for cell in columns.values()]
        rows.append(["", setting + mark, *others])
    return "\n".join([headline(comparison), "", *_lines(rows), "", *_notes(comparison)])


def headline(comparison: Comparison) -> str:
    """Headline: how much was decoded, and on what machine."""
    facts: Mapping[str, Any] = comparison.facts
    machine = facts["machine"]
    return (
        f"{facts['utterances']} utterances, {facts['audio_s'] / 60:.1f} min of audio, "
        f"{facts['reference_words']:,} words; {machine['cpu'].split(',')[0]}, "
        f"{facts['date']}"
    )


def percent(share: float | None) -> str:
    """`12.5`, or `NONE`."""
    return NONE if share is None else f"{100 * share:.1f}"


def _wer(point: Point, name: str) -> str:
    wer = getattr(point.kept, name, None)
    return NONE if wer is None else f"{wer:.2f}"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns in line, the setting to the left; a row of one cell is a heading."""
    full = [row for row in rows if len(row) > 1]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    lines = []
    for row in rows:
        if len(row) == 1:
            lines.append(row[0])
            continue
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[:2] = [row[1].ljust(widths[1])]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _phrases(point: Point) -> PhraseScore:
    return point.phrases or PhraseScore(0, 0, 0)


def _model_s(point: Point) -> tuple[str, str]:
    """CPU seconds of the fastest turn in the model, and in the search."""
    turn = min(range(len(point.cpu_s)), key=lambda i: point.cpu_s[i])
    model_s = point.model_s[turn] if point.model_s else None
    if model_s is None:
        return NONE, f"{point.cpu_s[turn]:.2f}"
    return f"{model_s:.2f}", f"{point.cpu_s[turn] - model_s:.2f}"


def _notes(comparison: Comparison) -> list[str]:
    """Notes on the figures, a few lines below the table."""
    facts = comparison.facts
    loads: dict[str, list[str]] = {}
    for name, one in comparison.searches.items():
        if one.load_mb is not None and one.load_s is not None:
            taken = f"{one.load_mb:,.0f} MB in {one.load_s:.1f} s"
            loads.setdefault(taken, []).append(name)
    sizes = sorted({point.kept.nbest for point in comparison.points if point.kept})
    listed = "; ".join(
        f"{' and '.join(names)} {taken}" for taken, names in loads.items()
    )
    return [
        f"RTFx: seconds of audio per CPU second of one thread, best of "
        f"{facts['repeats']} by turns. Search errors: total",
        "cost above that of the widest setting of the same search. MB: growth of the "
        "resident set while",
        "the decoder is made and decodes. *: no point is faster and as accurate. 95 %: "
        "bootstrap over",
        "utterances; searches on the same ones differ less by chance than these tell.",
        *([f"Loaded before: {listed}."] if listed else []),
        *(
            f"Best of list, of lattice: the WER of the best of {size} texts, and of "
            "the best path that was kept."
            for size in sizes
        ),
    ]
