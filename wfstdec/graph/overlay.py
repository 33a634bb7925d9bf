"""Overlays: arcs of OOV words in the layout of a graph.

    overlay = make_overlay(graph, words)

An overlay is T o (trie of the pronunciations): its states and arcs are numbered after
those of the graph, which is not changed. Costs and bonuses are pushed to the root of
the trie: an arc has the least of all that follow, and later arcs the difference. The
label of a word is on the first arc that leads to no other word.

    node of the trie    normal             compact         minimal
    state 0             in its token       in its token    after its token
    state 1             after a blank      after it

Arcs into the trie leave the states with OOV exits. Arcs with the last token of a word
lead to a state of the graph (`OovExits`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import ARC, CARRIES_WORD, LEADS_TO_EPSILON, REPEAT, OovExits
from wfstdec.graph.checks import MAX_ARCS
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined, jit, read_only
from wfstdec.text.tokens import ilabel_of
from wfstdec.text.vocabulary import OovWords

_ROOT, _LEAF = -1, -1
_SEVERAL = -1  # Marker for several words


class Shape(NamedTuple):
    """Layout of a trie by T over a graph, with exits and returns."""

    first_state: int
    blank: int  # its ilabel
    states_per_node: int
    # whether an epsilon leads from the state in a token to that after it
    has_hubs: bool
    repeats: bool
    exit_last: np.ndarray  # int32 [C]
    exit_cost: np.ndarray  # float32 [C]
    return_state: np.ndarray  # int32 [V + 1]
    return_flags: np.ndarray  # uint32 [V + 1]


class Edges(NamedTuple):
    """Edges of a trie by source node, the root's first."""

    # A node is a prefix of tokens; the end of a word is an edge to a leaf.

    node_label: np.ndarray  # int32 [N]: ilabel of the last token
    splits: np.ndarray  # int32 [N + 2]: edges of the root, of node 0, 1, ...
    label: np.ndarray  # int32 [E]: ilabel
    node: np.ndarray  # int32 [E]: destination, -1 for a leaf
    word: np.ndarray  # int32 [E]: label of the word, 0 for none
    cost: np.ndarray  # float32 [E]
    bonus: np.ndarray  # float32 [E]


def make_edges(words: OovWords, cost: np.ndarray) -> Edges:
    """Return the trie of pronunciations; `cost`: float32 [P]."""
    lengths = np.diff(words.splits)
    depth = np.arange(lengths.max(initial=0))
    table = np.full((len(lengths), len(depth)), -1, np.int32)
    table[depth < lengths[:, None]] = words.tokens
    order = np.lexsort((words.word, *table.T[::-1]))
    table, lengths = table[order], lengths[order]
    word, cost, bonus = words.word[order], cost[order], words.bonus[order]
    # Sorted pronunciations share prefixes with neighbours only. The last token is
    # always a separate edge to a leaf: a word ends there.
    common = np.cumprod(table[1:] == table[:-1], axis=1).sum(axis=1)
    shared = np.zeros(len(lengths), np.int64)
    shared[1:] = np.minimum(common, np.minimum(lengths[1:], lengths[:-1]) - 1)
    inner = depth < lengths[:, None] - 1
    is_new = inner & (depth >= shared[:, None])
    number = np.cumsum(is_new).reshape(is_new.shape) - 1
    node = np.maximum.accumulate(np.where(is_new, number, _ROOT), axis=0)
    # Costs and bonuses are pushed towards the root: an edge has the least cost, and the
    # largest bonus, that follow. The root is -1.
    num_nodes, at, row = int(is_new.sum()), node[inner], np.nonzero(inner)[0]
    least, top = np.zeros((2, num_nodes + 1), np.float32)
    first, last = np.zeros((2, num_nodes + 1), np.int32)
    least[:-1], top[:-1], first[:-1] = np.inf, -np.inf, np.iinfo(np.int32).max
    np.minimum.at(least, at, cost[row])
    np.maximum.at(top, at, bonus[row])
    np.minimum.at(first, at, word[row])
    np.maximum.at(last, at, word[row])
    only = np.where(first == last, first, _SEVERAL)
    only[-1] = _SEVERAL
    # Edges are numbered by source node, then in order of occurrence.
    p, d = np.nonzero(is_new | (depth == lengths[:, None] - 1))
    source = np.where(d > 0, node[p, d - 1], _ROOT)
    by_source = np.argsort(source, kind="stable")
    p, d, source = p[by_source], d[by_source], source[by_source]
    is_leaf = d == lengths[p] - 1
    to = np.where(is_leaf, _LEAF, node[p, d]).astype(np.int32)
    # A word is on the first edge that leads to no other.
    own = np.where(is_leaf, word[p], only[to])
    is_known = (only[source] != _SEVERAL) | (own == _SEVERAL)
    splits = np.searchsorted(source, np.arange(_ROOT, num_nodes + 1))
    return Edges(
        node_label=ilabel_of(table[is_new]),
        splits=splits.astype(np.int32),
        label=ilabel_of(table[p, d]),
        node=to,
        word=np.where(is_known, 0, own).astype(np.int32),
        cost=np.where(is_leaf, cost[p], least[to]) - least[source],
        bonus=np.where(is_leaf, bonus[p], top[to]) - top[source],
    )


@inlined
def _write(arcs, bonuses, i, ilabel, olabel, nextstate, cost, bonus):
    """Write an arc and its bonus; return the number of the next."""
    arcs[i].ilabel, arcs[i].olabel = uint32(ilabel), uint32(olabel)
    arcs[i].nextstate, arcs[i].cost = uint32(nextstate), cost
    bonuses[i] = bonus
    return i + 1


@inlined
def _write_edge(shape, edges, arcs, bonuses, i, e, cost):
    """Write the arc of an edge at a cost; return the number of the next."""
    ilabel, olabel = np.int64(edges.label[e]), np.int64(edges.word[e])
    if edges.node[e] == _LEAF:
        nextstate = np.int64(shape.return_state[ilabel])
        flags = np.int64(shape.return_flags[ilabel])
        if nextstate < 0:  # no word of the graph ends with this token
            nextstate, cost = np.int64(0), np.float32(np.inf)
    else:
        node = np.int64(edges.node[e])
        nextstate = shape.first_state + node * shape.states_per_node
        flags = np.int64(LEADS_TO_EPSILON if shape.has_hubs else 0)
    if olabel != 0:
        flags |= CARRIES_WORD
    ilabel |= flags
    bonus = edges.bonus[e]
    return _write(arcs, bonuses, i, ilabel, olabel, nextstate, cost, bonus)


@jit
def lay_out(shape, edges):
    """Return T o trie: arcs, bonuses, splits, numbers of epsilons, F of `Overlay`."""
    num_nodes, num_exits = len(edges.node_label), len(shape.exit_last)
    num_entry_arcs = np.int64(edges.splits[1])
    inner = len(edges.label) - num_entry_arcs
    most = num_exits * num_entry_arcs + 4 * num_nodes + 2 * inner
    arcs, bonuses = np.empty(most, ARC), np.empty(most, np.float32)
    num_states = shape.states_per_node * num_nodes
    splits, epsilons = np.empty(num_states + 1, uint32), np.zeros(num_states, uint32)
    none, i, s = np.float32(0), 0, 0
    for c in range(num_exits):
        for e in range(num_entry_arcs):
            cost = np.float32(shape.exit_cost[c] + edges.cost[e])
            # The same token again needs a blank in between. The arc is kept at infinite
            # cost, so that rows of exits have equal lengths.
            if edges.label[e] == shape.exit_last[c]:
                cost = np.float32(np.inf)
            i = _write_edge(shape, edges, arcs, bonuses, i, e, cost)
    for v in range(num_nodes):
        label, state = np.int64(edges.node_label[v]), shape.first_state + s
        first, last = edges.splits[v + 1], edges.splits[v + 2]
        leads = LEADS_TO_EPSILON if shape.has_hubs else 0
        # A state directly after the token, then one after a blank; T without repeats
        # needs only one.
        if shape.states_per_node > 1:
            splits[s] = i
            if shape.has_hubs:
                epsilons[s] = 1
                i = _write(arcs, bonuses, i, 0, 0, state + 1, none, none)
            if shape.repeats:
                ilabel = label | REPEAT | leads
                i = _write(arcs, bonuses, i, ilabel, 0, state, none, none)
            # Without the epsilon the state after the token has the outgoing arcs,
            # except that of the token.
            if not shape.has_hubs:
                i = _write(arcs, bonuses, i, shape.blank, 0, state + 1, none, none)
                for e in range(first, last):
                    if edges.label[e] != label:
                        cost = edges.cost[e]
                        i = _write_edge(shape, edges, arcs, bonuses, i, e, cost)
            s += 1
            state += 1
        splits[s] = i
        i = _write(arcs, bonuses, i, shape.blank, 0, state, none, none)
        for e in range(first, last):
            i = _write_edge(shape, edges, arcs, bonuses, i, e, edges.cost[e])
        s += 1
    splits[num_states] = i
    return arcs[:i].copy(), bonuses[:i].copy(), splits, epsilons, num_entry_arcs


@dataclass(frozen=True, eq=False)
class Overlay:
    """Arcs of OOV words: C exits, F arcs out of each, S' states."""

    first_state: int  # S, number of the first state
    first_arc: int  # A, number of the first arc
    exit_state: np.ndarray  # int32 [C], the states of the graph with exits, ascending
    num_entry_arcs: int  # F
    # `ARC`, first F for each exit, then the rows of the states, epsilons first. Arcs of
    # infinite cost are ignored.
    arcs: np.ndarray
    bonus: np.ndarray  # float32, bonus of each arc, nats
    state_arc_splits: np.ndarray  # uint32 [S' + 1], the row of each state in `arcs`
    # uint32 [S'], number of epsilon arcs in the row; these lead to states without any
    state_num_epsilons: np.ndarray
    top_bonus: np.float32  # Largest bonus of an arc, at least 0

    @property
    def num_states(self) -> int:
        """Number of states, S'."""
        return len(self.state_num_epsilons)


def make_overlay(graph: PackedGraph, words: OovWords) -> Overlay:
    """Lay out OOV words, in any order, for a graph with OOV exits."""
    # An OOV word has the cost of `<unk>` in the language model, as the exits do. A
    # further pronunciation of a word of the graph has the word's cost without context,
    # since the exits have none.
    exits, known = exits_of(graph), words.word < words.num_known
    cost, of_words = np.zeros(len(words.word), np.float32), graph.info.word_cost
    if len(of_words):
        of_word = of_words[words.word[known]] - np.float32(exits.word_cost)
        cost[known] = np.where(np.isfinite(of_word), of_word, np.float32(0))
    arcs, bonus, splits, epsilons, num_entry_arcs = lay_out(
        _shape_of(graph, exits), make_edges(words, cost)
    )
    if graph.num_arcs + len(arcs) > MAX_ARCS:
        raise GraphError(
            f"{len(arcs)} arcs of OOV words on a graph of {graph.num_arcs}, expected "
            f"at most {MAX_ARCS} in all"
        )
    return Overlay(
        first_state=graph.num_states,
        first_arc=graph.num_arcs,
        exit_state=exits.state,
        num_entry_arcs=int(num_entry_arcs),
        arcs=read_only(arcs),
        bonus=read_only(bonus),
        state_arc_splits=read_only(splits),
        state_num_epsilons=read_only(epsilons),
        top_bonus=np.float32(max(bonus.max(initial=0.0), 0.0)),
    )


def exits_of(graph: PackedGraph) -> OovExits:
    """Return the OOV exits of a graph, or raise."""
    if graph.oov_exits is None:
        raise GraphError(
            "this graph cannot add words: it has no OOV exits, expected a graph of "
            "`wfstdec build` with an ARPA model that has <unk>, or with unk_cost; "
            "build it again"
        )
    return graph.oov_exits


def _shape_of(graph: PackedGraph, exits: OovExits) -> Shape:
    base, _, selfless = graph.topology.partition("-")
    back = exits.return_state  # NO_STATE is -1
    leads = (back >= 0) & (graph.state_num_epsilons[back] > 0)
    flags = np.where(leads, np.uint32(LEADS_TO_EPSILON), np.uint32(0))
    return Shape(
        first_state=graph.num_states,
        blank=ilabel_of(graph.tokens.blank),
        states_per_node=1 if base == "minimal" else 2,
        has_hubs=base == "compact",
        repeats=base != "minimal" and not selfless,
        exit_last=read_only(exits.last),
        exit_cost=read_only(exits.cost),
        return_state=read_only(back),
        return_flags=read_only(flags),
    )
