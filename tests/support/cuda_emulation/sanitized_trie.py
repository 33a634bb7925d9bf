"""Runs random trie searches under a sanitizer; for a process of its own.

    LD_PRELOAD=libtsan.so python sanitized_trie.py CASES LIBRARY THREADS
    compute-sanitizer python sanitized_trie.py CASES gpu THREADS    # on a GPU, by CuPy

Prints "CASES cases agree". A sanitizer that finds something says so and ends the
process with an error.
"""

import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))
sys.path.insert(0, str(Path(__file__).parents[2] / "reference"))

from naive_search_cases import KINDS
from trie_devices import emulated, large_decoder, small_options, spoken
from trie_reference_backend import ReferenceBackend
from trie_searches import bits, draw, search

from cuda_emulation.device import as_given, in_16_bits
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.backend import DeviceBackend


def draw_search(rng, i):
    """A decoder, its list and a batch: small and of any kind, or with many entries."""
    if i % 4:
        _, case, decoder, boosts = draw(i, KINDS[i % len(KINDS)])
        size = min(decoder.options.beam_size, d.MAX_BEAM_SIZE)
        batch = [np.ascontiguousarray(case.logprobs[:n], np.float32) for n in (9, 2)]
        return decoder.with_options(beam_size=size), boosts, batch
    options = small_options(
        rng, beam=6.0, beam_size=20, merge=["max", "sum"][i // 4 % 2], nbest=2
    )
    decoder = large_decoder(rng, 12, [0, 30][i // 8 % 2], options, separator=None)
    return decoder, None, [spoken(rng, decoder, n) for n in (6, 3)]


def device_backend(space, rng, i, library, threads):
    """A space on the emulation, or on a GPU, with little room or with enough."""
    entries = int(rng.choice([1, 4, 32]))
    shared = d.form_for(32, space.num_tokens)
    if i % 3:
        shared = d.TrieBlockShape(threads, 8, 32, 8)
    form = shared._replace(threads=threads)
    room = {"first_entries": entries, "form_for": lambda *_: form}
    if library == "gpu":
        from wfstdec.trie.gpu.backend import device_of

        return DeviceBackend(space, device_of, **room)
    given = {"os_threads": 2, "preempt": int(rng.choice([0, 7])), "seed": i}
    shared = bool(rng.random() < 0.7)
    return emulated(space, shared=shared, library=library, **given, **room)


def place(chunk, library):
    if library != "gpu":
        return chunk
    import cupy

    buffer = cupy.asarray(chunk.buffer)
    cupy.cuda.get_current_stream().synchronize()
    return replace(chunk, buffer=buffer, address=buffer.data.ptr)


def main(num_cases, library, threads):
    """Decode random batches on the device and by the specification."""
    warnings.simplefilter("ignore")
    logging.getLogger("wfstdec").setLevel(logging.ERROR)
    for i in range(num_cases):
        rng = np.random.default_rng(i)
        decoder, boosts, batch = draw_search(rng, i)
        space, options = decoder._space, decoder.options
        backend = device_backend(space, rng, i, library, threads)
        given, chunks = batch, batch
        if i % 3 == 1:
            chunks = [place(in_16_bits(x), library) for x in batch]
            given = list(map(as_given, batch))
        lists = decoder._boosts.compile(boosts, len(batch))
        found = list(map(bits, backend.decode(chunks, options, lists)))
        reference = ReferenceBackend(space)
        assert found == [search(reference, decoder, boosts, [x]) for x in given], i
    print(f"{num_cases} cases agree")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
