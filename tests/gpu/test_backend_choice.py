"""`backend="auto"`: which rule decides, what it says, and that nothing else changes."""

import pickle
import shutil
from functools import partial

import numpy as np
import pytest
from cuda_emulation.device import DeviceFault, EmulatedDevice
from cupy_stand_in import Kernel, array_of, stand_in
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from trie_devices import large_decoder, small_options, spoken

from wfstdec import BoostEntry, TrieDecoder, WfstDecoder
from wfstdec.errors import BackendError, DeviceError
from wfstdec.search import decoder as decoders
from wfstdec.search.decoder import batch_of
from wfstdec.wfst.gpu.backend import DeviceBackend

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def drawn(beam_size=None):
    """Maker of decoders (of the trie where `beam_size` is given), two utterances."""
    rng = np.random.default_rng(3)
    if beam_size is None:
        graph, options = random_graph(rng), random_options(rng)
        few = [random_logprobs(rng, 6, len(graph.tokens)) for _ in range(2)]
        return partial(WfstDecoder, graph, options, threads=2), few
    options = small_options(rng, beam=9.0, beam_size=beam_size, nbest=3)
    made = large_decoder(rng, 20, 40, options)
    arguments = {name: getattr(made, name) for name in ("tokens", "lexicon", "lm")}
    arguments |= {"separator": "|", "options": options, "threads": 2}
    return partial(TrieDecoder, **arguments), [spoken(rng, made, 6) for _ in range(2)]


def test_utterances_of_what_is_given_and_where_they_are():
    arrays = [np.zeros((t, 3), np.float32) for t in (5, 0, 9)]
    assert batch_of(arrays) == (3, False)
    assert batch_of(np.zeros((4, 9, 3), np.float16)) == (4, False)
    assert batch_of([np.zeros((4, 9, 3), np.float16)]) == (4, False)
    assert batch_of(list(map(array_of, arrays))) == (3, True)
    assert batch_of([]) == (0, False)


def test_without_a_gpu_it_is_the_cpu(cupy):
    cupy(None)
    decoder = WfstDecoder(random_graph(np.random.default_rng(0)))
    for choice in (decoder.choose_backend(400), decoder.choose_backend(1, on_gpu=True)):
        assert choice.backend == "cpu" and "needs CuPy" in choice.why
    assert "32 or more" in decoder.choose_backend(31).why
    with pytest.raises(BackendError, match="expected backend='auto'"):
        WfstDecoder(decoder.graph, backend="cpu").choose_backend(1)


def test_small_batches_of_tries_are_for_the_cpu(cupy):
    cupy(stand_in())
    decoder = drawn(beam_size=32)[0]()
    choice = decoder.choose_backend(127)
    assert choice.backend == "cpu" and "faster for batches of 128" in choice.why
    assert decoder.choose_backend(128) == ("cuda", "a batch of 128")


@needs_compiler
@pytest.mark.parametrize("beam_size", [None, 16, 100])
def test_both_backends_of_one_decoder(cupy, monkeypatch, beam_size):
    """All of `cuda.py`, with kernels in emulation in the place of a GPU."""
    cupy(stand_in())
    monkeypatch.setitem(decoders.MIN_BATCH, ("trie", True), 32)
    make, few = drawn(beam_size)
    many, decoder, named = few * 16, make(), make(backend="cpu")
    boosts = {decoder.vocabulary.words[1]: 1.0}
    assert decoder.decode(few, boosts=boosts) == named.decode(few, boosts=boosts)
    assert decoder.last_choice.backend == "cpu" and not Kernel.launched
    expected = named.decode(many, boosts=boosts)
    for one in (decoder, pickle.loads(pickle.dumps(decoder))):
        Kernel.launched.clear()
        assert one.decode(many, boosts=boosts) == expected
        assert one.last_choice == ("cuda", "a batch of 32") and Kernel.launched
    on_gpu = decoder.with_options(beam=8.0).choose_backend(1, on_gpu=True)
    assert on_gpu == ("cuda", "log-probs on the GPU")
    sessions = decoder.sessions()
    one = sessions.open(boosts)
    sessions.advance({one: few[0]})
    assert sessions.close(one) == expected[0]
    by_name = make(backend="cuda")
    expected = named.decode_nbest(few, boosts=boosts)
    for one in (by_name, pickle.loads(pickle.dumps(by_name))):
        assert one.decode_nbest(few, boosts=boosts) == expected


@needs_compiler
def test_the_cpu_for_what_no_gpu_searches(cupy, monkeypatch):
    cupy(stand_in())
    monkeypatch.setitem(decoders.MIN_BATCH, ("trie", True), 3)
    make, few = drawn(beam_size=32)
    decoder = make(lm=None)
    big = decoder.with_options(beam_size=257).choose_backend(800)
    assert big == ("cpu", "backend 'cuda': beam_size=257, expected at most 256")
    assert decoder.choose_backend(800).backend == "cuda"
    a, b = decoder.tokens.names[2:4]
    oov = [BoostEntry("added", [f"{a} {b}"], 1.0)]
    assert len(decoder.decode(few * 4, boosts=oov)) == 8
    assert decoder.last_choice[1] == "backend 'cuda': OOV word 'added', expected none"


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
