"""Boost lists without numbers: WER and F of lists short and long, true and not.

    python -m tools.bench.boost unnumbered --output run.json

Bonuses follow from the list (`wfstdec/boost/automatic.py`). Key words are the rare ones
that the references say: of the lexicon and the language model, of more than four
letters, with a unigram of log10 probability below --rarer. Lists:

    alone        the key words, for all utterances
    distractors  with so many other words of the same kind
    own          of --own words, for each utterance: the key words that it says, filled
                 up with others
    half         of twice --half words, for all: as many key words as others

P, R and F are of the key words, whatever the list.
"""

from __future__ import annotations

import argparse
import math
import random

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run
from wfstdec.text.arpa import read_arpa

Lists = dict[str, dict[str, list[str]]]
"""The words of each utterance, by the name of a list."""


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rarer", type=float, default=-4.9, help="log10")
    parser.add_argument("--distractors", type=int, default=15_000)
    parser.add_argument("--own", type=int, default=100)
    parser.add_argument("--half", type=int, default=500)
    parser.add_argument("--beams", nargs="+", type=float, default=[8.0, 13.0])
    parser.add_argument("--beam-size", type=int, default=256)


def rare_words(case: Case, rarer: float) -> list[str]:
    """Long and rare words of lexicon and language model, sorted."""
    assert case.lexicon is not None
    model, least = read_arpa(case.arpa), -rarer * math.log(10)
    unigrams, known = model.ngrams[0], set(case.lexicon.words)
    costs = zip(unigrams.words[:, 0].tolist(), unigrams.cost.tolist(), strict=True)
    rare = {model.words[at] for at, cost in costs if cost > least}
    return sorted(word for word in rare & known if len(word) > 4)


def lists_of(case: Case, args: argparse.Namespace) -> tuple[list[str], Lists]:
    """The key words, and all lists."""
    rng = random.Random(args.seed)
    references = case.speech.references
    rare = rare_words(case, args.rarer)
    said = set().union(*map(set, references.values()))
    keys = [word for word in rare if word in said]
    others = [word for word in rare if word not in said]
    rng.shuffle(others)
    half = sorted(rng.sample(keys, min(args.half, len(keys))))
    for_all = {
        "alone": keys,
        "distractors": keys + others[: args.distractors],
        "half": half + others[-len(half) :],
    }
    lists: Lists = {
        name: dict.fromkeys(references, words) for name, words in for_all.items()
    }
    lists["own"] = {}
    for utterance, words in references.items():
        own = sorted(set(words) & set(keys))
        more = [word for word in rng.sample(rare, args.own) if word not in own]
        lists["own"][utterance] = (own + more)[: max(args.own, len(own))]
    return keys, lists


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    keys, lists = lists_of(case, args)
    widths = {"beam": args.beams}
    trie_widths = widths | {"beam_size": [args.beam_size]}
    return experiments.compare_lists(
        Run("tools.bench.boost.unnumbered", args),
        case,
        experiments.searches_of(case, widths, trie_widths),
        boosts=lists,
        phrases=keys,
        describe=lambda point: {"list": point.boosts},
    )
