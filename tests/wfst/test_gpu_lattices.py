"""Lattices that the CUDA kernels record, in emulation: those of the specification."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from cuda_emulation.machines import made_of
from device_cases import BLOCK_SIZES, draw, random_device
from random_graphs import random_options
from wfst_searches import bits

from wfstdec import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.search.backends import make_backend
from wfstdec.wfst.backend_choice import BACKENDS
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.lattice_pack import lattice_of

__all__ = ["made_of"]
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def contents(graph, options, recorded):
    lattice = lattice_of(graph, options, recorded, 0.02)
    ends = lattice.search_cost, lattice.reached_final, lattice.died_at_frame
    return lattice.states.tobytes(), lattice.arcs.tobytes(), ends, lattice.num_frames


def expected_lattices(graph, options, batch, boosts):
    backend, found = make_backend(BACKENDS, "reference", graph), []
    for logprobs, one in zip(batch, boosts, strict=True):
        search = backend.start(options, one, record=True)
        search.advance(logprobs)
        found.append(contents(graph, options, search.finish()))
    return found


def recorded_lattices(backend, options, batch, boosts):
    found = backend.decode(batch, options, boosts, record=True)
    return [contents(backend.graph, options, one) for one in found]


def draw_lattices(rng, **kinds):
    graph, options, *given = draw(rng, **kinds)
    beam = float(rng.choice([0, 0.5, 1])) * min(options.beam, 20.0)
    return graph, replace(options, lattice_beam=beam), *given


@pytest.mark.parametrize("threads", BLOCK_SIZES)
@pytest.mark.parametrize("preempt", [0, 4])
@pytest.mark.share(keep=2)
def test_random_graphs(threads, preempt):
    for i in range(20):
        rng = np.random.default_rng([threads, preempt, i])
        drawn = draw_lattices(rng)
        device = random_device(rng, threads, preempt)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert recorded_lattices(backend, *drawn[1:]) == expected_lattices(*drawn), i


@pytest.mark.parametrize("seed", range(4))
def test_arrays_too_small_lose_nothing(seed, monkeypatch):
    monkeypatch.setattr("wfstdec.wfst.gpu.memory.LINKS_PER_NODE", 0)
    monkeypatch.setattr("wfstdec.wfst.gpu.memory.TRACE_BYTES", 1024)
    drawn = draw_lattices(np.random.default_rng(seed), num_states=25, arcs_per_state=6)
    device = EmulatedDevice(64, seed=seed, shared_slots=[0, 16][seed % 2])
    backend = DeviceBackend(drawn[0], device, first_capacity=4)
    assert recorded_lattices(backend, *drawn[1:]) == expected_lattices(*drawn)


def test_it_is_the_best_path_that_a_search_finds():
    rng = np.random.default_rng(5)
    graph, options, batch, boosts = draw(rng, num_utterances=6)
    backend = DeviceBackend(graph, random_device(rng, 64), first_capacity=64)
    found = backend.decode(batch, options, boosts, record=True)
    paths = backend.decode(batch, options, boosts)
    assert [bits(one.best) for one in found] == list(map(bits, paths))


def test_parts_of_a_batch_are_put_together():
    rng = np.random.default_rng(6)
    graph, _, batch, _ = draw(rng, num_utterances=5)
    options = random_options(rng)
    none = [CompiledBoosts(compile_word_boosts({}, {})[0])] * 5
    backend = DeviceBackend(graph, random_device(rng, 64), first_capacity=64)
    expected = recorded_lattices(backend, options, batch, none)
    backend._parts = lambda lengths, options, record: [[4, 1], [0], [2, 3]]
    assert recorded_lattices(backend, options, batch, none) == expected
