"""The greedy search of one utterance, in numba.

The rows of both models are looked up only where a token begins, a few times a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32

from wfstdec.jit import inlined, kernel
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.kernels import row as row_of
from wfstdec.search.logprobs import Pricing, penalised, scaled

LABEL, LAST, LM_STATE, BOOST_STATE, FRAMES, DIED, TOKENS, LM_ROW, BOOST_ROW = range(9)
"""Positions in `UtteranceState.counts`; at LM_ROW and BOOST_ROW stand the states whose
rows are there, or -1."""
NOTHING_YET = 0, -1, 0, -1, -1
"""The counts from FRAMES on, before the first frame."""
NO_TOKEN = -1
"""No token can begin."""
ACOUSTIC, COST = range(2)
"""Where `UtteranceState.sums` has what."""


class Search(NamedTuple):
    """Tables and options that an utterance is searched with; nothing in it changes."""

    blank: int
    lm: Automaton
    phrases: Automaton
    pricing: Pricing
    lm_scale: np.float32
    token_insertion: float


class UtteranceState(NamedTuple):
    """An utterance under way.

    Attributes:
        counts: int64 [9].
        sums: float64 [2].
        tokens: int32 [N, 3], the token, its first frame, one behind its last.
        lm_cost, boost_cost: float32 [V], a row of each model.
        lm_next, boost_next: int32 [V].
    """

    counts: np.ndarray
    sums: np.ndarray
    tokens: np.ndarray
    lm_cost: np.ndarray
    boost_cost: np.ndarray
    lm_next: np.ndarray
    boost_next: np.ndarray


@kernel
def advance(search, utterance, logprobs):
    """Pass an utterance through the frames of a chunk."""
    counts, sums, tokens = utterance.counts, utterance.sums, utterance.tokens
    for t in range(len(logprobs)):
        if counts[DIED] >= 0:
            return
        row = logprobs[t]
        frame, label = counts[FRAMES], counts[LABEL]
        of_blank = penalised(search.pricing, row[search.blank])
        best = _best(search, row, of_blank)
        begins = False
        if best == search.blank:
            label = best
        elif best >= 0 and best != label:
            # The best token of the frame before, in whose place the models chose
            # another, begins nothing: the chosen one goes on, if it can.
            if best != counts[LAST] or not row[label] > -np.inf:
                label = _choose(search, utterance, row, best)
                begins = True
        if best < 0 or label < 0:
            counts[DIED] = frame
            return
        unscaled = float32(-(of_blank if label == search.blank else row[label]))
        sums[ACOUSTIC] += np.float64(unscaled)
        sums[COST] += np.float64(scaled(search.pricing, unscaled))
        if begins:
            tokens[counts[TOKENS], 0], tokens[counts[TOKENS], 1] = label, frame
            counts[TOKENS] += 1
        if label != search.blank:
            tokens[counts[TOKENS] - 1, 2] = frame + 1
        counts[LABEL], counts[LAST], counts[FRAMES] = label, best, frame + 1


@inlined
def _best(search, row, of_blank):
    """The most probable token, -1 where none is possible."""
    best, top = -1, float32(-np.inf)
    for v in range(len(row)):
        x = of_blank if v == search.blank else row[v]
        if x > top:
            best, top = v, x
    return best


@inlined
def _choose(search, utterance, row, best):
    """The token that begins, -1 where none can; the models step by it."""
    counts = utterance.counts
    lm_cost, boost_cost = utterance.lm_cost, utterance.boost_cost
    # A row costs a walk over all histories: kept as long as the state stays.
    if counts[LM_ROW] != counts[LM_STATE]:
        counts[LM_ROW] = counts[LM_STATE]
        row_of(search.lm, 0, counts[LM_ROW], lm_cost, utterance.lm_next)
    if counts[BOOST_ROW] != counts[BOOST_STATE]:
        counts[BOOST_ROW] = counts[BOOST_STATE]
        row_of(search.phrases, 0, counts[BOOST_ROW], boost_cost, utterance.boost_next)
    least, chosen, paid = float32(np.inf), np.int64(NO_TOKEN), float32(0)
    # The best token first, so that it wins ties; it comes again in its place, where it
    # changes nothing.
    for i in range(-1, len(row)):
        v = best if i < 0 else i
        impossible = not row[v] > -np.inf or not lm_cost[v] < np.inf
        if v == search.blank or v == counts[LABEL] or impossible:
            continue
        extra = float32(float32(search.lm_scale * lm_cost[v]) + boost_cost[v])
        cost = float32(extra + scaled(search.pricing, float32(-row[v])))
        if cost < least:
            least, chosen, paid = cost, np.int64(v), extra
    if chosen >= 0:
        counts[LM_STATE] = utterance.lm_next[chosen]
        counts[BOOST_STATE] = utterance.boost_next[chosen]
        utterance.sums[COST] += np.float64(paid) + search.token_insertion
    return chosen
