"""How many phrases can be boosted: WER, F and speed for lists of 100 to 20,000.

    python -m tools.bench.boost list-size --output run.json
    python -m tools.bench.boost list-size --own --utterances 195 --output run.json

After "TurboBias: Universal ASR Context-Biasing powered by GPU-accelerated
Phrase-Boosting Tree" (arXiv 2508.07014), figure 2. One list for all utterances: key
phrases that are said (rare words, and pairs of words with one of them), filled up with
phrases that nobody says: rare words of the lexicon, and pairs of the language model
with one; none that sounds like a common word, since credit by tokens goes to all words
that sound alike. With `--own` each utterance has a list of its own: all such phrases
that it says, filled up likewise. P, R and F are of the phrases that are said: the keys,
or with `--own` those of all utterances.

Boosted word by word (credit where a word's label stands), token by token (credit as the
phrase is being said), each phrase worth `--magnitude` nats in whole; and word by word
without numbers (bonuses follow from the list).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import Any

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.report import Row
from wfstdec.compare.comparison import Point
from wfstdec.text.arpa import read_arpa

SIZES = [100, 500, 1000, 5000, 10_000, 20_000]
KINDS = ("word", "unnumbered", "token")
Lists = dict[int, dict[str, list[str]]]
"""By size, the phrases of each utterance's list."""


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--keys", type=int, default=100, help="phrases that are said")
    parser.add_argument("--own", action="store_true", help="a list for each utterance")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--magnitude", type=float, default=4.0, help="nats of each")
    parser.add_argument("--beam", type=float, default=13.0)
    parser.add_argument("--beam-size", type=int, default=256)


def phrases_in(words: Sequence[str], rare: set[str], known: set[str]) -> set[str]:
    """The rare words of a text, and pairs of known words with one of them."""
    pairs = [pair for pair in zip(words, words[1:], strict=False) if known >= set(pair)]
    return {" ".join(pair) for pair in pairs if rare & set(pair)} | rare & set(words)


def said_phrases(case: Case, rare: set[str]) -> dict[str, list[str]]:
    """The phrases that each utterance says, sorted."""
    assert case.lexicon is not None
    known, references = set(case.lexicon.words), case.speech.references
    return {u: sorted(phrases_in(w, rare, known)) for u, w in references.items()}


def unsaid_phrases(case: Case, rare: set[str]) -> list[str]:
    """List rare words, and bigrams with one, that no reference has."""
    assert case.lexicon is not None
    known, model = set(case.lexicon.words), read_arpa(case.arpa)
    found = set(rare)
    if len(model.ngrams) > 1:
        for history, word in model.ngrams[1].words.tolist():
            pair = model.words[history], model.words[word]
            if set(pair) <= known and set(pair) & rare:
                found.add(" ".join(pair))
    texts = [f" {' '.join(words)} " for words in case.speech.references.values()]
    whole = "\n".join(texts)
    return sorted(phrase for phrase in found if f" {phrase} " not in whole)


def lists_of(case: Case, args: argparse.Namespace) -> tuple[list[str], Lists]:
    """The phrases that are scored, and all lists; each holds the shorter ones."""
    rng = random.Random(args.seed)
    rare = set(experiments.rare_words(case, args.common))
    distinct = rare - experiments.like_others(case, rare)
    said, others = said_phrases(case, rare), unsaid_phrases(case, distinct)
    keys = sorted(set().union(*said.values()))
    rng.shuffle(keys)
    rng.shuffle(others)
    if not args.own:
        keys = keys[: args.keys]
        said = dict.fromkeys(said, keys)
    most = len(keys) + len(others)
    sizes = [size for size in args.sizes if size <= most]
    if len(sizes) < len(args.sizes):
        print(f"only {most} phrases for lists of {max(args.sizes)}")
    different = {tuple(own) for own in said.values()}
    lists: Lists = {}
    for size in sizes:
        filled = {own: [*own, *others[: max(0, size - len(own))]] for own in different}
        lists[size] = {u: filled[tuple(own)] for u, own in said.items()}
    return keys, lists


def boosts_of(
    case: Case, scored: list[str], lists: Lists, args: argparse.Namespace
) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """Boosts of each utterance by `kind size`; CPU seconds to make those of one."""
    boosts: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    boosts_of_one(case, "token", scored[:1], 1.0)  # compiles code, untimed
    for size, by_utterance in lists.items():
        different = {id(phrases): phrases for phrases in by_utterance.values()}
        for kind in args.kinds:
            begin = time.process_time()
            made = {
                key: boosts_of_one(case, kind, phrases, args.magnitude)
                for key, phrases in different.items()
            }
            taken = (time.process_time() - begin) / len(made)
            name = f"{kind} {size}"
            seconds[name] = round(taken, 4)
            boosts[name] = {u: made[id(one)] for u, one in by_utterance.items()}
    return boosts, seconds


def boosts_of_one(case: Case, kind: str, phrases: list[str], nats: float) -> Any:
    """Boosts of one list, as `KINDS` says."""
    if kind == "unnumbered":
        return phrases
    numbers = dict.fromkeys(phrases, nats)
    return numbers if kind == "word" else experiments.token_phrases(case, numbers)


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    scored, lists = lists_of(case, args)
    boosts, compile_s = boosts_of(case, scored, lists, args)

    def describe(point: Point) -> Row:
        kind, _, size = (point.boosts or "none 0").partition(" ")
        compiled = compile_s.get(point.boosts or "")
        return {"list": kind, "size": int(size), "compile_s": compiled}

    widths = {"beam": [args.beam]}, {"beam_size": [args.beam_size]}
    return experiments.compare_lists(
        Run("tools.bench.boost.list_size", args),
        case,
        experiments.searches_of(case, *widths),
        boosts=boosts,
        phrases=scored,
        describe=describe,
    )
