"""Beam against WER, F and speed, with and without a list of key phrases.

    python tools/experiments_beam.py --output run.json --plot run.svg
    python tools/experiments_beam.py --case bpe-mild:pieces      # without a lexicon

After "FlexCTC: GPU-powered CTC Beam Decoding with advanced Contextual Abilities" (arXiv
2508.07315), figure 2. The list is one for all utterances: the rare words that they say,
and `--others` times as many that nobody says, nor anything that sounds like them (of a
case without a lexicon, only those that are said). Boosted token by token, each word
worth `--magnitude` nats in whole.
"""

from __future__ import annotations

import argparse
import random
import sys

import experiments_common as common  # sets the number of threads first

from wfstdec.compare.plotting import plot
from wfstdec.compare.report import table
from wfstdec.compare.running import run
from wfstdec.errors import WfstdecError


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--beams", nargs="+", type=float, default=[6.0, 8.0, 10.0, 13.0, 17.0])
    add("--beam-sizes", nargs="+", type=int, default=[4, 8, 16, 32, 64, 128, 256, 512])
    add("--merges", nargs="+", choices=("max", "sum"), default=["max", "sum"])
    add("--magnitude", type=float, default=4.0, help="nats of each word")
    add("--others", type=int, default=4, help="times as many words that nobody says")


def main(argv: list[str] | None = None) -> int:
    args = common.parse_arguments(__doc__, argv, add_own)
    case = common.load_case(args)
    rare = common.rare_words(case, args.common)
    spoken = {word for words in case.speech.references.values() for word in words}
    said = [word for word in rare if word in spoken]
    known = spoken | common.like_others(case, set(rare))
    others = [word for word in rare if word not in known]
    more = random.Random(args.seed).sample(
        others, min(len(others), args.others * len(said))
    )
    words = said + more
    print(f"{len(said)} rare words are said; the list has {len(words)}")
    given = common.token_phrases(case, dict.fromkeys(words, args.magnitude))
    searches = common.searches_of(
        case,
        {"beam": args.beams},
        {"beam_size": args.beam_sizes, "merge": args.merges},
    )
    comparison = run(
        common.speech_of(case),
        searches,
        boosts={"list": dict.fromkeys(case.speech.references, given)},
        phrases=words,
        repeats=args.repeats,
    )
    print(table(comparison))
    rows = [common.row_of(one, list=one.boosts) for one in comparison.points]
    common.write_report(args, "experiments_beam", comparison, rows)
    if args.plot is not None:
        plot(comparison, args.plot)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
