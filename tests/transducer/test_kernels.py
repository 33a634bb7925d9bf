"""The CPU's kernels give what the operations of torch give."""

import numpy as np
import pytest
import torch
from table_transducers import TableTransducer

from wfstdec import TransducerOptions
from wfstdec.transducer.beam import Source
from wfstdec.transducer.pricing import Fusion, top_labels
from wfstdec.transducer.steps import Searcher

INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.share(keep=8)
def test_the_best_labels_are_the_same(seed, dtype):
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(0, 9)), int(rng.integers(1, 30))
    values = rng.choice([-INF, -2.0, -1.5, -1.0, -0.0, 0.0, 0.5], shape)
    if seed % 2:
        values = rng.normal(size=shape)
    scores = torch.from_numpy(values).to(dtype)
    for num in {1, 2, shape[1]} & set(range(1, shape[1] + 1)):
        found, labels = top_labels(scores, num)
        for row, best, value in zip(values, labels.tolist(), found, strict=True):
            ordered = sorted(range(shape[1]), key=lambda c: (-row[c], c))
            assert best == ordered[:num]
            assert torch.equal(value, torch.from_numpy(row[best]).to(dtype))


@pytest.mark.parametrize("seed", range(12))
def test_the_kernel_of_a_step_does_what_torch_does(seed):
    """Searches on random tables, wide and narrow, with ties: every number of a beam."""
    durations = ((), (0, 1, 2))[seed % 2]
    model = TableTransducer(np.random.default_rng(seed), 2, durations, num_utterances=3)
    if seed % 3 == 0:
        model.table = model.table.round()  # ties
    lengths = torch.tensor([3, 0, 2])
    ended = torch.tensor([True, True, seed % 4 < 2])
    frames = torch.stack([model.frames(u) for u in range(3)])
    source = Source(frames, torch.zeros_like(lengths), lengths, ended)
    for strategy in ("greedy", "alsd", "aes"):
        for width in (2, 5, 40):
            options = TransducerOptions(
                strategy=strategy, beam_size=width, merge=("sum", "max")[seed // 2 % 2]
            )
            found, same = (
                Searcher(model, options, Fusion([]), dense=dense)
                for dense in (False, True)
            )
            beams = [one.run(one.start(3), source) for one in (found, same)]
            assert_same(*beams, ended)


def assert_same(one, other, ended):
    assert torch.equal(one.score, other.score)
    live = one.live
    for name in ("frame", "run", "length", "last"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert torch.equal(mine[live], theirs[live]), name
    rows = live.flatten().nonzero()[:, 0].tolist()
    for row, length in zip(rows, one.length.flatten()[rows].tolist(), strict=True):
        assert torch.equal(one.rows[row, :length], other.rows[row, :length])
        if not ended[row // one.score.shape[1]]:  # behind the end it is not asked for
            assert one.g[row] == other.g[row]
