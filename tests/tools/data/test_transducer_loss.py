"""The training loss of transducers: the sum over all alignments in the band."""

import math

import pytest

torch = pytest.importorskip("torch")

from tools.data.transducer_loss import Lattice, transducer_loss  # noqa: E402

BLANK = 3
"""Of 3 tokens and the blank."""


def by_alignments(logprobs, chances, target, starts):
    """The sum over all paths; `chances(more, t, cell)` has (duration, probability)."""
    frames, width, _ = logprobs.shape

    def walk(t, u):
        if t >= frames:
            return 1.0 if u == len(target) else 0.0
        cell, total = u - starts[t], 0.0
        if not 0 <= cell < width:
            return 0.0
        for more in range(2 if u < len(target) else 1):
            label = target[u] if more else BLANK
            for value, chance in chances(more, t, cell):
                step = math.exp(logprobs[t, cell, label]) * chance
                total += step * walk(t + value, u + more)
        return total

    found = walk(0, 0)
    return -math.log(found) if found else math.inf


def chances_of(durations, values):
    """A blank's durations are those over 0, normalised by hand; RNN-T: none."""

    def chances(more, t, cell):
        if durations is None:
            return [(1 - more, 1.0)]
        given = zip(values, durations[t, cell].exp().tolist(), strict=True)
        kept = [(value, chance) for value, chance in given if more or value > 0]
        whole = 1.0 if more else sum(chance for _, chance in kept)
        return [(value, chance / whole) for value, chance in kept]

    return chances


def drawn(seed, frames, size, width, num_durations):
    generator = torch.Generator().manual_seed(seed)
    shape = 2, frames, min(width, size + 1)
    logprobs = torch.randn(*shape, 4, generator=generator, dtype=torch.float64)
    durations = torch.randn(
        *shape, num_durations, generator=generator, dtype=torch.float64
    )
    targets = torch.tensor([[2, 0, 0][:size] or [0], [1, 1, 2][:size] or [0]])
    most = size + 1 - shape[2]
    starts = torch.tensor([[min(most, t) for t in range(frames)]] * 2)
    lattice = Lattice(torch.tensor([frames, 1]), torch.tensor([size, 0]), starts)
    return logprobs.log_softmax(-1), durations.log_softmax(-1), targets, lattice


@pytest.mark.parametrize("values", [None, (0, 1, 2), (2, 0, 4, 1)])
@pytest.mark.parametrize("frames, size", [(1, 0), (1, 2), (2, 1), (4, 3)])
@pytest.mark.parametrize("width", [2, 9])
def test_it_is_the_sum_over_alignments(frames, size, width, values):
    given = drawn(10 * frames + size, frames, size, width, len(values or (0, 1)))
    logprobs, durations, targets, lattice = given
    durations = None if values is None else durations
    costs = transducer_loss(logprobs, durations, targets, lattice, values or (0, 1))
    for b, (count, own) in enumerate(zip(lattice.frames, lattice.sizes, strict=True)):
        chances = chances_of(None if durations is None else durations[b], values)
        target, starts = targets[b, :own].tolist(), lattice.starts[b].tolist()
        expected = by_alignments(logprobs[b, :count], chances, target, starts)
        assert costs[b].item() == pytest.approx(expected)


@pytest.mark.parametrize("values", [None, (0, 1, 2)])
def test_its_gradient_is_that_of_differences(values):
    logprobs, durations, targets, lattice = drawn(5, 4, 3, 3, 3)
    cells = [logprobs.requires_grad_(), durations.requires_grad_()]

    def loss(*given):
        lasting = None if values is None else given[1]
        found = transducer_loss(given[0], lasting, targets, lattice, values or (0, 1))
        return found[0]

    assert torch.autograd.gradcheck(loss, cells)
