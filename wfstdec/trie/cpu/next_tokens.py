"""Which tokens may begin in a frame: those within the bound, best first.

count = find_tokens(blank, bound, work)        # found_tokens, found_costs
count = drop_tokens(count, lower_bound, work)
num_next = rank_tokens(scales, count, work)    # next_tokens, next_costs
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.ordering import index_of, key_of, sort_keys
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.cpu.bounds import least_cost
from wfstdec.trie.cpu.places import token_of

PROBED_ENTRIES = 8
"""So many of the first entries are looked at for a bound to begin with."""
MAX_RANK_SORT = 128
"""More tokens than these are sorted by quicksort."""
_INF = float32(np.inf)
_ONE = uint64(1)
_ZERO = uint64(0)


@part
def least_stay_cost(search, work, frontier, count):
    """The least cost of the first entries if no token begins.

    A candidate has this cost, so that the running bound may begin with it.
    """
    least, blank = _INF, work.costs[search.space.blank]
    for i in range(min(count, PROBED_ENTRIES)):
        entry = frontier[i]
        least = min(least, float32(least_cost(entry) + blank))
        if entry.nonblank_cost < _INF:
            again = work.costs[token_of(search, entry.node)]
            least = min(least, float32(entry.nonblank_cost + again))
    return least


@part
def find_tokens(blank, bound, work):
    """Fill `found_tokens` and `found_costs` with the tokens up to a bound; how many.

    No branch depends on the costs, so that none is mispredicted.
    """
    costs, unscaled, blank = work.costs, work.unscaled, uint64(blank)
    bound, count = min(bound, NO_CUTOFF), _ZERO
    for v in range(uint64(len(costs))):
        work.found_tokens[count], work.found_costs[count] = v, unscaled[v]
        count += uint64(costs[v] <= bound) & uint64(v != blank)
    return count


@part
def drop_tokens(count, bound, work):
    """Drop the found tokens that are over a lower bound; how many are left."""
    tokens, costs, kept = work.found_tokens, work.found_costs, _ZERO
    for i in range(count):
        token = tokens[i]
        tokens[kept], costs[kept] = token, costs[i]
        kept += uint64(work.costs[token] <= bound)
    return kept


@part
def take_best_token(count, work):
    """Let the best of the found tokens be the only one that may begin."""
    best = _ZERO
    for i in range(_ONE, count):
        if work.found_costs[i] < work.found_costs[best]:
            best = i
    token = work.found_tokens[best]
    work.next_tokens[0] = token
    work.next_costs[token] = work.costs[token]


@part
def rank_tokens(scales, count, work):
    """Fill `next_tokens` and `next_costs` with the best of those found; how many."""
    if count > uint64(MAX_RANK_SORT):
        _quicksort(work, count)
    else:
        _rank_sort(work, count)
    num_next = min(int64(count), scales.token_top_k)
    for i in range(num_next):
        work.next_costs[work.next_tokens[i]] = work.costs[work.next_tokens[i]]
    return num_next


@inlined
def _quicksort(work, count):
    """Fill `next_tokens` with the found tokens, the least (cost, token) first."""
    for i in range(count):
        work.keys[i] = key_of(work.found_costs[i], work.found_tokens[i])
    sort_keys(work.keys, int64(count), work.stack)
    for i in range(count):
        work.next_tokens[i] = index_of(work.keys[i])


@inlined
def _rank_sort(work, count):
    """The same for a few: a token's place is the number of those before it.

    No branch depends on the costs, so that none is mispredicted.
    """
    costs = work.found_costs
    for i in range(count):
        cost, place = costs[i], uint32(0)
        for j in range(i):
            place += uint32(costs[j] <= cost)
        for j in range(i + _ONE, count):
            place += uint32(costs[j] < cost)
        work.next_tokens[place] = work.found_tokens[i]
