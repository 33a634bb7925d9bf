"""Our trie beam decoder against our WFST decoder and against other people's decoders.

    pip install -e '.[peers,beam-peers,tools]'
    pip install --no-deps pyctcdecode==0.5.0 nemo-toolkit==3.0.0
    pip install pygtrie torch
    python tools/bench_beam.py                                       # takes very long
    python tools/bench_beam.py --utterances 100 --cases dev:lm_books.3g_pruned
    python tools/bench_beam.py --cases bpe-hard:pieces --peers flashlight nemo
    python tools/bench_beam.py --profile small                       # a smoke test

Everyone gets the same float32 log-probs, lexicon, language model and scale, and one
thread. Who is not installed does not take part.

Answers come first. On the beginnings of a few utterances the CPU backend and the
reference must agree bit for bit; the totals of all hypotheses must be those of their
alignments and sentences, counted by another route; no text may cost more by its best
alignment than the search found. Where any of that fails no speed is given, and the exit
status is 1. Then all are timed by turns, in CPU seconds from log-probs to words (ours
with times). The ratios are those of the targets: for each point of a peer, the fastest
of our points whose word error rate is no higher.
"""

from __future__ import annotations

import os

for _name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"  # before NumPy reads it

# ruff: noqa: E402
import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import beam_check
import beam_report
import bench_data
from beam_cases import Case, Inputs, make_cases
from beam_contestants import PEER_NAMES, TRIE, Answer, Contestant, contestants
from bench_report import Row, format_table

from wfstdec.compare.peers.installed import name_with_version
from wfstdec.errors import WfstdecError
from wfstdec.metrics import score_texts
from wfstdec.text.atomic import atomic_write

WARM_UP = 2
"""Utterances that everyone decodes before the first turn."""
CASES = [
    *("dev:lm_books.3g_pruned", "dev:lm_books.3g"),
    *("bpe-mild:lm_books.3g_pruned", "bpe-hard:lm_books.3g_pruned"),
    *("chars-mid:lm_books.3g_pruned", "bpe-mild:pieces", "bpe-hard:pieces"),
]
CHECKED = (
    {"beam": 8.0, "beam_size": 16},
    {"beam": 8.0, "beam_size": 16, "merge": "sum"},
    {"beam": 12.0, "beam_size": 64, "token_top_k": 8},
)
"""Settings at which the backends are compared."""
BESIDE = ("torch", "kenlm", "kaldingram", "sentencepiece")
"""Packages that peers or cases depend on; the peers' versions are in their rows."""
PROFILES: dict[str, Row] = {
    "full": {},
    "small": {
        "data": bench_data.RECIPE,
        "cases": ["dev:lm"],
        "utterances": 6,
        "peers": ["flashlight"],
        "repeats": 1,
    },
}
"""Other defaults, by name."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--profile", choices=PROFILES, default="full", help="other defaults")
    add("--cases", nargs="+", default=CASES, help="set:language model, see beam_cases")
    add("--peers", nargs="*", choices=PEER_NAMES, default=list(PEER_NAMES))
    add("--utterances", type=int, help="so many of each set, evenly spread")
    add("--lm-scale", type=float, default=0.8, help="of word language models")
    add("--token-lm-scale", type=float, default=0.3, help="of those over pieces")
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--slow", type=float, default=60.0, help="CPU s: who takes longer runs twice")
    add("--data", type=Path, help="default ../shared/data, else the demo's recipe")
    add("--cache", type=Path, default=bench_data.CACHE, help="for graphs and models")
    add("--synthetic", type=Path, help="where sets are made; default in the cache")
    add("--output", type=Path, help="write all figures as JSON")
    profile = parser.parse_known_args(argv)[0].profile
    parser.set_defaults(**PROFILES[profile])
    args = parser.parse_args(argv)
    if args.repeats < 1 or (args.utterances is not None and args.utterances < 1):
        parser.error("--repeats and --utterances must be 1 or more")
    return args


def run_case(case: Case, args: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """Check the answers of all, then time them; rows, and what is wrong."""
    print(headline(case), flush=True)
    faults = beam_check.compare_backends(case, CHECKED)
    everyone = contestants(case, args.peers)
    for one in everyone:
        one.run(case.utterances[:WARM_UP])
    seconds: dict[str, list[float]] = {one.name: [] for one in everyone}
    answers = {}
    for one in everyone:
        answers[one.name] = timed(one, case, seconds[one.name])
    sentences = {
        beam_check.sentence_of(case, answer.hypothesis)
        if answer.hypothesis and case.lexicon is None
        else tuple(answer.text.split())
        for found in answers.values()
        for answer in found
    }
    costs = beam_check.TextCosts(case, sentences)
    for one in everyone:
        if one.decoder == TRIE:
            faults += check_answers(case, costs, one, answers[one.name])
    rows = [row_of(case, one, answers[one.name]) for one in everyone]
    if case.lexicon is not None:
        add_gaps(case, costs, rows, [answers[one.name] for one in everyone])
    if faults:
        print("\n".join(["  ANSWERS ARE WRONG, no speed is given", *faults[:10]]))
        return rows, faults
    take_turns(case, everyone, seconds, args)
    for row, one in zip(rows, everyone, strict=True):
        row |= speed_of(case, seconds[one.name])
    print(format_table(beam_report.COLUMNS, rows), flush=True)
    return rows, []


def headline(case: Case) -> str:
    speech = case.speech
    known = len(known_utterances(case))
    words = f"; {known} with known words alone" if case.lexicon is not None else ""
    note = f" ({speech.note})" if speech.note else ""
    return (
        f"\n{case.name}{note}: {len(speech.logprobs)} utterances{words}, "
        f"{speech.seconds / 3600:.3f} h, lm_scale {case.lm_scale}"
    )


def timed(one: Contestant, case: Case, seconds: list[float]) -> list[Answer]:
    """Decode everything once; the CPU seconds go to the list."""
    gc.collect()
    begin = time.process_time()
    answers = one.run(case.utterances)
    seconds.append(time.process_time() - begin)
    return answers


def take_turns(
    case: Case,
    everyone: Sequence[Contestant],
    seconds: dict[str, list[float]],
    args: argparse.Namespace,
) -> None:
    """The other turns, in changing order; who is slow takes part in one of them."""
    order = list(everyone)
    for turn in range(1, args.repeats):
        order.reverse()
        for one in order:
            if turn == 1 or seconds[one.name][0] <= args.slow:
                timed(one, case, seconds[one.name])


def check_answers(
    case: Case,
    costs: beam_check.TextCosts,
    one: Contestant,
    answers: Sequence[Answer],
) -> list[str]:
    """What is wrong with the costs of ours, in lines."""
    names = list(case.speech.logprobs)
    hypotheses = {
        name: answer.hypothesis
        for name, answer in zip(names, answers, strict=True)
        if answer.hypothesis is not None
    }
    best = one.setting.get("merge", "max") == "max"
    faults = beam_check.check_hypotheses(case, costs, hypotheses, best=best)
    if case.lexicon is not None and best:
        for name, found in hypotheses.items():
            least, limit = costs.cost(name, found.text), abs(found.total_cost)
            if found.reached_final and least - found.total_cost > 1e-5 * limit:
                faults.append(f"{name}: {found.total_cost:.6f}, its text {least:.6f}")
    return [f"  {one.name}: {fault}" for fault in faults]


def row_of(case: Case, one: Contestant, answers: Sequence[Answer]) -> Row:
    """Word error rates."""
    references = case.speech.references
    pairs = zip(case.speech.logprobs, answers, strict=True)
    texts = {name: answer.text.split() for name, answer in pairs}
    score, errors = score_texts(references, texts), None
    errors = score.errors
    known = {name: references[name] for name in known_utterances(case)}
    counted = [answer.cost for answer in answers if answer.cost is not None]
    return {
        "case": case.name,
        "decoder": one.decoder,
        "setting": dict(one.setting),
        "wer": score.wer,
        "errors": [errors.insertions, errors.deletions, errors.substitutions],
        "words": errors.reference_words,
        "wer_known": score_texts(known, texts).wer if known else None,
        "own_cost": round(sum(counted), 4) if counted else None,
        "gap": None,
    }


def known_utterances(case: Case) -> list[str]:
    """Utterances whose words are all in the lexicon; none without a lexicon."""
    words = set(case.lexicon.words) if case.lexicon is not None else set()
    references = case.speech.references
    return [name for name, said in references.items() if words.issuperset(said)]


def add_gaps(
    case: Case,
    costs: beam_check.TextCosts,
    rows: Sequence[Row],
    answers: Sequence[Sequence[Answer]],
) -> None:
    """How much dearer the texts of each are than the cheapest that anyone found."""
    gaps: list[list[float]] = [[] for _ in rows]
    for i, name in enumerate(case.speech.logprobs):
        found = [costs.cost(name, own[i].text) for own in answers]
        for gap, cost in zip(gaps, found, strict=True):
            if math.isfinite(cost):
                gap.append(cost - min(found))
    for row, gap in zip(rows, gaps, strict=True):
        row["gap"] = sum(gap) / len(gap) if gap else None
        row["sayable"] = len(gap)


def speed_of(case: Case, seconds: Sequence[float]) -> Row:
    """CPU seconds and real-time factors."""
    audio = case.speech.seconds
    return {
        "audio_s": round(audio, 2),
        "cpu_s": [round(one, 6) for one in seconds],
        "rtfx_best": round(audio / min(seconds), 2),
        "rtfx_median": round(audio / median(seconds), 2),
    }


def report_of(
    args: argparse.Namespace, rows: list[Row], load_before: float, faults: int
) -> Row:
    """All that goes into the file: no paths and no names of hosts."""
    told = ("utterances", "lm_scale", "token_lm_scale", "repeats", "slow", "profile")
    timed_rows = [row for row in rows if "cpu_s" in row]
    return {
        "tool": "bench_beam",
        "date": time.strftime("%Y-%m-%d"),
        "machine": bench_data.describe_machine(),
        "beside": [name_with_version(package) for package in BESIDE],
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
        "options": {name: getattr(args, name) for name in told},
        "faults": faults,
        "verdicts": beam_report.verdicts(timed_rows),
        "rows": rows,
    }


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    load_before = os.getloadavg()[0]
    inputs = Inputs(
        data=bench_data.find_data(args.data),
        cache=args.cache,
        synthetic=args.synthetic or args.cache,
        limit=args.utterances,
        lm_scale=args.lm_scale,
        token_lm_scale=args.token_lm_scale,
    )
    rows: list[Row] = []
    faults: list[str] = []
    for case in make_cases(args.cases, inputs):
        found, wrong = run_case(case, args)
        rows, faults = rows + found, faults + wrong
    report = report_of(args, rows, load_before, len(faults))
    lines = [beam_report.LEGEND, "", *beam_report.verdict_lines(report["verdicts"])]
    lines += beam_report.wfst_lines(rows)
    print("\n".join(lines))
    print(json.dumps(report["machine"] | {"load_average": report["load_average"]}))
    if args.output:
        with atomic_write(args.output, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
