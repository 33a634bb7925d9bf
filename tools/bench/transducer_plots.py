"""Draw kept runs of the transducers' tables: WER and time over one setting.

    python -m tools.bench.transducer_plots tools/bench_runs/...-expansions.json \\
        docs/plots/transducer_expansions.svg

    expansions   over gamma: a curve for each number of rounds, a column for each head
                 with and without a language model
    beams        over K: a curve for each head and search, a column for each language
                 model; greedy is beside K = 1

WER is above, the seconds of one thread below, both of the part that tells (`test`).
Needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench.command import bare_parser, exit_with
from tools.bench.report import Row
from wfstdec.compare.plotting import COLOURS, MARKERS
from wfstdec.errors import FormatError

_HEADS = {"rnnt": "RNN-T", "tdt": "TDT"}
_SEARCHES = {"greedy": "greedy", "alsd": "ALSD++", "aes": "AES++"}
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "wfstdec",  # the same file for the same run
    "svg.fonttype": "none",
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Layout(NamedTuple):
    """How the rows of a table become curves.

    Attributes:
        x: The setting along the axis.
        x_label: What it is called.
        column: The title of a row's column.
        curve: The name of a row's curve.
    """

    x: str
    x_label: str
    column: Callable[[Row], str]
    curve: Callable[[Row], str]


def _of_lm(row: Row) -> str:
    return "no LM" if row["lm"] == "-" else f"LM: {row['lm']}"


LAYOUTS = {
    "expansions": Layout(
        "expansion_gamma",
        "gamma, nats",
        lambda row: f"{_HEADS[row['head']]}, {_of_lm(row)}",
        lambda row: f"rounds: {row['expansion_rounds']}",
    ),
    "beams": Layout(
        "beam_size",
        "K",
        _of_lm,
        lambda row: f"{_HEADS[row['head']]}, {_SEARCHES[row['strategy']]}",
    ),
}


def plot(run: Row, path: Path) -> None:
    """Draw a run and write the picture.

    Args:
        run: As `tools.bench.transducer_tables` writes it.
        path: Ends in `.svg` or `.png`.

    Raises:
        FormatError: The run is of a table that has no layout.
    """
    table = run.get("options", {}).get("table")
    if table not in LAYOUTS:
        known = ", ".join(map(repr, LAYOUTS))
        raise FormatError(f"a run of the table {table!r}, expected one of {known}")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    layout = LAYOUTS[table]
    rows = [row for row in run["rows"] if row["part"] == "test"]
    columns = list(dict.fromkeys(map(layout.column, rows)))
    curves = list(dict.fromkeys(map(layout.curve, rows)))
    with rc_context(_STYLE):
        figure = Figure(figsize=(2.4 * len(columns), 4.2), layout="constrained")
        shared = {"sharex": True, "sharey": "row", "squeeze": False}
        above, below = figure.subplots(2, len(columns), **shared)
        above[0].set_ylabel("WER %")
        below[0].set_ylabel("CPU s")
        for upper, lower, column in zip(above, below, columns, strict=True):
            chosen = [row for row in rows if layout.column(row) == column]
            for axes, measure in ((upper, "wer"), (lower, "cpu_s")):
                _draw(axes, layout, chosen, curves, measure)
            upper.set_title(column)
            lower.set_xlabel(layout.x_label)
            lower.set_ylim(bottom=0)
        handles, names = above[0].get_legend_handles_labels()
        where = {"loc": "outside lower center", "ncols": len(columns)}
        figure.legend(handles, names, frameon=False, **where)
        told = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, **told)


def _draw(
    axes: Any, layout: Layout, rows: Sequence[Row], curves: Sequence[str], measure: str
) -> None:
    """The curves of a panel."""
    for i, name in enumerate(curves):
        points = [
            (row[layout.x], row[measure]) for row in rows if layout.curve(row) == name
        ]
        if points:
            style = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1.0}
            style |= {"marker": MARKERS[i % len(MARKERS)], "markersize": 3.0}
            axes.plot(*zip(*points, strict=True), label=name, **style)
    axes.set_xticks(sorted({row[layout.x] for row in rows}))
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.5)
    axes.label_outer(remove_inner_ticks=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = bare_parser(__doc__)
    parser.add_argument("run", type=Path, help="a kept run of transducer_tables")
    parser.add_argument("picture", type=Path, help="an .svg or .png file to write")
    args = parser.parse_args(argv)
    plot(json.loads(args.run.read_text("utf-8")), args.picture)
    return 0


if __name__ == "__main__":
    exit_with(main)
