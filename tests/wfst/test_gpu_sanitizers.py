"""The kernels in the emulation under g++'s sanitizers, each shown to find a fault."""

import shutil

import pytest
from sanitizers import SANITIZERS, compile_under, run_under

from wfstdec.wfst.gpu.layout import PROGRAM, Variant

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.share,
]
SCRIPT = "sanitized.py"

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
    library = compile_under(sanitizer, source, PROGRAM.kernels)
    return run_under(sanitizer, SCRIPT, num_cases, library, *mode)


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
