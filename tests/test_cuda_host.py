"""The host side of the CUDA backend, with a stand-in for CuPy that runs the emulation.

It shows that `wfstdec/wfst/cuda.py` holds together; that CuPy behaves like the stand-in
is shown by the tests that are marked `gpu`, on a GPU.
"""

import shutil
import sys
import types

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from text_graphs import text_graph

from wfstdec.errors import BackendError, LogprobError, ShapeError
from wfstdec.wfst import cuda
from wfstdec.wfst.backends import make_backend
from wfstdec.wfst.decoder import WfstDecoder

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


class Array(np.ndarray):
    """An array of CuPy, as far as it goes."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        return np.array(self)

    @property
    def device(self):
        return types.SimpleNamespace(id=getattr(self, "gpu", 0))

    def max(self):  # CuPy's has no `initial`
        return np.asarray(self).max()

    def __dlpack_device__(self):
        return (2, 0)


class Kernel:
    num_regs = 64

    def __init__(self, name):
        self.name = name

    def __call__(self, grid, block, arguments):
        device = EmulatedDevice(*block)
        device.launch(self.name, *grid, *arguments)


class CudaRuntimeError(RuntimeError):
    pass


def array_of(value, dtype=None):
    return np.array(value, dtype).view(Array)


def stand_in(num_devices=1, free=1 << 30):
    """A module."""

    def get_device_count():
        if num_devices is None:
            raise CudaRuntimeError("cudaErrorInsufficientDriver: too old")
        return num_devices

    def raw_module(code, options):
        assert "search_chunk" in code and "--fmad=false" in options
        return types.SimpleNamespace(get_function=Kernel)

    def contiguous(array, dtype):
        return np.ascontiguousarray(array, dtype).view(Array)

    attributes = {
        "MaxRegistersPerMultiprocessor": 65536,
        "MaxThreadsPerMultiProcessor": 2048,
        "MultiProcessorCount": 3,
    }
    runtime = types.SimpleNamespace(
        getDeviceCount=get_device_count,
        CUDARuntimeError=CudaRuntimeError,
        memGetInfo=lambda: (free, 2 * free),
    )
    return types.SimpleNamespace(
        RawModule=raw_module,
        asarray=array_of,
        ascontiguousarray=contiguous,
        empty=lambda count, dtype: array_of(np.full(count, 0xA5, dtype)),
        from_dlpack=array_of,
        stack=np.stack,
        cuda=types.SimpleNamespace(
            runtime=runtime,
            memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
            Device=lambda: types.SimpleNamespace(attributes=attributes, id=0),
        ),
    )


@pytest.fixture
def cupy(monkeypatch):
    """Puts a stand-in in the place of CuPy: `cupy(**of_stand_in)`; None: no CuPy."""

    def install(module):
        cuda._cupy.cache_clear()
        monkeypatch.setitem(sys.modules, "cupy", module)

    yield install
    monkeypatch.undo()
    cuda._cupy.cache_clear()


@needs_compiler
def test_decoding_on_the_stand_in(cupy):
    cupy(stand_in())
    for i in range(4):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (5, 0, 8)]
        boosts = random_boosts(rng, graph)
        expected = WfstDecoder(graph, options, "reference").decode(batch, boosts=boosts)
        decoder = WfstDecoder(graph, options, "cuda")
        assert decoder._backend.device.num_blocks == 3 * 2
        assert decoder.decode(batch, boosts=boosts) == expected
        on_gpu = [array_of(x) for x in batch]
        assert decoder.decode(on_gpu, boosts=boosts) == expected
        padded = np.full((3, 9, len(graph.tokens)), np.nan, np.float32)
        for row, x in zip(padded, batch, strict=True):
            row[: len(x)] = x
        hyps = decoder.decode(array_of(padded), [5, 0, 8], boosts)
        assert hyps == expected


@needs_compiler
def test_arrays_on_the_gpu_are_checked_as_all_others(cupy):
    cupy(stand_in())
    decoder = WfstDecoder(text_graph("0 0 a A 1\n0 0"), backend="cuda")
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"V=4 tokens, expected V=3"):
        decoder.decode([array_of(np.zeros((2, 4)))])
    for bad in (np.nan, np.inf):
        wrong = x.copy()
        wrong[1, 2] = bad
        with pytest.raises(LogprobError, match=f"utterance 1, frame 1: .* has {bad}"):
            decoder.decode([array_of(x), array_of(wrong)])
        assert decoder.decode([array_of(wrong)], [1]) == decoder.decode([x], [1])


@needs_compiler
def test_arrays_on_another_gpu_are_refused(cupy):
    module = stand_in()
    module.from_dlpack = lambda array: array
    cupy(module)
    decoder = WfstDecoder(text_graph("0 0 a A 1\n0 0"), backend="cuda")
    x = array_of(np.zeros((2, 3), np.float32))
    x.gpu = 1
    message = "utterance 0: logprobs is on GPU 1, expected GPU 0, where the graph is"
    with pytest.raises(BackendError, match=message):
        decoder.decode([x])


def test_what_is_missing_is_said(cupy):
    graph = text_graph("0 0 a A 1\n0 0")
    for module, message in [
        (None, r"backend 'cuda' needs CuPy: pip install 'wfstdec\[cuda12\]'"),
        (stand_in(num_devices=None), r"finds no usable GPU \(cudaErrorInsuff"),
        (stand_in(num_devices=0), "finds no GPU; use backend='cpu'"),
    ]:
        cupy(module)
        with pytest.raises(BackendError, match=message):
            cuda.CudaBackend(graph)
        assert not cuda.is_available()


@needs_compiler
def test_auto_is_the_cpu_until_kernels_have_run_on_a_gpu(cupy):
    graph = text_graph("0 0 a A 1\n0 0")
    for module in (None, stand_in()):
        cupy(module)
        assert type(make_backend("auto", graph)).__name__ == "CpuBackend"
