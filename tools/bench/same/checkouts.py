"""Checkouts of the project side by side: workers that import each.

    process = start_worker("worker.py", checkout, arguments)   # imports that checkout

Workers import `wfstdec` itself, by names that both checkouts have. The interpreter is
always the one that runs the script, so that two checkouts differ in nothing but their
sources.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment(checkout: Path) -> dict[str, str]:
    """Variables under which Python imports the package of a checkout."""
    single = dict.fromkeys(ONE_THREAD, "1")
    return os.environ | single | {"PYTHONPATH": str(checkout)}


def start_worker(
    script: str, checkout: Path, arguments: list[str], **options: Any
) -> subprocess.Popen:
    """Run a script of this folder on a checkout; options as `subprocess.Popen`."""
    command = [sys.executable, str(HERE / script), str(checkout), *arguments]
    where = {"cwd": checkout, "env": environment(checkout)}
    return subprocess.Popen(command, **where, **options)


def data_folder(given: Path | None, checkout: Path) -> Path:
    """The folder of real data: as given, else `../shared/data` beside the checkout.

    Raises:
        SystemExit: There is none.
    """
    folder = given or checkout.resolve().parent / "shared" / "data"
    if not (folder / "posteriors").is_dir():
        sys.exit(f"{folder}: no folder with posteriors, expected one; give --data")
    return folder.resolve()


def check_import(checkout: Path) -> None:
    """See that `wfstdec` is that of the checkout, and no installed one.

    Raises:
        SystemExit: It is another.
    """
    found = Path(str(importlib.import_module("wfstdec").__file__)).resolve()
    if found.parents[1] != checkout.resolve():
        sys.exit(f"wfstdec is imported from {found}, expected it from {checkout}")
    reference = checkout.resolve() / "tests" / "reference"
    if reference.is_dir():  # in older checkouts it is part of the package
        sys.path.append(str(reference))
        importlib.import_module("reference_backends")
