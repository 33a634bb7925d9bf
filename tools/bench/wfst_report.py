"""The tables of `tools.bench.wfst`, from rows of figures.

print("\\n".join(agreement_lines(beam, agreement)))
print(speed_table(rows))
print(topology_table(rows))
"""

from __future__ import annotations

from collections.abc import Sequence

from tools.bench.costs import TOLERANCE, Agreement
from tools.bench.report import (
    Columns,
    Row,
    figure,
    format_table,
    range_percent,
    text_figure,
)

SPEED: Columns = {
    "beam": lambda row: f"{row['setting']['beam']:g}",
    "WER %": figure("wer", ".2f"),
    "active": figure("active_per_frame", ".0f"),
    "candidates": figure("candidates_per_frame", ".0f"),
    "RTFx": figure("rtfx", ".0f"),
    "Kaldi": lambda row: f"{row['kaldi']['rtfx']:.0f}",
    "ratio": figure("ratio", ".2f"),
    "median: RTFx": figure("rtfx_median", ".0f"),
    " Kaldi": lambda row: f"{row['kaldi']['rtfx_median']:.0f}",
    " ratio": figure("ratio_median", ".2f"),
    "range %": lambda row: f"{range_percent(row['cpu_s']):.0f}",
    " Kaldi's": lambda row: f"{range_percent(row['kaldi']['cpu_s']):.0f}",
    "unread": figure("unread_ratio", ".2f"),
    "2 threads": figure("two_threads_ratio", ".2f"),
    " unread": figure("two_threads_unread_ratio", ".2f"),
}
"""Columns by heading; those of timings have the fastest turn first."""

TOPOLOGY: Columns = {
    "set": text_figure("set"),
    "LM": text_figure("lm"),
    "beam": SPEED["beam"],
    "topology": text_figure("topology"),
    "states": lambda row: f"{row['graph']['states']:,}",
    "arcs": lambda row: f"{row['graph']['arcs']:,}",
    "MB": lambda row: f"{row['graph']['file_mb']:.0f}",
    "WER %": SPEED["WER %"],
    "ins/del/sub": lambda row: "/".join(map(str, row["errors"])),
    **{name: SPEED[name] for name in ("active", "candidates", "RTFx", "Kaldi")},
}


def agreement_lines(beam: float, found: Agreement) -> list[str]:
    """Report a comparison of costs, in lines."""
    verdict = "costs agree" if found.agrees else "COSTS DISAGREE, no speed is given"
    share = 100 / found.utterances
    lines = [
        f"  beam {beam:g}: {verdict}: ours {found.ours_total:.3f}, Kaldi "
        f"{found.theirs_total:.3f}; ours lower {share * found.ours_lower:.1f} %, Kaldi "
        f"lower {share * found.theirs_lower:.1f} %; largest difference "
        f"{found.largest_difference:.1e}; unfinished {found.ours_unfinished} and "
        f"{found.theirs_unfinished}, other words {found.texts_differ} of "
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
    return lines


def speed_table(rows: Sequence[Row]) -> str:
    """Table of speed where costs agree; "" where they do nowhere."""
    return format_table(SPEED, [row for row in rows if row["costs"]["agree"]])


def topology_table(rows: Sequence[Row]) -> str:
    """The topologies of a set, language model and beam below each other."""
    agreed = [row for row in rows if row["costs"]["agree"]]
    agreed.sort(key=lambda row: (row["set"], row["lm"], row["setting"]["beam"]))
    return format_table(TOPOLOGY, agreed)
