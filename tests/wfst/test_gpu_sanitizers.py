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


def run(sanitizer, source, num_cases, *mode):
    """The random searches in a process of their own."""
    library = compile_under(sanitizer, source, PROGRAM.kernels)
    return run_under(sanitizer, SCRIPT, num_cases, library, *mode)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_fault_is_found(sanitizer):
    done = run(sanitizer, PROGRAM.source(), 12)
    assert (done.returncode, done.stdout) == (0, "12 cases agree\n"), done.stderr[:3000]


def test_no_fault_is_found_with_added_words():
    source = PROGRAM.source(Variant(oov=True).macros)
    done = run("address,undefined", source, 12, "added")
    assert (done.returncode, done.stdout) == (0, "12 cases agree\n"), done.stderr[:3000]
