"""An overlay: arcs for words that a graph does not have, in its own layout.

    said    = SaidWords(word, splits, tokens, cost, bonus)
    overlay = make_overlay(graph, said)

It is T o trie of the pronunciations, as if these had been in the graph: states and arcs
are numbered on from those of the graph, which is not touched. Costs and bonuses stand
as near to the root of the trie as they can: an arc charges the least of what lies
behind it, those after it the difference. A word's label stands on the first arc that
leads to no other word.

    node of the trie    normal             compact, eesen       minimal
    state 0             in its token       in its token         behind its token
    state 1             behind a blank     behind it

Arcs into the trie leave the states with calls, those with the last token of a word lead
to the state of the graph behind it (`graph/calls.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import LEADS_TO_EPSILON
from wfstdec.graph.calls import Calls
from wfstdec.graph.graph_checks import MAX_ARCS
from wfstdec.graph.overlay_kernels import Shape, lay_out, make_edges
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import read_only
from wfstdec.text.symbols import ilabel_of


class SaidWords(NamedTuple):
    """How words are said, in any order; word ids may be beyond the graph's table.

    Attributes:
        word: int32 [P], the word id of each pronunciation.
        splits: int32 [P + 1], where each pronunciation's tokens stand.
        tokens: int32, token ids, without blanks; at least one for each.
        cost: float32 [P], nats, besides that of the call.
        bonus: float32 [P], nats, above 0 favours.
    """

    word: np.ndarray
    splits: np.ndarray
    tokens: np.ndarray
    cost: np.ndarray
    bonus: np.ndarray


@dataclass(frozen=True, eq=False)
class Overlay:
    """The arcs of added words: C calls, F arcs out of each, S' states.

    Attributes:
        first_state: S, the number of the first state.
        first_arc: A, the number of the first arc.
        call_state: int32 [C], the states of the graph with calls, ascending.
        num_entering: F.
        arcs: `ARC`, first F for each call, then the rows of the states, epsilons
            first. Those of infinite cost are none.
        bonus: float32, what each arc is credited, nats.
        state_arc_splits: uint32 [S' + 1], the row of each state in `arcs`.
        state_num_epsilons: uint32 [S'], how many arcs of the row are epsilons; these
            lead to states without any.
        top_bonus: The largest bonus of an arc, at least 0.
    """

    first_state: int
    first_arc: int
    call_state: np.ndarray
    num_entering: int
    arcs: np.ndarray
    bonus: np.ndarray
    state_arc_splits: np.ndarray
    state_num_epsilons: np.ndarray
    top_bonus: np.float32

    @property
    def num_states(self) -> int:
        """The number of states, S'."""
        return len(self.state_num_epsilons)

    def arc_state(self) -> np.ndarray:
        """The state that each arc leaves, int64."""
        entered = np.repeat(self.call_state.astype(np.int64), self.num_entering)
        states = self.first_state + np.arange(self.num_states)
        splits = self.state_arc_splits
        inner = np.repeat(states, (splits[1:] - splits[:-1]).astype(np.int64))
        return np.concatenate([entered, inner])


def make_overlay(graph: PackedGraph, said: SaidWords) -> Overlay:
    """Lay out words for a graph with calls; the same whatever their order.

    Raises:
        GraphError: The graph has no calls, or too many arcs to number on from.
    """
    calls = calls_of(graph)
    shape = _shape_of(graph, calls)
    said = _sorted(said)
    edges = make_edges(
        ilabel_of(said.tokens), said.word, said.splits, said.cost, said.bonus
    )
    arcs, bonus, splits, epsilons, num_entering = lay_out(shape, edges)
    if graph.num_arcs + len(arcs) > MAX_ARCS:
        raise GraphError(
            f"{len(arcs)} arcs of added words on a graph of {graph.num_arcs}, expected "
            f"at most {MAX_ARCS} in all"
        )
    return Overlay(
        first_state=graph.num_states,
        first_arc=graph.num_arcs,
        call_state=calls.state,
        num_entering=int(num_entering),
        arcs=read_only(arcs),
        bonus=read_only(bonus),
        state_arc_splits=read_only(splits),
        state_num_epsilons=read_only(epsilons),
        top_bonus=np.float32(max(bonus.max(initial=0.0), 0.0)),
    )


def calls_of(graph: PackedGraph) -> Calls:
    """The calls of a graph.

    Raises:
        GraphError: It has none.
    """
    if graph.calls is None:
        raise GraphError(
            "this graph cannot add words: it has no calls, expected a graph of "
            "`wfstdec build` with an ARPA model that has <unk>, or with unk_cost; "
            "build it again"
        )
    return graph.calls


def _shape_of(graph: PackedGraph, calls: Calls) -> Shape:
    base, _, selfless = graph.topology.partition("-")
    leads = np.append(graph.state_num_epsilons > 0, False)[calls.returns]
    flags = np.where(leads, np.uint32(LEADS_TO_EPSILON), np.uint32(0))
    return Shape(
        first_state=graph.num_states,
        blank=ilabel_of(graph.tokens.blank),
        states_per_node=1 if base == "minimal" else 2,
        through_epsilon=base in ("compact", "eesen"),
        repeats=base != "minimal" and not selfless,
        call_last=read_only(calls.last),
        call_cost=read_only(calls.cost),
        returns=read_only(calls.returns),
        return_flags=read_only(flags),
    )


def _sorted(said: SaidWords) -> SaidWords:
    """The same by tokens, then by words."""
    lengths = np.diff(said.splits)
    width = int(lengths.max(initial=0))
    table = np.full((len(lengths), width), -1, np.int32)
    table[np.arange(width) < lengths[:, None]] = said.tokens
    order = np.lexsort((said.word, *table.T[::-1]))
    table = table[order]
    return SaidWords(
        said.word[order],
        np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int32),
        table[table >= 0],
        said.cost[order],
        said.bonus[order],
    )
