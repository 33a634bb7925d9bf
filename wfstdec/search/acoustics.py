"""Costs of the tokens of a frame: the blank's penalty, blank skipping, the scale.

    pricing = pricing_of(options)
    unscaled, costs = price_frame(logprobs, pricing, blank)     # plain Python
    price(pricing, blank, logprobs, unscaled, costs)            # in a kernel

Both give the same bits:

    unscaled[v] = -logprobs[v]; the blank's log-prob is less by `blank_penalty` first;
                  where the blank is probable enough to skip the frame, all others inf
    costs[v]    = acoustic_scale * unscaled[v]; what is impossible stays so: inf where
                  unscaled[v] is inf, also at scale 0
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy import float32

from wfstdec.jit import inlined, kernel

_INF = np.float32(np.inf)


class Pricing(NamedTuple):
    """Options of every search on log-probs, as kernels take them; see `WfstOptions`."""

    acoustic_scale: np.float32
    blank_penalty: np.float32
    blank_skip_logprob: np.float32  # inf: no frame is skipped


@functools.lru_cache(maxsize=64)
def pricing_of(options: Any) -> Pricing:
    """The options in float32: the scale, the blank's penalty, from where it skips."""
    skip = options.blank_skip_threshold
    return Pricing(
        acoustic_scale=np.float32(options.acoustic_scale),
        blank_penalty=np.float32(options.blank_penalty),
        blank_skip_logprob=np.float32(math.inf if skip is None else math.log(skip)),
    )


def price_frame(
    logprobs: np.ndarray, pricing: Pricing, blank: int
) -> tuple[list[np.float32], list[np.float32]]:
    """The cost of each token of a frame.

    Args:
        logprobs: float32 [V].
        pricing: How they are priced.
        blank: The token that is the blank.

    Returns:
        V costs unscaled, V costs scaled.
    """
    unscaled = [np.float32(-x) for x in logprobs]
    unscaled[blank] = np.float32(-np.float32(logprobs[blank] - pricing.blank_penalty))
    if logprobs[blank] >= pricing.blank_skip_logprob:
        unscaled = [x if v == blank else _INF for v, x in enumerate(unscaled)]
    scale = pricing.acoustic_scale
    return unscaled, [np.float32(scale * x) if x < _INF else x for x in unscaled]


@kernel
def price(pricing, blank, logprobs, unscaled, costs):
    """Fill `unscaled` and `costs`, float32 [V] by token, as `price_frame`."""
    for v in range(len(logprobs)):
        unscaled[v] = float32(-logprobs[v])
        costs[v] = scaled(pricing, unscaled[v])
    if logprobs[blank] >= pricing.blank_skip_logprob:
        unscaled[:] = _INF
        costs[:] = _INF
    unscaled[blank] = -penalised(pricing, logprobs[blank])
    costs[blank] = scaled(pricing, unscaled[blank])


@inlined
def penalised(pricing, logprob):
    """The log-prob of a blank, the penalty taken off."""
    return float32(logprob - pricing.blank_penalty)


@inlined
def scaled(pricing, unscaled):
    """The scaled cost of a token."""
    cost = float32(pricing.acoustic_scale * unscaled)
    return cost if unscaled < _INF else _INF
