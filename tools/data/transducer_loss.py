"""Losses of transducers, with gradients: RNN-T and TDT, on all of a lattice or a band.

    lattice = Lattice(frames, sizes)                          # or with a band: starts
    loss = rnnt_loss(logprobs, targets, lattice)              # [B], nats
    loss = tdt_loss(logprobs, durations, targets, lattice, values=(0, 1, 2, 3, 4))

A cell is a pair (frame t, number u of tokens said so far). Both losses are one sum over
the paths from (0, 0) to (T, U), of steps that have a duration d each:

    token: (t, u) -> (t + d, u + 1)   logprobs[t, u, y[u]] + duration(d | t, u)
    blank: (t, u) -> (t + d, u)       logprobs[t, u, blank] + duration(d | t, u), d > 0

In an RNN-T tokens have the duration 0 and blanks 1, both for sure. In a TDT durations
are drawn from a second distribution, renormalised without 0 for blanks, and a step over
T ends at T, as in the search. So the model's sentences have probabilities that add up
to 1, which the loss of the published implementation does not have.

With `starts`, cells exist only in a band of S numbers of tokens for each frame: what
is near a known alignment (alignment-restricted RNN-T, Mahadeokar et al. 2020), which
saves most of the memory and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

NEVER = -float("inf")


@dataclass(frozen=True, eq=False)
class Lattice:
    """Layout of the cells of a batch.

    Attributes:
        frames: [B] int64, the number of frames T of each utterance, at least 1.
        sizes: [B] int64, the number of tokens U of each.
        starts: [B, T] int64: cell (t, s) has u = starts[t] + s; not decreasing. None:
            all zeros.
    """

    frames: Tensor
    sizes: Tensor
    starts: Tensor | None = None

    def starts_like(self, cells: Tensor) -> Tensor:
        """The starts [B, T] for values of cells [B, T, S, ...]."""
        if self.starts is not None:
            return self.starts
        return torch.zeros(cells.shape[:2], dtype=torch.int64)

    def tokens_said(self, cells: Tensor) -> Tensor:
        """The u of each cell: [B, T, S]."""
        return self.starts_like(cells)[:, :, None] + torch.arange(cells.shape[2])


def rnnt_loss(
    logprobs: Tensor, targets: Tensor, lattice: Lattice, blank: int = -1
) -> Tensor:
    """Negative log-likelihood of sentences by an RNN-T.

    Args:
        logprobs: [B, T, S, V + 1], natural log, normalised; S is U + 1 or the band's.
        targets: [B, U] int64 tokens, padded with any.
        lattice: Sizes and the band.
        blank: Its place among the V + 1 (the last).

    Returns:
        [B] nats; inf where the band lets no path through (the gradient is then 0).
    """
    token, blanks = _steps(logprobs, targets, lattice, blank)
    certain = logprobs.new_tensor([0.0, NEVER])
    of_token = certain.expand(*token.shape, 2)
    of_blank = certain.flip(0).expand(*token.shape, 2)
    return _TotalCost.apply(token, blanks, of_token, of_blank, lattice, (0, 1))


def tdt_loss(
    logprobs: Tensor,
    durations: Tensor,
    targets: Tensor,
    lattice: Lattice,
    *,
    values: Sequence[int],
    blank: int = -1,
    sigma: float = 0.0,
) -> Tensor:
    """Negative log-likelihood of sentences by a TDT (Xu et al. 2023).

    Args:
        logprobs: [B, T, S, V + 1], natural log, normalised; S is U + 1 or the band's.
        durations: [B, T, S, D], natural log, normalised.
        targets: [B, U] int64 tokens, padded with any.
        lattice: Sizes and the band.
        values: The D durations, in frames.
        blank: Its place among the V + 1 (the last).
        sigma: Taken off every log-prob of `logprobs`: fewer steps, longer durations.

    Returns:
        [B] nats; inf where the band lets no path through (the gradient is then 0).
    """
    token, blanks = _steps(logprobs, targets, lattice, blank)
    of_blank = blank_durations(durations, values)
    steps = token - sigma, blanks - sigma
    return _TotalCost.apply(*steps, durations, of_blank, lattice, tuple(values))


def blank_durations(durations: Tensor, values: Sequence[int]) -> Tensor:
    """Log-probs of a blank's durations: without 0, normalised again; [..., D]."""
    zero = torch.tensor([value == 0 for value in values])
    return durations.masked_fill(zero, NEVER).log_softmax(-1)


def _steps(
    logprobs: Tensor, targets: Tensor, lattice: Lattice, blank: int
) -> tuple[Tensor, Tensor]:
    """Log-probs of each cell's token and blank: [B, T, S] each.

    A cell behind the last token has no token: what stands there is never read.
    """
    said = lattice.tokens_said(logprobs).clamp(max=max(targets.shape[1] - 1, 0))
    if targets.shape[1]:
        labels = targets[:, None].expand(-1, said.shape[1], -1).gather(2, said)
    else:
        labels = torch.zeros_like(said)
    token = logprobs.gather(3, labels[..., None])[..., 0]
    return token, logprobs[..., blank]


class _TotalCost(torch.autograd.Function):
    """Minus the log of the sum over all paths, and its gradient by forward-backward."""

    @staticmethod
    def forward(ctx, token, blank, of_token, of_blank, lattice, values):
        arrays = [x.detach().numpy() for x in (token, blank, of_token, of_blank)]
        grads = [np.zeros(x.shape, x.dtype) for x in arrays]
        cells = (
            lattice.starts_like(token).numpy(),
            lattice.frames.numpy(),
            lattice.sizes.numpy(),
            np.array(values, np.int64),
        )
        total = np.empty(len(token))
        _batch_kernel(*arrays, *cells, total, *grads)
        ctx.save_for_backward(*map(torch.from_numpy, grads))
        return -torch.from_numpy(total).to(token.dtype)

    @staticmethod
    def backward(ctx, grad):
        token, blank, of_token, of_blank = ctx.saved_tensors
        scale = -grad[:, None, None]
        four = scale[..., None]
        shared = token * scale, blank * scale, of_token * four, of_blank * four
        return *shared, None, None


@numba.njit(cache=True, error_model="numpy")
def _add(a, b):
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@numba.njit(cache=True, error_model="numpy")
def _batch_kernel(
    token, blank, of_token, of_blank, starts, frames, sizes, values, total, *grads
):
    """Fill the log-likelihoods [B] and their gradients."""
    num_cells = token.shape[2]
    for b in range(len(token)):
        T, U = frames[b], sizes[b]
        alpha = np.full((T + 1, num_cells), -np.inf)
        beta = np.full((T + 1, num_cells), -np.inf)
        cells = token[b], blank[b], of_token[b], of_blank[b], starts[b], values
        total[b] = _forward_kernel(*cells, T, U, alpha)
        if total[b] > -np.inf:
            slopes = grads[0][b], grads[1][b], grads[2][b], grads[3][b]
            _backward_kernel(*cells, T, U, alpha, beta, total[b], *slopes)


@numba.njit(cache=True, error_model="numpy")
def _forward_kernel(token, blank, of_token, of_blank, starts, values, T, U, alpha):
    """Fill alpha [T, S], the log-prob of reaching each cell; return that of (T, U)."""
    num_cells = token.shape[1]
    end = -np.inf
    if starts[0] > 0:
        return end
    alpha[0, 0] = 0.0
    for t in range(T):
        for s in range(num_cells):
            u, here = starts[t] + s, alpha[t, s]
            if u > U or here == -np.inf:
                continue
            for more in range(2 if u < U else 1):  # 0: a blank, 1: a token
                for i in range(len(values)):
                    step = token[t, s] + of_token[t, s, i]
                    if not more:
                        step = blank[t, s] + of_blank[t, s, i]
                    there = t + values[i]
                    if there >= T:
                        if u + more == U:
                            end = _add(end, here + step)
                        continue
                    place = u + more - starts[there]
                    if 0 <= place < num_cells:
                        alpha[there, place] = _add(alpha[there, place], here + step)
    return end


@numba.njit(cache=True, error_model="numpy")
def _backward_kernel(
    token,
    blank,
    of_token,
    of_blank,
    starts,
    values,
    T,
    U,
    alpha,
    beta,
    end,
    d_token,
    d_blank,
    d_of_token,
    d_of_blank,
):
    """Fill beta [T, S], and the gradients: the posteriors of steps."""
    num_cells = token.shape[1]
    for t in range(T - 1, -1, -1):
        for s in range(num_cells - 1, -1, -1):
            u = starts[t] + s
            if u > U:
                continue
            for more in range(2 if u < U else 1):
                for i in range(len(values)):
                    step = token[t, s] + of_token[t, s, i]
                    if not more:
                        step = blank[t, s] + of_blank[t, s, i]
                    there = t + values[i]
                    rest = -np.inf
                    if there >= T:
                        if u + more == U:
                            rest = 0.0
                    else:
                        place = u + more - starts[there]
                        if 0 <= place < num_cells:
                            rest = beta[there, place]
                    rest += step
                    if rest == -np.inf:
                        continue
                    beta[t, s] = _add(beta[t, s], rest)
                    if alpha[t, s] == -np.inf:
                        continue
                    share = np.exp(alpha[t, s] + rest - end)
                    if more:
                        d_token[t, s] += share
                        d_of_token[t, s, i] += share
                    else:
                        d_blank[t, s] += share
                        d_of_blank[t, s, i] += share
