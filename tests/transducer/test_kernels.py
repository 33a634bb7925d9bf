"""The CPU's kernels give what the operations of torch give."""

import numpy as np
import pytest
import torch
from table_transducers import TableTransducer

from wfstdec.transducer import beam as beams
from wfstdec.transducer.fusion import Fusion
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.pricing import top_labels, torch_top_labels
from wfstdec.transducer.steps import Searcher, Source

INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_labels_are_the_same(seed, dtype):
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(0, 9)), int(rng.integers(1, 30))
    values = rng.choice([-INF, -2.0, -1.5, -1.0, -0.0, 0.0, 0.5], shape)
    if seed % 2:
        values = rng.normal(size=shape)
    scores = torch.from_numpy(values).to(dtype)
    for num in {1, 2, shape[1]} & set(range(1, shape[1] + 1)):
        found, labels = top_labels(scores, num)
        others, same = torch_top_labels(scores, num)
        assert torch.equal(labels, same) and torch.equal(found, others)
        ordered = sorted(range(shape[1]), key=lambda c: (-values[0][c], c))[:num]
        assert not shape[0] or labels[0].tolist() == ordered


def test_merged_candidates_are_the_same(monkeypatch):
    """At all steps of searches on random tables, wide and narrow, with ties."""
    checked = 0

    def both(beam, found, how, num_labels):
        nonlocal checked
        mine = beams.merge(beam, found, how, num_labels)
        other = beams.torch_merge(beam, found, how, num_labels)
        torch.testing.assert_close(mine.score, other.score, rtol=1e-12, atol=1e-12)
        checked += int((mine.score != found.score).any())
        return mine

    monkeypatch.setattr("wfstdec.transducer.steps.merge", both)
    for seed in range(12):
        durations = ((), (0, 1, 2))[seed % 2]
        model = TableTransducer(np.random.default_rng(seed), 2, durations)
        if seed % 3 == 0:
            model.table = model.table.round()  # ties
        for strategy in ("alsd", "aes"):
            for width in (2, 5, 40):
                options = TransducerOptions(
                    strategy=strategy, beam_size=width, merge=("sum", "max")[seed % 2]
                )
                searcher = Searcher(model, options, Fusion([]))
                lengths = torch.tensor([3])
                ended = torch.tensor([True])
                frames = model.frames()[None]
                source = Source(frames, torch.zeros_like(lengths), lengths, ended)
                searcher.run(searcher.start(1), source)
    assert checked > 50
