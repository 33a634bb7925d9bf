"""Searches of WFST backends, and all bits of what they find."""

import numpy as np

from wfstdec import CompiledBoosts, WfstDecoder, WfstOptions
from wfstdec.boost.compiled import compile_word_boosts

NO_BOOSTS = CompiledBoosts(compile_word_boosts(None, {})[0])
UNBOUNDED = WfstOptions(beam=np.inf, max_active=None)


def decoder_of(name, graph, options=UNBOUNDED):
    """A decoder of one thread; conftest has skipped backends that need a GPU."""
    return WfstDecoder(graph, options, name, threads=1, frame_shift_s=0.25)


def search(backend, options, logprobs, boosts=None):
    compiled, unknown = compile_word_boosts(boosts, backend.graph.word_ids)
    assert not unknown
    under_way = backend.start(options, CompiledBoosts(compiled))
    under_way.advance(logprobs)
    return under_way.finish()


def bits(path):
    """All of a `Path`, in a form that tells -0.0 from 0.0."""
    values = [*path.tokens, *path[1:]]
    return [(np.asarray(x).dtype, np.asarray(x).tobytes()) for x in values]


def decoded(backend, options, batch, boosts):
    """The bits of each utterance of a batch."""
    return list(map(bits, backend.decode(batch, options, boosts)))


def log(rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, np.float32))


def random_splits(rng, array, pieces=4):
    """The array in pieces, some of them empty."""
    cuts = np.sort(rng.integers(0, len(array) + 1, pieces - 1))
    return np.split(array, cuts)


def walk_back(search):
    """The arcs of the best path of a search of the reference, int64."""
    (_, *key), _ = search._best_end(search._died < 0)
    node, arcs = search._nodes[tuple(key)], []
    while node.previous is not None:
        arcs.append(node.arc)
        node = node.previous
    return np.array(arcs[::-1], np.int64)
