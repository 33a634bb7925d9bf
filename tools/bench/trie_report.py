"""The tables of `tools.bench.trie`, and what they say of its targets.

print(format_table(COLUMNS, rows))
print("\\n".join(verdict_lines(verdicts(rows))))
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import median

from tools.bench.contestants import TRIE, WFST
from tools.bench.costs import TOLERANCE
from tools.bench.report import (
    Columns,
    Row,
    figure,
    on_front,
    range_percent,
    text_figure,
)

COLUMNS: Columns = {
    "decoder": text_figure("decoder"),
    "setting": lambda row: setting_text(row["setting"]),
    "WER %": figure("wer", ".2f"),
    "known": figure("wer_known", ".2f"),
    "gap": figure("gap", ".3f"),
    "own cost": figure("own_cost", ".2f"),
    "RTFx": figure("rtfx", ".0f"),
    "median": figure("rtfx_median", ".0f"),
    "runs": lambda row: str(len(row["cpu_s"])),
    "range %": lambda row: f"{range_percent(row['cpu_s']):.0f}",
}
LEGEND = """\
  WER % of all utterances; known: of those all of whose words are in the lexicon
  gap: nats per utterance above the least cost that any of them found, by the lexicon
    and language model, of texts that these can say (`-`: no text is comparable)
  own cost: the sum of the totals that the decoder itself gives, nats
  RTFx: seconds of audio per CPU second in one thread, best and median of the runs"""


def setting_text(setting: Row) -> str:
    """Values by name, short."""
    short = {"beam_size_token": "tokens", "token_top_k": "tokens"}
    return " ".join(
        f"{short.get(name, name)}={value:g}"
        if isinstance(value, int | float)
        else f"{short.get(name, name)}={value}"
        for name, value in setting.items()
        if value is not None
    )


MEASURES = {
    "wer": "all utterances",
    "wer_known": "utterances of known words",
    "gap": "by gap instead of WER",
    "own_cost": "by cost instead of WER",
}
"""What is to be no higher than the peer's, and what lines call it."""


def verdicts(
    rows: Iterable[Row],
    ours: Collection[str] = (TRIE,),
    beside: Collection[str] = (WFST,),
    measures: Iterable[str] = MEASURES,
) -> list[Row]:
    """For each point on each peer's front our fastest one that is no worse.

    By each measure: chance decides which texts of like cost have fewer errors, so that
    few utterances say more by costs than by the WER. The totals that decoders give are
    taken without a lexicon, where all add the same costs up.

    Args:
        rows: Points of all cases.
        ours: Decoders that are compared with peers.
        beside: Others of ours.
        measures: Of `MEASURES`.
    """
    points: dict[tuple[str, str], list[Row]] = {}
    own: dict[str, list[Row]] = {}
    for row in rows:
        if row["decoder"] in ours:
            own.setdefault(row["case"], []).append(row)
        elif row["decoder"] not in beside:
            points.setdefault((row["case"], row["decoder"]), []).append(row)
    found = []
    for (case, _), theirs in points.items():
        for measure in measures:
            rated = [row for row in theirs if row[measure] is not None]
            if measure == "own_cost":
                rated = [row for row in rated if row["wer_known"] is None]
            front = on_front(rated, measure)
            found += [_verdict(row, own[case], measure) for row in front]
    return found


def _verdict(peer: Row, tries: list[Row], measure: str) -> Row:
    limit = peer[measure] * (1 + TOLERANCE)
    fit = [row for row in tries if row[measure] <= limit]
    best = min(fit, key=lambda row: min(row["cpu_s"]), default=None)
    found = {
        "case": peer["case"],
        "peer": peer["decoder"],
        "setting": peer["setting"],
        "by": measure,
        "value": peer[measure],
        "least": min(row[measure] for row in tries),
    }
    if best is None:
        return found | {"ours": None, "ratio": None, "ratio_median": None}
    theirs, ours = peer["cpu_s"], best["cpu_s"]
    return found | {
        "decoder": best["decoder"],
        "ours": best["setting"],
        "ours_value": best[measure],
        "ratio": round(min(theirs) / min(ours), 2),
        "ratio_median": round(median(theirs) / median(ours), 2),
    }


def verdict_lines(found: list[Row]) -> list[str]:
    """The ratios to each peer in each case."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for one in found:
        groups.setdefault((one["case"], one["peer"], one["by"]), []).append(one)
    return [
        f"{case}, {peer}, {MEASURES[by]}: {_summary(own)}"
        for (case, peer, by), own in groups.items()
    ]


def _summary(own: list[Row]) -> str:
    """Summarise the points of a peer, the least ratio first."""
    matched = [one for one in own if one["ours"] is not None]
    parts = []
    if matched:
        fastest, medians = (
            [one[name] for one in matched] for name in ("ratio", "ratio_median")
        )
        parts.append(
            f"trie {min(fastest):.1f} to {max(fastest):.1f} times as fast "
            f"(medians {min(medians):.1f} to {max(medians):.1f})"
        )
    if len(matched) < len(own):
        lacking = [one["value"] for one in own if one["ours"] is None]
        parts.append(
            f"{len(lacking)} of {len(own)} points NOT matched, {min(lacking):.3f} by "
            f"{own[0]['least']:.3f}"
        )
    return "; ".join(parts)


def wfst_lines(rows: Iterable[Row]) -> list[str]:
    """The WER of the widest beams of our two decoders, case by case."""
    widest: dict[str, dict[str, float]] = {}
    for row in rows:  # the widest is last, of those that keep the best alignment
        if row["decoder"] in (TRIE, WFST) and row["setting"].get("merge") != "sum":
            widest.setdefault(row["case"], {})[row["decoder"]] = row["wer"]
    return [
        f"{case}: WER at the widest beam: trie {own[TRIE]:.2f}, WFST {own[WFST]:.2f}"
        for case, own in widest.items()
        if len(own) == 2
    ]
