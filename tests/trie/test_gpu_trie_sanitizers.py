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
