"""The trie's kernels in the emulation under g++'s sanitizers, shown to find faults."""

import shutil

import pytest
from sanitizers import SANITIZERS, compile_under, run_under

from wfstdec.trie.gpu.layout import Variant, program

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.share,
]
CASES = 12
FAULTS = {
    "tokens written past their array's end": (
        32,
        "address,undefined",
        "if (near && at < arrays.token_capacity) arrays.tokens[at] = token;",
        "if (near) arrays.tokens[at] = token;",
        "heap-buffer-overflow",
    ),
    "lanes of a warp that nothing orders": (
        32,
        "thread",
        "    __syncwarp();\n",
        "",
        "data race",
    ),
    "a missing barrier": (
        64,
        "thread",
        "candidates[q].entry = slot(q, num_slots - 1);\n        team_sync();",
        "candidates[q].entry = slot(q, num_slots - 1);",
        "data race",
    ),
    "a missing atomic": (
        64,
        "thread",
        "atomicMin(&progress.best, ordered(entry.cost));",
        "if (ordered(entry.cost) < progress.best) progress.best = ordered(entry.cost);",
        "data race",
    ),
}


def run(sanitizer, threads, change=lambda text: text):
    """The random searches in a process of their own."""
    one = program(threads)
    source = change(one.source(Variant(threads).macros))
    library = compile_under(sanitizer, source, one.kernels)
    return run_under(sanitizer, "sanitized_trie.py", CASES, library, threads)


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_fault_is_found(sanitizer, threads):
    done = run(sanitizer, threads)
    expected = 0, f"{CASES} cases agree\n"
    assert (done.returncode, done.stdout) == expected, done.stderr[:3000]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    threads, sanitizer, right, wrong, message = FAULTS[fault]

    def spoil(text):
        assert text.count(right) == 1
        return text.replace(right, wrong)

    done = run(sanitizer, threads, spoil)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr[:3000]
