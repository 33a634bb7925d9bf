"""The kernels in the emulation under g++'s sanitizers, each shown to find a fault."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_emulation.device import compile_kernels

from wfstdec.wfst.gpu.layout import PROGRAM, Variant

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.share,
]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "cuda_emulation" / "sanitized.py"
SANITIZERS = {"address,undefined": "libasan.so", "thread": "libtsan.so"}

FAULTS = {
    "an array written past its end": (
        "address,undefined",
        # of all blocks: what is written in another's part may lead anywhere
        "scratch.entry_slots()[at] = slot;",
        "scratch.entry_slots()[at] = slot;"
        "scratch.entry_slots()[at + gridDim.x * task.entry_capacity] = slot;",
        "heap-buffer-overflow",
    ),
    "a shift by all bits of a word": (
        "address,undefined",
        "shift == 56 || (key ^ found)",
        "(key ^ found)",
        "shift exponent 64 is too large",
    ),
    "a missing barrier": (
        "thread",
        "memory.firsts[threadIdx.x] = arcs.begin;\n        __syncthreads();",
        "memory.firsts[threadIdx.x] = arcs.begin;",
        "data race",
    ),
    "lanes of a warp that nothing orders": (
        "thread",
        "__syncwarp();",
        "",
        "data race",
    ),
    "a missing atomic": (
        "thread",
        "atomicMin(&slots.best[slot], key_of(candidate.cost, candidate.arc_key));",
        "slots.best[slot] = key_of(candidate.cost, candidate.arc_key);",
        "data race",
    ),
}


def run(sanitizer, source, num_cases, *mode):
    """The random searches in a process of their own."""
    # With less than -O2 parts of the scheduler would not be inlined, and be watched.
    flags = ("-O2", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    library = compile_kernels(source, flags=flags)
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
    command = [sys.executable, str(SCRIPT), str(num_cases), str(library), *mode]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_fault_is_found(sanitizer):
    done = run(sanitizer, PROGRAM.source(), 12)
    assert (done.returncode, done.stdout) == (0, "12 cases agree\n"), done.stderr[:3000]


def test_no_fault_is_found_with_added_words():
    source = PROGRAM.source(Variant(added=True).macros)
    done = run("address,undefined", source, 12, "added")
    assert (done.returncode, done.stdout) == (0, "12 cases agree\n"), done.stderr[:3000]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    sanitizer, right, wrong, message = FAULTS[fault]
    source = PROGRAM.source()
    assert source.count(right) == 1
    done = run(sanitizer, source.replace(right, wrong), 12)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr[:3000]
