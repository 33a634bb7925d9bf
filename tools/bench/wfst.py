"""Our CPU decoder against kaldi-decoder's FasterDecoder: the same answers, how fast?

    pip install -e '.[peers]'
    python tools/bench_cpu.py                                        # takes long
    python tools/bench_cpu.py --utterances 40 --lms lm_books.3g_pruned --beams 13
    python tools/bench_cpu.py --topologies normal compact --sets dev ljspeech
    python tools/bench_cpu.py --profile small                        # a smoke test

Both decode the same float32 posteriors on the same graph, with the same beam and
max_active and min_active=0. Kaldi has no LM scale, so its graph has it multiplied in;
ours is told by `lm_scale`, as users do it, and makes the same float32 products. Where
max_active binds, Kaldi narrows its next beam (by beam_delta, 0.5); ours does so only if
--beam-delta tells both: without it ours has more to do.

Costs come first: where those of an utterance differ by more than 1e-5 (relative), no
speed is given for that beam, and the exit status is 1. Then both are timed by turns, in
CPU seconds of one thread. Ours is timed from posteriors to words with times, Kaldi's to
a best path whose words nobody has read. The last column is ours alone: seconds on the
wall with one thread over those with two.
"""

from __future__ import annotations

import os

for _name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"  # before NumPy reads it

# ruff: noqa: E402
import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import bench_data
import bench_measure as measure
from bench_report import Row, comparison_line, speed_table, topology_table

from wfstdec.compare.peers import kaldi as kaldi_peer
from wfstdec.errors import WfstdecError
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.text.atomic import atomic_write
from wfstdec.wfst.options import WfstOptions

PROFILES: dict[str, Row] = {
    "full": {},
    "small": {
        "data": bench_data.RECIPE,
        "utterances": 8,
        "beams": [8.0, 13.0],
        "repeats": 2,
    },
}
"""Other defaults, by name."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--profile", choices=PROFILES, default="full", help="other defaults")
    add("--sets", nargs="+", default=["dev"], help="dev, hard, ljspeech, or folders")
    add("--lms", nargs="+", help="names in the data, or ARPA files")
    add("--beams", nargs="+", type=float, default=[8.0, 10.0, 13.0, 17.0])
    add("--topologies", nargs="+", choices=TOPOLOGIES, default=["normal"])
    add("--max-active", type=int, default=7000)
    add("--lm-scale", type=float, default=0.8)
    add("--beam-delta", type=float, help="for both; default: none ours, 0.5 Kaldi's")
    add("--utterances", type=int, help="so many of each set, evenly spread")
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--data", type=Path, help="default ../shared/data, else the demo's recipe")
    add("--cache", type=Path, default=bench_data.CACHE, help="for built graphs")
    add("--output", type=Path, help="write all figures as JSON")
    profile = parser.parse_known_args(argv)[0].profile
    parser.set_defaults(**PROFILES[profile])
    args = parser.parse_args(argv)
    if args.repeats < 1 or (args.utterances is not None and args.utterances < 1):
        parser.error("--repeats and --utterances must be 1 or more")
    return args


def options_of(args: argparse.Namespace, beam: float) -> WfstOptions:
    return WfstOptions(
        beam=beam,
        max_active=args.max_active,
        lm_scale=args.lm_scale,
        beam_delta=args.beam_delta,
    )


def cases(args: argparse.Namespace) -> Iterator[tuple[measure.Case, Row]]:
    """Every set with every LM and topology, and figures about its graph."""
    data = bench_data.find_data(args.data)
    names = args.lms or bench_data.default_lms(data)
    arpas = [bench_data.find_lm(name, data) for name in names]
    for name in args.sets:
        speech = bench_data.load_set(name, data, args.utterances)
        for arpa in arpas:
            for topology in args.topologies:
                graph = bench_data.build_or_load(
                    speech.recipe, arpa, topology, args.cache
                )
                fst = kaldi_peer.scaled_fst(graph, args.lm_scale)
                lm = arpa.name.split(".arpa")[0]
                case = measure.Case(speech, lm, graph, fst, args.lm_scale)
                yield case, measure.time_loading(graph)


def headline(case: measure.Case, sizes: Row) -> str:
    speech = case.speech
    note = f" ({speech.note})" if speech.note else ""
    return (
        f"\n{speech.name}{note}, {case.lm}, {case.graph.topology}: "
        f"{len(speech.logprobs)} utterances, {speech.seconds / 3600:.3f} h\n"
        f"  graph: {sizes['states']:,} states, {sizes['arcs']:,} arcs, "
        f"{sizes['file_mb']} MB, loaded in {sizes['load_s']} s, decoder ready in "
        f"{sizes['decoder_s']} s more"
    )


def run_case(case: measure.Case, sizes: Row, args: argparse.Namespace) -> list[Row]:
    """Compare costs at all beams; then score and time where they agree."""
    print(headline(case, sizes), flush=True)
    rows: list[Row] = []
    for beam in args.beams:
        found, hypotheses = measure.compare_costs(case, options_of(args, beam))
        print(comparison_line(beam, found), flush=True)
        row = {
            "set": case.speech.name,
            "note": case.speech.note,
            "lm": case.lm,
            "topology": case.graph.topology,
            "beam": beam,
            "audio_s": round(case.speech.seconds, 2),
            "graph": sizes,
            "costs": asdict(found) | {"agree": found.agrees},
        }
        rows.append(row | measure.score(case, hypotheses))
    for row in rows:
        if row["costs"]["agree"]:
            options = options_of(args, row["beam"])
            row |= measure.count_work(case, options)
            row |= measure.time_both(case, options, args.repeats)
            row |= measure.time_threads(case, options, args.repeats)
            print(f"  beam {row['beam']:g}: {row['wer_line']}", flush=True)
    print(speed_table(rows), flush=True)
    return rows


def report_of(args: argparse.Namespace, rows: list[Row], load_before: float) -> Row:
    """All that goes into the file: no paths and no names of hosts."""
    told = ("profile", "max_active", "lm_scale", "beam_delta", "utterances", "repeats")
    return {
        "tool": "bench_cpu",
        "date": time.strftime("%Y-%m-%d"),
        "machine": bench_data.describe_machine(),
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
        "options": {name: getattr(args, name) for name in told},
        "rows": rows,
    }


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    load_before = os.getloadavg()[0]
    rows: list[Row] = []
    for case, sizes in cases(args):
        rows += run_case(case, sizes, args)
    if len(args.topologies) > 1:
        print(f"\nTopologies\n{topology_table(rows)}")
    report = report_of(args, rows, load_before)
    print(f"\n{json.dumps(report['machine'])}")
    print(
        "load average {before:.2f} before, {after:.2f} after".format(
            **report["load_average"]
        )
    )
    if args.output:
        with atomic_write(args.output, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    differ = [row for row in rows if not row["costs"]["agree"]]
    if differ:
        print(f"costs disagree in {len(differ)} of {len(rows)} comparisons")
    return 1 if differ else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WfstdecError as error:
        sys.exit(f"{type(error).__name__}: {error}")
