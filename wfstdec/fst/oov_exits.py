"""Calls: where a graph may be left for words that its lexicon does not have.

    G     an arc with the class of such words at the empty history, and back to it
    L     the class as a word of one token, between fillers as any word
    T     an arc `call:C` to a state `called` from each state that tokens leave, and
          an arc `return:` from there to the state that each token enters
    TLG   (t, lg) -call-> (called, lg') -return i-> (i, lg')

So composition finds the states where such a word may begin, and those behind it, and
these stay when others are trimmed. `take_calls` then takes the arcs out of the graph.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.fst.labels import LabelSpace
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.oov_exits import NO_STATE, Calls
from wfstdec.text.arpa import ArpaModel

_log = logging.getLogger("wfstdec.build")


def class_cost(model: ArpaModel, unk_cost: float | None) -> float | None:
    """What a word costs that neither lexicon nor model has, nats; None for never.

    That of `<unk>` in the model, else `unk_cost`.
    """
    if model.unk is None:
        return unk_cost
    unigrams = model.ngrams[0]
    cost = float(unigrams.cost[unigrams.words[:, 0] == model.unk][0])
    return cost if math.isfinite(cost) else unk_cost


def take_calls(
    tlg: FstArrays, labels: LabelSpace, word_cost: float
) -> tuple[FstArrays, Calls | None]:
    """A TLG without the arcs of calls, and the calls; None where there are none.

    Args:
        tlg: T o LG, its start state 0.
        labels: With calls.
        word_cost: From `class_cost`.

    Raises:
        ArpaError: Nothing is left.
    """
    state, first = tlg.arc_state(), labels.call(0)
    is_call = (tlg.ilabel >= first) & (tlg.ilabel < labels.after(0))
    is_return = tlg.ilabel >= labels.after(0)
    called = np.unique(tlg.nextstate[is_call])
    keep = np.ones(tlg.num_states, np.bool_)
    keep[called] = False
    if not keep.any():
        raise ArpaError("no word of the lexicon can be said, expected at least one")
    number = np.cumsum(keep) - 1
    calls = None
    if len(called) == 1:
        by_state = np.flatnonzero(is_call)  # arcs are sorted by state
        returns = np.full(len(labels.tokens) + 1, NO_STATE, np.int32)
        entered = number[tlg.nextstate[is_return]]
        returns[tlg.ilabel[is_return] - labels.after(0)] = entered
        calls = Calls(
            number[state[by_state]].astype(np.int32),
            tlg.ilabel[by_state] - np.int32(first),
            tlg.cost[by_state] + np.float32(0.0),
            returns,
            word_cost,
        )
    elif len(called):
        _log.warning("%d states behind calls, expected one: no calls", len(called))
    return _without(tlg, keep, number, ~(is_call | is_return)), calls


def _without(
    fst: FstArrays, keep: np.ndarray, number: np.ndarray, stays: np.ndarray
) -> FstArrays:
    """The states and arcs that stay."""
    arc = np.flatnonzero(stays)
    counts = np.bincount(number[fst.arc_state()[arc]], minlength=int(keep.sum()))
    return replace(
        fst,
        start=int(number[fst.start]),
        final_cost=fst.final_cost[keep],
        state_arc_splits=np.concatenate([[0], np.cumsum(counts)]),
        ilabel=fst.ilabel[arc],
        olabel=fst.olabel[arc],
        nextstate=number[fst.nextstate[arc]].astype(np.int32),
        cost=fst.cost[arc],
    )
