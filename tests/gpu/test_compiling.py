"""The kernels compile for GPUs that are not here, within bounds."""

import functools
import re

import pytest

from tools.gpu import kernel_resources
from wfstdec.gpu.records import BLOCKS_PER_SM
from wfstdec.wfst.gpu.layout import PROGRAM

pytestmark = pytest.mark.nvrtc
MOST_REGISTERS = 64
"""So that two blocks of `MAX_THREADS` fit into a multiprocessor."""
MOST_SHARED = 8 * 1024
SLOTS = {"sm_75": 1024, "sm_80": 2048, "sm_90": 4096, "sm_100": 4096}
"""Of the table in shared memory, with two blocks in a multiprocessor."""


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")


@functools.cache
def compiled(target):
    return kernel_resources.compile_for(target)


@pytest.mark.parametrize("target", kernel_resources.TARGETS)
def test_every_target(target):
    ptx, log = compiled(target)
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == set(PROGRAM.kernels)
    for kernel in kernels.values():
        assert kernel.registers <= MOST_REGISTERS
        assert kernel.spilled == 0
        assert kernel.shared <= MOST_SHARED
    assert not re.search(r"\bfma\.|\.ftz\b", ptx), "sums would differ from the CPU's"


@pytest.mark.parametrize("target", SLOTS)
def test_two_blocks_with_their_tables_fit_into_a_multiprocessor(target):
    _, log = compiled(target)
    taken = kernel_resources.resources(log)["search_chunk"].shared
    slots, block = kernel_resources.table_slots(target, taken)
    assert slots == SLOTS[target]
    whole = kernel_resources.SHARED_MEMORY[target][0] * kernel_resources.KIB
    assert BLOCKS_PER_SM * block <= whole


def test_an_error_shows_the_line_of_the_file():
    wrong = PROGRAM.source.replace(
        "bool bounded) const {", "bool bounded) const {;;,", 1
    )
    with pytest.raises(RuntimeError, match=r"sm_90: search\.cu\(\d+\): error"):
        kernel_resources.compile_for("sm_90", wrong)
