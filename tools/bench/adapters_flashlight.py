"""torchaudio's calls: `wfstdec.adapters.torchaudio` beside flashlight-text itself.

    pip install -e '.[trie-peers,tools]'
    python -m tools.bench.adapters_flashlight --utterances 100
    python -m tools.bench.adapters_flashlight --profile small            # a smoke test

Both are made of the same files, with torchaudio's defaults but for what a row says, and
called utterance by utterance in one thread; flashlight's results become lists, ours
tensors where torch is there. A set with a lexicon is decoded with the words that the
language model has, of words that are spelt alike only the six that flashlight holds; a
set of pieces without.

The log-probs of the sets are rounded, and of hypotheses with one score flashlight keeps
those that the memory's addresses say, other ones in every process: so a little noise is
added, the same for both.

Answers come first: each best score must be the peer's to 0.001 a hundred frames, and a
text may only differ where both have one score. Where that fails no speed is given, and
the exit status is 1. Then both are timed by turns, in CPU seconds. Making a decoder is
timed apart, with the first utterance, in this process: what numba has to compile is
compiled before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.bench import cases, data
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.data import SpeechSet
from tools.bench.flashlight_calls import Flashlight
from tools.bench.harness import check_and_time, run_cases
from tools.bench.report import Columns, Row, figure, format_table, speed, text_figure
from wfstdec.adapters.torchaudio import ctc_decoder
from wfstdec.compare.peers import name_with_version
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.tokens import read_tokens

CASES = ["dev:lm_books.3g_pruned", "bpe-hard:pieces", "bpe-hard:none"]
NO_LM = "none"
SETTINGS: dict[bool, list[Row]] = {
    True: [
        {},
        {"log_add": True},
        {"beam_size_token": 10, "beam_threshold": 20.0},
        {"beam_size": 500, "nbest": 10},
        {"lm_weight": 1.84, "word_score": -0.5, "unk_score": -8.0, "sil_score": -0.1},
    ],
    False: [
        {},
        {"log_add": True},
        {"beam_size_token": 32, "beam_threshold": 20.0},
        {"beam_size": 200, "beam_size_token": 100, "nbest": 10},
    ],
}
"""Options beside the defaults, with a lexicon and without."""
MOST_ALIKE = 6
PER_100_FRAMES = 1e-3
NOISE = 1e-3
"""Nats, at most: tells apart what rounding made alike."""
COLUMNS: Columns = {
    "setting": lambda row: str(row["setting"] or "defaults"),
    "decoder": text_figure("decoder"),
    "made s": figure("made_s", ".2f"),
    "RTFx": figure("rtfx", ".0f"),
    "median": figure("rtfx_median", ".0f"),
    "times": figure("ratio", ".1f"),
    "same": lambda row: f"{row['same_texts']}/{row['utterances']}",
}
LEGEND = (
    "  made: files to a decoder and its first utterance; times: flashlight's seconds\n"
    "  by ours; same: best texts that are alike, the others have one score"
)
PROFILES = profiles(cases=["dev:lm"], utterances=4)

ScoreCache = list[list[Any]]
"""Hypotheses of each utterance, the best first."""


class AdapterCase(NamedTuple):
    """Speech and arguments that both decoders are made of.

    Attributes:
        name: The set and the language model.
        speech: The utterances.
        arguments: Of `ctc_decoder`.
    """

    name: str
    speech: SpeechSet
    arguments: Row


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help="set:language model, pieces or none")
    add("--slow", type=float, default=60.0, help="CPU s: who takes longer runs twice")
    return parse(parser, argv, PROFILES)


def make_case(name: str, inputs: cases.Inputs, folder: Path) -> AdapterCase:
    """Write the files of a case."""
    wanted, _, lm = name.rpartition(":")
    speech = with_noise(cases.load_set(wanted, inputs))
    tokens = read_tokens(speech.recipe.tokens)
    arguments: Row = {"lexicon": None, "tokens": list(tokens.names), "lm": None}
    arguments["blank_token"] = tokens.names[tokens.blank]
    separator = speech.recipe.separator
    sil = separator or next(n for n in tokens.names if n != arguments["blank_token"])
    arguments["sil_token"] = sil
    if lm == cases.PIECES:
        arguments["lm"] = str(cases.make_case(speech, lm, inputs).arpa)
        arguments["lm_dict"] = str(folder / "tokens.txt")
        Path(arguments["lm_dict"]).write_text("\n".join(tokens.names), "utf-8")
    elif lm != NO_LM:
        arpa = data.find_lm(lm, inputs.data)
        arguments["lm"], arguments["lexicon"] = str(arpa), str(folder / "lexicon.txt")
        write_lexicon(speech, set(read_arpa(arpa).index), arguments["lexicon"])
    return AdapterCase(name, speech, arguments)


def with_noise(speech: SpeechSet) -> SpeechSet:
    """The set with a little noise in its log-probs, float32."""
    rng = np.random.default_rng(0)
    return replace(
        speech,
        logprobs={
            name: (rows + NOISE * rng.random(rows.shape)).astype(np.float32)
            for name, rows in speech.logprobs.items()
        },
    )


def write_lexicon(speech: SpeechSet, known: set[str], path: str) -> None:
    """The words that are known, their spellings ending in the separator if any."""
    recipe = speech.recipe
    tokens = read_tokens(recipe.tokens)
    lexicon = read_lexicon(recipe.lexicon, tokens, separator=recipe.separator)
    alike: dict[tuple[int, ...], set[str]] = {}
    with open(path, "w", encoding="utf-8") as file:
        for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
            words = alike.setdefault(tuple(spelt), set())
            if word in known and word not in words and len(words) < MOST_ALIKE:
                words.add(word)
                names = [tokens.names[token] for token in spelt]
                end = [recipe.separator] if recipe.separator else []
                print(word, *names, *end, file=file)


def ours_of(**arguments: Any) -> Callable[[np.ndarray], list[Any]]:
    """Ours, of an utterance."""
    decoder = ctc_decoder(**arguments)
    return lambda emissions: decoder(emissions[None])[0]


def faults_of(case: AdapterCase, ours: ScoreCache, theirs: ScoreCache) -> list[str]:
    """Where answers are not the same, in lines."""
    faults = []
    frames = {name: len(rows) for name, rows in case.speech.logprobs.items()}
    for (name, count), a, b in zip(frames.items(), ours, theirs, strict=True):
        limit = PER_100_FRAMES * max(1.0, count / 100)
        if len(a) != len(b):
            faults.append(f"  {name}: {len(a)} hypotheses, theirs {len(b)}")
        elif any(abs(x.score - y.score) > limit for x, y in zip(a, b, strict=True)):
            faults.append(f"  {name}: {a[0].score:.6f}, theirs {b[0].score:.6f}")
    return faults


def text_of(case: AdapterCase, hypothesis: Any) -> list[Any]:
    """Words; without a lexicon tokens."""
    if case.arguments["lexicon"] is not None:
        return hypothesis.words
    return [int(token) for token in hypothesis.tokens]


def run_case(
    args: argparse.Namespace, case: AdapterCase
) -> tuple[list[Row], list[str]]:
    """Rows of both at all settings, and what is wrong."""
    hours = case.speech.audio_s / 3600
    print(f"\n{case.name}: {len(case.speech.logprobs)} utterances, {hours:.3f} h")
    rows: list[Row] = []
    faults: list[str] = []
    for options in SETTINGS[case.arguments["lexicon"] is not None]:
        found, wrong = run_setting(case, options, args)
        rows, faults = rows + found, faults + wrong
    print(format_table(COLUMNS, rows), flush=True)
    return rows, faults


def run_setting(
    case: AdapterCase, options: Row, args: argparse.Namespace
) -> tuple[list[Row], list[str]]:
    """Rows of both, none where answers differ; and what is wrong."""
    utterances = list(case.speech.logprobs.values())
    runs: dict[str, Callable[[], ScoreCache]] = {}
    made_s: dict[str, float] = {}
    for name, make in (("wfstdec", ours_of), ("flashlight", Flashlight)):
        begin = time.process_time()
        decode = make(**case.arguments, **options)
        decode(utterances[0])
        made_s[name] = round(time.process_time() - begin, 3)
        runs[name] = lambda one=decode: list(map(one, utterances))
    timed = check_and_time(
        runs,
        lambda answers: faults_of(case, *answers.values()),
        args,
    )
    if timed.faults:
        return [], timed.faults
    pairs = zip(*timed.answers.values(), strict=True)
    same = sum(text_of(case, a[0]) == text_of(case, b[0]) for a, b in pairs)
    least = [min(seconds) for seconds in timed.seconds.values()]
    rows = [
        {
            "case": case.name,
            "setting": options,
            "decoder": "wfstdec" if name == "wfstdec" else PEER,
            "utterances": len(utterances),
            "audio_s": round(case.speech.audio_s, 2),
            "same_texts": same,
            "ratio": round(least[1] / least[0], 2) if name == "wfstdec" else None,
            "made_s": seconds,
            **speed(case.speech.audio_s, timed.seconds[name]),
        }
        for name, seconds in made_s.items()
    ]
    return rows, []


PEER = name_with_version("flashlight-text")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, inputs = Run("tools.bench.adapters_flashlight", args), cases.Inputs.of(args)
    # numba compiles, or loads, what it needs.
    ours_of(lexicon=None, tokens=["-", "|"])(np.zeros((2, 2), np.float32))
    with tempfile.TemporaryDirectory() as folder:
        made = (make_case(name, inputs, Path(folder)) for name in args.cases)
        return run_cases(run, made, partial(run_case, args), lambda _: ([LEGEND], {}))


if __name__ == "__main__":
    exit_with(main)
