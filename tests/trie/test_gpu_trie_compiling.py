"""The trie's kernels compile for GPUs that are not here, within bounds."""

import functools
import re

import pytest

from tools.gpu import kernel_resources
from wfstdec.gpu.logprobs import FLOAT16, FLOAT32, MIXED
from wfstdec.trie.gpu.layout import NARROW, WIDE, Variant, form_for, program

pytestmark = pytest.mark.nvrtc
MOST_REGISTERS = 64
SIDE_BY_SIDE = {16: 8, 32: 8, 64: 5, 128: 2, 256: 1}
"""Blocks that a multiprocessor of sm_90 has room for, by the size of the beam."""
KERNEL = "advance_chunk"
VARIANTS = {
    "floats": Variant(logprob_type=FLOAT32),
    "halves": Variant(logprob_type=FLOAT16),
    "all": Variant(logprob_type=MIXED, times=True),
}


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")


@functools.cache
def compiled(target, threads, variant):
    macros = VARIANTS[variant]._replace(threads=threads).macros
    return kernel_resources.compile_for(target, program(threads).source(macros))


@pytest.mark.parametrize("threads", [NARROW, WIDE])
@pytest.mark.parametrize(
    ("target", "variant"),
    [(target, "floats") for target in kernel_resources.TARGETS]
    + [("sm_90", "halves"), ("sm_90", "all")],
)
@pytest.mark.share(keep=2)
def test_every_target(target, variant, threads):
    ptx, log = compiled(target, threads, variant)
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == {KERNEL}
    assert kernels[KERNEL].registers <= MOST_REGISTERS
    assert kernels[KERNEL].spilled == 0
    assert kernels[KERNEL].shared <= program(threads).own_bytes
    assert not re.search(r"\bfma\.|\.ftz\b", ptx), "sums would differ from the CPU's"


@pytest.mark.parametrize("size", SIDE_BY_SIDE)
def test_blocks_fit_side_by_side_into_a_multiprocessor(size):
    """With their arrays in shared memory, for a vocabulary of pieces."""
    form = form_for(size, 1025)
    whole, most, reserved = (
        kernel_resources.KIB * kib for kib in kernel_resources.SHARED_MEMORY["sm_90"]
    )
    block = program(form.threads).own_bytes + form.shared_bytes
    assert block <= most
    assert whole // (block + reserved) == SIDE_BY_SIDE[size]


def test_a_warp_meets_at_no_barrier_of_a_block():
    """Blocks of one warp; log-probs and model are read by the read-only cache or L2."""
    narrow, _ = compiled("sm_90", NARROW, "floats")
    wide, _ = compiled("sm_90", WIDE, "floats")
    assert not re.search(r"\bbar(rier)?\.sync", narrow)
    assert len(re.findall(r"\bbar(rier)?\.sync", wide)) > 20
    assert "prefetch.global.L2" in narrow
