"""Language model and phrase boost queries on one thread; answers are checked first.

python -m tools.bench.lm                   # the demo's model, its lexicon and text
python -m tools.bench.lm --phrases 5000 --queries 1000000
python -m tools.bench.lm --output run.json
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tools.bench.command import Run, bare_parser, exit_with
from tools.bench.data import RECIPE
from tools.bench.report import Row
from tools.bench.timing import fastest
from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.spelling import by_lexicon, by_words
from wfstdec.io.text import read_text
from wfstdec.lm import reference
from wfstdec.lm.automaton import BackoffModel
from wfstdec.lm.ngram import NgramLM, load_lm
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.symbols import EPSILON_WORD, read_tokens

ROWS = 200
"""Rows that are asked for, and queries that are compared with the reference."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--phrases", type=int, default=20_000)
    add("--queries", type=int, default=2_000_000)
    add("--lm", type=Path, default=RECIPE / "lm.arpa.gz")
    add("--output", type=Path, help="write all figures as JSON")
    return parser.parse_args(argv)


def size_of(model: BackoffModel) -> Row:
    return {
        "states": model.num_states,
        "arcs": model.num_arcs,
        "mb": round(model.num_bytes / 1e6, 1),
    }


def check_steps(model: BackoffModel, states: np.ndarray, labels: np.ndarray) -> None:
    """Compare some queries with the reference, bit for bit."""
    costs, nextstates = model.step_batch(states, labels)
    for i in range(0, len(states), len(states) // ROWS):
        expected = reference.step(model.automaton, 0, int(states[i]), int(labels[i]))
        assert (costs[i], nextstates[i]) == expected, i


def walk(model: BackoffModel, labels: Sequence[int]) -> np.ndarray:
    """The states before each label of a text."""
    states, state = [], model.start
    for label in labels:
        states.append(state)
        _, state = model.step(state, label)
    return np.array(states, np.int32)


def time_steps(model: BackoffModel, text: Sequence[int], queries: int) -> Row:
    """Steps along a text, and from random states with random labels."""
    rng, copies = np.random.default_rng(0), queries // len(text) + 1
    labels = np.tile(np.array(text, np.int32), copies)
    at_random = (
        rng.integers(0, model.num_states, queries, dtype=np.int32),
        rng.integers(1, model.num_labels, queries, dtype=np.int32),
    )
    along = np.tile(walk(model, text), copies), labels
    figures = {}
    for name, asked in ("text", along), ("random", at_random):
        check_steps(model, *asked)
        seconds, _ = fastest(partial(model.step_batch, *asked))
        million = len(asked[0]) / seconds / 1e6
        figures[f"million_steps_per_s_{name}"] = round(million, 1)
    return figures


def time_rows(model: BackoffModel) -> Row:
    """Rows of random states, of which one is compared with steps."""
    states = np.random.default_rng(0).integers(0, model.num_states, ROWS, np.int32)
    costs, _ = model.row_batch(states[:1])
    every = np.full(model.num_labels, states[0]), np.arange(model.num_labels)
    assert np.array_equal(costs[0], model.step_batch(*every)[0])
    seconds, _ = fastest(partial(model.row_batch, states))
    return {"labels": model.num_labels, "us_per_row": round(seconds / ROWS * 1e6, 1)}


def random_phrases(words: Sequence[str], count: int) -> list[str]:
    """Phrases of one to four words."""
    rng = np.random.default_rng(0)
    made = (
        " ".join(words[i] for i in rng.integers(0, len(words), rng.integers(1, 5)))
        for _ in range(count)
    )
    return list(dict.fromkeys(made))


def time_phrases(
    make: Callable[[], PhraseCompiler],
    phrases: Sequence[str],
    text: Sequence[int],
    queries: int,
) -> Row:
    """Compile, again from memory, and query."""
    make().compile(phrases[:10])  # compiles the kernels
    spelling_s, _ = fastest(lambda: make().speller(phrases))
    compile_s, boosts = fastest(lambda: make().compile(phrases))
    compiler = make()
    compiler.compile(phrases)
    again_s, _ = fastest(lambda: compiler.compile(phrases))
    return {
        "phrases": len(phrases),
        "spelling_s": round(spelling_s, 3),
        "compile_s": round(compile_s, 3),
        "again_s": round(again_s, 4),
        **size_of(boosts),
        **time_steps(boosts, text, queries),
    }


def phrase_rows(said: list[str], ids: dict[str, int], args: argparse.Namespace) -> dict:
    """Random phrases of words of the lexicon, as words and as tokens."""
    tokens = read_tokens(RECIPE / "tokens.txt")
    space = tokens.index("<wb>")
    lexicon = read_lexicon(RECIPE / "lexicon.txt.gz", tokens, separator=space)
    phrases = random_phrases(sorted(set(lexicon.words) & ids.keys()), args.phrases)
    table = (EPSILON_WORD, *ids)
    by_word = partial(PhraseCompiler, by_words(ids), table)
    words = [ids.get(word, len(table)) for word in said]
    speller = by_lexicon(lexicon, separator=space)
    by_token = partial(PhraseCompiler, speller, tokens, boundary=space)
    pairs = zip(reversed(lexicon.words), reversed(lexicon.pronunciations), strict=True)
    first = dict(pairs)
    spelt = [token for word in said for token in (*first.get(word, ()), space)]
    return {
        "phrases as words": time_phrases(by_word, phrases, words, args.queries),
        "phrases as tokens": time_phrases(by_token, phrases, spelt, args.queries),
    }


def model_rows(said: list[str], words: list[str], args: argparse.Namespace) -> dict:
    """The language model: made of arrays, mapped from a folder, asked."""
    arpa, table = read_arpa(args.lm), (EPSILON_WORD, *words)
    NgramLM.from_arpa(arpa, table)  # compiles
    seconds, lm = fastest(lambda: NgramLM.from_arpa(arpa, table))
    row = {"build_s": round(seconds, 3), **size_of(lm)}
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "lm"
        lm.save(saved)
        seconds, _ = fastest(lambda: load_lm(saved))
    row["map_s"] = round(seconds, 4)
    ids = {word: i for i, word in enumerate(table) if i}
    text = [ids.get(word, len(table)) for word in said]
    row |= time_steps(lm, text, args.queries) | time_rows(lm)
    return {"language model": row}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run = Run("tools.bench.lm", args)
    warnings.simplefilter("ignore")
    references = read_text(RECIPE / "refs.txt").values()
    said = [word for words in references for word in words]
    words = [word for word in read_arpa(args.lm).words if not word.startswith("<")]
    ids = {word: i for i, word in enumerate(words, start=1)}
    named = model_rows(said, words, args) | phrase_rows(said, ids, args)
    return run.finish({"of": name} | row for name, row in named.items())


if __name__ == "__main__":
    exit_with(main)
