"""Cost of boosting: the time of a search with a list over that without one.

    python -m tools.bench.boost --output run.json

Lists of 1 to 20,000 words, of rare pairs of words, and of pairs that are said, by words
and by tokens; 4 nats each, for all utterances. The search alone is timed, by turns;
lists are compiled before. Entries are search states per frame, over those without.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.report import Columns, Row, figure, text_figure
from tools.bench.timing import Turns
from wfstdec import TrieOptions, WfstOptions
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.search.decoder import Decoder
from wfstdec.text.arpa import read_arpa

SIZES = (1, 100, 20_000)
NATS = 4.0
COLUMNS: Columns = {
    "search": text_figure("search"),
    "list": text_figure("list"),
    "time": figure("ratio", ".2f"),
    "entries": figure("entries", ".2f"),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.set_defaults(repeats=3)
    add = parser.add_argument
    add("--case", default="dev:lm_books.3g_pruned", help="set:language model")
    add("--common", type=int, default=5000, help="the likeliest words are not rare")
    add("--seed", type=int, default=1, help="what lists are drawn by; default 1")
    add("--beam", type=float, default=13.0)
    add("--beam-size", type=int, default=256)
    return parse(parser, argv)


def rare_words(case: Case, common: int) -> list[str]:
    """Words of lexicon and language model that are none of the likeliest, sorted."""
    assert case.lexicon is not None
    model = read_arpa(case.arpa)
    unigrams = model.ngrams[0]
    order = unigrams.words[:, 0][np.argsort(unigrams.cost, kind="stable")]
    known = set(case.lexicon.words)
    return sorted(known & {model.words[i] for i in order[common:]})


def texts_of(case: Case, args: argparse.Namespace) -> dict[str, list[str]]:
    """20,000 texts of each kind; shorter lists are the first of them."""
    assert case.lexicon is not None
    rng, most = random.Random(args.seed), max(SIZES)
    rare, words = rare_words(case, args.common), sorted(case.lexicon.words)
    words = list(dict.fromkeys(words))
    rng.shuffle(rare)
    known, said = set(words), []
    for reference in case.speech.references.values():
        pairs = zip(reference, reference[1:], strict=False)
        said += [" ".join(pair) for pair in pairs if set(pair) <= known]
    said = sorted(set(said))
    rng.shuffle(said)
    pairs = [f"{rng.choice(rare)} {rng.choice(words)}" for _ in range(most)]
    return {
        "words": (rare + words)[:most],
        "rare pairs": pairs,
        "pairs that are said": (said[:100] + pairs)[:most],
    }


def boosts_of(case: Case, decoder: Decoder, args: argparse.Namespace) -> dict[str, Any]:
    """Boost lists by name; None boosts nothing."""
    tokens = decoder.phrase_compiler(
        PhraseOptions(weights_are_totals=True), unit="token"
    )
    boosts: dict[str, Any] = {"none": None}
    for kind, texts in texts_of(case, args).items():
        for size in SIZES:
            listed = dict.fromkeys(texts[:size], NATS)
            boosts[f"{size} {kind}"] = listed
            if kind == "pairs that are said":
                boosts[f"{size} {kind}, by tokens"] = tokens.compile(listed)
    return boosts


def search_all(decoder: Decoder, utterances: list[np.ndarray], compiled: list) -> Any:
    """Search every utterance; costs of the results, and the work that was done."""
    costs, work = [], 0
    for logprobs, boosts in zip(utterances, compiled, strict=True):
        search = decoder._backend.start(decoder.options, boosts)
        search.advance(logprobs)
        work += search.counts["active"]
        found = search.finish()
        best = found[0] if isinstance(found, list) else found
        costs.append(best.search_cost)
    return costs, work


def time_lists(
    decoder: Decoder, utterances: list[np.ndarray], boosts: dict[str, Any], repeats: int
) -> Iterator[tuple[str, Row]]:
    """Search with each list by turns: time and work over those of the list "none".

    Raises:
        SystemExit: Turns differ in what they find.
    """
    tasks = {}
    for key, given in boosts.items():
        compiled = decoder._compiled(given, len(utterances))
        tasks[key] = partial(search_all, decoder, utterances, compiled)
    turns = Turns(tasks)
    answers = turns.take()  # kernels are compiled
    for seconds in turns.seconds.values():
        seconds.clear()
    for _ in range(repeats):
        if turns.take() != answers:
            raise SystemExit("two turns have different results")
    for key, seconds in turns.seconds.items():
        pairs = zip(seconds, turns.seconds["none"], strict=True)
        figures: Row = {"ratio": round(statistics.median(a / b for a, b in pairs), 3)}
        figures["entries"] = round(answers[key][1] / answers["none"][1], 3)
        yield key, figures | {"seconds": [round(one, 4) for one in seconds]}


def measure(case: Case, args: argparse.Namespace) -> Iterator[Row]:
    """A row for each search and list."""
    arrays = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale)
    trie_options = TrieOptions(args.beam, args.beam_size, lm_scale=case.lm_scale)
    searches = case.wfst_decoder(options), case.trie_decoder(trie_options)
    for name, decoder in zip(("wfst", "trie"), searches, strict=True):
        boosts = boosts_of(case, decoder, args)
        for key, figures in time_lists(decoder, arrays, boosts, args.repeats):
            yield {"search": name, "list": key, **figures}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    [case] = make_cases([args.case], Inputs.of(args))
    return Run("tools.bench.boost", args).finish(measure(case, args), COLUMNS)


if __name__ == "__main__":
    exit_with(main)
