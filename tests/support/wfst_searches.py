"""Searches of WFST backends, and all bits of what they find."""

import numpy as np
from searches import start_one

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

UNBOUNDED = WfstOptions(beam=np.inf, max_active=None)


def decoder_of(name, graph, options=UNBOUNDED):
    """A decoder of one thread; conftest has skipped backends that need a GPU."""
    return WfstDecoder(graph, options, name, threads=1, frame_shift_s=0.25)


def search(backend, options, logprobs, boosts=None):
    """One utterance through a backend."""
    compiled, unknown = compile_word_boosts(boosts, backend.graph.word_ids)
    assert not unknown
    under_way = start_one(backend, options, CompiledBoosts(compiled))
    under_way.advance(logprobs)
    return under_way.finish()


def bits(path):
    """All of a `BestPath`, in a form that tells -0.0 from 0.0."""
    return [
        (np.asarray(value).dtype, np.asarray(value).tobytes(), value)
        if i > 1
        else (value.dtype, value.tobytes())
        for i, value in enumerate(path)
    ]


def decoded(backend, options, batch, boosts):
    """The bits of each utterance of a batch."""
    return list(map(bits, backend.decode_batch(batch, options, boosts)))


def log(rows):
    """Log-probs of probabilities."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, np.float32))


def random_splits(rng, array, pieces=4):
    """The array in pieces, some of them empty."""
    cuts = np.sort(rng.integers(0, len(array) + 1, pieces - 1))
    return np.split(array, cuts)
