"""Cost of each kind of language model in the trie decoder: to load, to search.

    python -m tools.bench.language_models --build-binary kenlm/bin/build_binary
    python -m tools.bench.language_models --profile small --build-binary ...

The same n-grams as an ARPA file, a folder of `NgramLM.save`, KenLM binaries (of the
trie format, plain and quantised, and of the probing format, which the `kenlm` module
scores as the search goes), and as a user's own model in Python that looks them up.
Binaries are made by KenLM's `build_binary` and kept under `build/`.

Everyone decodes the same utterances with one thread and one look-ahead; `cold` is the
first pass of a decoder, which asks a model for all that it has not answered yet, `warm`
a later one. Each kind runs in a process of its own, its kernels compiled beforehand.
Those of equal n-grams must give the same texts, and the same costs to 0.01, before
anything is reported.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench import data
from tools.bench.cases import Inputs, load_set
from tools.bench.command import (
    Run,
    exit_with,
    in_own_process,
    make_parser,
    parse,
    profiles,
)
from tools.bench.data import Recipe
from tools.bench.report import Columns, Row, figure, text_figure, word_errors
from tools.bench.timing import Turns
from wfstdec.compare.loading import measure_load
from wfstdec.compare.memory import resident_mb
from wfstdec.errors import FormatError
from wfstdec.lm.loading import build_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.lm.on_demand import LazyLM
from wfstdec.text.files import read_bytes
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.symbols import read_tokens
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions

BINARIES = {
    "trie": ["trie"],
    "quantised trie": ["-q", "8", "-b", "8", "-a", "64", "trie"],
    "probing": ["probing"],
}
KINDS = ("arpa", "folder", *BINARIES, "own model")
LOOKAHEADS = ("ngram", "unigram")
COLUMNS: Columns = {
    "model": text_figure("kind"),
    "look-ahead": text_figure("lookahead"),
    "file MB": figure("file_mb", ".1f"),
    "load s": figure("load_s", ".2f"),
    "load MB": figure("load_mb", ".0f"),
    "cold RTFx": figure("cold_rtfx", ".0f"),
    "warm RTFx": figure("warm_rtfx", ".0f"),
    "asked": figure("asked", ".0f"),
    "kept MB": figure("kept_mb", ".0f"),
    "WER %": figure("wer", ".2f"),
}
PROFILES = profiles(
    {"utterances": 60, "lm": "lm_books.3g_pruned"}, lm="lm", utterances=3
)


class OwnModel:
    """The n-grams asked word by word, in Python, as a user may write it."""

    least_cost = -100.0

    def __init__(self, lm: NgramLM) -> None:
        assert isinstance(lm.labels, tuple)
        self._lm = lm
        self._labels = {word: label for label, word in enumerate(lm.labels)}

    def start(self) -> int:
        """The state behind `<s>`."""
        return self._lm.start

    def empty(self) -> int:
        """The state where nothing was said."""
        return 0

    def score(self, state: int, word: str) -> tuple[float, int]:
        """The cost of a word, and the state behind it."""
        label = self._labels.get(word, self._lm.num_labels)
        return self._lm.step(state, label)

    def score_batch(
        self, states: list[int], words: list[str]
    ) -> list[tuple[float, int]]:
        """Score many words, each after its state."""
        unknown = self._lm.num_labels
        labels = [self._labels.get(word, unknown) for word in words]
        costs, after = self._lm.step_batch(states, labels)
        return list(zip(costs.tolist(), after.tolist(), strict=True))

    def finish(self, state: int) -> float:
        """The cost of `</s>`."""
        return self._lm.final(state)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--build-binary", type=Path, required=True, help="KenLM's program")
    add("--set", default="dev", help="of utterances; default dev")
    add("--lm", help="the n-grams")
    add("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    add("--beam", type=float, default=12.0)
    add("--beam-size", type=int, default=128)
    return parse(parser, argv, PROFILES)


def file_of(kind: str, args: argparse.Namespace) -> Path:
    """The file of a kind; binaries and folders are made where they are not there."""
    found = Inputs.of(args)
    arpa = data.find_lm(args.lm, found.data)
    if kind in ("arpa", "own model"):
        return arpa
    made = args.cache / f"{data.name_of_lm(arpa)}-{data.file_key([arpa])}"
    made.mkdir(parents=True, exist_ok=True)
    path = made / f"{kind.replace(' ', '-')}.bin"
    if kind == "folder":
        path = made / "folder"
        if not path.exists():
            recipe = load_set(args.set, found).recipe
            build_lm(
                arpa,
                tokens=recipe.tokens,
                lexicon=recipe.lexicon,
                separator=recipe.separator,
            ).save(path)
    elif not path.exists():
        plain = made / "lm.arpa"  # KenLM need not know of gzip
        plain.write_bytes(read_bytes(arpa))
        command = [args.build_binary, *BINARIES[kind], plain, path]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise FormatError(
                f"{args.build_binary}: {error}, expected a binary"
            ) from None
    return path


def decoder_of(
    kind: str, path: Path, recipe: Recipe, lookahead: Any, args: argparse.Namespace
) -> TrieDecoder:
    """The decoder with a kind of model, all of it loaded."""
    tokens = read_tokens(recipe.tokens)
    lexicon = read_lexicon(recipe.lexicon, tokens, separator=recipe.separator)
    given: dict[str, Any] = {"lm": path}
    if kind == "own model":
        words = ("<eps>", *dict.fromkeys(lexicon.words))
        given = {"lm": OwnModel(NgramLM.from_arpa(path, words)), "words": words}
    return TrieDecoder(
        tokens=tokens,
        lexicon=lexicon,
        separator=recipe.separator,
        **given,
        options=TrieOptions(
            beam=args.beam,
            beam_size=args.beam_size,
            lm_scale=args.lm_scale,
            lookahead=lookahead,
        ),
        threads=1,
    )


def measure(kind: str, lookahead: str, args: argparse.Namespace) -> Row:
    """Measure one kind in this process: loaded twice, at first to compile kernels."""
    speech = load_set(args.set, Inputs.of(args))
    path, utterances = file_of(kind, args), list(speech.logprobs.values())
    make = partial(decoder_of, kind, path, speech.recipe, lookahead, args)
    make().decode([x[:20] for x in utterances[:2]])
    loaded = measure_load(make)
    decoder, before = loaded.item, resident_mb()
    begin = time.process_time()
    hyps = decoder.decode(utterances)
    cold_s = time.process_time() - begin
    kept = resident_mb() - before
    turns = Turns({"warm": lambda: decoder.decode(utterances)})
    again = turns.take()["warm"]
    turns.repeat(args.repeats - 1)
    warm_s = min(turns.seconds["warm"])
    assert again == hyps, "what was asked before changes a result"
    texts = dict(zip(speech.logprobs, (hyp.text for hyp in hyps), strict=True))
    lazy = isinstance(decoder.lm, LazyLM)
    files = path.glob("*") if path.is_dir() else [path]
    return {
        "kind": kind,
        "lookahead": lookahead,
        "file_mb": round(sum(one.stat().st_size for one in files) / 1e6, 2),
        "load_s": loaded.load_s,
        "load_mb": loaded.load_mb,
        "cold_rtfx": round(speech.audio_s / cold_s, 1),
        "warm_rtfx": round(speech.audio_s / warm_s, 1),
        "asked": decoder.lm.answers().num_pairs if lazy else None,
        "kept_mb": round(kept, 1) if lazy else None,
        "texts": list(texts.values()),
        "costs": [hyp.total_cost for hyp in hyps],
        **word_errors(speech.references, texts),
    }


def check(rows: list[Row]) -> None:
    """Raise unless models of equal n-grams give equal texts and costs."""
    for lookahead in LOOKAHEADS:
        same = [
            row
            for row in rows
            if row["lookahead"] == lookahead and row["kind"] != "quantised trie"
        ]
        for row in same[1:]:
            assert row["texts"] == same[0]["texts"], (row["kind"], same[0]["kind"])
            pairs = zip(row["costs"], same[0]["costs"], strict=True)
            assert all(abs(a - b) < 0.01 for a, b in pairs), row["kind"]


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, rows = Run("tools.bench.language_models", args), []
    os.environ["NUMBA_NUM_THREADS"] = "1"
    for kind in args.kinds:
        listed = kind not in ("probing", "own model")
        for lookahead in LOOKAHEADS if listed else LOOKAHEADS[1:]:
            rows.append(in_own_process(measure, kind, lookahead, args))
            print(f"{kind}, {lookahead}: done", flush=True)
    check(rows)
    for row in rows:
        del row["texts"], row["costs"]
    return run.finish(rows, COLUMNS)


if __name__ == "__main__":
    exit_with(main)
