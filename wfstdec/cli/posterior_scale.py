"""`wfstdec tune --posterior-scale`: the scale of confidences on lattices."""

from __future__ import annotations

import argparse
from pathlib import Path

from wfstdec.cli.text_flags import normalizer_of
from wfstdec.compare.plotting import check_plot, plot_reliability
from wfstdec.compare.posterior_scale import (
    SCALES,
    Judged,
    ScaleTrial,
    by_speaker,
    judge_all,
    measure,
    tune_posterior_scale,
)
from wfstdec.errors import OptionError
from wfstdec.io.text import read_text
from wfstdec.lattice.file import LatticeFile, open_lattices
from wfstdec.text.pairing import Pairing


def run(args: argparse.Namespace) -> None:
    """Tune on some speakers, test on others, and draw what was tested.

    Raises:
        OptionError: Flags that are missing or have no place here.
    """
    if args.lattices is None:
        raise OptionError("--posterior-scale without --lattices, expected both")
    if (args.test_lattices is None) != (args.test_ref is None):
        raise OptionError("--test-lattices and --test-ref, expected both or none")
    if args.reliability:
        check_plot(args.reliability)
    given, others = _judged(args)

    def say(trial: ScaleTrial) -> None:
        if not args.quiet:
            print(trial, flush=True)

    tuning = tune_posterior_scale(given, args.posterior_scale or SCALES, say)
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    tested = {scale: measure(others, scale) for scale in (tuning.best.scale, 1.0)}
    for found in tested.values():
        print(f"on others, {found}")
    if args.reliability:
        series = {
            f"scale {s:g}, {m.quality}": m.quality.bins for s, m in tested.items()
        }
        plot_reliability(series, args.reliability)


def _judged(args: argparse.Namespace) -> tuple[list[Judged], list[Judged]]:
    """Lattices to tune on, and to test on."""
    normalizer = normalizer_of(args)
    lattices, references = _paired(args.lattices, args.ref)
    if args.test_lattices is not None:
        tested = judge_all(
            *_paired(args.test_lattices, args.test_ref), normalizer=normalizer
        )
        return judge_all(lattices, references, normalizer=normalizer), tested
    given, others = by_speaker(lattices)
    return (
        judge_all(lattices, references, given, normalizer),
        judge_all(lattices, references, others, normalizer),
    )


def _paired(path: str, ref: str) -> tuple[LatticeFile, dict[str, tuple[str, ...]]]:
    """Lattices and references, which have utterances in common."""
    lattices, references = open_lattices(path), read_text(ref)
    Pairing.of(lattices, references, (Path(path).name, Path(ref).name)).check()
    return lattices, references
