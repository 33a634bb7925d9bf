"""A packed graph taken apart: rows of LG, which T's states share.

    rows = take_apart(graph)           # None where it is no such product

T o LG has for each state s of LG one state "after a blank", and one for each token i
that may stand before it. All of them leave by the arcs of s, the latter without those
of i: to say a token again, it takes a blank. So there is one row of arcs for s, and for
each (i, s) a record that points to it:

    row of s     its token arcs, each of which leads to a record
    record u     (i, s): the row, the token i, and epsilon arcs of its own, which lead
                 to records of the same token
    u < R        is the first record of row u; few rows have more

It does not matter who built the graph: whether it is such a product is told from its
arcs alone. Blank arcs and repeating arcs must cost nothing and have no words.

With `compact` rows are left by a hub alone, at the cost after a blank, and an epsilon
arc leads there from each token. Other epsilon arcs lead from hub to hub.

States keep the numbers that they have in the packed graph, `state_of_record` and
`state_of_row`, and arcs the least one that they stand for, `arc` and `epsilon_arc`:
these alone decide ties, and what `max_active` keeps, as on the packed graph. The arc
of a tie is the least by (state that it leaves, position in the row): among the arcs of
a row that lead to one record, `arc` has the order of the packed graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS
from wfstdec.graph.oov_exits import NO_STATE
from wfstdec.graph.packed import PackedGraph
from wfstdec.graph.product import AFTER_BLANK, TO_HUB, Product
from wfstdec.graph.product import NO_BLANK as WITHOUT_BLANK
from wfstdec.jit import jit, read_only
from wfstdec.jit.records import record
from wfstdec.jit.sorting import STACK, key_of, sort_keys
from wfstdec.search.paths.traceback_kernels import Rule

RECORD = record(
    "u8 labels",
    "u4 first",
    "f4 least",
    "u4 epsilon row",
    "u2 length epsilons rank token",
)
"""32 bytes of a record: the tokens of its row as bits (token % 64), the row's first
arc, the least cost of its arcs (0 at most), its own first epsilon arc, the row, how
many arcs that has, how many epsilon arcs, its epsilon rank, the token before."""
STEP = record("u4 next", "f4 cost")
"""An arc, 8 bytes: the record that it leads to, with flags, and what it costs."""
EPSILONS = 1 << 31
"""Flag of a record: it has epsilon arcs."""
SHARED = 1 << 30
"""Flag: its row has further records."""
NO_BLANK = 1 << 29
"""Flag: no blank may follow."""
TOKEN_FIRST = 1 << 28
"""Flag: its state has a lower number than that after a blank, so that it wins ties."""
WORD = 1 << 27
"""Flag of an arc: it has a word."""
ADDED = WORD
"""Flag of an entry's record: it is one of an overlay, with a number of its own."""
EXIT = 1 << 26
"""Flag of a record: its state, or that after a blank, has an exit to OOV words."""
RECORDS = EXIT - 1
"""The bits of `STEP.next` that are the record's number."""
SMALL = 63
"""The most tokens that have a bit each."""
_MOST = (1 << 16) - 1
NO_RECORD = 0xFFFFFFFF
"""In the place of a record: there is none."""


class RowArrays(NamedTuple):
    """The graph as rows of LG, read only: shared by all threads."""

    records: np.ndarray  # RECORD [U]
    arcs: np.ndarray  # STEP [A], by row; by token where `by_token`, else by cost
    tokens: np.ndarray  # uint16 [A], of arcs
    costs: np.ndarray  # float32 [A], again; empty where `by_token`
    arc: np.ndarray  # uint32 [A], in `said`
    epsilons: np.ndarray  # STEP [E], by record
    epsilon_arc: np.ndarray  # uint32 [E], in `said`
    repeat_arc: np.ndarray  # uint32 [V], an arc that repeats each token
    returns: np.ndarray  # uint32 [V + 1], by ilabel: the record behind an OOV word
    blank_arc: np.uint32  # one of the blank
    state_of_record: np.ndarray  # uint32 [U]
    state_of_row: np.ndarray  # uint32 [R]
    said: np.ndarray  # ARC: arcs in a packed graph's order, repeats, a blank
    final_cost: np.ndarray  # float32 [S], of the packed graph
    num_rows: np.uint64
    num_ranks: np.uint64
    start: np.uint32  # the record of state 0, with flags
    blank: np.uint64
    blank_label: np.uint32  # its ilabel
    least_cost: np.float32  # of all token arcs, at most 0
    least_epsilon: np.float32  # of all epsilon arcs, at most 0
    by_token: bool  # V <= 63, and no token stands twice in a row
    through_epsilon: bool  # from a token an epsilon arc leads behind it, to a hub


class _Records(NamedTuple):
    """States of T o LG as records."""

    state: np.ndarray  # uint32 [U]
    leaves: np.ndarray  # uint32 [U]: the state that has a record's epsilon arcs
    row: np.ndarray  # int32 [U]
    link: np.ndarray  # uint32 [S]: the record with flags, that of its row for a hub


def take_apart(graph: PackedGraph) -> RowArrays | None:
    """Lay out a graph as rows; None where it is no product of T and rows."""
    product, num_tokens = graph.product, len(graph.tokens)
    if product is None:
        return None
    hubs = product.through_epsilon
    longest = np.diff(product.row_splits).max(), product.num_epsilons.max()
    if max(num_tokens, graph.epsilon_rank.max(), *longest) > _MOST:
        return None
    exits = np.zeros(graph.num_states, np.bool_)
    if graph.calls is not None:
        exits[graph.calls.state] = True
        # The T of OOV words goes by the topology's name.
        if graph.topology not in (["compact"] if hubs else ["", "normal"]):
            return None
    records = _number(product, exits)
    if len(records.state) > RECORDS:
        return None
    returns = np.full(num_tokens + 1, NO_RECORD, np.uint32)
    if graph.calls is not None:
        label = np.flatnonzero(graph.calls.returns != NO_STATE)
        to = graph.calls.returns[label]
        if (product.token[to] != label).any():
            return None  # an OOV word is left by a state of another token
        returns[label] = records.link[to]
    laid = _lay_out(product, records, graph.epsilon_rank, num_tokens)
    *laid_out, least_cost, least_epsilon, by_token = laid
    names = RowArrays._fields[: len(laid_out)]
    arrays: dict[str, Any] = dict(zip(names, map(read_only, laid_out), strict=True))
    said = product.said(num_tokens)
    first_repeat = uint32(len(said) - 1 - num_tokens)
    return RowArrays(
        **arrays,
        repeat_arc=read_only(np.arange(num_tokens, dtype=np.uint32) + first_repeat),
        returns=read_only(returns),
        blank_arc=uint32(len(said) - 1),
        state_of_record=read_only(records.state),
        state_of_row=read_only(product.state_of_row.astype(np.uint32)),
        said=said,
        final_cost=graph.final_cost,
        num_rows=uint64(len(product.row_splits) - 1),
        num_ranks=uint64(graph.epsilon_rank.max() + 1),
        start=uint32(records.link[0]),
        blank=uint64(graph.tokens.blank),
        blank_label=uint32(product.blank),
        least_cost=float32(least_cost),
        least_epsilon=float32(least_epsilon),
        by_token=bool(by_token),
        through_epsilon=hubs,
    )


def rule_of_rows(rows: RowArrays, marks_repeats: bool) -> Rule:
    """The rule by which paths on rows are read."""
    return Rule(rows.said, rows.blank_label, marks_repeats, read_only(NO_ARCS))


def words_by_row(rows: RowArrays) -> tuple[np.ndarray, np.ndarray]:
    """The word of each arc of rows and, behind these, of each epsilon arc.

    Returns:
        uint32 [A + E]; int64 [R + U + 1], where those of each row and record begin.
    """
    arcs = np.concatenate([rows.arc, rows.epsilon_arc])
    first = rows.records["first"][: int(rows.num_rows)].astype(np.int64)
    begin = len(rows.arc) + rows.records["epsilon"].astype(np.int64)
    return rows.said["olabel"][arcs], np.concatenate([first, begin, [len(arcs)]])


def _number(product: Product, exits: np.ndarray) -> _Records:
    """Number the records, with their flags."""
    kind, row, hubs = product.kind, product.row, product.through_epsilon
    state_of_row, num_rows = product.state_of_row, len(product.row_splits) - 1
    has_record = np.flatnonzero(kind == TO_HUB if hubs else kind != AFTER_BLANK)
    # The first of a row's states has the row's record, others have more. A row that no
    # token enters, of a hub, has a record of no token.
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
def _records(count):
    """RECORD [count], to be filled."""
    return np.empty(count, RECORD)


@jit
def _steps(count):
    """STEP [count], to be filled."""
    return np.empty(count, STEP)


@jit
def _lay_out(product, states, ranks, num_tokens):
    """Fill arrays of `RowArrays`, `records` to `epsilon_arc`; bounds, `by_token`."""
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
    steps, arc = _steps(len(arcs)), np.arange(len(arcs)).astype(np.uint32)
    tokens = np.empty(len(arcs), np.uint16)
    costs = np.empty(0 if by_token else len(arcs), np.float32)
    keys, stack = np.empty(_MOST, np.uint64), np.empty(STACK, np.int64)
    least_cost = float32(0)
    for r in range(num_rows):
        least_cost = min(least_cost, least[r])
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
                steps[i].next |= uint32(WORD)
            tokens[i] = (one.ilabel & uint32(LABEL_MASK)) - 1
            if not by_token:
                costs[i] = one.cost
    own = np.zeros(len(product.num_epsilons) + 1, np.int64)
    for s in range(len(product.num_epsilons)):
        own[s + 1] = own[s] + product.num_epsilons[s]
    begin_of = np.zeros(num_records + 1, np.int64)
    records, none = _records(num_records), num_tokens
    for u in range(num_records):
        s, r, one = int64(states.leaves[u]), states.row[u], records[u]
        begin_of[u + 1] = begin_of[u] + product.num_epsilons[s]
        one.labels, one.first, one.least = labels[r], first[r], least[r]
        one.epsilon, one.epsilons = begin_of[u], product.num_epsilons[s]
        one.row, one.rank = r, ranks[s]
        one.length = first[r + 1] - first[r]
        token = product.token[int64(states.state[u])]
        one.token = token - 1 if token > 0 else none
    inner, inner_arc = _steps(begin_of[-1]), np.empty(begin_of[-1], np.uint32)
    least_epsilon = float32(0)
    for u in range(num_records):
        s, at = int64(states.leaves[u]), begin_of[u]
        for e in range(own[s], own[s + 1]):
            one = product.epsilons[e]
            inner[at].next, inner[at].cost = states.link[one.nextstate], one.cost
            if one.ilabel & uint32(CARRIES_WORD):
                inner[at].next |= uint32(WORD)
            inner_arc[at] = len(arcs) + e
            least_epsilon = min(least_epsilon, one.cost)
            at += 1
    return (
        *(records, steps, tokens, costs, arc, inner, inner_arc),
        *(least_cost, least_epsilon, by_token),
    )
