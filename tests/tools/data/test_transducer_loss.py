"""Losses of transducers: equal to a sum over all alignments, and so are gradients."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from tools.data.transducer_loss import (  # noqa: E402
    Lattice,
    rnnt_loss,
    tdt_loss,
)

BLANK = 3
"""Of 3 tokens and the blank."""
CASES = [(1, 0), (1, 2), (2, 1), (3, 2), (4, 3)]


def random_cells(frames, size, width, seed):
    """Normalised log-probs [1, T, U + 1, width] in float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = 1, frames, size + 1, width
    return torch.randn(shape, generator=generator, dtype=torch.float64).log_softmax(-1)


def lattice_of(frames, size):
    return Lattice(torch.tensor([frames]), torch.tensor([size]))


def rnnt_by_alignments(logprobs, target):
    """T blanks and U tokens in any order that ends with a blank."""
    num_frames, size, total = len(logprobs), len(target), 0.0
    for places in itertools.combinations(range(num_frames - 1 + size), size):
        t = u = 0
        logprob = 0.0
        for step in range(num_frames + size):
            label = target[u] if step in places else BLANK
            logprob += float(logprobs[t, u, label])
            t, u = (t, u + 1) if step in places else (t + 1, u)
        assert (t, u) == (num_frames, size)
        total += math.exp(logprob)
    return -math.log(total)


def tdt_by_alignments(logprobs, durations, target, values):
    """Walk every path; a blank's durations are those over 0, normalised by hand."""
    num_frames = len(logprobs)

    def walk(t, u):
        if t >= num_frames:
            return 1.0 if u == len(target) else 0.0
        chances = durations[t, u].exp().tolist()
        moving = sum(p for p, d in zip(chances, values, strict=True) if d > 0)
        total = 0.0
        for chance, value in zip(chances, values, strict=True):
            if value > 0:
                blank = math.exp(logprobs[t, u, BLANK])
                total += blank * chance / moving * walk(t + value, u)
            if u < len(target):
                token = math.exp(logprobs[t, u, target[u]])
                total += token * chance * walk(t + value, u + 1)
        return total

    found = walk(0, 0)
    return -math.log(found) if found else math.inf


@pytest.mark.parametrize("frames, size", CASES)
@pytest.mark.share(keep=1)
def test_rnnt_is_the_sum_over_alignments(frames, size):
    logprobs = random_cells(frames, size, 4, seed=frames * 10 + size)
    target = [2, 0, 0][:size]
    loss = rnnt_loss(logprobs, torch.tensor([target]).long(), lattice_of(frames, size))
    assert loss.item() == pytest.approx(rnnt_by_alignments(logprobs[0], target))


@pytest.mark.parametrize("values", [(0, 1, 2), (1, 2), (0, 1), (2, 0, 4, 1)])
@pytest.mark.parametrize("frames, size", CASES)
def test_tdt_is_the_sum_over_alignments(frames, size, values):
    logprobs = random_cells(frames, size, 4, seed=frames * 10 + size)
    durations = random_cells(frames, size, len(values), seed=99 + frames)
    target = [2, 0, 0][:size]
    loss = tdt_loss(
        logprobs,
        durations,
        torch.tensor([target]).long(),
        lattice_of(frames, size),
        values=values,
    )
    expected = tdt_by_alignments(logprobs[0], durations[0], target, values)
    assert loss.item() == pytest.approx(expected)


def batch():
    """Two utterances of different sizes, padded."""
    generator = torch.Generator().manual_seed(8)
    shape = 2, 4, 3, 4
    logprobs = torch.randn(shape, generator=generator, dtype=torch.float64)
    durations = torch.randn(2, 4, 3, 3, generator=generator, dtype=torch.float64)
    targets = torch.tensor([[1, 1], [2, 0]])
    lattice = Lattice(torch.tensor([4, 2]), torch.tensor([2, 1]))
    return logprobs, durations, targets, lattice


def test_padding_changes_nothing():
    logprobs, durations, targets, lattice = batch()
    both = tdt_loss(
        logprobs.log_softmax(-1),
        durations.log_softmax(-1),
        targets,
        lattice,
        values=(0, 1, 2),
    )
    alone = tdt_loss(
        logprobs[1:, :2, :2].log_softmax(-1),
        durations[1:, :2, :2].log_softmax(-1),
        targets[1:, :1],
        lattice_of(2, 1),
        values=(0, 1, 2),
    )
    assert both[1].item() == pytest.approx(alone.item())


def test_gradients_are_those_of_finite_differences():
    logprobs, durations, targets, lattice = batch()
    logprobs.requires_grad_()
    durations.requires_grad_()

    def rnnt(logits):
        return rnnt_loss(logits.log_softmax(-1), targets, lattice)

    def tdt(logits, lengths):
        rows = logits.log_softmax(-1), lengths.log_softmax(-1)
        return tdt_loss(*rows, targets, lattice, values=(0, 1, 2), sigma=0.1)

    assert torch.autograd.gradcheck(rnnt, (logprobs,))
    assert torch.autograd.gradcheck(tdt, (logprobs, durations))


def banded(cells, starts, width):
    """Cells [1, T, U + 1, ...] as a band [1, T, width, ...]."""
    rows = [cells[0, t, s : s + width] for t, s in enumerate(starts)]
    return torch.stack(rows)[None]


def test_a_band_without_a_path_costs_infinity_and_has_no_gradient():
    logits = torch.zeros(1, 2, 1, 4, dtype=torch.float64, requires_grad=True)
    lattice = Lattice(
        torch.tensor([2]), torch.tensor([2]), torch.tensor([[0, 2]])
    )  # from (0, 0) no token leads to the cell (1, 2)
    loss = rnnt_loss(logits.log_softmax(-1), torch.tensor([[0, 1]]), lattice)
    assert loss.item() == math.inf
    loss.sum().backward()
    assert not logits.grad.any()
