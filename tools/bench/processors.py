"""Share of a step that the processors for `generate` of Transformers take.

    python -m tools.bench.processors --output run.json

Scores of Whisper's 51,865 outputs, rows of beams that change places each step, lists
of 0 to 20,000 phrases of two to four words, cut at random, which the rows say; a bigram
model over 20,000 of the tokens. Wall time of a call on one thread, milliseconds: the
median over the steps of a text, of which the median, lowest and highest turn are shown.
`scores.clone()` and `log_softmax` of the same rows tell what a step costs anyway.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import torch

from tools.bench.command import Run, exit_with, make_parser, parse
from tools.bench.report import Row, figure, text_figure
from wfstdec import read_arpa
from wfstdec.adapters.transformers import (
    NgramLogitsProcessor,
    PhraseBoostLogitsProcessor,
)

NUM_TOKENS, EOS = 51_865, 50_257
STEPS, PROMPT = 60, 4
COLUMNS = {
    "what": text_figure("what"),
    "phrases": figure("phrases", ",d"),
    "rows": figure("rows", "d"),
    "ms": figure("ms", ".3f"),
    "lowest turn": figure("lowest", ".3f"),
    "highest turn": figure("highest", ".3f"),
}


class PieceTokenizer:
    """A tokenizer as far as processors ask: words of one to three random tokens."""

    eos_token_id = EOS
    all_special_ids = tuple(range(EOS, 50_364))

    def get_vocab(self) -> dict[str, int]:
        return {f"t{i}": i for i in range(NUM_TOKENS)}

    def get_added_vocab(self) -> dict[str, int]:
        return {f"<|{i}|>": i for i in range(EOS, NUM_TOKENS)}

    def __call__(self, texts: list[str], add_special_tokens: bool = True) -> Any:
        return {"input_ids": [self.cut(text) for text in texts]}

    def cut(self, text: str) -> list[int]:
        """Cut a text: words in their tokens, with a space or another case in others."""
        ids: list[int] = []
        for i, word in enumerate(text.split()):
            key = word if i or text[0] != " " else f" {word}"
            draw = np.random.default_rng([ord(letter) for letter in key])
            ids += draw.integers(EOS, size=draw.integers(1, 4)).tolist()
        return ids


def phrases_of(num: int) -> list[str]:
    """Phrases of two to four words, of a vocabulary of 8,000."""
    draw = np.random.default_rng(num)
    sizes = draw.integers(2, 5, size=num)
    return [" ".join(f"w{i}" for i in draw.integers(8000, size=n)) for n in sizes]


def arpa_of(num: int) -> str:
    """A bigram model over so many of the tokens."""
    draw = np.random.default_rng(0)
    followers = draw.integers(num, size=(num, 3)).tolist()
    pairs = sorted({(i, j) for i, some in enumerate(followers) for j in some})
    lines = [
        "\\data\\",
        f"ngram 1={num + 2}",
        f"ngram 2={len(pairs)}",
        "",
        "\\1-grams:",
    ]
    lines += ["-99\t<s>\t-0.5", "-2\t</s>"]
    lines += [f"-4\tt{i}\t-0.5" for i in range(num)]
    lines += ["", "\\2-grams:", *(f"-1\tt{i} t{j}" for i, j in pairs), "", "\\end\\"]
    return "\n".join(lines) + "\n"


def texts(rows: int, said: list[list[int]]) -> list[np.ndarray]:
    """Rows step by step: beams that change places, half of their tokens of phrases."""
    draw = np.random.default_rng(1)
    ids = np.full((rows, PROMPT), EOS + 1)
    found = [ids]
    left: list[list[int]] = [[] for _ in range(rows)]
    for _ in range(STEPS):
        order = draw.integers(rows, size=rows)
        ids, left = ids[order], [list(left[i]) for i in order]
        for row in range(rows):
            if not left[row]:
                some = said[draw.integers(len(said))] if said else []
                left[row] = list(some) or [int(draw.integers(EOS))]
        ids = np.concatenate([ids, [[one.pop(0)] for one in left]], 1)
        found.append(ids)
    return found


def main(argv: list[str] | None = None) -> int:
    """Time every list with every number of rows."""
    torch.set_num_threads(1)
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[0, 10, 1000, 20_000])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 5, 40])
    args = parse(parser, argv)
    return Run("tools.bench.processors", args).finish(rows_of(args), COLUMNS)


def rows_of(args: argparse.Namespace) -> Iterator[Row]:
    """A row for each list and number of rows, and for what else a step costs."""
    tokenizer = PieceTokenizer()
    for size in args.sizes:
        phrases = phrases_of(size)
        begin = time.process_time()
        boosts = PhraseBoostLogitsProcessor(phrases, tokenizer)
        made_s = time.process_time() - begin
        said = [tokenizer.cut(f" {phrase}") for phrase in phrases]
        more = {"phrases": size, "made_s": made_s}
        yield from measured({"phrases": boosts}, said, args, more)
    arpa = read_arpa(io.BytesIO(arpa_of(20_000).encode()))
    lm = NgramLogitsProcessor(arpa, tokenizer, 0.3, unk_cost=10.0)
    bare = {"clone": lambda ids, scores: scores.clone()}
    bare |= {"log_softmax": lambda ids, scores: scores.log_softmax(-1)}
    yield from measured({"n-grams": lm} | bare, [], args, {})


def measured(
    functions: dict[str, Callable],
    said: list[list[int]],
    args: argparse.Namespace,
    more: Row,
) -> Iterator[Row]:
    """A row of figures for each function and number of rows."""
    for num in args.rows:
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(1, NUM_TOKENS, generator=generator).log_softmax(-1)
        scores = scores.repeat(num, 1)  # as rows of one utterance begin
        steps = [torch.from_numpy(ids) for ids in texts(num, said)]
        turns: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(args.repeats):
            for name, function in functions.items():
                taken = []
                if hasattr(function, "set_begin_index"):
                    function.set_begin_index(PROMPT)
                for ids in steps:
                    begin = time.perf_counter()
                    function(ids, scores)
                    taken.append(1e3 * (time.perf_counter() - begin))
                turns[name].append(median(taken))
        for name, taken in turns.items():
            row = {"what": name, "rows": num, "ms": median(taken)}
            yield more | row | {"lowest": min(taken), "highest": max(taken)}


if __name__ == "__main__":
    exit_with(main)
