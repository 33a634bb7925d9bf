"""`backend="auto"`: which rule decides, what it says, and that nothing else changes."""

import pickle
import shutil
import sys

import numpy as np
import pytest
from cuda_emulation.device import DeviceFault, EmulatedDevice
from cupy_stand_in import Kernel, array_of, stand_in
from random_graphs import random_boosts, random_graph, random_logprobs, random_options

from wfstdec import WfstDecoder
from wfstdec.errors import BackendError, DeviceError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.search.backend_choice import batch_of
from wfstdec.wfst.gpu.backend import DeviceBackend

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A stand-in for CuPy and a GPU."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    cuda.load_cupy.cache_clear()
    Kernel.launched.clear()
    yield
    monkeypatch.undo()
    cuda.load_cupy.cache_clear()


def test_utterances_of_what_is_given_and_where_they_are():
    arrays = [np.zeros((t, 3), np.float32) for t in (5, 0, 9)]
    assert batch_of(arrays) == (3, False)
    assert batch_of(np.zeros((4, 9, 3), np.float16)) == (4, False)
    assert batch_of([np.zeros((4, 9, 3), np.float16)]) == (4, False)
    assert batch_of(list(map(array_of, arrays))) == (3, True)
    assert batch_of([]) == (0, False)


def test_without_a_gpu_it_is_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.load_cupy.cache_clear()
    decoder = WfstDecoder(random_graph(np.random.default_rng(0)))
    for choice in (decoder.choose_backend(400), decoder.choose_backend(1, on_gpu=True)):
        assert choice.backend == "cpu" and "needs CuPy" in choice.why
    assert "32 or more" in decoder.choose_backend(31).why
    with pytest.raises(BackendError, match="expected backend='auto'"):
        WfstDecoder(decoder.graph, backend="cpu").choose_backend(1)
    cuda.load_cupy.cache_clear()


@needs_compiler
def test_both_backends_of_one_decoder(gpu):
    rng = np.random.default_rng(3)
    graph, options = random_graph(rng), random_options(rng)
    few = [random_logprobs(rng, 6, len(graph.tokens)) for _ in range(2)]
    many, boosts = few * 16, random_boosts(rng, graph)
    decoder = WfstDecoder(graph, options, threads=2)
    named = WfstDecoder(graph, options, "cpu", threads=2)
    assert decoder.decode(few, boosts=boosts) == named.decode(few, boosts=boosts)
    assert decoder.last_choice.backend == "cpu" and not Kernel.launched
    for one in (decoder, pickle.loads(pickle.dumps(decoder))):
        Kernel.launched.clear()
        assert one.decode(many, boosts=boosts) == named.decode(many, boosts=boosts)
        assert one.last_choice == ("cuda", "a batch of 32") and Kernel.launched
    on_gpu = decoder.with_options(beam=8.0).choose_backend(1, on_gpu=True)
    assert on_gpu == ("cuda", "log-probs on the GPU")
    sessions = decoder.sessions()
    one = sessions.open(boosts)
    sessions.advance({one: few[0]})
    assert sessions.close(one) == named.decode(few[:1], boosts=boosts)[0]


# ------------------------------------------------------------ a device that goes wrong
@needs_compiler
@pytest.mark.parametrize("fail_after", [0, 1, 2, 3, 5])
def test_what_was_done_before_a_device_failed_comes_back(fail_after):
    rng = np.random.default_rng(10)
    graph, options = random_graph(rng), random_options(rng)
    given = [random_logprobs(rng, t, len(graph.tokens)) for t in (8, 3, 7, 5, 8)]
    boosts = [random_boosts(rng, graph) for _ in given]
    expected = WfstDecoder(graph, options, "cpu").decode(given, boosts=boosts)
    device = EmulatedDevice()
    decoder = WfstDecoder(graph, options, "reference")
    decoder._backend = DeviceBackend(graph, device, first_capacity=64)
    plan = decoder.memory_plan(1, 8)
    room = 2 * plan["scratch"] + 1.5 * plan["utterances"] + plan["logprobs"]
    device.budget.limit = int(plan["graph"] + room)
    device.fail_after = fail_after
    with pytest.raises(DeviceError, match="an illegal memory access") as caught:
        decoder.decode(given, boosts=boosts)
    error = caught.value
    assert isinstance(error.__cause__, DeviceFault)
    assert sorted([*error.missing, *error.done]) == list(range(5))
    assert error.missing and bool(error.done) == (fail_after > 1)
    for i, hypothesis in error.done.items():
        assert hypothesis == expected[i]
    named = ", ".join(map(str, error.missing))
    assert f"before utterances {named} were done, {len(error.missing)}" in str(error)
    device.fail_after = None
    assert decoder.decode(given, boosts=boosts) == expected
