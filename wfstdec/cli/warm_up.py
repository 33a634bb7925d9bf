"""Compile kernels beforehand, so that nobody waits for it later.

It is meant for container builds, editable installations, and packages that came
without machine code.
What is compiled is kept beside the sources, in NUMBA_CACHE_DIR or in ~/.cache/wfstdec.
Kernels that are there already cost nothing.
"""

from __future__ import annotations

import argparse
import time

from wfstdec.cli.flags import add_flags
from wfstdec.jit.cache import AHEAD, ENTRY
from wfstdec.warm_up import ALL, USUAL, warm_up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--all")


def run(args: argparse.Namespace) -> None:
    """Compile, and say how long it took."""
    ways = ALL if args.all else USUAL
    ahead = {path.name for place in AHEAD for path in place.glob(f"*{ENTRY}")}
    print(f"{len(ahead)} kernels came with the package")
    print("compiling the others, once: a minute of CPU time or more", flush=True)
    begin = time.perf_counter()
    warm_up(ways)
    print(f"{len(ways)} ways warm in {time.perf_counter() - begin:.1f} s")
