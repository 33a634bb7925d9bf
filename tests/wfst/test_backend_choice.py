"""`backend="auto"`: which rule decides, what it says, and that nothing else changes."""

import shutil
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_emulation.device import DeviceFault, EmulatedDevice
from cupy_stand_in import Kernel, array_of, stand_in
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from text_graphs import text_graph

from wfstdec import WfstDecoder
from wfstdec.errors import BackendError, DeviceError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.gpu.device import BlockShape, shape_for
from wfstdec.gpu.verified import record_pass, why_not
from wfstdec.search import backend_choice as choice
from wfstdec.search.backend_choice import AutoBackend, Batch, Machine, batch_of
from wfstdec.wfst.backend_choice import pace_of
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import PROGRAM

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
GPU = Machine(cores=16, no_gpu=None, gpu_blocks=264)


def choose(batch, beam, machine):
    return choice.choose(batch, pace_of(beam), machine)


def cpu_s(batch, beam, machine):
    return choice.cpu_s(batch, pace_of(beam), machine)


def gpu_s(batch, beam, machine):
    return choice.gpu_s(batch, pace_of(beam), machine)


def batch(size, frames=400, **more):
    return Batch(size, size * frames, frames, **more)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No GPU has passed any test."""
    monkeypatch.setenv("WFSTDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "cache"


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in for CuPy and a GPU."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    cuda.load_cupy.cache_clear()
    Kernel.launched.clear()
    yield
    monkeypatch.undo()
    cuda.load_cupy.cache_clear()


# ------------------------------------------------------------------------- the rule
@pytest.mark.parametrize(
    ("what", "beam", "machine", "backend", "why"),
    [
        (
            batch(400),
            17.0,
            Machine(16, "no GPU has passed"),
            "cpu",
            "no GPU has passed",
        ),
        (batch(16), 17.0, GPU, "cpu", "a batch of 16 is no larger than the 16 threads"),
        (batch(1, on_gpu=True), 17.0, GPU, "cpu", "a batch of 1 is no larger than"),
        (
            Batch(400, 160_000, 4000),
            8.0,
            GPU,
            "cpu",
            "400 utterances at beam 8",
        ),
        (batch(400), 17.0, GPU, "cuda", "ms are predicted on the CPU"),
        (batch(400), 17.0, Machine(4, None, 264), "cuda", "ms on the GPU"),
        (batch(400), np.inf, GPU, "cuda", "beam inf"),
        (batch(17, 40_000), 8.0, GPU, "cpu", "17 utterances"),
    ],
)
def test_the_rules_by_hand(what, beam, machine, backend, why):
    found = choose(what, beam, machine)
    assert found.backend == backend and why in found.why


def test_what_the_prediction_says():
    """The model's own numbers: 1.0 and 3.6 us on a core, 9.5 and 17.5 on a block."""
    one = Batch(1, 1_000_000, 1_000_000)
    assert cpu_s(one, 8.0, GPU) == pytest.approx(1.0)
    assert cpu_s(one, 13.0, GPU) == pytest.approx(3.6, rel=0.01)
    assert gpu_s(one, 13.0, GPU) == gpu_s(one, 8.0, GPU) == pytest.approx(9.5, rel=1e-4)
    assert gpu_s(one, 17.0, GPU) == pytest.approx(17.5, rel=0.01)
    many = batch(400, 400)
    assert cpu_s(many, 13.0, GPU) == pytest.approx(400 * 400 * 3.6e-6 / 16, rel=0.01)
    assert gpu_s(many, 13.0, GPU) > gpu_s(many, 13.0, Machine(16, None, 400))


def test_fewer_threads_take_more_turns_over_arcs():
    """The model's 977 arcs of a frame, half a microsecond a turn."""
    large, middle, small = (
        pace_of(13.0, threads).gpu_us for threads in (512, 256, 128)
    )
    assert large == pace_of(13.0).gpu_us == 9.5
    assert middle == pytest.approx(9.5 + 0.954, abs=1e-3)
    assert small == pytest.approx(9.5 + 2.862, abs=1e-3)
    ratio = pace_of(17.0).gpu_us / 9.5
    assert pace_of(17.0, 128).gpu_us == pytest.approx(small * ratio)
    assert pace_of(13.0, 128).cpu_us == pace_of(13.0).cpu_us


@pytest.mark.parametrize(
    ("size", "threads", "blocks"), [(17, 512, 264), (264, 512, 264), (400, 256, 528)]
)
def test_the_prediction_is_of_the_blocks_that_a_batch_gets(size, threads, blocks):
    shapes = [BlockShape(512, 264, 0), BlockShape(256, 528, 0), BlockShape(128, 999, 0)]
    auto = AutoBackend(None, 16, "nowhere")
    auto.machine = Machine(16, None)
    auto.cuda = SimpleNamespace(shape=lambda count, _: shape_for(shapes, count))
    found = auto.choose(batch(size), None, partial(pace_of, 13.0))
    machine = Machine(16, None, blocks)
    expected = choice.choose(batch(size), pace_of(13.0, threads), machine)
    assert found == expected


def test_where_log_probs_are_decides_what_is_close():
    rng = np.random.default_rng(0)
    there = 0
    for _ in range(300):
        size, frames = int(rng.integers(17, 600)), int(rng.integers(100, 2000))
        given = batch(size, frames, num_bytes=size * frames * 4096)
        beam = float(rng.uniform(8, 17))
        on_host = choose(given, beam, GPU).backend
        on_gpu = choose(given._replace(on_gpu=True), beam, GPU).backend
        assert (on_host, on_gpu) != ("cuda", "cpu")
        there += on_host != on_gpu
    assert there > 10


def test_the_size_of_what_is_given():
    arrays = [np.zeros((t, 3), np.float32) for t in (5, 0, 9)]
    assert batch_of(arrays, None) == Batch(3, 14, 9, 14 * 12)
    padded = np.zeros((3, 9, 3), np.float16)
    assert batch_of(padded, None) == Batch(3, 27, 9, 3 * 9 * 3 * 2)
    assert batch_of(padded, [5, 0, 9])[:3] == (3, 14, 9)
    assert batch_of(list(map(array_of, arrays)), None).on_gpu
    assert batch_of([], None) == Batch(0, 0, 0, 0)


# ------------------------------------------------------------------------ a machine
def test_the_cpu_until_a_gpu_has_passed_the_tests(gpu):
    graph = text_graph("0 0 a A 1\n0 0")
    decoder = WfstDecoder(graph)
    choice = decoder.choose_backend(400, 400_000)
    assert choice.backend == "cpu" and "no GPU has passed the tests" in choice.why
    assert not Kernel.launched
    decoder.decode([np.zeros((2, 3), np.float32)])
    assert decoder.last_choice == choice


def test_nothing_is_imported_where_no_gpu_has_passed(monkeypatch):
    def fail():
        raise AssertionError("CuPy was looked for")

    monkeypatch.setattr("wfstdec.gpu.verified.load_cupy", fail)
    assert "pytest -m gpu" in why_not(PROGRAM)


def test_another_gpu_driver_or_kernel_has_not_passed(gpu, cache, monkeypatch):
    record_pass(PROGRAM)
    record_pass(PROGRAM)
    assert why_not(PROGRAM) is None
    runtime = cuda.load_cupy().cuda.runtime
    monkeypatch.setattr(runtime, "driverGetVersion", lambda: 12000)
    assert "have not passed the tests on this GPU with its driver" in why_not(PROGRAM)
    monkeypatch.undo()
    (cache / "gpu_passed.json").write_text("no JSON")
    monkeypatch.setenv("WFSTDEC_CACHE", str(cache))
    assert "no GPU has passed" in why_not(PROGRAM)


@needs_compiler
def test_both_backends_of_one_decoder(gpu):
    record_pass(PROGRAM)
    rng = np.random.default_rng(3)
    graph, options = random_graph(rng), random_options(rng)
    options = type(options)(beam=40.0, max_active=options.max_active)
    few = [random_logprobs(rng, 6, len(graph.tokens)) for _ in range(2)]
    many, boosts = few * 200, random_boosts(rng, graph)
    decoder = WfstDecoder(graph, options, threads=2)
    named = WfstDecoder(graph, options, "cpu", threads=2)
    assert decoder.decode(few, boosts=boosts) == named.decode(few, boosts=boosts)
    assert decoder.last_choice.backend == "cpu" and not Kernel.launched
    found = decoder.decode(many, boosts=boosts)
    if decoder.last_choice.backend == "cuda":
        assert Kernel.launched
    assert found == named.decode(many, boosts=boosts)
    with pytest.raises(BackendError, match="expected backend='auto'"):
        named.choose_backend(1, 1)
    other = decoder.with_options(beam=8.0)
    assert other.choose_backend(400, 400).backend in ("cpu", "cuda")
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
