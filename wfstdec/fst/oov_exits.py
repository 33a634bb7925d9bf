"""OOV exits: where a graph may be left for words that its lexicon does not have.

    G     an arc with the class of such words at the empty history, and back to it
    L     the class as a word of one token, between fillers as any word
    T     an arc `exit:C` to a state `outside` from each state that tokens leave, and
          an arc `return:` from there to the state that each token enters
    TLG   (t, lg) -exit-> (outside, lg') -return i-> (i, lg')

So composition finds the states where such a word may begin, and those behind it, and
these stay when others are trimmed. `take_exits` then takes the arcs out of the graph.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.fst.labels import LabelSpace
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.oov_exits import NO_STATE, OovExits
from wfstdec.text.arpa import ArpaModel

_log = logging.getLogger("wfstdec.build")


def class_cost(model: ArpaModel, unk_cost: float | None) -> float | None:
    """Cost of a word that neither lexicon nor model has, nats; None for never.

    That of `<unk>` in the model, else `unk_cost`.
    """
    if model.unk is None:
        return unk_cost
    unigrams = model.ngrams[0]
    cost = float(unigrams.cost[unigrams.words[:, 0] == model.unk][0])
    return cost if math.isfinite(cost) else unk_cost


def take_exits(
    tlg: FstArrays, labels: LabelSpace, word_cost: float
) -> tuple[FstArrays, OovExits | None]:
    """Take the arcs of exits out of a TLG; the exits, None where there are none.

    Args:
        tlg: T o LG, its start state 0.
        labels: With exits.
        word_cost: From `class_cost`.

    Raises:
        ArpaError: Nothing is left.
    """
    state, first = tlg.arc_state(), labels.exit(0)
    is_exit = (tlg.ilabel >= first) & (tlg.ilabel < labels.after(0))
    is_return = tlg.ilabel >= labels.after(0)
    outside = np.unique(tlg.nextstate[is_exit])
    keep = np.ones(tlg.num_states, np.bool_)
    keep[outside] = False
    if not keep.any():
        raise ArpaError("no word of the lexicon can be said, expected at least one")
    number = np.cumsum(keep) - 1
    exits = None
    # Places to return to are read from the one state outside: of several each would
    # have its own.
    if len(outside) == 1:
        by_state = np.flatnonzero(is_exit)  # arcs are sorted by state
        returns = np.full(len(labels.tokens) + 1, NO_STATE, np.int32)
        entered = number[tlg.nextstate[is_return]]
        returns[tlg.ilabel[is_return] - labels.after(0)] = entered
        exits = OovExits(
            number[state[by_state]].astype(np.int32),
            tlg.ilabel[by_state] - np.int32(first),
            tlg.cost[by_state] + np.float32(0.0),
            returns,
            word_cost,
        )
    elif len(outside):
        _log.warning("%d states behind exits, expected one: no exits", len(outside))
    return _without(tlg, keep, number, ~(is_exit | is_return)), exits


def _without(
    fst: FstArrays, keep: np.ndarray, number: np.ndarray, stays: np.ndarray
) -> FstArrays:
    """Drop states and arcs, and number the states anew."""
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
