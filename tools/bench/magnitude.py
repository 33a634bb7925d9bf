"""Boost magnitude against WER, for accurate and inaccurate word lists.

    python tools/experiments_magnitude.py --output run.json --plot run.svg

After "GPU-Accelerated WFST Beam Search Decoder for CTC-based Speech Recognition"
(arXiv 2311.04996), figure 6. Every utterance has a list of its own. Accurate: the rare
words that it says. Inaccurate: `--strangers` rare words that it does not say, those of
other utterances first. Rare are words of the lexicon that are none of the likeliest of
the language model. Magnitudes are nats; dotted lines are at half of the beams.
"""

from __future__ import annotations

import argparse
import random
import sys

import experiments_common as common  # sets the number of threads first
from beam_cases import Case

from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.report import table
from wfstdec.compare.running import run
from wfstdec.errors import WfstdecError

MAGNITUDES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 16.0]
KINDS = ("accurate", "inaccurate")


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--magnitudes", nargs="+", type=float, default=MAGNITUDES)
    parser.add_argument("--beams", nargs="+", type=float, default=[8.0, 13.0])
    parser.add_argument("--beam-size", type=int, default=256)
    parser.add_argument("--strangers", type=int, default=100)


def word_lists(
    case: Case, rare: set[str], strangers: int, seed: int
) -> dict[str, dict[str, list[str]]]:
    """The words of each utterance's list, by kind."""
    rng = random.Random(seed)
    said = {u: set(words) & rare for u, words in case.speech.references.items()}
    by_others = sorted(set().union(*said.values()))
    by_nobody = sorted(rare.difference(by_others))
    inaccurate = {}
    for utterance, words in said.items():
        known = [word for word in by_others if word not in words]
        rng.shuffle(known)
        wanted = max(0, strangers - len(known))
        more = rng.sample(by_nobody, min(wanted, len(by_nobody)))
        inaccurate[utterance] = sorted(known[:strangers] + more)
    accurate = {utterance: sorted(words) for utterance, words in said.items()}
    return {"accurate": accurate, "inaccurate": inaccurate}


def boosts_of(
    lists: dict[str, dict[str, list[str]]], magnitudes: list[float]
) -> dict[str, dict[str, dict[str, float]]]:
    """Boosts of each utterance by `kind magnitude`."""
    return {
        f"{kind} {magnitude:g}": {
            utterance: dict.fromkeys(words, magnitude)
            for utterance, words in by_utterance.items()
        }
        for kind, by_utterance in lists.items()
        for magnitude in magnitudes
    }


def magnitude_of(point: Point) -> tuple[str, float]:
    """The kind of list of a point, and the magnitude."""
    kind, _, magnitude = (point.boosts or "none 0").partition(" ")
    return kind, float(magnitude)


def panel(comparison: Comparison, wanted: str) -> common.Panel:
    """WER against the magnitude for one kind of lists."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for point in comparison.points:
        kind, magnitude = magnitude_of(point)
        if kind in ("none", wanted):
            curve = curves.setdefault(f"{point.search}, {point.label}", [])
            curve.append((magnitude, point.wer))
    return f"{wanted} lists", "WER %", curves


def main(argv: list[str] | None = None) -> int:
    args = common.parse_arguments(__doc__, argv, add_own)
    case = common.load_case(args)
    if case.lexicon is None:
        raise SystemExit("words are boosted: a case with a lexicon, please")
    rare = set(common.rare_words(case, args.common))
    lists = word_lists(case, rare, args.strangers, args.seed)
    widths = {"beam": args.beams}
    comparison = run(
        common.speech_of(case),
        common.searches_of(case, widths, widths | {"beam_size": [args.beam_size]}),
        boosts=boosts_of(lists, args.magnitudes),
        phrases=sorted({w for words in lists["accurate"].values() for w in words}),
        repeats=args.repeats,
    )
    print(table(comparison))
    rows = []
    for point in comparison.points:
        kind, magnitude = magnitude_of(point)
        rows.append(common.row_of(point, list=kind, magnitude=magnitude))
    common.write_report(args, "experiments_magnitude", comparison, rows)
    panels = [panel(comparison, kind) for kind in KINDS]
    halves = [beam / 2 for beam in args.beams]
    common.draw(args.plot, panels, "boost, nats", lines_at=halves)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
