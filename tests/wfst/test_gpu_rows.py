"""The CUDA search on rows of LG, emulated: ties, sessions, lattices, OOV words."""

import dataclasses
import shutil

import numpy as np
import pytest
from added_cases import random_added_boosts, random_calls_product
from device_cases import random_device
from lattice_searches import bits as bits_of_lattice
from random_graphs import (
    KINDS,
    random_compiled,
    random_logprobs,
    random_of_kind,
    random_options,
)
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, bits, random_splits

from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.lattice_pack import lattice_of

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def drawn(rng, i):
    """A graph of any kind, options, three utterances with boosts; ties in most."""
    if i % 3 == 2:
        graph, compile_boosts = random_calls_product(rng), random_added_boosts
    else:
        graph, compile_boosts = random_of_kind(rng, KINDS[i % len(KINDS)]), None
    options = random_options(rng)
    batch = [random_logprobs(rng, n, len(graph.tokens)) for n in (0, 9, 14)]
    if rng.random() < 0.6:
        batch = [(np.round(x) - 2 * (x < -3)).astype(np.float32) for x in batch]
    if i % 4 == 0:  # the kernel chooses arcs by their tokens
        return graph, options, batch, [NO_BOOSTS] * len(batch)
    boosts = [
        random_compiled(rng, graph, options)
        if compile_boosts is None
        else compile_boosts(rng, graph)
        for _ in batch
    ]
    return graph, options, batch, boosts


def backends(rng, graph, i):
    """The specification, and an emulated device with little room."""
    device = random_device(rng, [32, 64, 128][i % 3], int(rng.choice([0, 3])))
    return ReferenceBackend(graph), DeviceBackend(
        graph, device, int(rng.choice([1, 64]))
    )


@pytest.mark.parametrize("seed", range(4))
def test_whole_utterances_are_the_specification(seed):
    products = 0
    for i in range(60):
        rng = np.random.default_rng([seed, i])
        graph, options, batch, boosts = drawn(rng, i)
        reference, device = backends(rng, graph, i)
        found = list(map(bits, device.decode(batch, options, boosts)))
        expected = list(map(bits, reference.decode(batch, options, boosts)))
        assert found == expected, (seed, i)
        products += not device.device_graph.rows.plain
    assert products > 20


@pytest.mark.parametrize("seed", range(3))
def test_sessions_are_the_specification(seed):
    for i in range(30):
        rng = np.random.default_rng([seed, i, 1])
        graph, options, batch, boosts = drawn(rng, i)
        pairs = [
            [backend.start(options, one) for backend in backends(rng, graph, i)]
            for one in boosts
        ]
        for x, (expected, found) in zip(batch, pairs, strict=True):
            for part in random_splits(rng, x, 5):
                expected.advance(part)
                found.advance(part)
                if rng.random() < 0.5:
                    looks = [
                        [
                            np.asarray(value).tobytes()
                            for value in (*one.tokens, *one[1:])
                        ]
                        for one in (found.look(), expected.look())
                    ]
                    assert looks[0] == looks[1], (seed, i)
            assert bits(found.finish()) == bits(expected.finish()), (seed, i)


@pytest.mark.parametrize("seed", range(3))
def test_lattices_are_the_specification(seed):
    for i in range(30):
        rng = np.random.default_rng([seed, i, 2])
        graph, options, *given = drawn(rng, i)
        beam = float(rng.choice([0, 0.5, 1])) * min(options.beam, 20.0)
        options = dataclasses.replace(options, lattice_beam=beam)
        made = []
        for backend in backends(rng, graph, i):
            recorded = backend.decode(given[0], options, given[1], record=True)
            of = graph, options, graph.vocabulary, 0.02
            made.append([bits_of_lattice(lattice_of(*of, one)) for one in recorded])
        assert made[0] == made[1], (seed, i)
