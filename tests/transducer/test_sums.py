"""Sums of probabilities in runs: one operation, the same bits on every device."""

import shutil
import sys
import types
from functools import reduce

import numpy as np
import pytest
import torch
from cuda_emulation.device import EmulatedDevice
from cupy_stand_in import Kernel, Stream, stand_in

from wfstdec.gpu import cupy_device as cuda
from wfstdec.search.log_add import add_scores
from wfstdec.transducer import beam as sums
from wfstdec.transducer.beam import PROGRAM, launch_sums, sum_runs

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
INF = float("inf")


def runs_of(seed, rows=7, columns=23):
    """Scores with the impossible among them, and where runs begin."""
    rng = np.random.default_rng(seed)
    score = -rng.exponential(6.0, (rows, columns)) - 900.0 * rng.random((rows, 1))
    score[rng.random(score.shape) < 0.2] = -INF
    begins = rng.random(score.shape) < (0.0, 0.2, 0.5, 1.0)[seed % 4]
    begins[:, :1] = True
    return torch.from_numpy(score), torch.from_numpy(begins)


def one_by_one(score, begins):
    total = np.empty(score.shape)
    for row, firsts, out in zip(score.numpy(), begins.numpy(), total, strict=True):
        at = [*np.flatnonzero(firsts), len(row)]
        for first, end in zip(at[:-1], at[1:], strict=True):
            out[first:end] = reduce(add_scores, row[first:end])
    return total


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_summed_in_order(seed):
    score, begins = runs_of(seed)
    expected = one_by_one(score, begins)
    np.testing.assert_array_equal(sum_runs(score, begins).numpy(), expected)
    turned = score.T.contiguous().T, begins.T.contiguous().T
    np.testing.assert_array_equal(sum_runs(*turned).numpy(), expected)
    finite = score.masked_fill(score == -INF, -1e4)
    exact = torch.logcumsumexp(finite, 1)[:, -1]
    whole = torch.zeros_like(begins).index_fill(1, torch.tensor([0]), True)
    found = sum_runs(score, whole)[:, 0]
    torch.testing.assert_close(found, exact, rtol=0, atol=23 * 2e-7)


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_a_gpu_has_the_same_bits(seed):
    device = EmulatedDevice(program=PROGRAM)
    for rows, columns in ((7, 23), (1, 1), (40, 2), (0, 5)):
        score, begins = runs_of(seed, rows, columns)
        found = launch_sums(device, score, begins)
        np.testing.assert_array_equal(found.numpy(), one_by_one(score, begins))


@needs_compiler
def test_a_gpu_is_asked_on_the_stream_of_the_caller(monkeypatch, tmp_path):
    """By an imitated CuPy; without CuPy the CPU is asked, with the same sums."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    stream = types.SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    score, begins = runs_of(1)
    cuda.load_cupy.cache_clear(), sums._device_of.cache_clear(), Kernel.launched.clear()
    try:
        found = sums._on_cuda(score, begins)
        assert Kernel.launched == [("sum_runs", 7)]
        assert Stream.local.__dict__.get("current", []) == []
        monkeypatch.setitem(sys.modules, "cupy", None)
        cuda.load_cupy.cache_clear(), sums._device_of.cache_clear()
        without = sums._on_cuda(score, begins)
    finally:
        cuda.load_cupy.cache_clear(), sums._device_of.cache_clear()
    assert len(Kernel.launched) == 1
    expected = one_by_one(score, begins)
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(without.numpy(), expected)
