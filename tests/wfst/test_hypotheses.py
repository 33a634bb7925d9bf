"""Hypotheses of a batch: made when somebody looks, and the same as one by one."""

import copy
import pickle
from dataclasses import asdict, replace

import numpy as np
import pytest
from random_graphs import random_boosts, random_graph, random_logprobs, random_options

from wfstdec import Hypothesis, WfstDecoder
from wfstdec.search.hypothesis import Word

LOOKS = (
    lambda h: h.words,
    lambda h: h.text,
    lambda h: h.tokens,
    lambda h: h.total_cost,
    lambda h: h.num_frames,
    lambda h: h.died_at_frame,
    repr,
    hash,
    asdict,
    copy.copy,
    copy.deepcopy,
    lambda h: pickle.loads(pickle.dumps(h)),
    lambda h: replace(h, num_frames=3),
)


def drawn(seed):
    rng = np.random.default_rng(seed)
    graph, options = random_graph(rng), random_options(rng)
    batch = [random_logprobs(rng, int(t), len(graph.tokens)) for t in (0, 5, 9, 2)]
    boosts = [random_boosts(rng, graph) for _ in batch]
    return WfstDecoder(graph, options, threads=1), batch, boosts


@pytest.mark.parametrize("look", LOOKS)
def test_any_look_makes_it_whole(look):
    decoder, batch, boosts = drawn(3)
    found, others = (decoder.decode(batch, boosts=boosts) for _ in range(2))
    for hypothesis, other in zip(found, others, strict=True):
        assert "words" not in vars(hypothesis)
        seen = look(hypothesis)
        _ = other.words
        expected = look(other)
        assert seen == expected and hypothesis == other
        _ = hypothesis.__getstate__()
        assert all(type(word) is Word for word in hypothesis.words)
        names = {name for name in vars(hypothesis) if name != "tokens"}
        assert names == set(Hypothesis.__dataclass_fields__)


def test_what_it_does_not_have_is_an_attribute_error():
    decoder, batch, _ = drawn(4)
    for hypothesis in decoder.decode(batch):
        for name in ("confidence", "_private", "__array_interface__"):
            assert not hasattr(hypothesis, name)
        with pytest.raises(AttributeError, match="no attribute 'lattice'"):
            _ = hypothesis.lattice
