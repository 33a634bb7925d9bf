"""The table and the picture of `tools.gpu.phases`.

print(table(rows))
plot(rows, Path("phases.png"), matplotlib)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.bench.report import Columns, Row, figure, format_table, text_figure
from wfstdec.wfst.gpu.layout import PHASES


def _phase(name: str) -> Any:
    def shown(row: Row) -> str:
        found, expected = row.get("phases_us"), row.get("predicted_us")
        if found is None or expected is None:
            return "-"
        return f"{found[name]:.2f} ({expected[name]:.2f})"

    return shown


def _sum(row: Row) -> str:
    found, expected = row.get("phases_us"), row.get("predicted_us")
    if found is None or expected is None:
        return "-"
    return f"{sum(found.values()):.2f} ({sum(expected.values()):.2f})"


COLUMNS: Columns = {
    "decoder": text_figure("decoder"),
    "batch": figure("batch", "d"),
    "threads": lambda row: str(row.get("threads", "-")),
    **{phase: _phase(phase) for phase in PHASES},
    "us/frame": _sum,
    "ms/batch": figure("ms_per_batch", ".2f"),
    "RTFx": figure("rtfx", ".0f"),
}
"""Columns by heading: microseconds of a frame and block, in brackets as predicted."""


def table(rows: list[Row]) -> str:
    """Batch by batch: ours, the CPU, and whoever else has been measured."""
    timed = [row for row in rows if "rtfx" in row]
    order = sorted(timed, key=lambda row: (row["batch"], row["decoder"] != "cpu"))
    head = "us of a frame and block by phase; in brackets the model's prediction"
    wrong = [row for row in rows if row.get("differ")]
    lines = [head, format_table(COLUMNS, order)]
    lines += [
        f"batch {row['batch']}, {row['threads']} threads: {row['differ']} hypotheses "
        "are not the CPU's, no time is given"
        for row in wrong
    ]
    return "\n".join(lines)


def plot(rows: list[Row], path: Path, matplotlib: Any) -> None:
    """Bars of the phases over batches, a panel for each block size; predictions beside.

    Args:
        rows: From `tools.gpu.phases`.
        path: A picture file.
        matplotlib: The module.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    ours = [row for row in rows if "phases_us" in row]
    sizes = sorted({row["threads"] for row in ours})
    figure_, axes = pyplot.subplots(
        1, max(1, len(sizes)), sharey=True, squeeze=False, figsize=(12, 4)
    )
    for axis, threads in zip(axes[0], sizes, strict=False):
        chosen = sorted(
            (row for row in ours if row["threads"] == threads),
            key=lambda row: row["batch"],
        )
        for shift, kind in ((-0.2, "phases_us"), (0.2, "predicted_us")):
            below = [0.0] * len(chosen)
            for p, phase in enumerate(PHASES):
                heights = [row[kind][phase] for row in chosen]
                at = [i + shift for i in range(len(chosen))]
                label = phase if kind == "phases_us" else None
                alpha = 1.0 if kind == "phases_us" else 0.4
                bars = {"width": 0.38, "color": f"C{p}", "alpha": alpha}
                axis.bar(at, heights, bottom=below, label=label, **bars)
                below = [a + b for a, b in zip(below, heights, strict=True)]
        axis.set_xticks(range(len(chosen)), [str(row["batch"]) for row in chosen])
        axis.set_title(f"{threads} threads")
        axis.set_xlabel("batch; pale: predicted")
    axes[0][0].set_ylabel("us of a frame and block")
    axes[0][-1].legend()
    figure_.savefig(path, bbox_inches="tight")
    pyplot.close(figure_)
