"""Lattices from rows are those of the specification on the packed graph."""

import numpy as np
import pytest
from added_cases import random_added_boosts, random_calls_graph, random_calls_product
from lattice_searches import bits, joined, lattice_by
from random_graphs import (
    KINDS,
    random_compiled,
    random_logprobs,
    random_of_kind,
    random_options,
)
from wfst_reference_backend import ReferenceBackend
from wfst_searches import random_splits

from wfstdec.lattice.arrays import check_lattice
from wfstdec.wfst.cpu import recording
from wfstdec.wfst.cpu import search as memory
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.cpu.recording import RecordingSearch
from wfstdec.wfst.lattice_pack import lattice_of


@pytest.fixture(autouse=True)
def arrays_that_are_too_small(monkeypatch):
    """Notes and states that are kept have little room; log-probs are forgotten soon."""
    monkeypatch.setattr(memory, "FIRST_NOTES", 1)
    monkeypatch.setattr(recording, "FEW_NODES", 4)
    monkeypatch.setattr(recording, "KEPT", 5)
    monkeypatch.setattr("wfstdec.wfst.cpu.search.FIRST_FRAMES", 5)
    monkeypatch.setattr("wfstdec.wfst.cpu.search.KEPT", 1)


def drawn(rng, oov):
    """A graph of any kind, an utterance, options, boosts."""
    if oov:
        draw = random_calls_product if rng.random() < 0.5 else random_calls_graph
        graph = draw(rng)
        while not len(graph.oov_exits):  # the specification knows no empty overlay
            graph = draw(rng)
    else:
        graph = random_of_kind(rng, str(rng.choice(KINDS)))
    options = random_options(rng)
    x = random_logprobs(rng, int(rng.integers(0, 14)), len(graph.tokens))
    if rng.random() < 0.5:  # nearly every frame has ties
        x = (np.round(x) - 2 * (x < -3)).astype(np.float32)
    compile_boosts = random_added_boosts if oov else random_compiled
    given = (rng, graph) if oov else (rng, graph, options)
    return graph, x, options, compile_boosts(*given)


def segments_of(rng, search, chunks, shortest):
    """The segments of a search that is looked at and settled now and then."""
    parts = []
    for chunk in chunks:
        search.advance(chunk)
        if rng.random() < 0.2:
            search.look()
        if rng.random() < 0.5:
            parts += search.settle(shortest)
    return parts


@pytest.mark.parametrize("oov", [False, True], ids=["graph", "oov"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.share(keep=2)
def test_lattices_are_the_specification(seed, oov):
    wide, segments, of_oov = 0, 0, 0
    for i in range(25):
        rng = np.random.default_rng([seed, i, 31])
        graph, x, options, boosts = drawn(rng, oov)
        reference = ReferenceBackend(graph).start(options, boosts, record=True)
        expected = lattice_by(reference, graph, options, [x])
        wide += expected.num_arcs > expected.num_states
        of_oov += (expected.arcs["arc"] >= graph.num_arcs).any()
        backend = CpuBackend(graph, first_capacity=int(rng.choice([1, 64])))
        for chunks in ([x], random_splits(rng, x)):
            search = backend.start(options, boosts, record=True)
            assert isinstance(search, RecordingSearch)
            found = lattice_by(search, graph, options, chunks)
            assert bits(found) == bits(expected), (seed, i)
        shortest = int(rng.integers(1, 4))
        search = backend.start(options, boosts, record=True)
        parts = segments_of(rng, search, random_splits(rng, x), shortest)
        segments += len(parts)
        vocabulary = graph.vocabulary
        if boosts.oov is not None:
            vocabulary = vocabulary.with_oov(boosts.oov)
        last = lattice_of(graph, options, vocabulary, 0.02, search.finish())
        check_lattice(last)
        assert joined([*parts, last]) == bits(expected)[:2], (seed, i)
    assert wide > 1 and segments > 3
    assert bool(of_oov) == oov
