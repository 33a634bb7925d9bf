"""Open words in a graph: T o (a loop over tokens), at its OOV exits.

    a state with an exit -k-> in k        cost of the exit + word_cost + token_cost
    in k                -j-> in j         token_cost; by the rules of T
    in either case      -j:OPEN-> the state of the graph behind a word whose last token
                                          is j: the word ends with it

An open word has no memory but its last token, so that there is one state in each token
and one behind (`topology.py`): of U tokens, with `normal`, up to 2 U^2 arcs, with the
others 2 U, and 2 U for each exit. The label stands on the last token: where the word
ends is known by it, and where it begins by the word before.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.fst.arrays import Arcs, arcs_of, fst_of
from wfstdec.fst.labels import LabelSpace
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.oov_exits import NO_STATE, OovExits
from wfstdec.text.open_spelling import OpenSpelling
from wfstdec.text.symbols import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Vocabulary


class OpenCosts(Protocol):
    """Costs of open words: an `OpenVocabulary`."""

    @property
    def word_cost(self) -> float:
        """For each word, nats, beside what the language model asks for `<unk>`."""

    @property
    def token_cost(self) -> float:
        """For each token, nats."""


def add_open_words(
    tlg: FstArrays,
    labels: LabelSpace,
    exits: OovExits | None,
    vocabulary: Vocabulary,
    *,
    costs: OpenCosts,
    topology: str,
) -> FstArrays:
    """A TLG with open words.

    Args:
        tlg: From `take_exits`.
        labels: Of it.
        exits: Where open words are entered, and where they lead.
        vocabulary: With a label of open words.
        costs: What they cost.
        topology: The name of T.

    Raises:
        GraphError: There are no exits, or no token can begin an open word.
    """
    spelling, word = vocabulary.open_spelling, vocabulary.open_word
    assert spelling is not None and word is not None
    if exits is None:
        raise GraphError("no place where an open word may be said, expected some")
    if not spelling.begins.any():
        raise GraphError(
            "no token can begin an open word: of pieces one has the mark U+2581, and "
            "no token in <> or [] can"
        )
    token_cost = np.float32(costs.token_cost)
    first_cost = np.float32(np.float32(costs.word_cost) + token_cost)
    made = tlg.num_states, labels, spelling, topology
    loop = _Loop(*made, returns=exits.returns, word=word.word)
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
    """The states of T o loop, and their arcs.

    Args:
        first_state: Their first number.
        labels: Of the graph.
        spelling: Which tokens there are.
        topology: The name of T.
        returns: Of the exits.
        word: The label of open words.
    """

    def __init__(
        self,
        first_state: int,
        labels: LabelSpace,
        spelling: OpenSpelling,
        topology: str,
        *,
        returns: np.ndarray,
        word: int,
    ) -> None:
        self._returns, self._word = returns, word
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
