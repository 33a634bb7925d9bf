"""What the tokens of a frame cost, and which may begin."""

from __future__ import annotations

import numpy as np
from numpy import float32

from wfstdec.beam.cpu_types import LARGEST
from wfstdec.beam.ordering import index_of, key_of, sort_keys
from wfstdec.jit import inlined, kernel

_INF = float32(np.inf)


@kernel
def price(blank, scales, logprobs, least, credit, work):
    """Fill `unscaled`, `costs`, `live` and `begin_costs`; how many tokens are live.

    Live is what may begin and could survive from the best entry, which costs `least`:
    the blank after it is a candidate in any case; `credit` is what any may get.
    """
    unscaled, costs, keys = work.unscaled, work.costs, work.keys
    num_tokens = len(logprobs)
    for v in range(num_tokens):
        unscaled[v] = float32(-logprobs[v])
    unscaled[blank] = float32(-float32(logprobs[blank] - scales.blank_penalty))
    if logprobs[blank] >= scales.blank_skip_logprob:
        of_blank = unscaled[blank]
        unscaled[:] = _INF
        unscaled[blank] = of_blank
    for v in range(num_tokens):
        cost = float32(scales.acoustic_scale * unscaled[v])
        costs[v] = cost if unscaled[v] < _INF else _INF
    bound = LARGEST
    if costs[blank] < _INF:
        bound = min(float32(float32(least + costs[blank]) + scales.beam), LARGEST)
        bound = loosened(bound, credit)
    count = 0
    for v in range(num_tokens):
        if costs[v] <= bound and costs[v] < _INF and v != blank:
            keys[count] = key_of(unscaled[v], v)
            count += 1
    sort_keys(keys, count, work.stack)
    count = min(count, scales.token_top_k)
    for i in range(count):
        v = index_of(keys[i])
        work.live[i] = v
        work.begin_costs[v] = costs[v]
    return count


@inlined
def loosened(bound, credit):
    """A bound that a sum of costs that can be credited is held against beforehand."""
    room = float32(abs(bound) + abs(credit)) * float32(1e-5) + float32(1e-3)
    return float32(float32(bound + credit) + room)
