"""Our WFST decoder against kaldi-decoder's FasterDecoder: the same answers, how fast?

    pip install -e '.[peers]'
    python -m tools.bench.wfst                                       # takes long
    python -m tools.bench.wfst --utterances 40 --lms lm_books.3g_pruned --beams 13
    python -m tools.bench.wfst --topologies normal compact --sets dev ljspeech
    python -m tools.bench.wfst --profile small                       # a smoke test

Both decode the same float32 posteriors on the same graph, with the same beam and
max_active, Kaldi with min_active=0. Kaldi has no LM scale, so its graph has it
multiplied in; ours has `lm_scale`, as users set it, and makes the same float32
products. Where max_active binds, Kaldi narrows its next beam (by beam_delta, 0.5); ours
does so only with --beam-delta, which sets both: without it ours has more to do.

Costs come first: where those of an utterance differ by more than 1e-5 (relative), no
speed is given for that beam, and the exit status is 1. Then both are timed by turns, in
CPU seconds of one thread. Ours is timed from posteriors to words with times, Kaldi's to
a best path whose words nobody has read; the column "unread" is the ratio where nobody
reads ours either. The last columns are ours alone: seconds on the wall with one thread
over those with two.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tools.bench import data
from tools.bench.cases import Inputs, load_set, make_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.costs import TOLERANCE, Agreement
from tools.bench.harness import check_and_time, run_cases
from tools.bench.report import (
    Columns,
    Row,
    figure,
    format_table,
    range_percent,
    text_figure,
    word_errors,
)
from tools.bench.wfst_measure import Duel, time_loading
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.wfst.options import WfstOptions

PROFILES = profiles(beams=[8.0, 13.0], utterances=8, repeats=2)

SPEED: Columns = {
    "beam": lambda row: f"{row['setting']['beam']:g}",
    "WER %": figure("wer", ".2f"),
    "active": figure("active_per_frame", ".0f"),
    "RTFx": figure("rtfx", ".0f"),
    "Kaldi": lambda row: f"{row['kaldi']['rtfx']:.0f}",
    "ratio": figure("ratio", ".2f"),
    "median: RTFx": figure("rtfx_median", ".0f"),
    " Kaldi": lambda row: f"{row['kaldi']['rtfx_median']:.0f}",
    " ratio": figure("ratio_median", ".2f"),
    "range %": lambda row: f"{range_percent(row['cpu_s']):.0f}",
    " Kaldi's": lambda row: f"{range_percent(row['kaldi']['cpu_s']):.0f}",
    "unread": figure("unread_ratio", ".2f"),
    "2 threads": figure("two_threads_ratio", ".2f"),
    " unread": figure("two_threads_unread_ratio", ".2f"),
}
"""Columns by heading; those of timings have the fastest turn first."""

TOPOLOGY: Columns = {
    "set": text_figure("set"),
    "LM": text_figure("lm"),
    "beam": SPEED["beam"],
    "topology": text_figure("topology"),
    "states": lambda row: f"{row['graph']['states']:,}",
    "arcs": lambda row: f"{row['graph']['arcs']:,}",
    "MB": lambda row: f"{row['graph']['file_mb']:.0f}",
    "WER %": SPEED["WER %"],
    "ins/del/sub": lambda row: "/".join(map(str, row["errors"])),
    **{name: SPEED[name] for name in ("active", "RTFx", "Kaldi")},
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--sets", nargs="+", default=["dev"], help="see tools.bench.cases")
    add("--lms", nargs="+", help="names in the data, or ARPA files")
    add("--beams", nargs="+", type=float, default=[8.0, 10.0, 13.0, 17.0])
    add("--topologies", nargs="+", choices=TOPOLOGIES, default=["normal"])
    add("--max-active", type=int, default=7000)
    add("--beam-delta", type=float, help="for both; default: none ours, 0.5 Kaldi's")
    return parse(parser, argv, PROFILES)


def duels(args: argparse.Namespace) -> Iterator[Duel]:
    """Every set with every language model and topology."""
    inputs = Inputs.of(args)
    for name in args.sets:
        speech = load_set(name, inputs)
        for lm in args.lms or data.default_lms(inputs.data):
            for topology in args.topologies:
                yield Duel(make_case(speech, lm, inputs, topology))


def run_duel(args: argparse.Namespace, duel: Duel) -> tuple[list[Row], list[str]]:
    """Compare costs at all beams, and time where they agree; rows, and faults."""
    case, sizes = duel.case, time_loading(duel.graph)
    print(
        f"\n{case.headline()}, {duel.graph.topology}\n"
        f"  graph: {sizes['states']:,} states, {sizes['arcs']:,} arcs, "
        f"{sizes['file_mb']} MB, loaded in {sizes['load_s']} s, decoder ready in "
        f"{sizes['decoder_s']} s more",
        flush=True,
    )
    rows: list[Row] = []
    faults: list[str] = []
    for beam in args.beams:
        row, wrong = run_beam(duel, beam, args)
        rows.append(row | {"graph": sizes})
        faults += wrong
    print(table(SPEED, rows), flush=True)
    return rows, faults


def run_beam(
    duel: Duel, beam: float, args: argparse.Namespace
) -> tuple[Row, list[str]]:
    """Compare costs at a beam, and time where they agree; a row, and faults."""
    setting = {"beam": beam, "max_active": args.max_active}
    setting["beam_delta"] = args.beam_delta
    options = WfstOptions(lm_scale=args.lm_scale, **setting)
    speech = duel.case.speech
    row = {
        "set": speech.name,
        "note": speech.note,
        "lm": duel.case.lm,
        "topology": duel.graph.topology,
        "setting": setting,
        "audio_s": round(speech.audio_s, 2),
    }

    def check(answers: Mapping[str, Any]) -> list[str]:
        agreement = duel.compare(answers)
        ours = zip(speech.logprobs, answers["ours"], strict=True)
        row["costs"] = asdict(agreement) | {"agree": agreement.agrees}
        row.update(word_errors(speech.references, {u: h.text for u, h in ours}))
        lines = agreement_lines(beam, agreement)
        print(lines[0], flush=True)
        return [] if agreement.agrees else lines[1:]

    timed = check_and_time(duel.searches(options), check, args)
    if not timed.faults:
        row |= duel.count_work(options) | duel.figures(timed.seconds)
        row |= duel.time_threads(options, args.repeats)
    return row, timed.faults


def agreement_lines(beam: float, found: Agreement) -> list[str]:
    """Report a comparison of costs, in lines."""
    verdict = "costs agree" if found.agrees else "COSTS DISAGREE, no speed is given"
    share = 100 / found.utterances
    lines = [
        f"  beam {beam:g}: {verdict}: ours {found.ours_total:.3f}, Kaldi "
        f"{found.theirs_total:.3f}; ours lower {share * found.ours_lower:.1f} %, Kaldi "
        f"lower {share * found.theirs_lower:.1f} %; largest difference "
        f"{found.largest_difference:.1e}; unfinished {found.ours_unfinished} and "
        f"{found.theirs_unfinished}, other words {found.texts_differ} of "
        f"{found.utterances}"
    ]
    lines += [
        f"    {name}: ours {ours:.6f}, Kaldi {kaldi:.6f}"
        for name, ours, kaldi in found.worst
    ]
    if not found.agrees:
        lines.append(
            f"    tolerance {TOLERANCE:g}. What costs exactly as much as the cutoff is "
            "kept by ours and dropped by Kaldi: try a beam off the log-probs' grid "
            f"({beam + 0.0137:g}); where max_active binds, try --beam-delta 0.5"
        )
    return lines


def table(columns: Columns, rows: Sequence[Row]) -> str:
    """Rows where costs agree, those of a set, language model and beam together."""
    agreed = [row for row in rows if row["costs"]["agree"]]
    agreed.sort(key=lambda row: (row["set"], row["lm"], row["setting"]["beam"]))
    return format_table(columns, agreed)


def report(rows: list[Row]) -> tuple[list[str], Row]:
    """Compare topologies, where there are several; count where costs disagree."""
    lines = []
    if len({row["topology"] for row in rows}) > 1:
        lines += ["", "Topologies", table(TOPOLOGY, rows)]
    differ = [row for row in rows if not row["costs"]["agree"]]
    if differ:
        lines.append(f"costs disagree in {len(differ)} of {len(rows)} comparisons")
    return [*lines, ""], {}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run = Run("tools.bench.wfst", args)
    return run_cases(run, duels(args), partial(run_duel, args), report)


if __name__ == "__main__":
    exit_with(main)
