"""The cost of a frame's tokens in plain Python."""

from __future__ import annotations

import numpy as np

from wfstdec.search.logprobs import Pricing

_INF = np.float32(np.inf)


def price_frame(
    logprobs: np.ndarray, pricing: Pricing, blank: int
) -> tuple[list[np.float32], list[np.float32]]:
    """The cost of each token of a frame, float32 [V]."""
    unscaled = [np.float32(-x) for x in logprobs]
    unscaled[blank] = np.float32(-np.float32(logprobs[blank] - pricing.blank_penalty))
    if logprobs[blank] >= pricing.blank_skip_logprob:
        unscaled = [x if v == blank else _INF for v, x in enumerate(unscaled)]
    scale = pricing.acoustic_scale
    return unscaled, [np.float32(scale * x) if x < _INF else x for x in unscaled]
