"""Kernels in the emulation under g++'s sanitizers, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

from cuda_emulation.device import compile_kernels

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "cuda_emulation"
SANITIZERS = {"address,undefined": "libasan.so", "thread": "libtsan.so"}


def compile_under(sanitizer, source, kernels):
    """A shared library of kernels that a sanitizer watches."""
    # With less than -O2 parts of the scheduler would not be inlined, and be watched.
    flags = ("-O2", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    return compile_kernels(source, kernels, flags=flags)


def run_under(sanitizer, script, *arguments):
    """Run a script of `cuda_emulation` with a sanitizer's library."""
    query = ["g++", f"-print-file-name={SANITIZERS[sanitizer]}"]
    runtime = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    assert Path(runtime).exists(), f"g++ has no {runtime}"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "TSAN_OPTIONS": "halt_on_error=1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)
