"""The running bound of a frame, and what is held against it before it is priced.

bound = running_bound(params, least)
if cost > loosened(bound, credit): ...     # over it, even with `credit` deducted

`least` is the least cost of a candidate so far, so that the bound `least + beam` only
drops what the final one drops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32

from wfstdec.jit import inlined
from wfstdec.search.costs import NO_CUTOFF


class Step(NamedTuple):
    """Costs of a token that begins, or of the end of an utterance, beside acoustics.

    Attributes:
        olabel: The word that ends, 0 for none; without a lexicon the token's ilabel.
        graph_cost: Unscaled, without the entry's look-ahead.
        insertion: Of word and token.
        boost_cost: What boosts make of it.
    """

    olabel: int
    graph_cost: np.float32
    insertion: np.float32
    boost_cost: np.float32


@inlined
def running_bound(params, least):
    """Bound of a frame so far: what costs more is dropped."""
    return min(float32(least + params.beam), NO_CUTOFF)


@inlined
def loosened(bound, credit):
    """The bound for a cost from which up to `credit` may still be deducted.

    It allows for the rounding of the sums that follow.
    """
    room = float32(abs(bound) + abs(credit)) * float32(1e-5) + float32(1e-3)
    return float32(float32(bound + credit) + room)


@inlined
def exceeds(params, cost, credit, least):
    """Tell whether a cost is over the running bound, even with a credit deducted."""
    return cost > loosened(running_bound(params, least), credit)


@inlined
def step_cost(params, before, step):
    """The cost after a step but for its acoustics: what the search holds entries by.

    Search, lattices and endings add these up alike, in the order of `reference.py`.

    Args:
        params: `Params`.
        before: The cost of the phase that it begins from.
        step: What adds to it: `graph_cost`, unscaled, `insertion`, `boost_cost`.
    """
    cost = float32(before + float32(params.lm_scale * step.graph_cost))
    return float32(float32(cost + step.insertion) + step.boost_cost)


@inlined
def least_cost(entry):
    """The cost of the better phase."""
    return min(entry.blank_cost, entry.nonblank_cost)


@inlined
def is_over(search, scratch, source, token, least):
    """Tell whether a token that begins is over the bound, wherever it leads."""
    params = search.params
    cost = float32(least_cost(source.entry) + scratch.costs[token])
    most = max(source.most_inside, source.most_at_end)
    credit = float32(params.begin_credit + most)
    return exceeds(params, cost, credit, least)
