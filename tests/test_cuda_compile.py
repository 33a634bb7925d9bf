"""The kernels compile for GPUs that are not here, within bounds."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))  # scripts, no package

import kernel_resources

from wfstdec.wfst.device_layout import MOST_THREADS, WARP, kernel_source

pytestmark = pytest.mark.nvrtc
MOST_REGISTERS = 64
"""So that two blocks of `MOST_THREADS` are at home in a multiprocessor."""
MOST_SHARED = 16 * 1024


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")


@pytest.mark.parametrize("target", kernel_resources.TARGETS)
def test_every_target(target):
    ptx, log = kernel_resources.compile_for(target)
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == {"search_chunk", "best_paths"}
    for kernel in kernels.values():
        assert kernel.registers <= MOST_REGISTERS
        assert kernel.spilled == 0
        assert kernel.shared <= MOST_SHARED
    assert not re.search(r"\bfma\.", ptx), "sums would differ from other backends"


def test_an_error_shows_the_line_of_the_file():
    wrong = kernel_source().replace(
        "bool bounded) const {", "bool bounded) const {;;,", 1
    )
    with pytest.raises(RuntimeError, match=r"sm_90: search\.cu\(\d+\): error"):
        kernel_resources.compile_for("sm_90", wrong)


def test_host_and_kernels_agree_on_threads():
    text = kernel_source("block.cuh")
    assert f"MOST_THREADS = {MOST_THREADS};" in text
    assert f"WARP = {WARP};" in text
