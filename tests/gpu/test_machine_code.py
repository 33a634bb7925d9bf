"""Machine code that the product's own way to compile makes: bounds, and whole files."""

import pytest
from cubin import read_cubin

from wfstdec.gpu.compiling import compile_kernels
from wfstdec.gpu.records import REGISTERS
from wfstdec.trie.gpu.layout import Variant as TrieVariant
from wfstdec.trie.gpu.layout import program as trie_program
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

pytestmark = pytest.mark.nvrtc
RESERVED, UNASKED = 1024, 48 * 1024
"""Bytes that a device keeps of each block's shared memory; what one gets unasked."""
SEARCHES = {
    "all": (PROGRAM, ()),
    "plain": (PROGRAM, PLAIN.macros),
    "trie, 32 threads": (trie_program(32), TrieVariant(32).macros),
    "trie, 128 threads": (trie_program(128), TrieVariant(128).macros),
}
MOST_BYTES = {"plain": 64 * 1024, "trie, 32 threads": 160 * 1024}
"""Of the search's instructions, 128 KiB for others: more leave little room in the cache
of a multiprocessor. With 32 threads the trie ranks in registers, in unrolled loops."""


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_120"])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.share(keep=1)
def test_registers_stack_and_size(search, target):
    cupy = pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    program, macros = SEARCHES[search]
    data = compile_kernels(cupy, program.source(macros), target, program.file)
    kernels = read_cubin(data)
    assert set(kernels) == set(program.kernels)
    for name, code in kernels.items():
        assert 16 <= code.registers <= REGISTERS
        assert code.frame == 0, "registers are spilled"
        own = program.own_bytes if name == program.kernels[0] else UNASKED
        assert code.shared <= own + RESERVED
        assert 1024 < code.num_bytes <= MOST_BYTES.get(search, 128 * 1024)
    # CuPy takes the last byte off, and whoever reads the file finds it too short.
    cut = len(data.rstrip(b"\0")) - 1
    with pytest.raises(ValueError, match="end before the headers do"):
        read_cubin(data[:cut])
    with pytest.raises(ValueError, match="no ELF file"):
        read_cubin(data[1:])


def test_registers_that_are_spilled_are_seen():
    """A kernel that keeps an array which no register holds."""
    cupy = pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    source = """
        extern "C" __global__ void spills(unsigned* at, unsigned count) {
            unsigned kept[64];
            for (unsigned i = 0; i < count; ++i) kept[at[i] % 64] += at[i];
            for (unsigned i = 0; i < 64; ++i) at[i] = kept[i];
        }
    """
    found = read_cubin(compile_kernels(cupy, source, "sm_90", "spills.cu"))
    assert found["spills"].frame >= 256
