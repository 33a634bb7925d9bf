"""Plots of comparisons: WER against speed. Needs matplotlib, the extra `plot`.

    plot(comparison, "comparison.svg")
    plot_tuning(tuning, "tuning.svg")
    plot_reliability({"dev": bins}, "dev.svg")          # of word confidences

One line, colour and marker for each search, from its narrowest to its widest setting;
rings mark the Pareto front, bars the 95 % intervals of WERs. The colours (Okabe and
Ito) suit colour-blind readers, the markers grey prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.quality import Reliability
from wfstdec.compare.tuning import Tuning
from wfstdec.errors import FormatError, OptionError, needs
from wfstdec.metrics import Interval
from wfstdec.text.files import PathLike, atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
_STYLE = {
    "svg.hashsalt": "wfstdec",  # the same file for the same points
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 9,
    "figure.titlesize": 9,
}


def plot(comparison: Comparison, path: PathLike | None = None) -> Figure:
    """Draw WER against RTFx, and write it to a path, if given.

    Args:
        comparison: The points.
        path: Ends in `.png` or `.svg`.

    Raises:
        OptionError: The path ends in something else.
        BackendError: matplotlib is not installed.
        FormatError: The file cannot be written.
    """
    with _figure((8.0, 5.0), path) as figure:
        axes = figure.add_subplot()
        for i, (name, several) in enumerate(
            groupby(comparison.points, comparison.heading)
        ):
            _draw_series(axes, i, name, list(several))
        for i, boosts in enumerate(comparison.lists):
            front = comparison.front(boosts)
            style: Any = {"label": "Pareto front"} if i == 0 else {}
            style |= {"color": "#777777", "linewidth": 1.0, "markerfacecolor": "none"}
            style |= {"markersize": 11, "zorder": 1}
            axes.plot([p.rtfx for p in front], [p.wer for p in front], "o:", **style)
        facts = comparison.facts
        axes.set_xscale("log")
        for ticks in ("major", "minor"):
            getattr(axes.xaxis, f"set_{ticks}_formatter")(_tick)
        axes.set(
            xlabel="RTFx: seconds of audio per CPU second, one thread (log scale)",
            ylabel="WER %",
            title=f"{facts['utterances']} utterances, {facts['audio_s'] / 60:.1f} min; "
            f"{facts['machine']['cpu'].split(',')[0]}",
        )
        axes.grid(True, which="both")
        axes.margins(0.12)
        axes.legend()
    return figure


def _draw_series(axes: Any, i: int, name: str, points: list[Point]) -> None:
    look, style = _look(i), "--" if points[0].boosts else "-"
    if len(points[0].setting) > 1:
        points.sort(key=lambda point: -point.rtfx)
    xs, ys = [p.rtfx for p in points], [p.wer for p in points]
    axes.plot(xs, ys, style, label=name, **look)
    _error_bars(axes, xs, ys, [p.wer_interval for p in points], look["color"])
    # The first and the last, except settings without a label.
    for point in {id(one): one for one in (points[0], points[-1])}.values():
        if point.setting:
            axes.annotate(
                point.label,
                (point.rtfx, point.wer),
                textcoords="offset points",
                xytext=(4, 5 if i % 2 == 0 else -11),
                fontsize=7,
                color=look["color"],
            )


def plot_tuning(tuning: Tuning, path: PathLike | None = None) -> Figure:
    """Draw the WER against each tuned option; path and errors as in `plot`.

    The line has the trials that differ from the best one only in this option, with 95 %
    intervals; points are all other trials.
    """
    best, names = tuning.best, list(tuning.ranges)
    with _figure((4.0 * len(names), 4.0), path) as figure:
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            rest = best.setting.items() - {(name, best.setting[name])}
            trials = sorted(tuning.trials, key=lambda trial: trial.setting[name])
            line = [trial for trial in trials if rest <= trial.setting.items()]
            others = [trial for trial in trials if trial not in line]
            xs = [trial.setting[name] for trial in others]
            axes.plot(xs, [trial.wer for trial in others], ".", color="#bbbbbb")
            xs, ys = [one.setting[name] for one in line], [one.wer for one in line]
            axes.plot(xs, ys, "o-", color=COLOURS[0], markersize=4)
            _error_bars(axes, xs, ys, [one.interval for one in line], COLOURS[0])
            axes.plot([best.setting[name]], [best.wer], "D", color=COLOURS[1])
            axes.set_xlabel(name)
        panels[0].set_ylabel("WER %")
        figure.suptitle(str(best))
    return figure


def plot_reliability(
    series: Mapping[str, Sequence[Reliability]], path: PathLike | None = None
) -> Figure:
    """Draw the share of correct words against confidence; the diagonal is ideal.

    Below, the number of words of each point. Path and errors as of `plot`.

    Args:
        series: `Quality.bins` by name in the legend.
        path: Ends in `.png` or `.svg`.
    """
    with _figure((5.0, 6.0), path) as figure:
        shares, counts = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        shares.plot([0, 1], [0, 1], ":", color="#777777", linewidth=1.0)
        for i, (name, bins) in enumerate(series.items()):
            sure = [one.confidence for one in bins]
            shares.plot(sure, [one.right for one in bins], label=name, **_look(i))
            counts.plot(sure, [one.words for one in bins], label=name, **_look(i))
        shares.set_ylabel("share of words that are right")
        counts.set(ylabel="words", yscale="log", xlabel="confidence")
        shares.legend()
    return figure


@contextmanager
def _figure(size: tuple[float, float], path: PathLike | None) -> Iterator[Figure]:
    """Yield an empty figure, size in inches, and write it to a path."""
    kind = None if path is None else check_plot(path)
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        yield figure
        if path is not None:
            metadata = {"Date": None} if kind == "svg" else {}
            with atomic_write(path) as file:
                figure.savefig(file, format=kind, dpi=150, metadata=metadata)


def check_plot(path: PathLike) -> str:
    """Return the format of a file name, validated before any measurement."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise OptionError(f"plot {target.name!r}, expected {' or '.join(FORMATS)}")
    if not target.parent.is_dir():
        raise FormatError(f"{target}: cannot write: no such folder")
    _matplotlib()
    return target.suffix.lower()[1:]


def _matplotlib() -> Any:
    advice = ": pip install matplotlib (in a checkout '.[plot]'); or omit the plot"
    with needs("a plot needs matplotlib", advice):
        import matplotlib
        import matplotlib.figure
    return matplotlib


def _error_bars(
    axes: Any,
    xs: Sequence[float],
    wers: Sequence[float],
    intervals: Sequence[Interval | None],
    colour: str,
) -> None:
    style = {"fmt": "none", "ecolor": colour, "alpha": 0.4, "capsize": 2}
    for x, wer, ends in zip(xs, wers, intervals, strict=True):
        if ends is not None:
            reach = [max(0.0, wer - ends.low)], [max(0.0, ends.high - wer)]
            axes.errorbar(x, wer, yerr=reach, elinewidth=1.0, **style)


def _look(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}


def _tick(value: float, _: int) -> str:
    if value < 1:
        return f"{value:,.3g}"
    return f"{value:,.0f}" if f"{value:.0e}"[0] in "125" else ""
