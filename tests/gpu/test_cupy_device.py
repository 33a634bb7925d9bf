"""The host side of the CUDA backend, with a stand-in for CuPy that runs the emulation.

It shows that `wfst/gpu/backend.py` holds together; that CuPy behaves like the stand-in
is shown by the tests that are marked `gpu`, on a GPU.
"""

import gc
import os
import shutil
import signal
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cuda_emulation.device import as_given, in_16_bits
from cupy_stand_in import Array, Kernel, Lengths, Stream, Tensor, array_of, stand_in
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from searches import Lockstep
from text_graphs import text_graph

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.errors import BackendError, LogprobError, OptionError, ShapeError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16, FLOAT32
from wfstdec.search.backend import make_backend
from wfstdec.wfst.gpu.backend import CudaBackend
from wfstdec.wfst.gpu.layout import OWN_BYTES, PLAIN, PROGRAM
from wfstdec.wfst.options import BACKENDS

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def test_arrays_on_the_gpu_are_checked_as_all_others(cupy):
    cupy(stand_in())
    decoder = WfstDecoder(text_graph("0 0 a A 1\n0 0"), backend="cuda")
    assert decoder._backend.device.shape[:2] == (512, 3 * 2)
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"V=4 tokens, expected V=3"):
        decoder.decode([array_of(np.zeros((2, 4)))])
    for bad in (np.nan, np.inf):
        wrong = x.copy()
        wrong[1, 2] = bad
        with pytest.raises(LogprobError, match=f"utterance 1: .* has {bad} in frame 1"):
            decoder.decode([array_of(x), array_of(wrong)])
        for lengths in ([1], Lengths([1])):
            found = decoder.decode(array_of(wrong[None]), lengths)
            assert found == decoder.decode([x], [1])


@pytest.fixture
def torch(monkeypatch):
    """Puts a replacement in the place of torch, whose current stream is 1234."""
    streams = types.SimpleNamespace(cuda_stream=1234)
    module = types.SimpleNamespace(
        int16="int16", cuda=types.SimpleNamespace(current_stream=lambda _: streams)
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return streams


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.share(keep=2)
def test_tensors_are_read_where_they_are_on_the_callers_stream(cupy, torch, dtype):
    cupy(stand_in())
    for i in range(4):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        lengths, num_tokens = [5, 0, 8], len(graph.tokens)
        padded = np.stack([random_logprobs(rng, 9, num_tokens) for _ in lengths])
        kind = {"float16": FLOAT16, "bfloat16": BFLOAT16}.get(dtype, FLOAT32)
        bits = padded
        if kind != FLOAT32:
            halves = [in_16_bits(x, kind).buffer for x in padded]
            bits = np.stack(halves).view(np.int16 if kind == BFLOAT16 else np.float16)
        given = [x if kind == FLOAT32 else as_given(x, kind) for x in padded]
        boosts = random_boosts(rng, graph)
        reference = WfstDecoder(graph, options, "reference")
        expected = reference.decode(given, lengths, boosts)
        decoder = WfstDecoder(graph, options, "cuda")
        tensor = Tensor(bits, dtype)
        chunks = decoder._backend.inputs(tensor, lengths)
        step = bits.strides[0]
        assert [one.address for one in chunks] == [
            bits.ctypes.data + u * step for u in range(3)
        ]
        Kernel.launched.clear()
        assert decoder.decode(tensor, lengths, boosts) == expected
        assert decoder.decode(
            [*map(tensor.__getitem__, range(3))], lengths, boosts
        ) == (expected)
        under_way = Lockstep(decoder, 3, boosts)
        under_way.advance(Tensor(bits[:, :4], dtype), np.minimum(lengths, 4))
        rest = np.maximum(np.array(lengths) - 4, 0)
        under_way.advance(Tensor(bits[:, 4:], dtype), rest)
        assert under_way.finish() == expected
        assert {stream for _, stream in Kernel.launched} == {1234}
        torch.cuda_stream = 0
        Kernel.launched.clear()
        assert decoder.decode(tensor, lengths, boosts) == expected
        assert {stream for _, stream in Kernel.launched} == {0}
        torch.cuda_stream = 1234


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.float64),
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1].copy()[::-1],
    ],
)
def test_arrays_that_kernels_cannot_read_are_copied(cupy, change):
    cupy(stand_in())
    graph = text_graph("0 0 a A 1\n0 0 b B 2\n0 0")
    x = random_logprobs(np.random.default_rng(4), 6, 3)
    expected = WfstDecoder(graph, backend="reference").decode([x])
    decoder = WfstDecoder(graph, backend="cuda")
    assert decoder.decode([change(x).view(Array)]) == expected
    wide = np.full((6, 5), np.nan, np.float32)
    wide[:, :3] = x
    view = wide[:, :3].view(Array)  # rows apart: read as they are
    assert decoder._backend.inputs([view], None)[0].frame_stride == 5
    assert decoder.decode([view]) == expected


def test_shared_memory_is_asked_for_as_all_blocks_take_it(cupy):
    cupy(stand_in())
    device = cuda.CupyDevice(PROGRAM, 512)
    for macros in ((), PLAIN.macros):
        search = device.kernels(macros)["search_chunk"]
        block = OWN_BYTES + device.shape.shared_bytes
        assert search.max_dynamic_shared_size_bytes == 99 * 1024 - OWN_BYTES
        wanted = search.preferred_shared_memory_carveout
        assert wanted - 1 < 100 * 2 * (block + 1024) / (100 * 1024) <= wanted <= 100


@pytest.mark.parametrize("threads", [0, 16, 33, 544, 1024])
def test_threads_that_no_block_can_have_are_refused(cupy, threads):
    cupy(stand_in())
    message = f"threads={threads} of a block, expected a multiple of 32, at most 512"
    with pytest.raises(OptionError, match=message):
        CudaBackend(text_graph("0 0 a A 1\n0 0"), threads)


def test_what_a_batch_does_not_have_is_not_in_its_kernels(cupy):
    module = stand_in()
    cupy(module)
    graph = text_graph("0 0 a A 1\n0 0")
    x = np.zeros((2, 3), np.float32)
    decoder = WfstDecoder(graph, backend="cuda")
    decoder.decode([x])
    decoder.decode([x], boosts={"A": 1.0})
    assert len(module.cuda.nvrtc.compiled) == 1
    phrases = decoder.phrase_compiler(unit="word").compile(["A A"])
    decoder.decode([x, x], boosts=[None, phrases])
    assert len(module.cuda.nvrtc.compiled) == 2
    decoder.decode([array_of(x.astype(np.float16))])
    assert len(module.cuda.nvrtc.compiled) == 3


def test_log_probs_of_the_host_go_by_pinned_memory_that_is_kept(cupy):
    module = stand_in()
    taken = []
    module.cuda.alloc_pinned_memory = lambda size: taken.append(size) or bytearray(size)
    cupy(module)
    decoder = WfstDecoder(text_graph("0 0 a A 1\n0 0"), backend="cuda")
    decoder.decode([np.zeros((9, 3), np.float32)])
    first = [*taken]
    assert first[0] == 9 * 3 * 4
    for frames in (4, 9):
        decoder.decode([np.zeros((frames, 3), np.float32)])
    assert taken == first
    decoder.decode([np.zeros((20, 3), np.float32)])
    assert len(taken) > len(first)


def test_memory_that_cupys_pool_may_not_have_is_not_planned_with(cupy):
    cupy(stand_in(free=1 << 30))
    roomy = cuda.CupyDevice(PROGRAM).budget.limit
    assert roomy == int(0.8 * ((1 << 30) + (1 << 20)))
    cupy(stand_in(free=1 << 30, pool_limit=1 << 28))
    tight = cuda.CupyDevice(PROGRAM).budget.limit
    assert tight == int(0.8 * ((1 << 28) - (1 << 10)))


def test_decoders_share_a_graph_and_the_memory_of_a_gpu(cupy):
    cupy(stand_in())
    graphs = [text_graph("0 0 a A 1\n0 0"), text_graph("0 0 b B 1\n0 0 a C 2\n0 0")]
    options = [WfstOptions(), WfstOptions(beam=1.0)]
    decoders = [WfstDecoder(g, o, "cuda") for g in graphs for o in options]
    backends = [decoder._backend for decoder in decoders]
    assert backends[0] is backends[1] and backends[2] is backends[3]
    assert backends[0] is not backends[2]
    assert backends[0].device.budget is backends[2].device.budget
    left = backends[0].device.budget.left
    bytes_of_the_second = decoders[2].memory_plan(1)["graph"]
    del decoders[2:], backends
    gc.collect()
    assert decoders[0]._backend.device.budget.left == left + bytes_of_the_second


def test_threads_with_decoders_and_streams_of_their_own(cupy):
    cupy(stand_in())
    rng = np.random.default_rng(5)
    graphs = [random_graph(rng, num_states=20) for _ in range(3)]
    batches = [[random_logprobs(rng, t, len(g.tokens)) for t in (9, 4)] for g in graphs]
    pairs = list(zip(graphs, batches, strict=True))
    expected = [WfstDecoder(g, backend="reference").decode(x) for g, x in pairs]
    decoders = [WfstDecoder(g, backend="cuda") for g in graphs]

    def work(i):
        with Stream(100 + i):
            on_gpu = [array_of(x) for x in batches[i % 3]]
            found = [decoders[i % 3].decode(on_gpu) for _ in range(2)]
        return all(one == expected[i % 3] for one in found)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
    assert {stream for _, stream in Kernel.launched} == set(range(100, 106))


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
        (None, r"backend 'cuda' needs CuPy: pip install 'cupy-cuda12x\[ctk\]'"),
        (stand_in(num_devices=None), r"finds no usable GPU \(cudaErrorInsuff"),
        (stand_in(num_devices=0), "finds no GPU; use backend='cpu'"),
    ]:
        cupy(module)
        with pytest.raises(BackendError, match=message):
            CudaBackend(graph)
        assert not cuda.is_available()


def test_auto_is_the_cpu_until_kernels_have_run_on_a_gpu(cupy):
    graph = text_graph("0 0 a A 1\n0 0")
    for module in (None, stand_in()):
        cupy(module)
        assert type(make_backend(BACKENDS, "auto", graph)).__name__ == "CpuBackend"


def test_ctrl_c_leaves_the_import_of_cupy_whole(monkeypatch):
    """A second import of half a CuPy ends in an AttributeError."""
    done = threading.Event()

    def slowly(name):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        done.set()
        raise ImportError(name)

    cuda.load_cupy.cache_clear()
    importing = types.SimpleNamespace(import_module=slowly)
    monkeypatch.setattr(cuda, "importlib", importing)
    with pytest.raises(KeyboardInterrupt):
        cuda.load_cupy()
    assert done.wait(10)
