"""Whole utterances, a few in one call: what one search for each finds."""

import numpy as np
import pytest
from random_graphs import (
    dense_graph,
)
from wfst_searches import NO_BOOSTS

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.search.threads import GROUP, groups_of
from wfstdec.wfst.cpu.backend import CpuBackend


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
