"""The tables of `tools.bench.gpu`, and what its rows say about what was asked for.

print(table(rows))
print("\n".join(verdicts(rows)))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from tools.bench.report import Columns, Row, figure, format_table, text_figure

LARGE, SMALL = 128, 8
"""Batches from here up are throughput, batches down to here are latency."""
THROUGHPUT, LATENCY = 5.0, 10.0
"""What is asked: this multiple of Riva's at an equal or lower word error rate."""
TRIE_BATCH = 32
"""From here up the trie is compared with the CPU."""
POINT = ("set", "lm", "max_active", "beam_size", "beam", "batch")
"""What a point of ours and one of a peer's have in common."""
OF = {"dtype": "", "threads": "threads", "lattice_beam": "lattice beam"}
"""What distinguishes rows of one point, and its unit."""


def _of_costs(name: str) -> Callable[[Row], str]:
    def share(row: Row) -> str:
        costs = row.get("costs")
        return f"{100 * costs[name] / costs['utterances']:.1f}" if costs else "-"

    return share


COLUMNS: Columns = {
    "max_active": figure("max_active", "d"),
    "size": figure("beam_size", "d"),
    "beam": figure("beam", "g"),
    "boosts": figure("boosted", "d"),
    "batch": figure("batch", "d"),
    "decoder": text_figure("decoder"),
    "of": lambda row: ", ".join(
        f"{row[name]} {unit}".strip()
        for name, unit in OF.items()
        if row.get(name) is not None
    ),
    "WER %": figure("wer", ".2f"),
    "RTFx": figure("rtfx", ".0f"),
    "ms/batch": figure("ms_per_batch", ".2f"),
    "search ms": figure("search_ms", ".2f"),
    "us/frame": figure("us_per_frame", ".2f"),
    "arcs/frame": figure("looked_per_frame", ".0f"),
    "GB/s": figure("gb_per_s", ".1f"),
    "ours lower %": _of_costs("ours_lower"),
    "theirs lower %": _of_costs("theirs_lower"),
}
"""Columns by heading."""


def table(rows: list[Row]) -> str:
    """The points that have times, one below the other; then their phases."""
    timed = [row for row in rows if "event_s" in row]
    tables = [format_table(COLUMNS, timed)]
    names = {tuple(row["phases_us"]): None for row in timed if "phases_us" in row}
    for phases in names:
        columns = {name: COLUMNS[name] for name in ("size", "beam", "batch", "of")}
        columns |= {name: partial(_phase, name) for name in phases}
        own = [row for row in timed if tuple(row.get("phases_us", ())) == phases]
        tables.append(f"us of a frame and block\n{format_table(columns, own)}")
    return "\n\n".join(tables)


def _phase(name: str, row: Row) -> str:
    return f"{row['phases_us'][name]:.2f}"


def compared(
    rows: list[Row], ours: str = "ours", theirs: str = "riva"
) -> list[tuple[Row, Row, float]]:
    """Ours without boosts, a peer's at each point, the fastest of each; the ratio.

    Args:
        rows: Of a run.
        ours: What rows call ours.
        theirs: The beginning of what they call the peer's.
    """
    points: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        if "event_s" not in row or row.get("boosted"):
            continue
        for name in (ours, theirs):
            if f"{row['decoder']} ".startswith(f"{name} "):
                point = points.setdefault(tuple(row.get(n) for n in POINT), {})
                point.setdefault(name, []).append(row)
    pairs = []
    for point in points.values():
        if len(point) == 2:
            one, other = (min(point[name], key=_seconds) for name in (ours, theirs))
            pairs.append((one, other, _seconds(other) / _seconds(one)))
    return pairs


def _seconds(row: Row) -> float:
    return median(row["event_s"])


def verdicts(rows: list[Row]) -> list[str]:
    """Lines on wrong answers, failures, and how often what is asked is reached."""
    lines = [
        f"{place(row)}: {row['differ']} hypotheses are not the CPU's, no time is given"
        for row in rows
        if row.get("differ")
    ]
    lines += [f"{place(row)}: {row['failed']}" for row in rows if "failed" in row]
    lines += _of_the_trie(rows)
    pairs = compared(rows)
    if not pairs:
        return [*lines, "nothing was compared with riva-asrlib-decoder"]
    for name, wanted, chosen in (
        ("throughput", THROUGHPUT, [p for p in pairs if p[0]["batch"] >= LARGE]),
        ("latency", LATENCY, [p for p in pairs if p[0]["batch"] <= SMALL]),
    ):
        if chosen:
            fair = sum(ours["wer"] <= theirs["wer"] for ours, theirs, _ in chosen)
            lines.append(
                f"{name}: {_range(chosen)} times Riva's over "
                f"{len(chosen)} points, {wanted:g} asked; the word error rate is equal "
                f"or lower at {fair} of them"
            )
    return lines


def _of_the_trie(rows: list[Row]) -> list[str]:
    """Lines on the trie next to all cores of the CPU."""
    pairs = compared(rows, "trie", "cpu trie")
    cpu = [one for one in pairs if one[0]["batch"] >= TRIE_BATCH]
    if not cpu:
        return []
    return [
        f"trie: {_range(cpu)} times {cpu[0][1]['threads']} threads of the CPU over "
        f"{len(cpu)} points from batch {TRIE_BATCH} on"
    ]


def _range(pairs: list[tuple[Row, Row, float]]) -> str:
    ratios = [ratio for _, _, ratio in pairs]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def line(row: Row) -> str:
    """A row as it comes."""
    if "event_s" not in row:
        return f"{place(row)}: no time"
    return f"{place(row)}: {row['ms_per_batch']:.2f} ms, RTFx {row['rtfx']:.0f}"


def place(row: Row) -> str:
    """Name the point that a row is of."""
    more = [f"{row[k]:g} {k}" for k in ("boosted", "batch") if k in row]
    size = next(f"{k} {row[k]}" for k in ("max_active", "beam_size") if k in row)
    return (
        f"{row['set']}, {row['lm']}, {size}, beam {row['beam']:g}, "
        f"{', '.join(more)}, {row['decoder']}"
    )
