"""How many phrases can be boosted: WER, F and speed for lists of 100 to 20,000.

    python -m tools.bench.list_size --output run.json --plot run.svg

After "TurboBias: Universal ASR Context-Biasing powered by GPU-accelerated
Phrase-Boosting Tree" (arXiv 2508.07014), figure 2. One list for all utterances: key
phrases that are said (rare words, and pairs of words with one of them), filled up with
phrases that nobody says: rare words of the lexicon, and pairs of the language model
with one; none that sounds like a common word, since credit by tokens goes to all words
that sound alike. Boosted word by word (credit where a word's label stands) and token by
token (credit as the phrase is being said), each phrase worth the same in whole. P, R
and F are of all phrases of the longest list, whatever list was boosted.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from tools.bench import experiments
from tools.bench.cases import Case
from tools.bench.command import exit_with
from tools.bench.experiments import Experiment, Panel, curves_of
from tools.bench.report import Row
from wfstdec.compare.comparison import Comparison, Point
from wfstdec.text.arpa import read_arpa

SIZES = [100, 500, 1000, 5000, 10_000, 20_000]
UNITS = ("word", "token")


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--keys", type=int, default=100, help="phrases that are said")
    parser.add_argument("--magnitude", type=float, default=4.0, help="nats of each")
    parser.add_argument("--beam", type=float, default=13.0)
    parser.add_argument("--beam-size", type=int, default=256)


def said_phrases(case: Case, rare: set[str]) -> list[str]:
    """Rare words of the references, and pairs of known words with one of them."""
    assert case.lexicon is not None
    known, found = set(case.lexicon.words), set()
    for words in case.speech.references.values():
        found |= set(words) & rare
        for pair in zip(words, words[1:], strict=False):
            if set(pair) <= known and set(pair) & rare:
                found.add(" ".join(pair))
    return sorted(found)


def unsaid_phrases(case: Case, rare: set[str]) -> list[str]:
    """The same of the lexicon and the language model, but what is said."""
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


def lists_of(case: Case, args: argparse.Namespace) -> dict[int, list[str]]:
    """Phrases by the size of the list; each list holds the shorter ones."""
    rng = random.Random(args.seed)
    rare = set(experiments.rare_words(case, args.common))
    distinct = rare - experiments.like_others(case, rare)
    keys, others = said_phrases(case, rare), unsaid_phrases(case, distinct)
    rng.shuffle(keys)
    rng.shuffle(others)
    order = keys[: args.keys] + others
    if len(order) < max(args.sizes):
        print(f"only {len(order)} phrases for lists of {max(args.sizes)}")
    return {size: order[:size] for size in args.sizes if size <= len(order)}


def compile_lists(
    case: Case, lists: dict[int, list[str]], magnitude: float
) -> tuple[dict[str, dict[str, Any]], dict[int, float]]:
    """Boosts of each utterance by `unit size`; CPU seconds to compile tokens."""
    boosts, seconds = {}, {}
    experiments.token_phrases(
        case, {lists[min(lists)][0]: 1.0}
    )  # compiles code, untimed
    for size, phrases in lists.items():
        by_word = dict.fromkeys(phrases, magnitude)
        begin = time.process_time()
        by_token = experiments.token_phrases(case, by_word)
        seconds[size] = round(time.process_time() - begin, 3)
        for unit, given in zip(UNITS, (by_word, by_token), strict=True):
            boosts[f"{unit} {size}"] = dict.fromkeys(case.speech.references, given)
    return boosts, seconds


def size_of(point: Point) -> tuple[str, int]:
    """The unit of a point's list, and its size."""
    unit, _, size = (point.boosts or "none 0").partition(" ")
    return unit, int(size)


def panel(
    comparison: Comparison, y_label: str, value: Callable[[Point], float]
) -> Panel:
    """Something against the size of the list."""
    boosted = [point for point in comparison.points if point.boosts]
    curves = curves_of(
        boosted,
        lambda point: f"{point.search}, {size_of(point)[0]}s",
        lambda point: (size_of(point)[1], value(point)),
    )
    return "", y_label, curves


def f_percent(point: Point) -> float:
    return 100 * ((point.phrases and point.phrases.f_score) or 0.0)


def main(argv: list[str] | None = None) -> int:
    args = experiments.parse_arguments(__doc__, argv, add_own)
    case = experiments.load_case(args)
    if case.lexicon is None:
        raise SystemExit("phrases are spelt by a lexicon: a case with one, please")
    lists = lists_of(case, args)
    boosts, compile_s = compile_lists(case, lists, args.magnitude)
    print("CPU seconds to compile token phrases:", compile_s)

    def describe(point: Point) -> Row:
        unit, size = size_of(point)
        return {"unit": unit, "size": size, "compile_s": compile_s.get(size)}

    widths = {"beam": [args.beam]}, {"beam_size": [args.beam_size]}
    comparison = Experiment("tools.bench.list_size", case, args).compare(
        experiments.searches_of(case, *widths), boosts, lists[max(lists)], describe
    )
    panels = [
        panel(comparison, "WER %", lambda point: point.wer),
        panel(comparison, "F %", f_percent),
        panel(comparison, "RTFx", lambda point: point.rtfx),
    ]
    experiments.draw(args.plot, panels, "phrases in the list", log_x=True)
    return 0


if __name__ == "__main__":
    exit_with(main)
