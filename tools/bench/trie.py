"""Our trie decoder against our WFST decoder and against other people's decoders.

    pip install -e '.[peers,trie-peers,tools]'
    pip install --no-deps pyctcdecode==0.5.0
    pip install pygtrie torch
    python -m tools.bench.trie                                       # takes very long
    python -m tools.bench.trie --utterances 100 --cases dev:lm_books.3g_pruned
    python -m tools.bench.trie --cases bpe-hard:pieces --peers flashlight
    python -m tools.bench.trie --profile small                       # a smoke test

Everyone gets the same float32 log-probs, lexicon, language model and scale, and one
thread. Who is not installed does not take part.

Answers come first. On the beginnings of a few utterances the CPU backend and the
reference must agree bit for bit; the totals of all hypotheses must be those of their
alignments and sentences, counted by another route; no text may cost more by its best
alignment than the search found. Where any of that fails no speed is given, and the exit
status is 1. Then all are timed by turns, in CPU seconds from log-probs to words (ours
with times). A ratio is of a point of a peer and the fastest of our points
whose word error rate is no higher.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from tools.bench import trie_checks, trie_report
from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.contestants import TRIE, Answer, Contestant, contestants
from tools.bench.harness import check_and_time, run_cases
from tools.bench.report import Row, format_table, speed, word_errors
from tools.peers.ctc import PEERS
from tools.peers.interface import name_with_version
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.trie.options import TrieOptions

WARM_UP = 2
"""Utterances that everyone decodes before the first turn."""
CASES = [
    *("dev:lm_books.3g_pruned", "dev:lm_books.3g"),
    *("heads-256:lm_books.3g_pruned", "heads-1024:lm_books.3g_pruned"),
    *("heads-256:pieces", "heads-1024:pieces"),
]
CHECKED = (
    {"beam": 8.0, "beam_size": 16},
    {"beam": 8.0, "beam_size": 16, "merge": "sum"},
    {"beam": 12.0, "beam_size": 64, "token_top_k": 8},
)
"""Settings at which the backends are compared."""
BESIDE = ("torch", "kenlm", "kaldingram", "sentencepiece")
"""Packages that peers or cases depend on; the peers' versions are in their rows."""
PROFILES = profiles(cases=["dev:lm"], peers=["flashlight"], utterances=6)

ScoreCache = Mapping[str, Sequence[Answer]]
"""Answers for each utterance, by the contestant's name."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--cases", nargs="+", default=CASES, help="set:language model")
    add("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    add("--token-lm-scale", type=float, default=0.3, help="of those over pieces")
    add("--slow", type=float, default=60.0, help="CPU s: who takes longer runs twice")
    return parse(parser, argv, PROFILES)


def run_case(args: argparse.Namespace, case: Case) -> tuple[list[Row], list[str]]:
    """Check the answers of all, then time them; rows, and what is wrong."""
    known = len(known_utterances(case))
    words = f"; {known} with known words alone" if case.lexicon is not None else ""
    print(f"\n{case.headline()}{words}", flush=True)
    options = TrieOptions(lm_scale=case.lm_scale)
    faults = trie_checks.compare_backends(
        case, CHECKED, lambda name: case.trie_decoder(options, backend=name)
    )
    everyone = contestants(case, args.peers)
    for one in everyone:
        one.run(case.utterances[:WARM_UP])
    rows: list[Row] = []

    def check(answers: ScoreCache) -> list[str]:
        costs = trie_checks.TextCosts(case, sentences_of(case, answers))
        rows.extend(row_of(case, one, answers[one.name]) for one in everyone)
        if case.lexicon is not None:
            add_gaps(case, costs, rows, answers)
        own = [one for one in everyone if one.decoder == TRIE]
        found = [check_answers(case, costs, one, answers[one.name]) for one in own]
        return [*faults, *chain.from_iterable(found)]

    runs = {one.name: partial(one.run, case.utterances) for one in everyone}
    timed = check_and_time(runs, check, args)
    for row, seconds in zip(rows, timed.seconds.values(), strict=False):
        row |= speed(case.speech.audio_s, seconds)
    if not timed.faults:
        print(format_table(trie_report.COLUMNS, rows), flush=True)
    return rows, timed.faults


def sentences_of(case: Case, answers: ScoreCache) -> set[tuple[str, ...]]:
    """All that the language model will be asked for."""
    return {
        trie_checks.sentence_of(case, answer)
        if isinstance(answer, Hypothesis) and case.lexicon is None
        else tuple(answer.text.split())
        for found in answers.values()
        for answer in found
    }


def check_answers(
    case: Case, costs: trie_checks.TextCosts, one: Contestant, answers: Sequence[Answer]
) -> list[str]:
    """Check the costs of our answers; what is wrong, in lines."""
    hypotheses = dict(zip(case.speech.logprobs, answers, strict=True))
    best = one.setting.get("merge", "max") == "max"
    faults = trie_checks.check_hypotheses(case, costs, hypotheses, best=best)
    if case.lexicon is not None and best:
        for name, found in hypotheses.items():
            least, limit = costs.cost(name, found.text), abs(found.total_cost)
            if found.reached_final and least - found.total_cost > 1e-5 * limit:
                faults.append(f"{name}: {found.total_cost:.6f}, its text {least:.6f}")
    return [f"  {one.name}: {fault}" for fault in faults]


def row_of(case: Case, one: Contestant, answers: Sequence[Answer]) -> Row:
    """A contestant's word error rates, and the sum of the costs that it tells."""
    speech = case.speech
    pairs = zip(speech.logprobs, answers, strict=True)
    texts = {name: answer.text for name, answer in pairs}
    known = {name: speech.references[name] for name in known_utterances(case)}
    counted = [one.total_cost for one in answers if one.total_cost is not None]
    return {
        "case": case.name,
        "decoder": one.decoder,
        "setting": dict(one.setting),
        "audio_s": round(speech.audio_s, 2),
        **word_errors(speech.references, texts),
        "wer_known": word_errors(known, texts)["wer"] if known else None,
        "own_cost": round(sum(counted), 4) if counted else None,
        "gap": None,
    }


def known_utterances(case: Case) -> list[str]:
    """Utterances whose words are all in the lexicon; none without a lexicon."""
    words = set(case.lexicon.words) if case.lexicon is not None else set()
    references = case.speech.references
    return [name for name, spoken in references.items() if words.issuperset(spoken)]


def add_gaps(
    case: Case, costs: trie_checks.TextCosts, rows: Sequence[Row], answers: ScoreCache
) -> None:
    """How much more the texts of each cost than the cheapest that were found."""
    gaps: list[list[float]] = [[] for _ in rows]
    for i, name in enumerate(case.speech.logprobs):
        found = [costs.cost(name, own[i].text) for own in answers.values()]
        for gap, cost in zip(gaps, found, strict=True):
            if math.isfinite(cost):
                gap.append(cost - min(found))
    for row, gap in zip(rows, gaps, strict=True):
        row["gap"] = sum(gap) / len(gap) if gap else None
        row["sayable"] = len(gap)


def report(rows: list[Row]) -> tuple[list[str], Row]:
    """Compare each peer's points with ours."""
    verdicts = trie_report.verdicts([row for row in rows if "cpu_s" in row])
    lines = [trie_report.LEGEND, "", *trie_report.verdict_lines(verdicts)]
    beside = [name_with_version(package) for package in BESIDE]
    more = {"beside": beside, "verdicts": verdicts}
    return [*lines, *trie_report.wfst_lines(rows)], more


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    cases = make_cases(args.cases, Inputs.of(args))
    run = Run("tools.bench.trie", args)
    return run_cases(run, cases, partial(run_case, args), report)


if __name__ == "__main__":
    exit_with(main)
