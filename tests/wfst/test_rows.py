"""The search on rows of LG finds what the specification finds on the packed graph."""

import dataclasses

import numpy as np
import pytest
from random_graphs import (
    random_logprobs,
    random_options,
    random_product,
    random_words,
)
from wfst_searches import bits

from wfstdec.search.interrupts import Pace
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.cpu.row_groups import goes_on_rows
from wfstdec.wfst.options import search_params
from wfstdec.wfst.reference_backend import ReferenceBackend


def few_kinds(rng, batch):
    """Log-probs of few values: nearly every frame has ties."""
    return [(np.round(x) - 2 * (x < -3)).astype(np.float32) for x in batch]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_specification(seed):
    """Random graphs, options and log-probs, in arrays that are too small at first."""
    boosted = 0
    for i in range(40):
        rng = np.random.default_rng([seed, i])
        graph = random_product(rng)
        options = dataclasses.replace(random_options(rng), min_active=0)
        lengths = rng.integers(0, 12, 3)
        batch = [random_logprobs(rng, n, len(graph.tokens)) for n in lengths]
        batch = few_kinds(rng, batch) if rng.random() < 0.5 else batch
        boosts = random_words(rng, graph, options)
        given = batch, options, [boosts] * len(batch)
        expected = list(map(bits, ReferenceBackend(graph).decode(*given)))
        on_rows = goes_on_rows(search_params(options, True), boosts)
        boosted += on_rows and bool(boosts.words)
        for capacity in (1, 64):
            backend = CpuBackend(graph, first_capacity=capacity)
            assert backend.on_rows is not None
            for _ in range(2):  # the second time in arrays that were used
                found = backend.decode_group(batch, options, boosts, Pace())
                assert list(map(bits, found)) == expected, (seed, i)
    assert boosted > 8
