"""Losses of RNN-T and TDT in a band of the lattice, with gradients.

    lattice = Lattice(frames, sizes, starts)
    costs = transducer_loss(logprobs, durations, targets, lattice, (0, 1, 2, 3, 4))

A cell is a pair (frame t, number u of tokens so far). The loss is a sum over the paths
from (0, 0) to (T, U), of steps that have a duration d each:

    token: (t, u) -> (t + d, u + 1)   logprobs[t, u, y[u]] + duration(d | t, u)
    blank: (t, u) -> (t + d, u)       logprobs[t, u, blank] + duration(d | t, u), d > 0

In an RNN-T tokens have the duration 0 and blanks 1. In a TDT durations are drawn from a
second distribution, renormalised without 0 for blanks, and a step over T ends at T, as
in the search: unlike in the published implementation, the texts' probabilities add up
to 1. Cells exist only for S numbers of tokens for each frame, near an alignment that is
known (Mahadeokar et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

NEVER = -float("inf")


class Lattice(NamedTuple):
    """The cells of a batch."""

    frames: Tensor  # int64 [B]: T of each utterance, at least 1
    sizes: Tensor  # int64 [B]: U of each
    starts: Tensor  # int64 [B, T]: cell (t, s) has u = starts[t] + s; not decreasing


def transducer_loss(
    logprobs: Tensor,
    durations: Tensor | None,
    targets: Tensor,
    lattice: Lattice,
    values: Sequence[int],
) -> Tensor:
    """Negative log-likelihood of texts, nats [B]; inf where the band has no path.

    Args:
        logprobs: [B, T, S, V + 1], natural log, normalised, the blank last.
        durations: [B, T, S, D], natural log, normalised; None for an RNN-T.
        targets: int64 [B, U], padded with anything.
        lattice: Sizes and the band.
        values: The D durations, in frames; (0, 1) for an RNN-T.
    """
    index = lattice.starts[:, :, None] + torch.arange(logprobs.shape[2])
    index = index.clamp(max=targets.shape[1] - 1)  # behind the last token: never read
    labels = targets[:, None].expand(-1, index.shape[1], -1).gather(2, index)
    token, blank = logprobs.gather(3, labels[..., None])[..., 0], logprobs[..., -1]
    if durations is None:
        certain = logprobs.new_tensor([0.0, NEVER])
        of_token = certain.expand(*token.shape, 2)
        of_blank = certain.flip(0).expand(*token.shape, 2)
    else:
        zero = torch.tensor([value == 0 for value in values])
        of_token = durations
        of_blank = durations.masked_fill(zero, NEVER).log_softmax(-1)
    steps = torch.stack([blank, token]), torch.stack([of_blank, of_token])
    return _Cost.apply(*steps, lattice, tuple(values))


class _Cost(torch.autograd.Function):
    """Minus the log of the sum over all paths, and its gradient by forward-backward."""

    @staticmethod
    def forward(ctx: Any, steps: Tensor, lasting: Tensor, lattice: Any, values: Any):
        arrays = steps.detach().numpy(), lasting.detach().numpy()
        slopes = np.zeros_like(arrays[0]), np.zeros_like(arrays[1])
        total = np.empty(steps.shape[1])
        sizes = [one.numpy() for one in lattice]
        durations = np.array(values, np.int64)
        for b in range(len(total)):
            T, U = sizes[0][b], sizes[1][b]
            cells = arrays[0][:, b], arrays[1][:, b], sizes[2][b], durations, T, U
            alpha = np.full((T + 1, steps.shape[3]), -np.inf)
            total[b] = _forward_kernel(cells, alpha)
            if total[b] > -np.inf:
                _backward_kernel(
                    cells, alpha, total[b], slopes[0][:, b], slopes[1][:, b]
                )
        ctx.save_for_backward(*map(torch.from_numpy, slopes))
        return -torch.from_numpy(total).to(steps.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        steps, lasting = ctx.saved_tensors
        scale = -grads[0][None, :, None, None]
        return steps * scale, lasting * scale[..., None], None, None


@numba.njit(cache=True, error_model="numpy")
def _add(a, b):
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@numba.njit(cache=True, error_model="numpy")
def _forward_kernel(cells, alpha):
    """Fill alpha [T, S], the log-prob of reaching each cell; return that of (T, U)."""
    steps, lasting, starts, values, T, U = cells
    end = -np.inf
    if starts[0] > 0:
        return end
    alpha[0, 0] = 0.0
    for t in range(T):
        for s in range(steps.shape[2]):
            u, here = starts[t] + s, alpha[t, s]
            if u > U or here == -np.inf:
                continue
            for more in range(2 if u < U else 1):  # 0: a blank, 1: a token
                for i in range(len(values)):
                    cost = here + steps[more, t, s] + lasting[more, t, s, i]
                    there = t + values[i]
                    if there >= T:
                        if u + more == U:
                            end = _add(end, cost)
                        continue
                    place = u + more - starts[there]
                    if 0 <= place < steps.shape[2]:
                        alpha[there, place] = _add(alpha[there, place], cost)
    return end


@numba.njit(cache=True, error_model="numpy")
def _backward_kernel(cells, alpha, end, d_steps, d_lasting):
    """Fill the gradients: the posteriors of steps."""
    steps, lasting, starts, values, T, U = cells
    beta = np.full(alpha.shape, -np.inf)
    for t in range(T - 1, -1, -1):
        for s in range(steps.shape[2] - 1, -1, -1):
            u = starts[t] + s
            if u > U:
                continue
            for more in range(2 if u < U else 1):
                for i in range(len(values)):
                    there = t + values[i]
                    rest = -np.inf
                    if there >= T:
                        if u + more == U:
                            rest = 0.0
                    else:
                        place = u + more - starts[there]
                        if 0 <= place < steps.shape[2]:
                            rest = beta[there, place]
                    rest += steps[more, t, s] + lasting[more, t, s, i]
                    if rest == -np.inf:
                        continue
                    beta[t, s] = _add(beta[t, s], rest)
                    share = np.exp(alpha[t, s] + rest - end)
                    d_steps[more, t, s] += share
                    d_lasting[more, t, s, i] += share
