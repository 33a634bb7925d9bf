"""Sums of probabilities that stand side by side, as one operation of torch.

    total = sum_runs(score, begins)          # float64 [N, M], and where a run begins

    for each run: total = score of its first; then, one after the other,
                  total = add_scores(total, score)           # `wfstdec.search.log_add`

The same bits on every device. In torch's own operations each `add_scores` would be some
40 of them, and as many launches; so a CPU has a kernel of numba, and a GPU of NVIDIA's
one of CUDA, by CuPy, on the caller's stream. Scores on any other device, or without
CuPy, are summed on the CPU: a step then waits for two copies, which costs less than so
many launches, but cannot be captured in a graph.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import BackendError
from wfstdec.gpu.cuda_arrays import callers_stream
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy
from wfstdec.gpu.device import Device, Grid
from wfstdec.gpu.program import Program
from wfstdec.gpu.records import read_struct
from wfstdec.jit import kernel
from wfstdec.search.log_add import add_scores

_KERNELS = Path(__file__).parent / "kernels"
_THREADS = 128
TASK = read_struct(_KERNELS / "sums.cu", "SumsTask")
PROGRAM = Program(
    "sums.cu",
    _KERNELS,
    kernels=("sum_runs",),
    own_bytes=0,
    shared_bytes=lambda room: 0,
    structs={"SumsTask": TASK},
    constants={},
    block_threads=(_THREADS,),
)
"""The kernel of a GPU."""

_LIBRARY = torch.library.Library("wfstdec", "DEF")
_LIBRARY.define("sum_runs(Tensor score, Tensor begins) -> Tensor")


def sum_runs(score: Tensor, begins: Tensor) -> Tensor:
    """Sum probabilities, in order, over runs of neighbours.

    Args:
        score: float64 [N, M], logarithms; -inf is nothing.
        begins: bool [N, M], where a run begins; each row begins with one.

    Returns:
        float64 [N, M], at each place the total of its run.
    """
    return torch.ops.wfstdec.sum_runs(score, begins)


@kernel
def _sum_each(score, begins, total):
    """Fill in the totals, float64 [N, M]."""
    rows, columns = score.shape
    for row in range(rows):
        first = 0
        for end in range(1, columns + 1):
            if end < columns and not begins[row, end]:
                continue
            found = score[row, first]
            for i in range(first + 1, end):
                found = add_scores(found, score[row, i])
            total[row, first:end] = found
            first = end


def _on_cpu(score: Tensor, begins: Tensor) -> Tensor:
    total = torch.empty(score.shape, dtype=score.dtype)
    given = score.contiguous().numpy(), begins.contiguous().numpy()
    _sum_each(*given, total.numpy())
    return total


def _on_cuda(score: Tensor, begins: Tensor) -> Tensor:
    device = _device_of(score.get_device())
    if device is None:
        return _elsewhere(score, begins)
    with device.on_stream(callers_stream(device.cupy, score)):
        return launch_sums(device, score, begins)


def _elsewhere(score: Tensor, begins: Tensor) -> Tensor:
    return _on_cpu(score.cpu(), begins.cpu()).to(score.device)


def launch_sums(device: Device, score: Tensor, begins: Tensor) -> Tensor:
    """Sum on a device, in the current stream: `sum_runs`.

    Args:
        device: For `PROGRAM`; the tensors are in its memory.
        score: float64 [N, M].
        begins: bool [N, M].
    """
    score, begins = score.contiguous(), begins.contiguous()
    total = torch.empty_like(score)
    task = np.zeros(1, TASK)
    for name, one in (("score", score), ("begins", begins), ("total", total)):
        task[name] = one.data_ptr()
    task["rows"], task["columns"] = score.shape
    blocks = -(-score.numel() // _THREADS)
    if blocks:
        device.launch(Grid("sum_runs", blocks, threads=_THREADS), task)
    return total


@functools.cache
def _device_of(number: int) -> CupyDevice | None:
    """A GPU with the kernel, compiled once; None where CuPy cannot have it."""
    try:
        with load_cupy().cuda.Device(number):
            return CupyDevice(PROGRAM)
    except BackendError:
        return None


_LIBRARY.impl("sum_runs", _on_cpu, "CPU")
_LIBRARY.impl("sum_runs", _on_cuda, "CUDA")
_LIBRARY.impl("sum_runs", _elsewhere, "CompositeExplicitAutograd")
# Shapes alone: fake tensors, and what is exported, keep it as one operation.
_LIBRARY.impl("sum_runs", lambda score, begins: torch.empty_like(score), "Meta")
