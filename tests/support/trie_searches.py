"""Random small searches of the trie, and what a backend finds of them, to the bit."""

import math

import naive_search_cases
import numpy as np

from wfstdec import TrieDecoder, TrieOptions

SWEPT = ["cpu"]
"""Backends of sweeps against oracles; of the reference see `tests/conformance`."""


def random_options(rng, case):
    """Options of all kinds, narrow and wide."""
    merge = str(rng.choice(["max", "sum"]))
    return TrieOptions(
        **case.options
        | {
            "beam": float(rng.choice([0, 0.5, 2, 6, math.inf])),
            "beam_size": int(rng.choice([1, 2, 5, 1000])),
            "token_top_k": [None, 1, 2][int(rng.integers(3))],
            "merge": merge,
            "nbest": int(rng.choice([1, 1, 3, 50])),
            "lookahead": str(rng.choice(["ngram", "unigram", "none"])),
            "blank_skip_threshold": [None, 0.5, 1.0][int(rng.integers(3))],
        }
    )


def draw(seed, kind):
    rng = np.random.default_rng([seed, naive_search_cases.KINDS.index(kind)])
    case = naive_search_cases.random_case(rng, kind=kind)
    options = random_options(rng, case)
    decoder = TrieDecoder(
        **naive_search_cases.decoder_arguments(case), options=options, threads=1
    )
    boosts = naive_search_cases.decoder_boosts(case, decoder.words)
    return rng, case, decoder, boosts


def bits(paths):
    """All of the paths, in a form that tells -0.0 from 0.0."""
    return [
        [
            (np.asarray(value).dtype, np.asarray(value).tobytes())
            for value in (*path.tokens[:5], *path[1:])  # frames are of word ids
        ]
        for path in paths
    ]


def search(backend, decoder, boosts, chunks):
    (compiled,) = decoder._boosts.compile(boosts, 1)
    under_way = backend.start(decoder.options, compiled)
    for chunk in chunks:
        under_way.advance(np.ascontiguousarray(chunk, np.float32))
    return bits(under_way.finish())
