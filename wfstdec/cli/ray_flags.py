"""The flags of runs on a Ray cluster, and what commands do with them.

add_flags(parser, *RAY_FLAGS)
if args.ray is not None:
    return run_on_ray(args, rows, partial(make_rows, args))
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from wfstdec.batch.ray import RayOptions, RowWorker, run_rows
from wfstdec.cli.kinds import Flag, made_of, takes
from wfstdec.cli.result_flags import SUBTITLE_FLAGS, restart_of, tell
from wfstdec.errors import OptionError

RAY_FLAGS: dict[str, Flag] = {
    "--ray": takes(
        "ADDRESS",
        "on a Ray cluster: host:port, 'auto', or 'local', which starts one; "
        "--output and --lattices are then folders that all nodes see, the first with "
        "Parquet files",
    ),
    "--actors": takes(
        "N",
        "with --ray: processes side by side, each with its decoder, of "
        "--threads CPUs each, 1 unless given (default: as many as there is room for)",
        int,
    ),
    "--gpus-per-actor": takes(
        "N",
        "with --ray: GPUs, or a part of one (default: 0)",
        float,
        default=RayOptions.gpus,
    ),
    "--batch-rows": takes(
        "N",
        "with --ray: rows that an actor is given at once",
        int,
        default=RayOptions.batch_rows,
    ),
    "--file-rows": takes(
        "N",
        "with --ray: rows of a file of results, about: what is lost when a "
        "node vanishes",
        int,
        default=RayOptions.file_rows,
    ),
}
_FILES = (
    "acoustic_model graph tokens lexicon lm model boost phrases sentencepiece_model "
    "g2p g2p_phones lattices"
).split()
"""Flags that may name a file: on other nodes the current folder is another."""


def refuse_flags_of_ray(args: argparse.Namespace) -> None:
    """Raise `OptionError` for flags of `--ray` where it is not given."""
    for name, how in RAY_FLAGS.items():
        value = getattr(args, name.removeprefix("--").replace("-", "_"))
        if name != "--ray" and value != how.get("default"):
            raise OptionError(f"{name} {value} without --ray, expected both")


def ready_for_ray(args: argparse.Namespace) -> argparse.Namespace:
    """Check the flags, and make of them what an actor can do with."""
    if args.output is None:
        raise OptionError("--ray without --output, expected a folder for Parquet files")
    for flag in ("--format", "--strict", *SUBTITLE_FLAGS):
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if value:
            raise OptionError(
                f"{flag} with --ray, expected neither: results are Parquet, and what "
                "is wrong with a row stands in its column error"
            )
    ready = argparse.Namespace(**vars(args))
    # Actors share a node: a thread for each processor in each of them would be too
    # many.
    ready.threads = args.threads or 1
    for name in _FILES:
        value = getattr(args, name, None)
        if isinstance(value, str) and (name == "lattices" or os.path.exists(value)):
            setattr(ready, name, os.path.abspath(value))
    return ready


def run_on_ray(
    args: argparse.Namespace, rows: Any, make: Callable[[], RowWorker]
) -> None:
    """Run a job and say what came of it."""
    summary = run_rows(
        rows,
        make,
        args.output,
        address=args.ray,
        options=made_of(RayOptions, args, gpus=args.gpus_per_actor),
        restart=restart_of(args, makes="lattices"),
        progress=not args.quiet,
    )
    tell(summary, args)
