"""Times language model and phrase boost queries on one thread; checks answers first.

python tools/bench_lm.py                   # the demo's model, its lexicon and text
python tools/bench_lm.py --phrases 5000 --queries 1000000
"""

import argparse
import functools
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

from wfstdec.boost.phrases import PhraseCompiler
from wfstdec.boost.spelling import by_lexicon, by_words
from wfstdec.lm import reference
from wfstdec.lm.automaton import BackoffModel
from wfstdec.lm.ngram import NgramLM, load_lm
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.symbols import EPSILON_WORD, read_tokens
from wfstdec.text.vocabulary import word_ids

DEMO = Path(__file__).parents[1] / "graphs/librispeech_demo"


def timed(function, repeats=3):
    """The least seconds of some calls, and what the last one gave."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def check(model: BackoffModel, states, labels) -> None:
    """Compare some queries with the reference, bit for bit."""
    costs, nextstates = model.step_batch(states, labels)
    for i in range(0, len(states), len(states) // 200):
        expected = reference.step(model.automaton, 0, int(states[i]), int(labels[i]))
        assert (costs[i], nextstates[i]) == expected, i


def walk(model: BackoffModel, labels):
    """The states before each label of a text."""
    states, state = [], model.start
    for label in labels:
        states.append(state)
        _, state = model.step(state, label)
    return np.array(states, np.int32)


def report_queries(name, model, states, labels):
    check(model, states, labels)
    seconds, _ = timed(lambda: model.step_batch(states, labels))
    print(f"{name}: {len(states) / seconds / 1e6:.1f} million steps/s")


def bench_queries(name, model, text, queries):
    """Steps along a text, and from random states with random labels."""
    rng = np.random.default_rng(0)
    copies = queries // len(text) + 1
    labels = np.tile(np.array(text, np.int32), copies)
    report_queries(f"{name}, a text", model, np.tile(walk(model, text), copies), labels)
    states = rng.integers(0, model.num_states, queries, dtype=np.int32)
    labels = rng.integers(1, model.num_labels, queries, dtype=np.int32)
    report_queries(f"{name}, at random", model, states, labels)


def bench_rows(name, model, count=200):
    """Rows of random states."""
    rng = np.random.default_rng(0)
    states = rng.integers(0, model.num_states, count, dtype=np.int32)
    costs, _ = model.row_batch(states[:1])
    expected, _ = model.step_batch(
        np.full(model.num_labels, states[0]), np.arange(model.num_labels)
    )
    assert np.array_equal(costs[0], expected)
    seconds, _ = timed(lambda: model.row_batch(states))
    labels = count * model.num_labels
    print(
        f"{name}: a row of {model.num_labels} labels {seconds / count * 1e6:.0f} us, "
        f"{labels / seconds / 1e6:.0f} million labels/s"
    )


def random_phrases(words, count):
    """Phrases of one to four words."""
    rng = np.random.default_rng(0)
    return list(
        dict.fromkeys(
            " ".join(words[i] for i in rng.integers(0, len(words), rng.integers(1, 5)))
            for _ in range(count)
        )
    )


def bench_phrases(kind, make_compiler, phrases, text, queries):
    """Compile, again from memory, and query."""
    make_compiler().compile(phrases[:10])  # compiles the kernels
    spelling_s, _ = timed(lambda: make_compiler().speller(phrases))
    compile_s, boosts = timed(lambda: make_compiler().compile(phrases))
    compiler = make_compiler()
    compiler.compile(phrases)
    again_s, _ = timed(lambda: compiler.compile(phrases))
    print(
        f"{len(phrases)} phrases as {kind}s: {compile_s:.3f} s (spelling "
        f"{spelling_s:.3f}), again {again_s:.4f} s; {boosts.num_states} states, "
        f"{boosts.num_arcs} arcs, {boosts.num_bytes / 1e6:.1f} MB"
    )
    bench_queries(f"{kind} phrases", boosts, text, queries)


def bench_boosts(said, ids, args):
    """Random phrases of words of the lexicon, as words and as tokens."""
    tokens = read_tokens(DEMO / "tokens.txt")
    space = tokens.index("<wb>")
    lexicon = read_lexicon(DEMO / "lexicon.txt.gz", tokens, separator=space)
    table = (EPSILON_WORD, *ids)
    text = [ids.get(word, len(table)) for word in said]
    phrases = random_phrases(sorted(set(lexicon.words) & ids.keys()), args.phrases)
    by_word = functools.partial(PhraseCompiler, by_words(ids), table)
    bench_phrases("word", by_word, phrases, text, args.queries)
    speller = by_lexicon(lexicon, separator=space)
    by_token = functools.partial(PhraseCompiler, speller, tokens, boundary=space)
    first = dict(
        zip(reversed(lexicon.words), reversed(lexicon.pronunciations), strict=True)
    )
    text = [token for word in said for token in (*first.get(word, ()), space)]
    bench_phrases("token", by_token, phrases, text, args.queries)


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phrases", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=2_000_000)
    parser.add_argument("--lm", default=str(DEMO / "lm.arpa.gz"))
    parser.add_argument("--save", metavar="FOLDER", help="save the model and map it")
    args = parser.parse_args()
    warnings.simplefilter("ignore")

    model = read_arpa(args.lm)
    words = [word for word in model.words if not word.startswith("<")]
    table = (EPSILON_WORD, *words)
    ids = word_ids(table)
    lines = (DEMO / "refs.txt").read_text("utf-8").splitlines()
    said = [word for line in lines for word in line.split()[1:]]

    NgramLM.from_arpa(model, table)  # compiles
    seconds, lm = timed(lambda: NgramLM.from_arpa(model, table))
    print(
        f"language model from arrays: {seconds:.3f} s; {lm.num_states} states, "
        f"{lm.num_arcs} arcs, {lm.num_bytes / 1e6:.1f} MB"
    )
    if args.save:
        lm.save(args.save)
        seconds, lm = timed(lambda: load_lm(args.save))
        print(f"mapped from a folder and checked: {seconds * 1e3:.1f} ms")
    text = [ids.get(word, len(table)) for word in said]
    bench_queries("language model", lm, text, args.queries)
    bench_rows("language model", lm)
    bench_boosts(said, ids, args)


if __name__ == "__main__":
    main()
