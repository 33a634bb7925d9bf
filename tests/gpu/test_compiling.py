"""The kernels compile for GPUs that are not here, within bounds."""

import functools
import re

import pytest

from tools.gpu import kernel_resources
from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16, MIXED
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM, Variant

pytestmark = pytest.mark.nvrtc
MOST_REGISTERS, UNASKED = 64, 48 * 1024
"""So that two blocks of `MAX_THREADS` fit into a multiprocessor."""


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")


@functools.cache
def compiled(target, macros):
    return kernel_resources.compile_for(target, PROGRAM.source(macros))


VARIANTS = {
    "all": (),
    "times of all": (("TIMES", 1),),
    "plain": PLAIN.macros,
    "halves": PLAIN._replace(logprob_type=FLOAT16).macros,
    "phrases": PLAIN._replace(phrases=True).macros,
    "phrases, bfloat16": PLAIN._replace(phrases=True, logprob_type=BFLOAT16).macros,
    "min_active": PLAIN._replace(min_active=True).macros,
    "min_active, mixed": PLAIN._replace(min_active=True, logprob_type=MIXED).macros,
    "times": PLAIN._replace(times=True).macros,
    "lattices": PLAIN._replace(lattices=True).macros,
    "lattices, phrases": PLAIN._replace(lattices=True, phrases=True).macros,
    "added": PLAIN._replace(oov=True).macros,
    "added, all": Variant(oov=True, lattices=True, times=True).macros,
}


@pytest.mark.parametrize(
    ("target", "variant"),
    [(t, v) for t in kernel_resources.TARGETS for v in ("all", "plain")]
    + [("sm_90", variant) for variant in VARIANTS if variant not in ("all", "plain")],
)
@pytest.mark.share(keep=2)
def test_every_target(target, variant):
    ptx, log = compiled(target, VARIANTS[variant])
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == set(PROGRAM.kernels)
    for name, kernel in kernels.items():
        assert kernel.registers <= MOST_REGISTERS
        assert kernel.spilled == 0
        # Beside the search nothing has a table; without asking a block gets 48 KiB.
        own = PROGRAM.own_bytes if name == PROGRAM.kernels[0] else UNASKED
        assert kernel.shared <= own
    assert not re.search(r"\bfma\.|\.ftz\b", ptx), "sums would differ from the CPU's"


def instructions(ptx):
    return ptx.count(";\n")


def test_a_variant_leaves_out_what_it_is_not_compiled_for():
    everything, _ = compiled("sm_90", VARIANTS["all"])
    plain, _ = compiled("sm_90", PLAIN.macros)
    phrases, _ = compiled("sm_90", VARIANTS["phrases"])
    assert instructions(plain) < 0.6 * instructions(everything)
    assert instructions(plain) < instructions(phrases) < instructions(everything)
    assert "clock64" not in everything
    assert "%clock64" in compiled("sm_90", (("TIMES", 1),))[0]


def test_arrays_are_read_as_what_they_are():
    """Most loads know their memory; the graph's are through the read-only cache."""
    ptx, _ = compiled("sm_90", PLAIN.macros)
    search = kernel_resources.body_of(ptx, "search_chunk")
    generic = re.findall(r"\bld\.(?:v\d\.)?[bufs]\d+", search)
    assert len(generic) < 40, "of tables, which may lie in shared memory"
    assert len(re.findall(r"\bld\.global\.nc", search)) > 10
    assert ".volatile" not in search and "ld.relaxed.cta" in search
