"""Runs random searches under a sanitizer; for a process of its own.

    LD_PRELOAD=libtsan.so python sanitized.py CASES LIBRARY    # of `compile_kernels`
    compute-sanitizer python sanitized.py CASES gpu            # on a GPU, by CuPy
    ... python sanitized.py CASES LIBRARY added                # with added words

Prints "CASES cases agree". A sanitizer that finds something says so and ends the
process with an error.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))
sys.path.insert(0, str(Path(__file__).parents[2] / "reference"))

from added_cases import random_added_boosts, random_calls_graph
from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)
from wfst_reference_backend import ReferenceBackend
from wfst_searches import bits

from cuda_emulation.device import EmulatedDevice, as_given, in_16_bits
from wfstdec import CompiledBoosts
from wfstdec.boost.compiled import compile_word_boosts
from wfstdec.gpu.cupy_device import CupyDevice
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import PROGRAM, SLOT_BYTES


class Emulated:
    """The emulation: what a machine offers here."""

    def __init__(self, library):
        self._library = library

    def device(self, rng, i, threads, shared_slots):
        return EmulatedDevice(
            threads,
            os_threads=2,
            preempt=int(rng.choice([0, 7])),
            seed=i,
            shared_slots=shared_slots,
            library=self._library,
        )

    def place(self, chunk):
        return chunk


class Gpu:
    """A GPU. CuPy's pool is left out: it would hide what is past an array's end."""

    def __init__(self):
        import cupy

        CupyDevice(PROGRAM)  # where there is none, that is known at once
        cupy.cuda.set_allocator(None)
        self._cupy = cupy

    def device(self, rng, i, threads, shared_slots):
        return CupyDevice(PROGRAM, threads, shared_slots * SLOT_BYTES)

    def place(self, chunk):
        buffer = self._cupy.asarray(chunk.buffer)
        self._cupy.cuda.get_current_stream().synchronize()
        return replace(chunk, buffer=buffer, address=buffer.data.ptr)


def draw_search(rng, i, oov):
    """A random graph, its options, and boosts, with added words or none."""
    if oov:
        graph, options = random_calls_graph(rng), random_options(rng)
        return graph, options, random_added_boosts(rng, graph)
    graph, options = random_graph(rng), random_options(rng)
    words = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)[0]
    phrases = random_phrases(rng, graph) if i % 2 else None
    return graph, options, CompiledBoosts(words, phrases)


def main(num_cases, library, *, oov=False):
    """Decode random batches on the device and by the specification."""
    machine = Gpu() if library == "gpu" else Emulated(library)
    for i in range(num_cases):
        rng = np.random.default_rng(i)
        graph, options, boosts = draw_search(rng, i, oov)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 3, 6, 7)]
        threads = int(rng.choice([32, 64]))
        shared_slots = int(rng.choice([0, 16, 128]))
        device = machine.device(rng, i, threads, shared_slots)
        capacity = int(rng.choice([1, 8, 64]))
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        chunks = batch
        if i % 3:
            chunks = [machine.place(in_16_bits(x)) for x in batch]
        found = backend.decode(chunks, options, [boosts] * len(batch))
        for logprobs, path in zip(batch, found, strict=True):
            search = ReferenceBackend(graph).start(options, boosts)
            search.advance(as_given(logprobs) if i % 3 else logprobs)
            expected = search.finish()
            assert bits(path) == bits(expected), i
    print(f"{num_cases} cases agree")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], oov="added" in sys.argv[3:])
