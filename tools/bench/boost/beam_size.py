"""Beam against WER, F and speed, with and without a list of key phrases.

    python -m tools.bench.boost beam-size --output run.json
    python -m tools.bench.boost beam-size --case bpe-mild:pieces    # without a lexicon

After "FlexCTC: GPU-powered CTC Beam Decoding with advanced Contextual Abilities" (arXiv
2508.07315), figure 2. The list is one for all utterances: the rare words that they say,
and `--others` times as many that nobody says, nor anything that sounds like them (of a
case without a lexicon, only those that are said). Boosted token by token, each word
worth `--magnitude` nats in whole.
"""

from __future__ import annotations

import argparse
import random

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--beams", nargs="+", type=float, default=[6.0, 8.0, 10.0, 13.0, 17.0])
    add("--beam-sizes", nargs="+", type=int, default=[4, 8, 16, 32, 64, 128, 256, 512])
    add("--merges", nargs="+", choices=("max", "sum"), default=["max", "sum"])
    add("--magnitude", type=float, default=4.0, help="nats of each word")
    add("--others", type=int, default=4, help="times as many words that nobody says")


def key_phrases(case: Case, args: argparse.Namespace) -> list[str]:
    """The rare words that are said, then some that are not."""
    rare = experiments.rare_words(case, args.common)
    spoken = {word for words in case.speech.references.values() for word in words}
    said = [word for word in rare if word in spoken]
    known = spoken | experiments.like_others(case, set(rare))
    others = [word for word in rare if word not in known]
    count = min(len(others), args.others * len(said))
    words = said + random.Random(args.seed).sample(others, count)
    print(f"{len(said)} rare words are said; the list has {len(words)}")
    return words


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own, words=False)
    words = key_phrases(case, args)
    given = experiments.token_phrases(case, dict.fromkeys(words, args.magnitude))
    trie_widths = {"beam_size": args.beam_sizes, "merge": args.merges}
    return experiments.compare_lists(
        Run("tools.bench.boost.beam_size", args),
        case,
        experiments.searches_of(case, {"beam": args.beams}, trie_widths),
        boosts={"list": dict.fromkeys(case.speech.references, given)},
        phrases=words,
        describe=lambda point: {"list": point.boosts},
    )
