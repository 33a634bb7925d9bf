"""Whole utterances, a few in one call: what one search for each finds."""

import numpy as np
import pytest
from random_graphs import (
    dense_graph,
    random_logprobs,
    random_product,
)
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, bits, decoded

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.errors import BoostError
from wfstdec.search.threads import GROUP, Pace, groups_of
from wfstdec.wfst.cpu import backend as cpu_backend
from wfstdec.wfst.cpu.backend import CpuBackend


def test_paths_that_find_no_room(monkeypatch):
    """Room for one arc at first: it grows, and what was searched is not lost."""
    monkeypatch.setattr(cpu_backend, "STEPS_PER_FRAME", 0)
    rng = np.random.default_rng(4)
    graph = random_product(rng, 6)
    batch = [random_logprobs(rng, n, len(graph.tokens)) for n in (0, 30, 90, 1, 7)]
    backend = CpuBackend(graph, first_capacity=2)
    options = WfstOptions(beam=20.0)
    expected = decoded(
        ReferenceBackend(graph), options, batch, [NO_BOOSTS] * len(batch)
    )
    for _ in range(2):
        found = backend.decode_group(batch, options, NO_BOOSTS, Pace())
        assert list(map(bits, found)) == expected
    assert len(found[2].tokens.ilabel) > 5


@pytest.mark.parametrize("threads", [1, 2])
def test_utterances_of_one_list_are_grouped(monkeypatch, threads):
    """Whatever their order; no more at a time than leaves work for every thread."""
    made = []
    decode = CpuBackend.decode_group

    def noted(self, some, *given):
        made.append(list(map(len, some)))
        return decode(self, some, *given)

    monkeypatch.setattr(CpuBackend, "decode_group", noted)
    rng = np.random.default_rng(8)
    graph = dense_graph(rng)
    word = graph.words[1]
    lists = [None, {word: 1.0}, {word: -2.0}]
    boosts = [lists[i % 3] for i in range(60)]
    batch = [
        np.log(rng.dirichlet([0.3] * 3, rng.integers(0, 20))).astype(np.float32)
        for _ in boosts
    ]
    options = WfstOptions(beam=6.0)
    decoder = WfstDecoder(graph, options, "cpu", threads=threads)
    found = decoder.decode(batch, boosts=boosts)
    enough = sum(map(len, batch)) / (4 * threads)
    assert all(sum(group) <= enough or len(group) == 1 for group in made)
    assert sum(map(len, made)) == len(batch)
    assert len(made) < len(batch) / 3 and max(map(len, made)) <= GROUP
    made.clear()
    assert found == [
        decoder.decode([x], boosts=[one])[0]
        for x, one in zip(batch, boosts, strict=True)
    ]
    assert set(map(len, made)) == {1}


def test_long_utterances_among_short_ones_are_alone():
    """Sixteen of half a minute in one group would keep one thread, and no other."""
    lengths = [1500] * 16 + [50] * 112
    groups = groups_of(lengths, [NO_BOOSTS] * 128, threads=2, most=GROUP)
    assert sorted(i for group in groups for i in group) == list(range(128))
    assert max(sum(lengths[i] for i in group) for group in groups) <= sum(lengths) / 8
    assert max(map(len, groups)) == GROUP


def test_what_goes_wrong_names_an_utterance(monkeypatch):
    graph = dense_graph(np.random.default_rng(1), 4)
    decoder = WfstDecoder(graph, WfstOptions(), "cpu", threads=1)

    def fail(self, options, boosts):
        raise BoostError("no room for states")

    monkeypatch.setattr(CpuBackend, "_inputs_of", fail)
    x = np.log(np.full((3, 3), 1 / 3, np.float32))
    with pytest.raises(BoostError) as error:
        decoder.decode([x[:1], x])
    assert error.value.utterance == 1  # the longest one comes first
