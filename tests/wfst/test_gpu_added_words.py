"""Added words in the CUDA kernels, in emulation: the bits of the specification."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from added_cases import (
    drawn_search,
    frames,
    random_added_boosts,
    random_calls_graph,
    small_graph,
)
from cuda_emulation.device import EmulatedDevice
from cuda_emulation.machines import made_of
from device_cases import BLOCK_SIZES, random_device
from random_graphs import random_logprobs, random_options
from wfst_searches import NO_BOOSTS, bits, decoded

from wfstdec import BoostEntry, WfstDecoder
from wfstdec.gpu.budget import DeviceMemoryError
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.lattice_pack import lattice_of
from wfstdec.wfst.reference_backend import ReferenceBackend

__all__ = ["made_of"]
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def draw(rng):
    """A graph; log-probs and boosts of four utterances: two lists, one twice; none."""
    graph, options = random_calls_graph(rng), random_options(rng)
    lists = [random_added_boosts(rng, graph) for _ in range(2)]
    boosts = [lists[0], NO_BOOSTS, lists[1], lists[0]]
    sizes = rng.integers(0, 9, len(boosts))
    batch = [random_logprobs(rng, int(t), len(graph.tokens)) for t in sizes]
    order = rng.permutation(len(boosts))
    return graph, options, batch, [boosts[i] for i in order]


def expected_paths(graph, options, batch, boosts):
    backend, paths = ReferenceBackend(graph), []
    for x, one in zip(batch, boosts, strict=True):
        search = backend.start(options, one)
        search.advance(x)
        paths.append(search.finish())
    return paths


def num_added(graph, paths):
    """The paths that say an added word."""
    return sum(any(path.said.word >= len(graph.words)) for path in paths)


# ------------------------------------------------------------------- random batches
@pytest.mark.parametrize("threads", BLOCK_SIZES)
@pytest.mark.parametrize("preempt", [0, 4])
@pytest.mark.share(keep=2)
def test_random_graphs_with_random_calls(threads, preempt):
    """Several lists in a batch, and none; arrays of any size at first."""
    found = 0
    for i in range(25):
        rng = np.random.default_rng([threads, preempt, i])
        drawn = draw(rng)
        device = random_device(rng, threads, preempt)
        capacity = int(rng.choice([1, 4, 64]))
        backend = DeviceBackend(drawn[0], device, first_capacity=capacity)
        expected = expected_paths(*drawn)
        assert decoded(backend, *drawn[1:]) == list(map(bits, expected)), i
        found += num_added(drawn[0], expected)
        assert {dict(grid.macros).get("ADDED") for grid in device.grids} == {1}
    assert found > 10


@pytest.mark.parametrize("seed", range(4))
def test_schedules_do_not_matter(seed):
    drawn = draw(np.random.default_rng([3, seed]))
    expected = list(map(bits, expected_paths(*drawn)))
    for schedule in range(8):
        slots = [0, 16, 64][schedule % 3]
        device = EmulatedDevice(64, preempt=2, seed=schedule, shared_slots=slots)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected, schedule


def test_batches_without_added_words_take_the_kernels_without():
    rng = np.random.default_rng(5)
    graph, options, batch, boosts = draw(rng)
    device = EmulatedDevice()
    backend = DeviceBackend(graph, device)
    some = [i for i, one in enumerate(boosts) if one.added is None]
    backend.decode([batch[i] for i in some], options, [boosts[i] for i in some])
    assert all("ADDED" not in dict(grid.macros) for grid in device.grids)


# ------------------------------------------------------------------------- lattices
def contents(graph, options, recorded):
    lattice = lattice_of(graph, options, recorded, 0.02)
    ends = lattice.search_cost, lattice.reached_final, lattice.died_at_frame
    return lattice.states.tobytes(), lattice.arcs.tobytes(), ends


@pytest.mark.parametrize("capacity", [1, 64])
def test_lattices_are_those_of_the_specification(capacity, monkeypatch):
    if capacity == 1:
        monkeypatch.setattr("wfstdec.wfst.gpu.memory.LINKS_PER_NODE", 0)
        monkeypatch.setattr("wfstdec.wfst.gpu.memory.TRACE_BYTES", 1024)
    found = 0
    for i in range(40):
        rng = np.random.default_rng([6, i])
        graph, options, batch, boosts = draw(rng)
        options = replace(options, lattice_beam=min(options.beam, 20.0) / 2)
        device = random_device(rng, 64, preempt=int(rng.choice([0, 4])))
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        reference = ReferenceBackend(graph)
        recorded = backend.decode(batch, options, boosts, record=True)
        for x, one, got in zip(batch, boosts, recorded, strict=True):
            search = reference.start(options, one, record=True)
            search.advance(x)
            expected = search.finish()
            assert bits(got.best) == bits(expected.best), i
            got, expected = (contents(graph, options, r) for r in (got, expected))
            assert got == expected, i
            arcs = recorded[0].arcs["arc"]
            found += bool((arcs >= graph.num_arcs).any())
    assert found > 20


# ------------------------------------------------------------------------- decoders
def on_device(decoder, device, first_capacity=64):
    """Make the same decoder on a device."""
    other = WfstDecoder(decoder.graph, decoder.options, "cpu")
    other._backend = DeviceBackend(decoder.graph, device, first_capacity)
    return other


def test_a_decoder_finds_the_same_hypotheses(tmp_path):
    found = 0
    for i in range(40):
        rng = np.random.default_rng([7, i])
        reference, x, boosts = drawn_search(rng, tmp_path)
        reference = reference.with_options(nbest=3)
        decoder = on_device(reference, random_device(rng, 64))
        given = [x, x[: len(x) // 2], x], [boosts, None, boosts]
        hyps = decoder.decode(given[0], boosts=given[1])
        assert hyps == reference.decode(given[0], boosts=given[1])
        lists = [
            one.decode_nbest(given[0], boosts=given[1]) for one in (reference, decoder)
        ]
        assert lists[0] == lists[1]
        words = {word.text for hyp in hyps for word in hyp.words}
        found += not words <= set(reference.graph.words)
    assert found > 3


# --------------------------------------------------------------------------- memory
def test_a_list_is_uploaded_once(tmp_path):
    reference = WfstDecoder(small_graph(tmp_path), backend="reference")
    device = EmulatedDevice()
    decoder = on_device(reference, device)
    boosts = [BoostEntry("nab", ["n a b"], 1.0)]
    decoder.decode([frames("nab")] * 3)
    compiled = decoder._compiled(boosts, 1) * 3
    before = device.budget.left
    decoder._search([frames("nab")] * 3, compiled)
    taken = before - device.budget.left
    overlay = decoder._backend.device_graph.overlays.of(compiled[0].added).overlay
    assert taken >= overlay.arcs.nbytes + overlay.bonus.nbytes
    decoder._search([frames("nab")] * 3, compiled)
    assert before - device.budget.left == taken


def test_words_that_do_not_fit_say_what_to_do(tmp_path):
    reference = WfstDecoder(small_graph(tmp_path), backend="reference")
    decoder = on_device(reference, EmulatedDevice(memory_limit=1 << 20))
    word = " ".join("ab" * 20_000)
    with pytest.raises(DeviceMemoryError, match="added words of .* add fewer words"):
        decoder.decode([frames("nab")], boosts=[BoostEntry("nab", [word], 1.0)])
    assert decoder.decode([frames("an")])[0].text == "an"
