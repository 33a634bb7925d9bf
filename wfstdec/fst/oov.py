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
from typing import Any

import numpy as np

from wfstdec.errors import ArpaError, GraphError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.operations import part_of
from wfstdec.graph.arcs import NO_STATE, FstArrays, OovExits
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Vocabulary

_log = logging.getLogger("wfstdec.build")


def class_cost(model: ArpaModel, unk_cost: float | None) -> float | None:
    """Cost of an OOV word: that of `<unk>`, else `unk_cost`, nats; None for never."""
    if model.unk is None:
        return unk_cost
    unigrams = model.ngrams[0]
    cost = float(unigrams.cost[unigrams.words[:, 0] == model.unk][0])
    return cost if math.isfinite(cost) else unk_cost


def take_exits(
    tlg: FstArrays, labels: LabelSpace, word_cost: float
) -> tuple[FstArrays, OovExits | None]:
    """Take the arcs of exits out of a TLG; the exits, None where there are none."""
    state, first = tlg.arc_state(), labels.exit(0)
    is_exit = (tlg.ilabel >= first) & (tlg.ilabel < labels.after(0))
    is_return = tlg.ilabel >= labels.after(0)
    outside = np.unique(tlg.nextstate[is_exit])
    keep = np.ones(tlg.num_states, np.bool_)
    keep[outside] = False
    if not keep.any():
        raise ArpaError("no word of the lexicon can occur, expected at least one")
    number = np.cumsum(keep) - 1
    exits = None
    # Of several states outside, each would have its own places to return to.
    if len(outside) == 1:
        by_state = np.flatnonzero(is_exit)  # arcs are sorted by state
        return_state = np.full(len(labels.tokens) + 1, NO_STATE, np.int32)
        entered = number[tlg.nextstate[is_return]]
        return_state[tlg.ilabel[is_return] - labels.after(0)] = entered
        exits = OovExits(
            number[state[by_state]].astype(np.int32),
            tlg.ilabel[by_state] - np.int32(first),
            tlg.cost[by_state] + np.float32(0.0),
            return_state,
            word_cost,
        )
    elif len(outside):
        _log.warning("%d states behind exits, expected one: no exits", len(outside))
    return part_of(tlg, keep, ~(is_exit | is_return)), exits


def add_open_words(
    tlg: FstArrays,
    labels: LabelSpace,
    exits: OovExits | None,
    vocabulary: Vocabulary,
    *,
    topology: str,
) -> FstArrays:
    """A TLG with open words."""
    spelling, word = vocabulary.open_spelling, vocabulary.open_word
    assert spelling is not None and word is not None
    if exits is None:
        raise GraphError("no state where an open word may begin, expected some")
    if not spelling.begins.any():
        raise GraphError(
            "no token can begin an open word: of pieces one has the mark U+2581, and "
            "no token in <> or [] can"
        )
    assert word.word_cost is not None
    token_cost = np.float32(word.token_cost)
    first_cost = np.float32(np.float32(word.word_cost) + token_cost)
    allowed = spelling.begins, spelling.extends, spelling.begins | spelling.extends
    begins, extends, units = (ilabel_of(np.flatnonzero(some)) for some in allowed)
    spells = [not spelling.is_spelled or bool(text) for text in spelling.texts]
    is_word = np.array([False, *spells])  # by ilabel: alone
    base, _, selfless = topology.partition("-")
    # States of T o loop: in each token of a word that continues, and behind a token.
    inside = tlg.num_states + np.arange(len(units) if base != "minimal" else 0)
    behind, returns = tlg.num_states + len(inside), exits.return_state
    parts = [Arcs(tlg.arc_state(), tlg.ilabel, tlg.olabel, tlg.nextstate, tlg.cost)]

    def add(state: np.ndarray, ilabel: np.ndarray, cost: np.ndarray, ends: Any) -> None:
        """Add arcs of tokens with which a word ends, and of those that continue."""
        ends = ends & (returns[ilabel] != NO_STATE)
        to, last = returns[ilabel[ends]], ilabel[ends]
        parts.append(arcs_of(state[ends], last, word.word, to, cost[ends]))
        if len(extends):
            into = inside[np.searchsorted(units, ilabel)] if len(inside) else behind
            parts.append(arcs_of(state, ilabel, EPSILON, into, cost))

    # The token before the exit cannot follow without a blank in between.
    c, k = _pairs(exits.last, begins)
    add(exits.state[c], k, exits.cost[c] + first_cost, is_word[k])
    if not len(extends):
        return fst_of(parts, tlg.start, tlg.final_cost)
    parts.append(arcs_of(behind, labels.blank, EPSILON, behind))
    sources = [(np.array([behind]), np.array([EPSILON]))]
    if len(inside):
        if not selfless:
            parts.append(arcs_of(inside, labels.repeat(units), EPSILON, inside))
        passed = labels.blank if base == "normal" else EPSILON
        parts.append(arcs_of(inside, passed, EPSILON, behind))
    if base == "normal":
        sources.append((inside, units))
    for source, last in sources:
        s, j = _pairs(last, extends)
        add(source[s], j, np.full(len(j), token_cost), True)
    infinite = np.full(len(inside) + 1, np.inf, np.float32)
    return fst_of(parts, tlg.start, np.append(tlg.final_cost, infinite))


def _pairs(last: np.ndarray, ilabels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair positions with each label but that which may not follow there."""
    position = np.repeat(np.arange(len(last)), len(ilabels))
    ilabel = np.tile(ilabels, len(last))
    apart = last[position] != ilabel
    return position[apart], ilabel[apart]
