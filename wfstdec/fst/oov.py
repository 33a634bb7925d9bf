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

from wfstdec.errors import ArpaError, GraphError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.graph.arcs import NO_STATE, FstArrays, OovExits
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.text.vocabulary import OpenSpelling, Vocabulary

_log = logging.getLogger("wfstdec.build")


def class_cost(model: ArpaModel, unk_cost: float | None) -> float | None:
    """Cost of a word that neither lexicon nor model has, nats; None for never."""
    # That of `<unk>` in the model, else `unk_cost`.
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
    # Places to return to are read from the one state outside: of several each would
    # have its own.
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
    made = tlg.num_states, labels, spelling, topology
    loop = _Loop(*made, return_state=exits.return_state, word=word.word)
    allowed = spelling.begins, spelling.extends
    begins, extends = (ilabel_of(np.flatnonzero(some)) for some in allowed)
    c, k = _pairs(len(exits), begins)
    # The token before the exit cannot follow without a blank in between.
    entered = exits.last[c] != k
    c, k = c[entered], k[entered]
    parts = [
        Arcs(tlg.arc_state(), tlg.ilabel, tlg.olabel, tlg.nextstate, tlg.cost),
        *loop.token_arcs(exits.state[c], k, exits.cost[c] + first_cost, first=True),
        *loop.arcs(),
    ]
    for sources, last in loop.sources():
        s, j = _pairs(len(sources), extends)
        apart = last[s] != j
        s, j = s[apart], j[apart]
        costs_of = np.full(len(j), token_cost)
        parts += loop.token_arcs(sources[s], j, costs_of, first=False)
    infinite = np.full(loop.num_states, np.inf, np.float32)
    return fst_of(parts, tlg.start, np.append(tlg.final_cost, infinite))


class _Loop:
    """The states of T o loop, and their arcs."""

    def __init__(
        self,
        first_state: int,
        labels: LabelSpace,
        spelling: OpenSpelling,
        topology: str,
        *,
        return_state: np.ndarray,
        word: int,
    ) -> None:
        self._returns, self._word = return_state, word
        spells = np.array([not spelling.is_spelled or bool(t) for t in spelling.texts])
        self._is_word = np.append(False, spells)  # by ilabel: alone
        base, _, selfless = topology.partition("-")
        self._labels = labels
        self.goes_on = bool(spelling.extends.any())
        self.units = ilabel_of(np.flatnonzero(spelling.begins | spelling.extends))
        self._is_normal, self._has_units = base == "normal", base != "minimal"
        self._repeats = self._has_units and not selfless
        count = len(self.units) if self._has_units else 0
        self._inside = first_state + np.arange(count)
        self._behind = first_state + count
        self.num_states = count + 1 if self.goes_on else 0

    def inside(self, ilabel: np.ndarray) -> np.ndarray:
        """The state in a token of an open word that goes on."""
        if not self._has_units:
            return np.full(len(ilabel), self._behind)
        return self._inside[np.searchsorted(self.units, ilabel)]

    def sources(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The states that tokens leave, and the ilabels that may not follow there."""
        if not self.goes_on:
            return []
        found = [(np.array([self._behind]), np.array([EPSILON]))]
        return found + [(self._inside, self.units)] * self._is_normal

    def arcs(self) -> list[Arcs]:
        """Blanks, repeats, and epsilons."""
        if not self.goes_on:
            return []
        blank, behind = self._labels.blank, self._behind
        parts = [arcs_of(behind, blank, EPSILON, behind)]
        if self._repeats:
            again = self._labels.repeat(self.units)
            parts.append(arcs_of(self._inside, again, EPSILON, self._inside))
        if self._has_units:
            passed = blank if self._is_normal else EPSILON
            parts.append(arcs_of(self._inside, passed, EPSILON, behind))
        return parts

    def token_arcs(
        self, state: np.ndarray, ilabel: np.ndarray, cost: np.ndarray, *, first: bool
    ) -> list[Arcs]:
        """Arcs of tokens with which a word goes on, and those with which it ends."""
        ends = self._returns[ilabel] != NO_STATE
        if first:
            ends &= self._is_word[ilabel]
        nextstate = self._returns[ilabel[ends]]
        last = arcs_of(state[ends], ilabel[ends], self._word, nextstate, cost[ends])
        if not self.goes_on:
            return [last]
        inside = self.inside(ilabel)
        return [last, arcs_of(state, ilabel, EPSILON, inside, cost)]


def _pairs(count: int, ilabels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair each of `count` positions with each label."""
    return np.repeat(np.arange(count), len(ilabels)), np.tile(ilabels, count)
