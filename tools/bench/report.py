"""The tables of `bench_cpu.py`, from rows of figures.

print(comparison_line(beam, comparison))
print(speed_table(rows))
print(topology_table(rows))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench_compare import TOLERANCE, Comparison

Row = dict[str, Any]
Columns = dict[str, Callable[[Row], str]]

SPEED: Columns = {
    "beam": lambda row: f"{row['beam']:g}",
    "WER %": lambda row: f"{row['wer']:.2f}",
    "active": lambda row: f"{row['active_per_frame']:.0f}",
    "candidates": lambda row: f"{row['candidates_per_frame']:.0f}",
    "RTFx": lambda row: f"{row['ours_rtfx_min']:.0f}",
    "Kaldi": lambda row: f"{row['kaldi_rtfx_min']:.0f}",
    "ratio": lambda row: f"{row['ratio_min']:.2f}",
    "median: RTFx": lambda row: f"{row['ours_rtfx_median']:.0f}",
    " Kaldi": lambda row: f"{row['kaldi_rtfx_median']:.0f}",
    " ratio": lambda row: f"{row['ratio_median']:.2f}",
    "spread %": lambda row: f"{spread_of(row['ours_cpu_s']):.0f}",
    " Kaldi's": lambda row: f"{spread_of(row['kaldi_cpu_s']):.0f}",
    "2 threads": lambda row: f"{row.get('two_threads_ratio_min', 1):.2f}",
}
"""Columns by heading; those of timings have the least of all repetitions first."""

TOPOLOGY: Columns = {
    "set": lambda row: row["set"],
    "LM": lambda row: row["lm"],
    "beam": lambda row: f"{row['beam']:g}",
    "topology": lambda row: row["topology"],
    "states": lambda row: f"{row['graph']['states']:,}",
    "arcs": lambda row: f"{row['graph']['arcs']:,}",
    "MB": lambda row: f"{row['graph']['file_mb']:.0f}",
    "WER %": lambda row: f"{row['wer']:.2f}",
    "ins/del/sub": lambda row: "/".join(map(str, row["errors"])),
    "active": lambda row: f"{row['active_per_frame']:.0f}",
    "candidates": lambda row: f"{row['candidates_per_frame']:.0f}",
    "RTFx": lambda row: f"{row['ours_rtfx_min']:.0f}",
    "Kaldi": lambda row: f"{row['kaldi_rtfx_min']:.0f}",
}


def comparison_line(beam: float, found: Comparison) -> str:
    """What a comparison of costs has shown, in a line or a few."""
    verdict = "costs agree" if found.agrees else "COSTS DISAGREE, no speed is given"
    share = 100 / found.utterances
    lines = [
        f"  beam {beam:g}: {verdict}: ours {found.ours_total:.3f}, Kaldi "
        f"{found.kaldi_total:.3f}; ours lower {share * found.ours_lower:.1f} %, Kaldi "
        f"lower {share * found.kaldi_lower:.1f} %; largest difference "
        f"{found.largest_difference:.1e}; unfinished {found.ours_unfinished} and "
        f"{found.kaldi_unfinished}, other words {found.texts_differ} of "
        f"{found.utterances}"
    ]
    lines += [
        f"    {name}: ours {ours:.6f}, Kaldi {kaldi:.6f}"
        for name, ours, kaldi in found.worst
    ]
    if not found.agrees:
        lines.append(
            f"    tolerance {TOLERANCE:g}. What costs exactly as much as the cutoff is "
            "kept by ours and dropped by Kaldi: try a beam off the log-probs' grid "
            f"({beam + 0.0137:g}); where max_active binds, try --beam-delta 0.5"
        )
    return "\n".join(lines)


def speed_table(rows: list[Row]) -> str:
    """What was measured where costs agree; "" where they do nowhere."""
    return format_table(SPEED, [row for row in rows if row["costs"]["agree"]])


def topology_table(rows: list[Row]) -> str:
    """The topologies of a set, LM and beam below each other."""
    agreed = [row for row in rows if row["costs"]["agree"]]
    agreed.sort(key=lambda row: (row["set"], row["lm"], row["beam"]))  # stable
    return format_table(TOPOLOGY, agreed)


def spread_of(seconds: list[float]) -> float:
    """How much longer the slowest repetition took than the fastest, per cent."""
    return 100 * (max(seconds) / min(seconds) - 1)


def format_table(columns: Columns, rows: list[Row]) -> str:
    """Columns in line: headings, then a line for each row; "" for no rows."""
    if not rows:
        return ""
    cells = [list(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  " + "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True))
        for line in cells
    )
