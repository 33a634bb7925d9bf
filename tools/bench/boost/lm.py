"""Boosts and a language model: neither, each, both; WER, F and speed.

    python -m tools.bench.boost lm --output run.json                   # WFST and trie
    python -m tools.bench.boost lm --case bpe-hard:pieces --output run.json   # greedy

After "FlexCTC: GPU-powered CTC Beam Decoding with advanced Contextual Abilities" (arXiv
2508.07315), table II. Each utterance has a list of its own: the rare words that it
says, filled up to `--own` with such words that it does not say. P, R and F are of the
rare words that are said.

With a lexicon the WFST and the trie are boosted by words; "no LM" is a grammar in which
all words, and the end, are equally likely, the same for both, at `--flat-scale`. Of a
case without a lexicon (`SET:pieces`) greedy decoding and the trie over tokens are
boosted token by token, each word worth as much; "no LM" is none.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import replace
from typing import Any

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.data import build_or_load, file_key, write_arpa
from tools.bench.experiments import searches_of, token_phrases
from tools.bench.report import Row
from wfstdec import GreedyOptions, TrieOptions, compare
from wfstdec.compare.comparison import Point
from wfstdec.compare.searches import DecoderSearch

NO_LM = "no LM"


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--magnitudes", nargs="+", type=float, default=[2.0, 4.0, 8.0])
    parser.add_argument("--own", type=int, default=100, help="words of each list")
    parser.add_argument("--beam", type=float, default=13.0)
    parser.add_argument("--beam-size", type=int, default=256)
    parser.add_argument("--flat-scale", type=float, help="default: the --lm-scale")


def flat_case(case: Case, args: argparse.Namespace) -> Case:
    """Replace a case's model: all words of the lexicon, and the end, equally likely."""
    assert case.lexicon is not None
    words = sorted(set(case.lexicon.words))
    path = args.cache / f"flat-{case.lm}-{file_key([case.arpa])}.arpa"
    logprob = f"{-math.log10(len(words) + 1):.6f}"
    unigrams = [(logprob, word) for word in [*words, "</s>"]]
    write_arpa(path, [[("-99", "<s>"), *unigrams]])
    graph = build_or_load(case.speech.recipe, path, "normal", args.cache)
    scale = case.lm_scale if args.flat_scale is None else args.flat_scale
    return replace(case, lm=NO_LM, arpa=path, lm_scale=scale, graph=graph)


def token_searches(case: Case, args: argparse.Namespace) -> list[DecoderSearch]:
    """Greedy and the trie over tokens, with and without the language model."""
    files = {key: one for key, one in case.files.items() if key != "lexicon"}
    found = []
    for lm, arpa in ((NO_LM, None), (case.lm, case.arpa)):
        greedy = compare.greedy_factory(**(files | {"lm": arpa}))
        trie = compare.trie_factory(**(files | {"lm": arpa}))
        options = TrieOptions(beam=args.beam, lm_scale=case.lm_scale)
        searches = [
            *compare.greedy_searches(greedy, GreedyOptions(lm_scale=case.lm_scale), {}),
            *compare.trie_searches(trie, options, {"beam_size": [args.beam_size]}),
        ]
        found += [replace(one, name=f"{one.name}, {lm}") for one in searches]
    return found


def word_searches(case: Case, args: argparse.Namespace) -> list[DecoderSearch]:
    """The WFST and the trie on a lexicon, with and without the language model."""
    trie_widths = {"beam": [args.beam], "beam_size": [args.beam_size]}
    return [
        replace(one, name=f"{one.name}, {of.lm}")
        for of in (flat_case(case, args), case)
        for one in searches_of(of, {"beam": [args.beam]}, trie_widths)
    ]


def word_lists(case: Case, args: argparse.Namespace) -> dict[str, list[str]]:
    """Each utterance's list: its rare words first, then others."""
    rng, rare = random.Random(args.seed), experiments.rare_words(case, args.common)
    lists = {}
    for utterance, words in case.speech.references.items():
        own = sorted(set(words) & set(rare))
        wanted = min(len(rare), args.own + len(own))
        others = [word for word in rng.sample(rare, wanted) if word not in own]
        lists[utterance] = (own + others)[: max(args.own, len(own))]
    return lists


def describe(point: Point) -> Row:
    _, _, lm = point.search.partition(", ")
    return {"lm": lm, "magnitude": float(point.boosts or 0)}


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own, words=False)
    lists = word_lists(case, args)
    make = token_searches if case.lexicon is None else word_searches
    rare = set(experiments.rare_words(case, args.common))
    said = set().union(*case.speech.references.values())
    boosts: dict[str, dict[str, Any]] = {}
    for nats in args.magnitudes:
        numbers = {u: dict.fromkeys(words, nats) for u, words in lists.items()}
        boosts[f"{nats:g}"] = (
            {u: token_phrases(case, one) for u, one in numbers.items()}
            if case.lexicon is None
            else numbers
        )
    return experiments.compare_lists(
        Run("tools.bench.boost.lm", args),
        case,
        make(case, args),
        boosts=boosts,
        phrases=sorted(rare & said),
        describe=describe,
    )
