"""What the tokens of a frame cost, and which may begin."""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, kernel
from wfstdec.jit.ordering import index_of, key_of, sort_keys
from wfstdec.search.costs import NO_CUTOFF

FIRST = 8
"""Entries that are looked at for the running bound to begin with."""
MANY = 128
"""More tokens than these are sorted."""
_INF = float32(np.inf)
_ONE = uint64(1)
_ZERO = uint64(0)


@kernel
def price(blank, scales, logprobs, work):
    """Fill `unscaled` and `costs`, by token."""
    unscaled, costs = work.unscaled, work.costs
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


@kernel
def least_stay(space, work, frontier, count):
    """What the best of the first entries costs if nothing new begins.

    A candidate has this cost, so that the running bound may begin with it.
    """
    least, blank = _INF, work.costs[space.blank]
    for i in range(min(count, FIRST)):
        entry = frontier[i]
        least = min(least, float32(min(entry.over, entry.on) + blank))
        if entry.on < _INF:
            again = work.costs[space.node_token[entry.node]]
            least = min(least, float32(entry.on + again))
    return least


@kernel
def find_near(blank, bound, work):
    """Fill `near_token` and `near` with the tokens up to `bound`; how many."""
    costs, unscaled, blank = work.costs, work.unscaled, uint64(blank)
    bound, count = min(bound, NO_CUTOFF), _ZERO
    for v in range(uint64(len(costs))):
        work.near_token[count], work.near[count] = v, unscaled[v]
        count += uint64(costs[v] <= bound) & uint64(v != blank)
    return count


@kernel
def keep_near(count, bound, work):
    """Leave out what is over a lower bound; how many are left."""
    tokens, near, kept = work.near_token, work.near, _ZERO
    for i in range(count):
        token = tokens[i]
        tokens[kept], near[kept] = token, near[i]
        kept += uint64(work.costs[token] <= bound)
    return kept


@kernel
def take_best(count, work):
    """Let the best of the tokens found be the only one that may begin."""
    best = _ZERO
    for i in range(_ONE, count):
        if work.near[i] < work.near[best]:
            best = i
    token = work.near_token[best]
    work.live[0] = token
    work.begin_costs[token] = work.costs[token]


@kernel
def put_in_order(scales, count, work):
    """Fill `live` and `begin_costs` with the tokens found, best first; how many."""
    if count > uint64(MANY):
        _sort(work, count)
    else:
        _count_out(work, count)
    num_live = min(int64(count), scales.token_top_k)
    for i in range(num_live):
        work.begin_costs[work.live[i]] = work.costs[work.live[i]]
    return num_live


@inlined
def _sort(work, count):
    """Fill `live` with the tokens found, the least (cost, token) first."""
    for i in range(count):
        work.keys[i] = key_of(work.near[i], work.near_token[i])
    sort_keys(work.keys, int64(count), work.stack)
    for i in range(count):
        work.live[i] = index_of(work.keys[i])


@inlined
def _count_out(work, count):
    """The same for a few: a token's place is the number of those before it.

    No branch depends on the costs, so that none is guessed wrong.
    """
    near = work.near
    for i in range(count):
        cost, place = near[i], uint32(0)
        for j in range(i):
            place += uint32(near[j] <= cost)
        for j in range(i + _ONE, count):
            place += uint32(near[j] < cost)
        work.live[place] = work.near_token[i]


@inlined
def loosened(bound, credit):
    """A bound that a sum of costs that can be credited is held against beforehand."""
    room = float32(abs(bound) + abs(credit)) * float32(1e-5) + float32(1e-3)
    return float32(float32(bound + credit) + room)
