"""The kernels in the emulation under g++'s sanitizers, in processes of their own."""

import shutil

import pytest
from sanitizers import SANITIZERS, compile_under, run_under

from wfstdec.trie.gpu.layout import Variant as TrieVariant
from wfstdec.trie.gpu.layout import program
from wfstdec.wfst.gpu.layout import PROGRAM, Variant

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.share,
]


def check(sanitizer, script, kernels, macros, *arguments):
    library = compile_under(sanitizer, kernels.source(macros), kernels.kernels)
    done = run_under(sanitizer, script, 12, library, *arguments)
    assert (done.returncode, done.stdout) == (0, "12 cases agree\n"), done.stderr[:3000]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_fault_is_found(sanitizer):
    check(sanitizer, "sanitized.py", PROGRAM, ())


def test_no_fault_is_found_with_added_words():
    macros = Variant(oov=True).macros
    check("address,undefined", "sanitized.py", PROGRAM, macros, "added")


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_fault_is_found_in_tries(sanitizer, threads):
    macros = TrieVariant(threads).macros
    check(sanitizer, "sanitized_trie.py", program(threads), macros, threads)
