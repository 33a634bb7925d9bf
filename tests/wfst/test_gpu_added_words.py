"""Added words in the CUDA kernels, in emulation: the bits of the specification."""

import shutil

import numpy as np
import pytest
from added_cases import (
    frames,
    random_added_boosts,
    random_calls_graph,
    small_graph,
)
from cuda_emulation.device import EmulatedDevice
from random_graphs import random_logprobs, random_options
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, decoded

from wfstdec import BoostEntry, WfstDecoder
from wfstdec.gpu.device import DeviceMemoryError
from wfstdec.wfst.gpu.backend import DeviceBackend

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


# ------------------------------------------------------------------- random batches
@pytest.mark.parametrize("seed", range(4))
def test_schedules_do_not_matter(seed):
    drawn = draw(np.random.default_rng([3, seed]))
    expected = decoded(ReferenceBackend(drawn[0]), *drawn[1:])
    for schedule in range(8):
        slots = [0, 16, 64][schedule % 3]
        device = EmulatedDevice(64, preempt=2, seed=schedule, shared_slots=slots)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected, schedule


# ------------------------------------------------------------------------- decoders
def on_device(decoder, device, first_capacity=64):
    """Make the same decoder on a device."""
    other = WfstDecoder(decoder.graph, decoder.options, "cpu")
    other._backend = DeviceBackend(decoder.graph, device, first_capacity)
    return other


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
    overlay = decoder._backend.device_graph.overlays.of(compiled[0].oov).overlay
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
