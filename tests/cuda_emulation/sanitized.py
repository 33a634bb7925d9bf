"""Runs random searches in the emulation under a sanitizer; for a process of its own.

    LD_PRELOAD=libtsan.so python sanitized.py CASES LIBRARY    # of `compile_kernels`

Prints "CASES cases agree". A sanitizer that finds something says so and ends the
process with an error.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)

from cuda_emulation.device import EmulatedDevice, as_given, half_rows
from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.wfst.device_search import DeviceBackend
from wfstdec.wfst.reference import ReferenceBackend


def main(num_cases, library):
    """Decode random batches on the device and by the specification."""
    for i in range(num_cases):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 3, 6, 7)]
        words = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)[0]
        phrases = random_phrases(rng, graph) if i % 2 else None
        device = EmulatedDevice(
            int(rng.choice([32, 64])),
            os_threads=2,
            preempt=int(rng.choice([0, 7])),
            seed=i,
            shared_slots=int(rng.choice([0, 16, 128])),
            library=library,
        )
        capacity = int(rng.choice([1, 8, 64]))
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        rows = [half_rows(x) for x in batch] if i % 3 else batch
        assert i % 3 == 0 or backend.first_bad(rows) is None, i
        boosts = UtteranceBoosts(words, phrases)
        found = backend.decode_batch(rows, options, [boosts] * len(batch))
        for logprobs, path in zip(batch, found, strict=True):
            search = ReferenceBackend(graph).start(options, boosts)
            search.advance(as_given(logprobs) if i % 3 else logprobs)
            expected = search.finish()
            assert path.arcs.tobytes() == expected.arcs.tobytes(), i
            assert path.search_cost == expected.search_cost, i
    print(f"{num_cases} cases agree")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
