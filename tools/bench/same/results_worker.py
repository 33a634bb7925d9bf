"""Records the results of one checkout: what `results.py record` starts.

python results_worker.py CHECKOUT DATA OUTPUT THREADS [SECTION...]

The checkout has to be on PYTHONPATH; no section named means all.
"""

from __future__ import annotations

import gzip
import json
import logging
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from checkouts import check_import
from recordings import Recording
from results_real import Real

PACKAGES = ("numpy", "numba", "kaldifst")
"""Results may depend on them besides the checkout."""


def sections_of(real: Real) -> dict[str, Callable[[], None]]:
    """Functions that fill the sections."""
    return {
        "graphs": real.record_graphs,
        "wfst": real.record_wfst,
        "trie": real.record_trie,
        "tokens": real.record_tokens,
        "models": real.record_models,
    }


def main(checkout: Path, data: Path, output: Path, threads: int, *names: str) -> None:
    """Fill the sections and write them."""
    check_import(checkout)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    recording = Recording(threads)
    with tempfile.TemporaryDirectory() as folder:
        sections = sections_of(Real(recording, data, Path(folder)))
        unknown = set(names) - sections.keys()
        if unknown:
            sys.exit(
                f"section {min(unknown)!r}, expected some of {', '.join(sections)}"
            )
        for name in names or sections:
            with recording.section(name):
                sections[name]()
    about = {"python": platform.python_version(), "threads": threads}
    about |= {name: version(name) for name in PACKAGES}
    content: dict[str, Any] = {"about": about, "seconds": recording.seconds}
    with gzip.open(output, "wt", encoding="utf-8", compresslevel=4) as file:
        json.dump(content | {"sections": recording.sections}, file, ensure_ascii=False)


if __name__ == "__main__":
    where = [Path(argument) for argument in sys.argv[1:4]]
    main(*where, int(sys.argv[4]), *sys.argv[5:])
