"""Boost magnitude against WER, for accurate and inaccurate word lists.

    python -m tools.bench.boost magnitude --output run.json
    python -m tools.bench.boost magnitude --for-all --output run.json

After "GPU-Accelerated WFST Beam Search Decoder for CTC-based Speech Recognition"
(arXiv 2311.04996), figure 6. Every utterance has a list of its own. Accurate: the rare
words that it says. Inaccurate: `--strangers` rare words that it does not say, those of
other utterances first. With `--for-all` there is one list for all utterances, as the
paper has it: the rare words that are said in any; or as many that are said in none.
Rare are words of the lexicon that are none of the likeliest of the language model.
Magnitudes are nats.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.report import Row
from wfstdec.compare.comparison import Point

MAGNITUDES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 16.0]
Lists = Mapping[str, Mapping[str, list[str]]]
"""By kind, the words of each utterance's list."""


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--magnitudes", nargs="+", type=float, default=MAGNITUDES)
    parser.add_argument("--beams", nargs="+", type=float, default=[8.0, 13.0])
    parser.add_argument("--beam-size", type=int, default=256)
    parser.add_argument("--strangers", type=int, default=100)
    parser.add_argument("--for-all", action="store_true", help="one list, of each kind")


def word_lists(case: Case, rare: set[str], strangers: int, seed: int) -> Lists:
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


def lists_for_all(case: Case, rare: set[str], seed: int) -> Lists:
    """Draw one list for all utterances."""
    references = case.speech.references
    said = sorted(rare & set().union(*references.values()))
    unsaid = sorted(rare.difference(said))
    count = min(len(said), len(unsaid))
    strangers = sorted(random.Random(seed).sample(unsaid, count))
    lists = {"accurate": said, "inaccurate": strangers}
    return {kind: dict.fromkeys(references, words) for kind, words in lists.items()}


def describe(point: Point) -> Row:
    kind, _, magnitude = (point.boosts or "none 0").partition(" ")
    return {"list": kind, "magnitude": float(magnitude)}


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    rare = set(experiments.rare_words(case, args.common))
    if args.for_all:
        lists = lists_for_all(case, rare, args.seed)
    else:
        lists = word_lists(case, rare, args.strangers, args.seed)
    boosts = {
        f"{kind} {magnitude:g}": {
            utterance: dict.fromkeys(words, magnitude)
            for utterance, words in by_utterance.items()
        }
        for kind, by_utterance in lists.items()
        for magnitude in args.magnitudes
    }
    widths = {"beam": args.beams}
    trie_widths = widths | {"beam_size": [args.beam_size]}
    return experiments.compare_lists(
        Run("tools.bench.boost.magnitude", args),
        case,
        experiments.searches_of(case, widths, trie_widths),
        boosts=boosts,
        phrases=sorted(set().union(*lists["accurate"].values())),
        describe=describe,
    )
