"""pyctcdecode's calls: `wfstdec.adapters.pyctcdecode` beside pyctcdecode 0.5.0 itself.

    pip install -e '.[peers,tools]' && pip install --no-deps pyctcdecode==0.5.0 pygtrie
    python -m tools.bench.adapters_pyctcdecode --utterances 60
    python -m tools.bench.adapters_pyctcdecode --profile small           # a smoke test

Both are made of the same labels, ARPA file and words, with pyctcdecode's defaults, and
called utterance by utterance in one thread, on float32 log-probs. In the set of phones
(`dev`, real speech) each is a letter: words are what their phones spell, one of those
that are spelled alike.

Answers come first: with `faithful=True` ours must give the texts of the peer, or texts
whose scores are the same to 0.001; where that fails no speed is given, and the exit
status is 1. What is timed, by turns and in CPU seconds, is ours as it is by default,
whose texts differ by the defects that docs/pyctcdecode.md names. Making a decoder and
its first utterance are timed apart, in this process; so is what comes before them:
loading kernels, or compiling them where nobody has yet.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.bench import data
from tools.bench.cases import Inputs, load_set
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.data import SpeechSet
from tools.bench.harness import check_and_time, run_cases
from tools.bench.report import (
    Columns,
    Row,
    figure,
    format_table,
    text_figure,
    word_errors,
)
from wfstdec.adapters.pyctcdecode import build_ctcdecoder
from wfstdec.compare.peers import import_peer, name_with_version
from wfstdec.text.files import read_lines
from wfstdec.text.tokens import read_tokens

NO_LM = "none"
CASES = [
    f"{name}:{lm}"
    for name in ("dev", "chars-mid", "bpe-mild", "bpe-hard")
    for lm in ("lm_books.3g_pruned", NO_LM)
]
CALLS = ["decode", "decode_beams"]
NUM_HOTWORDS = 20
SAME_SCORE = 1e-3
BESIDE = ("pyctcdecode", "pygtrie", "kenlm")
COLUMNS: Columns = {
    "case": text_figure("case"),
    "call": text_figure("call"),
    "hot": lambda row: str(row["hotwords"]),
    "peer ms": figure("peer_ms", ".2f"),
    "ours ms": figure("ours_ms", ".3f"),
    "ratio": figure("ratio", ".1f"),
    "same": lambda row: f"{row['same']}/{row['utterances']}",
    "by default": lambda row: str(row["same_by_default"]),
    "WER %": figure("peer_wer", ".2f"),
    "ours": figure("wer", ".2f"),
    "made s": figure("peer_made_s", ".2f"),
    "ours s": figure("made_s", ".2f"),
    "first ms": figure("peer_first_ms", ".1f"),
    "ours first": figure("first_ms", ".1f"),
}
LEGEND = """\
  ms: the fastest turn, per utterance; same: texts, and by default; made, first: making
  a decoder and its first utterance"""
PROFILES = profiles(cases=["dev:lm", "dev:none"], utterances=4)


class Made(NamedTuple):
    """Speech and arguments that both decoders are made of, and given."""

    name: str
    speech: SpeechSet
    utterances: list[np.ndarray]
    labels: list[str]
    arpa: str | None
    words: list[str] | None
    hotwords: list[str]


class Decoders(NamedTuple):
    """The three of a case."""

    peer: Any
    faithful: Any
    ours: Any


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help=f"set:language model, or {NO_LM}")
    add("--calls", nargs="+", default=CALLS, choices=CALLS, help="what is called")
    add("--slow", type=float, default=5.0, help="CPU s: who takes longer runs twice")
    return parse(parser, argv, PROFILES)


def make_case(name: str, inputs: Inputs) -> Made:
    """Load a set, and write its language model for pyctcdecode where need be."""
    wanted, _, lm = name.rpartition(":")
    speech = load_set(wanted, inputs)
    recipe, tokens = speech.recipe, read_tokens(speech.recipe.tokens)
    labels = list(tokens.names)
    labels[tokens.blank] = ""
    utterances = [x.astype(np.float32) for x in speech.logprobs.values()]
    spelled = None
    if recipe.separator is not None:
        labels[tokens.index(recipe.separator, "separator")] = " "
        spelled = spelled_words(recipe.lexicon, labels, recipe.separator)
    said = sorted({word for words in speech.references.values() for word in words})
    hotwords = said[:: max(1, len(said) // NUM_HOTWORDS)][:NUM_HOTWORDS]
    if spelled is not None:
        hotwords = [spelled[word] for word in hotwords if word in spelled]
    arpa, words = None, None
    if lm != NO_LM:
        path = data.find_lm(lm, inputs.data)
        if spelled is None:
            arpa = str(path)
            lines = recipe.lexicon.read_text("utf-8").splitlines()
            words = sorted({line.split()[0] for line in lines if line.strip()})
        else:
            arpa = str(inputs.cache / f"spelled-{data.name_of_lm(path)}.arpa")
            inputs.cache.mkdir(parents=True, exist_ok=True)
            words = spelled_arpa(path, spelled, Path(arpa))
    return Made(name, speech, utterances, labels, arpa, words, hotwords)


def timed(call: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, float]:
    """Call a function: what it returns, and its CPU seconds."""
    begin = time.process_time()
    return call(*given, **options), time.process_time() - begin


def warm_up() -> None:
    """Load what numba compiled, or compile it."""
    decoder = build_ctcdecoder(["", " ", "a"])
    decoder.decode(np.zeros((2, 3), np.float32), hotwords=["a"])


def make_decoders(case: Made) -> tuple[Decoders, Row]:
    """Both, ours twice; the seconds that two of them and first utterances took."""
    peer_package = import_peer("pyctcdecode", "pip install --no-deps pyctcdecode")
    given = (case.labels, case.arpa, case.words)
    peer, peer_s = timed(peer_package.build_ctcdecoder, *given)
    ours, ours_s = timed(build_ctcdecoder, *given, threads=1)
    faithful = build_ctcdecoder(*given, threads=1, faithful=True)
    first = case.utterances[0]
    return Decoders(peer, faithful, ours), {
        "peer_made_s": peer_s,
        "made_s": ours_s,
        "peer_first_ms": 1000 * timed(peer.decode, first)[1],
        "first_ms": 1000 * timed(ours.decode, first)[1],
    }


def run_case(args: argparse.Namespace, case: Made) -> tuple[list[Row], list[str]]:
    """A row of each call with and without hotwords; and what is wrong."""
    rows: list[Row] = []
    faults: list[str] = []
    decoders, made = make_decoders(case)
    for call in args.calls:
        for hotwords in ([], case.hotwords):
            row = {"case": case.name, "call": call, "hotwords": len(hotwords)}
            options = {"hotwords": hotwords} if hotwords else {}
            found, wrong = compare(case, decoders, call, options, args)
            rows, faults = [*rows, row | made | found], faults + wrong
            print(format_table(COLUMNS, rows[-1:]).splitlines()[-1], flush=True)
    return rows, faults


def compare(
    case: Made, decoders: Decoders, call: str, options: Row, args: argparse.Namespace
) -> tuple[Row, list[str]]:
    """Check the answers, then time; the figures, and what is wrong."""

    def all_of(decoder: Any) -> Callable[[], list[Any]]:
        one = partial(getattr(decoder, call), **options)
        return lambda: [one(x) for x in case.utterances]

    row: Row = {}

    def check_texts(answers: Mapping[str, Any]) -> list[str]:
        found = {**answers, "faithful": all_of(decoders.faithful)()}
        texts = {name: list(map(text_of, one)) for name, one in found.items()}
        told, faults = check(case, decoders, texts, options)
        row.update(told)
        return faults

    runs = {"peer": all_of(decoders.peer), "ours": all_of(decoders.ours)}
    found = check_and_time(runs, check_texts, args)
    if found.faults:
        return row, found.faults
    count, seconds = len(case.utterances), found.seconds
    row |= {
        "cpu_s": [round(one, 6) for one in seconds["ours"]],
        "peer_cpu_s": [round(one, 6) for one in seconds["peer"]],
        "ours_ms": 1000 * min(seconds["ours"]) / count,
        "peer_ms": 1000 * min(seconds["peer"]) / count,
        "ratio": min(seconds["peer"]) / min(seconds["ours"]),
    }
    return row, []


def check(
    case: Made, decoders: Decoders, texts: dict[str, list[str]], options: Row
) -> tuple[Row, list[str]]:
    """Compare texts and word error rates; what is wrong, in lines."""
    names, faults = list(case.speech.logprobs), []
    pairs = list(zip(texts["peer"], texts["faithful"], strict=True))
    for name, x, (theirs, ours) in zip(names, case.utterances, pairs, strict=True):
        if theirs != ours:
            one, two = (
                decoder.decode_beams(x, **options)[0][4]
                for decoder in (decoders.peer, decoders.faithful)
            )
            if abs(one - two) > SAME_SCORE:
                faults.append(f"  {name}: {ours!r} {two}, theirs {theirs!r} {one}")
    same = sum(theirs == ours for theirs, ours in pairs)
    row: Row = {"utterances": len(names), "same": same}
    by_default = zip(texts["peer"], texts["ours"], strict=True)
    row["same_by_default"] = sum(one == two for one, two in by_default)
    if case.speech.recipe.separator is None:
        for name, key in (("peer", "peer_wer"), ("ours", "wer")):
            found = dict(zip(names, texts[name], strict=True))
            row[key] = word_errors(case.speech.references, found)["wer"]
    return row, faults


def text_of(answer: Any) -> str:
    """The best text of what a call gave."""
    return answer if isinstance(answer, str) else answer[0][0]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    logging.getLogger("pyctcdecode").setLevel(logging.ERROR)
    logging.getLogger("wfstdec").setLevel(logging.ERROR)
    run, inputs = Run("tools.bench.adapters_pyctcdecode", args), Inputs.of(args)
    _, loaded_s = timed(warm_up)
    made = (make_case(name, inputs) for name in args.cases)

    def report(rows: list[Row]) -> tuple[list[str], Row]:
        beside = [name_with_version(package) for package in BESIDE]
        more = {"beside": beside, "kernels_loaded_s": loaded_s}
        return [format_table(COLUMNS, rows), LEGEND], more

    return run_cases(run, made, partial(run_case, args), report)


# --------------------------------------- words as their phones spell them
def spelled_words(
    lexicon: Path, labels: list[str], separator: str | None
) -> dict[str, str]:
    """Spell words by their first pronunciation, where labels can."""
    known, found = set(labels), dict[str, str]()
    for line in read_lines(lexicon):
        word, *said = line.split()
        said = [token for token in said if token != separator]
        if said and word not in found and known.issuperset(said):
            found[word] = "".join(said)
    return found


def spelled_arpa(arpa: Path, spelled: dict[str, str], out: Path) -> list[str]:
    """Write a model with its words as they are spelled; the words that it has then.

    Of words that are spelled alike the likeliest stays; n-grams with others are left
    out, as are words that nothing spells.
    """
    sections = _sections(arpa)
    likeliest: dict[str, tuple[float, str]] = {}
    for fields in sections[0]:
        text = spelled.get(fields[1])
        if text is not None:
            likeliest[text] = max(
                likeliest.get(text, (-1e9, "")), (float(fields[0]), fields[1])
            )
    names = {word: text for text, (_, word) in likeliest.items()}
    names |= {mark: mark for mark in ("<s>", "</s>", "<unk>")}
    kept = [
        [
            [cost, " ".join(names[word] for word in words.split()), *rest]
            for cost, words, *rest in section
            if all(word in names for word in words.split())
        ]
        for section in sections
    ]
    data.write_arpa(out, kept)
    return sorted(likeliest)


def _sections(arpa: Path) -> list[list[list[str]]]:
    """The fields of each line, order by order."""
    sections: list[list[list[str]]] = []
    for line in read_lines(arpa):
        if line.startswith("\\"):
            if line.endswith("-grams:"):
                sections.append([])
        elif sections and line.strip():
            sections[-1].append(_fields(line, len(sections)))
    return sections


def _fields(line: str, order: int) -> list[str]:
    """Log-prob, words with spaces between them, a back-off weight if there is one."""
    cost, *rest = line.split()
    return [cost, " ".join(rest[:order]), *rest[order:]]


if __name__ == "__main__":
    exit_with(main)
