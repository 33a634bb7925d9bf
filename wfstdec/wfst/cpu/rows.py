"""A packed graph as rows of arcs that states of T share.

    rows = row_graph_of(graph)

T o LG has, for each state s of LG, one state "after a blank" and one state for each
token i that can precede it. All leave by the arcs of s; those after token i lack the
arcs of token i, since a path must take a blank between two equal tokens. So there is
one row of arcs for s, and for each (i, s) a record that refers to it:

    row of s     its token arcs, each leading to a record
    record u     (i, s): the row, the token i, and its own epsilon arcs, which lead to
                 records of the same token
    u < R        the first record of row u; few rows have more than one

The structure is inferred from the arcs: blanks and repeats must have no cost and no
word. In `compact` graphs only a hub leaves a row, at the cost after a blank; an epsilon
arc leads to it from each token, others from hub to hub.

Any other graph is laid out as `plain`: each state is a row and a record after no token,
and blanks and repeats are ordinary arcs of the row, so that no cost changes in place.

States and arcs keep their numbers of the packed graph (`state_of_record`,
`state_of_row`, `arc`, `epsilon_arc`), because these decide ties and what `max_active`
keeps. A tie goes to the least (source state, position in its arcs): among the arcs of a
row to one record, `arc` has the order of the packed graph.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, NO_STATE, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.graph.product import AFTER_BLANK, TO_HUB, Product
from wfstdec.graph.product import NO_BLANK as WITHOUT_BLANK
from wfstdec.jit import jit, read_only
from wfstdec.jit.records import record
from wfstdec.jit.sorting import STACK, key_of, sort_keys
from wfstdec.search.paths.traceback import Rule
from wfstdec.text.tokens import EPSILON, ilabel_of

RECORD = record(
    "u8 labels",
    "u4 first",
    "f4 least",
    "u4 epsilon row length",
    "u2 rank token",
)
"""A record, 32 bytes: tokens of its row as bits (token % 64), first arc of the row,
least cost of its arcs (at most 0), first own epsilon arc (they end before those of the
next record), row, number of arcs of the row, epsilon rank, token."""
STEP = record("u4 next", "f4 cost")
"""An arc, 8 bytes: destination record with flags, cost."""
EPSILONS = uint32(1 << 31)
"""Flag of a record: has epsilon arcs."""
SHARED = uint32(1 << 30)
"""Flag: shares its row with other records."""
NO_BLANK = uint32(1 << 29)
"""Flag: no blank can follow."""
TOKEN_FIRST = uint32(1 << 28)
"""Flag: its state has a lower number than the one after a blank, and so wins ties."""
WORD = uint32(1 << 27)
"""Flag of an arc: has a word."""
ADDED = WORD
"""Flag of an entry's record: a node of the overlay of OOV words."""
EXIT = uint32(1 << 26)
"""Flag of a record: its state, or the one after a blank, has an exit to OOV words."""
RECORDS = uint32(EXIT - 1)
"""Bits of a record's number."""
SMALL = 63
"""Largest vocabulary in which each token has its own bit."""
_MOST = (1 << 16) - 1
"""Largest epsilon rank and token number of a record."""
NO_RECORD = uint32(0xFFFFFFFF)


class RowArrays(NamedTuple):
    """A graph as rows, read only: shared by all threads."""

    records: np.ndarray  # RECORD [U + 1], with a sentinel
    arcs: np.ndarray  # STEP [A], by row; by token where `by_token`, else by cost
    tokens: np.ndarray  # uint16 [A], of arcs
    costs: np.ndarray  # float32 [A], again; empty where `by_token`
    arc: np.ndarray  # uint32 [A], in `path_arcs`
    epsilons: np.ndarray  # STEP [E], by record
    epsilon_arc: np.ndarray  # uint32 [E], in `path_arcs`
    silent: np.ndarray  # bool [A], where `plain`: a blank or a repeat; else empty
    repeat_arc: np.ndarray  # uint32 [V], an arc that repeats each token
    return_state: np.ndarray  # uint32 [V + 1], by ilabel: the record after an OOV word
    blank_arc: np.uint32  # one of the blank
    state_of_record: np.ndarray  # uint32 [U]
    state_of_row: np.ndarray  # uint32 [R]
    state_arc_splits: np.ndarray  # uint32 [S + 1], of the packed graph
    path_arcs: np.ndarray  # ARC: arcs in a packed graph's order, repeats, a blank
    final_cost: np.ndarray  # float32 [S], of the packed graph
    num_rows: np.uint64
    num_ranks: np.uint64
    start: np.uint32  # the record of state 0, with flags
    blank: np.uint64
    blank_label: np.uint32  # its ilabel
    least_epsilon: np.float32  # of all epsilon arcs, at most 0
    by_token: bool  # V <= 63, and no token occurs twice in a row
    has_hubs: bool  # an epsilon arc leads from each token to a hub
    plain: bool  # each state is a row: blanks and repeats are arcs of rows


class _Records(NamedTuple):
    state: np.ndarray  # uint32 [U]
    leaves: np.ndarray  # uint32 [U]: source state of a record's epsilon arcs
    row: np.ndarray  # int32 [U]
    link: np.ndarray  # uint32 [S]: the record with flags, that of its row for a hub


def row_graph_of(graph: PackedGraph) -> RowArrays:
    """Lay out a graph as rows."""
    product, num_tokens = graph.product, len(graph.tokens)
    plain = product is None or not _fits_oov_words(graph, product)
    if product is None or plain:
        product = _states_as_rows(graph)
    exits = np.zeros(graph.num_states, np.bool_)
    if graph.oov_exits is not None:
        exits[graph.oov_exits.state] = True
    records = _number(product, exits)
    for name, count, most in (
        ("tokens", num_tokens, _MOST),
        ("epsilon arcs in a chain", int(graph.epsilon_rank.max()), _MOST),
        ("states", len(records.state), RECORDS),
    ):
        if count > most:
            raise GraphError(
                f"the graph has {count} {name}, expected at most {most} for a search "
                "on the CPU"
            )
    return_state = np.full(num_tokens + 1, NO_RECORD, np.uint32)
    if graph.oov_exits is not None:
        label = np.flatnonzero(graph.oov_exits.return_state != NO_STATE)
        return_state[label] = records.link[graph.oov_exits.return_state[label]]
    laid = _lay_out(product, records, graph.epsilon_rank, num_tokens)
    *laid_out, least_epsilon, by_token = laid
    names = RowArrays._fields[: len(laid_out)]
    arrays: dict[str, Any] = dict(zip(names, map(read_only, laid_out), strict=True))
    path_arcs = product.path_arcs(num_tokens)
    first_repeat = uint32(len(path_arcs) - 1 - num_tokens)
    silent = np.zeros(0, np.bool_)
    if plain:
        ilabel = path_arcs["ilabel"][arrays["arc"]]
        silent = (ilabel & uint32(REPEAT) != 0) | (
            ilabel & uint32(LABEL_MASK) == product.blank
        )
    return RowArrays(
        **arrays,
        silent=read_only(silent),
        repeat_arc=read_only(np.arange(num_tokens, dtype=np.uint32) + first_repeat),
        return_state=read_only(return_state),
        blank_arc=uint32(len(path_arcs) - 1),
        state_of_record=read_only(records.state),
        state_of_row=read_only(product.state_of_row.astype(np.uint32)),
        state_arc_splits=read_only(graph.state_arc_splits),
        path_arcs=path_arcs,
        final_cost=graph.final_cost,
        num_rows=uint64(len(product.row_splits) - 1),
        num_ranks=uint64(graph.epsilon_rank.max() + 1),
        start=uint32(records.link[0]),
        blank=uint64(graph.tokens.blank),
        blank_label=uint32(product.blank),
        least_epsilon=float32(least_epsilon),
        by_token=bool(by_token),
        has_hubs=product.has_hubs,
        plain=plain,
    )


def _fits_oov_words(graph: PackedGraph, product: Product) -> bool:
    if graph.oov_exits is None:
        return True
    # The topology's name determines T for OOV words.
    names = ["compact"] if product.has_hubs else ["", "normal"]
    label = np.flatnonzero(graph.oov_exits.return_state != NO_STATE)
    token = product.token[graph.oov_exits.return_state[label]]
    return graph.topology in names and bool((token == label).all())


def _states_as_rows(graph: PackedGraph) -> Product:
    """Lay out any graph as a product: each state has a row, after no token."""
    splits, count = graph.state_arc_splits.astype(np.int64), graph.num_states
    is_epsilon = graph.arcs["ilabel"] & uint32(LABEL_MASK) == EPSILON
    up_to = np.concatenate([[0], np.cumsum(~is_epsilon)])
    return Product(
        kind=read_only(np.full(count, WITHOUT_BLANK, np.uint8)),
        token=read_only(np.zeros(count, np.int32)),
        row=read_only(np.arange(count, dtype=np.int32)),
        num_epsilons=read_only(np.asarray(graph.state_num_epsilons, np.uint32)),
        epsilons=read_only(graph.arcs[is_epsilon]),
        row_splits=read_only(up_to[splits].astype(np.uint32)),
        arcs=read_only(graph.arcs[~is_epsilon]),
        blank=ilabel_of(graph.tokens.blank),
    )


def rule_of_rows(rows: RowArrays, marks_repeats: bool) -> Rule:
    """Return the rule for reading paths."""
    return Rule(rows.path_arcs, rows.blank_label, marks_repeats, read_only(NO_ARCS))


def words_by_row(rows: RowArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return words of arcs and epsilon arcs, uint32 [A + E]; int64 [R + U + 1]."""
    arcs = np.concatenate([rows.arc, rows.epsilon_arc])
    first = rows.records["first"][: int(rows.num_rows)].astype(np.int64)
    begin = len(rows.arc) + rows.records["epsilon"].astype(np.int64)
    return rows.path_arcs["olabel"][arcs], np.concatenate([first, begin])


def _number(product: Product, exits: np.ndarray) -> _Records:
    """Number the records and set their flags."""
    kind, row, hubs = product.kind, product.row, product.has_hubs
    state_of_row, num_rows = product.state_of_row, len(product.row_splits) - 1
    has_record = np.flatnonzero(kind == TO_HUB if hubs else kind != AFTER_BLANK)
    # The first of a row's states has the row's record, others have more. A row that no
    # token enters (a hub's) has a record without token.
    _, first = np.unique(row[has_record], return_index=True)
    is_first = np.zeros(len(has_record), np.bool_)
    is_first[first] = True
    further = has_record[~is_first]
    state = np.concatenate([state_of_row, further])
    state[row[has_record[is_first]]] = has_record[is_first]
    of_row = state_of_row[row[state]]
    leaves = of_row if hubs else state
    shared = np.bincount(row[has_record], minlength=num_rows)[row[state]] > 1
    flagged = np.arange(len(state), dtype=np.uint32)
    for flag, has in (
        (EPSILONS, product.num_epsilons[leaves] > 0),
        (SHARED, shared),
        (NO_BLANK, kind[state] == WITHOUT_BLANK),
        (TOKEN_FIRST, (state < of_row) & (not hubs)),
        (EXIT, exits[state] | exits[of_row]),
    ):
        flagged |= np.where(has, uint32(flag), uint32(0))
    record = row.astype(np.int64)  # of a hub, that of its row
    record[further] = num_rows + np.arange(len(further))
    return _Records(
        read_only(state.astype(np.uint32)),
        read_only(leaves.astype(np.uint32)),
        read_only(row[state]),
        read_only(flagged[record]),
    )


@jit
def _lay_out(product, states, ranks, num_tokens):
    """Fill `records` to `epsilon_arc` of `RowArrays`; return bounds, `by_token`."""
    first, arcs = product.row_splits, product.arcs
    num_rows, num_records = len(first) - 1, len(states.state)
    labels, least = np.zeros(num_rows, np.uint64), np.zeros(num_rows, np.float32)
    by_token = num_tokens <= SMALL
    for r in range(num_rows):
        for a in range(first[r], first[r + 1]):
            token = uint64(arcs[a].ilabel & uint32(LABEL_MASK)) - uint64(1)
            bit = uint64(1) << (token & uint64(63))
            by_token = by_token and labels[r] & bit == uint64(0)
            labels[r] |= bit
            least[r] = min(least[r], arcs[a].cost)
    steps, arc = np.empty(len(arcs), STEP), np.arange(len(arcs)).astype(np.uint32)
    tokens = np.empty(len(arcs), np.uint16)
    costs = np.empty(0 if by_token else len(arcs), np.float32)
    longest = int64(0)
    for r in range(num_rows):
        longest = max(longest, int64(first[r + 1]) - int64(first[r]))
    keys, stack = np.empty(longest, np.uint64), np.empty(STACK, np.int64)
    for r in range(num_rows):
        begin, count = int64(first[r]), int64(first[r + 1]) - int64(first[r])
        if not by_token:
            for i in range(count):
                keys[i] = key_of(arcs[begin + i].cost, begin + i)
            sort_keys(keys, count, stack)
            for i in range(count):
                arc[begin + i] = uint32(keys[i] & uint64(0xFFFFFFFF))
        for i in range(begin, begin + count):
            one = arcs[int64(arc[i])]
            steps[i].next, steps[i].cost = states.link[one.nextstate], one.cost
            if one.ilabel & uint32(CARRIES_WORD):
                steps[i].next |= WORD
            tokens[i] = (one.ilabel & uint32(LABEL_MASK)) - 1
            if not by_token:
                costs[i] = one.cost
    own = np.zeros(len(product.num_epsilons) + 1, np.int64)
    for s in range(len(product.num_epsilons)):
        own[s + 1] = own[s] + product.num_epsilons[s]
    begin_of = np.zeros(num_records + 1, np.int64)
    records, none = np.empty(num_records + 1, RECORD), num_tokens
    for u in range(num_records):
        s, r, one = int64(states.leaves[u]), states.row[u], records[u]
        begin_of[u + 1] = begin_of[u] + product.num_epsilons[s]
        one.labels, one.first, one.least = labels[r], first[r], least[r]
        one.epsilon, one.row, one.rank = begin_of[u], r, ranks[s]
        one.length = first[r + 1] - first[r]
        token = product.token[int64(states.state[u])]
        one.token = token - 1 if token > 0 else none
    records[num_records] = records[num_records - 1]
    records[num_records].epsilon = begin_of[-1]
    inner, inner_arc = np.empty(begin_of[-1], STEP), np.empty(begin_of[-1], np.uint32)
    least_epsilon = float32(0)
    for u in range(num_records):
        s, at = int64(states.leaves[u]), begin_of[u]
        for e in range(own[s], own[s + 1]):
            one = product.epsilons[e]
            inner[at].next, inner[at].cost = states.link[one.nextstate], one.cost
            if one.ilabel & uint32(CARRIES_WORD):
                inner[at].next |= WORD
            inner_arc[at] = len(arcs) + e
            least_epsilon = min(least_epsilon, one.cost)
            at += 1
    bounds = least_epsilon, by_token
    return records, steps, tokens, costs, arc, inner, inner_arc, *bounds
