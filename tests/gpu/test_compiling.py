"""The kernels compile for GPUs that are not here, within bounds."""

import functools
import re

import pytest

from tools.gpu import kernel_resources
from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16, FLOAT32, MIXED
from wfstdec.trie.gpu.layout import NARROW, WIDE, form_for, program
from wfstdec.trie.gpu.layout import Variant as TrieVariant
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM, Variant

pytestmark = pytest.mark.nvrtc
MOST_REGISTERS, UNASKED = 64, 48 * 1024
"""So that two blocks of `MAX_THREADS` fit into a multiprocessor."""


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")


VARIANTS = {
    "all": (),
    "times of all": (("TIMES", 1),),
    "plain": PLAIN.macros,
    "halves": PLAIN._replace(logprob_type=FLOAT16).macros,
    "phrases": PLAIN._replace(phrases=True).macros,
    "phrases, bfloat16": PLAIN._replace(phrases=True, logprob_type=BFLOAT16).macros,
    "mixed": PLAIN._replace(logprob_type=MIXED).macros,
    "times": PLAIN._replace(times=True).macros,
    "lattices": PLAIN._replace(lattices=True).macros,
    "lattices, phrases": PLAIN._replace(lattices=True, phrases=True).macros,
    "added": PLAIN._replace(oov=True).macros,
    "added, all": Variant(oov=True, lattices=True, times=True).macros,
}
VARIANTS = {name: (PROGRAM, macros) for name, macros in VARIANTS.items()}
for threads in (NARROW, WIDE):
    for name, made in {
        "floats": TrieVariant(threads, logprob_type=FLOAT32),
        "halves": TrieVariant(threads, logprob_type=FLOAT16),
        "all": TrieVariant(threads, logprob_type=MIXED, times=True),
    }.items():
        VARIANTS[f"trie, {threads}, {name}"] = program(threads), made.macros
EVERYWHERE = "all", "plain", f"trie, {NARROW}, floats", f"trie, {WIDE}, floats"


@functools.cache
def compiled(target, variant):
    one, macros = VARIANTS[variant]
    return kernel_resources.compile_for(target, one.source(macros))


@pytest.mark.parametrize(
    ("target", "variant"),
    [(target, variant) for target in kernel_resources.TARGETS for variant in EVERYWHERE]
    + [("sm_90", variant) for variant in VARIANTS if variant not in EVERYWHERE],
)
@pytest.mark.share(keep=4)
def test_every_target(target, variant):
    one, (ptx, log) = VARIANTS[variant][0], compiled(target, variant)
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == set(one.kernels)
    for name, kernel in kernels.items():
        assert kernel.registers <= MOST_REGISTERS
        assert kernel.spilled == 0
        # Only the search has a table; without asking a block gets 48 KiB.
        assert kernel.shared <= (one.own_bytes if name == one.kernels[0] else UNASKED)
    assert not re.search(r"\bfma\.|\.ftz\b", ptx), "sums would differ from the CPU's"


def instructions(ptx):
    return ptx.count(";\n")


def test_a_variant_leaves_out_what_it_is_not_compiled_for():
    everything, _ = compiled("sm_90", "all")
    plain, _ = compiled("sm_90", "plain")
    phrases, _ = compiled("sm_90", "phrases")
    assert instructions(plain) < 0.8 * instructions(everything)
    assert instructions(plain) < instructions(phrases) < instructions(everything)
    assert "clock64" not in everything
    assert "%clock64" in compiled("sm_90", "times of all")[0]


def test_arrays_are_read_as_what_they_are():
    """Most loads know their memory; the graph's are through the read-only cache."""
    ptx, _ = compiled("sm_90", "plain")
    search = kernel_resources.body_of(ptx, "search_chunk")
    generic = re.findall(r"\bld\.(?:v\d\.)?[bufs]\d+", search)
    assert len(generic) < 40, "of tables, which may lie in shared memory"
    assert len(re.findall(r"\bld\.global\.nc", search)) > 10
    assert ".volatile" not in search and "ld.relaxed.cta" in search


@pytest.mark.parametrize(
    ("size", "blocks"), [(16, 8), (32, 8), (64, 5), (128, 2), (256, 1)]
)
def test_blocks_fit_side_by_side_into_a_multiprocessor(size, blocks):
    """With their arrays in shared memory, for a vocabulary of pieces."""
    form = form_for(size, 1025)
    whole, most, reserved = (
        kernel_resources.KIB * kib for kib in kernel_resources.SHARED_MEMORY["sm_90"]
    )
    block = program(form.threads).own_bytes + form.shared_bytes
    assert block <= most
    assert whole // (block + reserved) == blocks


def test_a_warp_meets_at_no_barrier_of_a_block():
    """Blocks of one warp; log-probs and model are read by the read-only cache or L2."""
    narrow, _ = compiled("sm_90", f"trie, {NARROW}, floats")
    wide, _ = compiled("sm_90", f"trie, {WIDE}, floats")
    assert not re.search(r"\bbar(rier)?\.sync", narrow)
    assert len(re.findall(r"\bbar(rier)?\.sync", wide)) > 20
    assert "prefetch.global.L2" in narrow
