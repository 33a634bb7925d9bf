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

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.graph.oov_exits import NO_STATE
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined, jit, read_only
from wfstdec.jit.sorting import STACK, key_of, sort_keys
from wfstdec.text.symbols import ilabel_of

RECORD = np.dtype(
    [
        ("labels", "<u8"),
        ("first", "<u4"),
        ("least", "<f4"),
        ("epsilon", "<u4"),
        ("row", "<u4"),
        ("length", "<u2"),
        ("epsilons", "<u2"),
        ("rank", "<u2"),
        ("token", "<u2"),
    ]
)
"""32 bytes of a record: the tokens of its row as bits (token % 64), the row's first
arc, the least cost of its arcs (0 at most), its own first epsilon arc, the row, how
many arcs that has, how many epsilon arcs, its epsilon rank, the token before."""
STEP = np.dtype([("next", "<u4"), ("cost", "<f4")])
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
_NONE = -1
NO_RECORD = 0xFFFFFFFF
"""In the place of a record: there is none."""


class RowArrays(NamedTuple):
    """The graph as rows of LG, read only: shared by all threads."""

    records: np.ndarray  # RECORD [U]
    arcs: np.ndarray  # STEP [A], by row; by token where `by_token`, else by cost
    tokens: np.ndarray  # uint16 [A], of arcs
    costs: np.ndarray  # float32 [A], again; empty where `by_token`
    arc: np.ndarray  # uint32 [A], the packed graph's
    epsilons: np.ndarray  # STEP [E], by record
    epsilon_arc: np.ndarray  # uint32 [E]
    repeat_arc: np.ndarray  # uint32 [V], an arc that repeats each token
    returns: np.ndarray  # uint32 [V + 1], by ilabel: the record behind an OOV word
    blank_arc: np.uint32  # one of the blank
    state_of_record: np.ndarray  # uint32 [U]
    state_of_row: np.ndarray  # uint32 [R]
    packed: np.ndarray  # ARC, the arcs of the packed graph
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


class _States(NamedTuple):
    """The states of T o LG, told apart."""

    token: np.ndarray  # int32 [S], the ilabel before, 0 for none
    row: np.ndarray  # int32 [S]
    record: np.ndarray  # int32 [S], -1 for those after a blank
    state_of_row: np.ndarray  # uint32 [R]: the one that has the row's arcs
    state_of_record: np.ndarray  # uint32 [U]
    link: np.ndarray  # uint32 [S]: the record with flags
    leaves: np.ndarray  # uint32 [U]: the one that has a record's epsilon arcs


def take_apart(graph: PackedGraph) -> RowArrays | None:
    """Take a graph apart; None where it is no product of T and rows."""
    num_tokens = len(graph.tokens)
    arcs, splits = graph.arcs, graph.state_arc_splits
    if max(num_tokens, graph.epsilon_rank.max(), np.diff(splits).max()) > _MOST:
        return None
    blank = uint32(ilabel_of(graph.tokens.blank))
    epsilons, ranks = graph.state_num_epsilons, graph.epsilon_rank
    exits = np.zeros(graph.num_states, np.bool_)
    # The T of OOV words goes by the topology's name.
    may_be_normal = may_be_compact = True
    if graph.calls is not None:
        exits[graph.calls.state] = True
        may_be_normal = graph.topology in ("", "normal")
        may_be_compact = graph.topology == "compact"
    through_epsilon = False
    found, numbered = _take_apart(arcs, splits, epsilons, exits, blank)
    states = _States(*numbered) if found and may_be_normal else None
    if states is None and may_be_compact:
        states, through_epsilon = _hubs_of(graph, exits), True
    if states is None:
        return None
    laid = _lay_out(states, arcs, splits, epsilons, blank, ranks, num_tokens)
    *laid_out, blank_arc, least_cost, least_epsilon, by_token = laid
    returns = np.full(num_tokens + 1, NO_RECORD, np.uint32)
    if graph.calls is not None:
        label = np.flatnonzero(graph.calls.returns != NO_STATE)
        to = graph.calls.returns[label]
        if (states.record[to] == _NONE).any() or (states.token[to] != label).any():
            return None  # an OOV word is left by a state of another token
        returns[label] = states.link[to]
    names = RowArrays._fields[: len(laid_out)]
    arrays: dict[str, Any] = dict(zip(names, map(read_only, laid_out), strict=True))
    return RowArrays(
        **arrays,
        returns=read_only(returns),
        blank_arc=uint32(blank_arc),
        state_of_record=read_only(states.state_of_record),
        state_of_row=read_only(states.state_of_row),
        packed=arcs,
        final_cost=graph.final_cost,
        num_rows=uint64(len(states.state_of_row)),
        num_ranks=uint64(graph.epsilon_rank.max() + 1),
        start=uint32(states.link[0]),
        blank=uint64(graph.tokens.blank),
        blank_label=blank,
        least_cost=float32(least_cost),
        least_epsilon=float32(least_epsilon),
        by_token=bool(by_token),
        through_epsilon=through_epsilon,
    )


def words_by_row(rows: RowArrays) -> tuple[np.ndarray, np.ndarray]:
    """The word of each arc of rows and, behind these, of each epsilon arc.

    Returns:
        uint32 [A + E]; int64 [R + U + 1], where those of each row and record begin.
    """
    arcs = np.concatenate([rows.arc, rows.epsilon_arc])
    first = rows.records["first"][: int(rows.num_rows)].astype(np.int64)
    begin = len(rows.arc) + rows.records["epsilon"].astype(np.int64)
    return rows.packed["olabel"][arcs], np.concatenate([first, begin, [len(arcs)]])


@jit
def _take_apart(arcs, splits, epsilons, exits, blank):
    """Tell whether a graph is such a product; with the fields of `_States`."""
    found, token, row, sizes = _tell_apart(arcs, splits, epsilons, blank)
    if not found:  # of nothing there is a layout as well
        sizes[:] = 0
        token, row, epsilons = token[:0], row[:0], epsilons[:0]
    record, state_of_row, state_of_record, link = _number(
        token, row, arcs, splits, epsilons, exits, blank, sizes
    )
    states = _States(
        token, row, record, state_of_row, state_of_record, link, state_of_record
    )
    if found:
        found = _is_product(states, arcs, splits, epsilons, blank)
    return found, states


def _hubs_of(graph: PackedGraph, exits: np.ndarray) -> _States | None:
    """Tell hubs from states in a token; None where a graph is no such product.

    A hub has its row's arcs, a blank and the row's epsilon arcs; a state in a token
    repeats that, or leads to its hub by an epsilon arc at no cost. Of a row that no
    token enters there is a record nevertheless, of no token.
    """
    arcs, splits = graph.arcs, graph.state_arc_splits.astype(np.int64)
    blank, count = ilabel_of(graph.tokens.blank), graph.num_states
    source = np.repeat(np.arange(count), np.diff(splits))
    label = arcs["ilabel"] & np.uint32(LABEL_MASK)
    repeats = arcs["ilabel"] & np.uint32(REPEAT) != 0
    of_blank, epsilon = label == blank, label == 0
    to = arcs["nextstate"].astype(np.int64)
    hub = np.zeros(count, np.bool_)
    hub[source[of_blank]] = True
    inner, free = ~hub[source], (arcs["cost"] == 0) & (arcs["olabel"] == 0)
    token, behind = np.zeros(count, np.int32), np.full(count, _NONE, np.int64)
    token[source[repeats]] = label[repeats]
    behind[source[inner & epsilon]] = to[inner & epsilon]
    says = ~(of_blank | repeats | epsilon)
    # Each state in a token has two arcs, and each hub one of the blank.
    two = np.bincount(source, inner & (repeats | epsilon), count)[~hub]
    one = np.bincount(source[of_blank], minlength=count)[hub]
    if (
        not hub[0]
        or not (hub | (token > 0) & (behind >= 0) & (np.diff(splits) == 2)).all()
        or not (two == 2).all()
        or not (one == 1).all()
        or (repeats & (hub[source] | of_blank | ~free | (to != source))).any()
        or (of_blank & (~free | (to != source))).any()
        or (epsilon & ~hub[to]).any()
        or (epsilon & inner & ~free).any()
        or (says & (hub[to] | (token[to] != label))).any()
    ):
        return None
    row = np.zeros(count, np.int32)
    state_of_row = np.flatnonzero(hub)
    num_rows = len(state_of_row)
    row[state_of_row] = np.arange(num_rows)
    in_token = np.flatnonzero(~hub)
    row[in_token] = row[behind[in_token]]
    # The first state in a token of a row has the row's record, others have more.
    _, first = np.unique(row[in_token], return_index=True)
    is_first = np.zeros(len(in_token), np.bool_)
    is_first[first] = True
    record = np.full(count, _NONE, np.int32)
    record[in_token[is_first]] = row[in_token[is_first]]
    further = in_token[~is_first]
    record[further] = num_rows + np.arange(len(further))
    state_of_record = np.concatenate([state_of_row, further])
    state_of_record[row[in_token[is_first]]] = in_token[is_first]
    if len(state_of_record) > RECORDS:
        return None
    leaves = state_of_row[row[state_of_record]]
    shared = np.bincount(row[in_token], minlength=num_rows)[row[leaves]] > 1
    flagged = np.arange(len(leaves), dtype=np.uint32)
    for flag, has in (
        (EPSILONS, graph.state_num_epsilons[leaves] > 0),
        (SHARED, shared),
        (EXIT, exits[leaves] | exits[state_of_record]),
    ):
        flagged |= np.where(has, uint32(flag), uint32(0))
    link = flagged[np.where(hub, row, record)]
    wholes = state_of_row, state_of_record, link, leaves
    return _States(token, row, record, *(x.astype(np.uint32) for x in wholes))


@jit
def _tell_apart(arcs, splits, epsilons, blank):
    """Tell states after a blank from those after a token.

    Returns:
        (whether each is one of the two; the ilabel before, int32 [S], 0 for none; the
        row of each, int32 [S]; int64 [2], rows and records).
    """
    num_states = len(epsilons)
    token, after = np.zeros(num_states, np.int32), np.full(num_states, _NONE, np.int32)
    row, sizes = np.full(num_states, _NONE, np.int32), np.zeros(2, np.int64)
    for s in range(num_states):
        for a in range(splits[s] + epsilons[s], splits[s + 1]):
            label = arcs[a].ilabel & uint32(LABEL_MASK)
            repeats = arcs[a].ilabel & uint32(REPEAT) != uint32(0)
            if label != blank and not repeats:
                continue
            if arcs[a].cost != float32(0) or arcs[a].olabel != uint32(0):
                return False, token, row, sizes
            if repeats:
                if label == blank or token[s] != 0 or arcs[a].nextstate != s:
                    return False, token, row, sizes
                token[s] = label
            else:
                if after[s] != _NONE:
                    return False, token, row, sizes
                after[s] = arcs[a].nextstate
        if after[s] == s and (token[s] != 0 or epsilons[s] > 0 or s == 0):
            return False, token, row, sizes
        if after[s] == s or after[s] == _NONE:
            row[s] = sizes[0]
            sizes[0] += 1
    for s in range(num_states):
        if after[s] != s:
            sizes[1] += 1
            if after[s] != _NONE:
                if after[after[s]] != after[s]:
                    return False, token, row, sizes
                row[s] = row[after[s]]
    return sizes[1] <= RECORDS, token, row, sizes


@jit
def _number(token, row, arcs, splits, epsilons, exits, blank, sizes):
    """Number the records; the rest of `_States`.

    A state is one after a blank if its blank arc leads to itself; `_tell_apart` has
    seen to the rest.
    """
    num_states = len(row)
    record = np.full(num_states, _NONE, np.int32)
    state_of_row = np.zeros(sizes[0], np.uint32)
    state_of_record = np.zeros(max(sizes[0], sizes[1]), np.uint32)
    held, link = np.zeros(sizes[0], np.int32), np.zeros(num_states, np.uint32)
    more = sizes[0]
    for s in range(num_states):
        stays, goes = False, False
        for a in range(splits[s] + epsilons[s], splits[s + 1]):
            if arcs[a].ilabel & uint32(LABEL_MASK) == blank:
                stays, goes = arcs[a].nextstate == s, True
        if stays or not goes:
            state_of_row[row[s]] = s
        if stays:
            continue
        if held[row[s]] == 0:
            record[s] = row[s]
        else:
            record[s] = more
            more += 1
        held[row[s]] += 1
        state_of_record[record[s]] = s
        link[s] = record[s]
        if not goes:
            link[s] |= uint32(NO_BLANK)
        if epsilons[s] > 0:
            link[s] |= uint32(EPSILONS)
    for s in range(num_states):
        if record[s] != _NONE:
            if held[row[s]] > 1:
                link[s] |= uint32(SHARED)
            if s < state_of_row[row[s]]:
                link[s] |= uint32(TOKEN_FIRST)
            if exits[s] or exits[state_of_row[row[s]]]:
                link[s] |= uint32(EXIT)
    return record, state_of_row, state_of_record[:more], link


@jit
def _is_product(states, arcs, splits, epsilons, blank):
    """Tell whether states after tokens leave by their rows' arcs, all but one token's.

    And whether each row has a record, and arcs lead to records of the right token.
    """
    token, record = states.token, states.record
    held = np.zeros(len(states.state_of_row), np.bool_)
    for s in range(len(token)):
        if record[s] != _NONE:
            held[states.row[s]] = True
        a, last = int64(splits[s] + epsilons[s]), int64(splits[s + 1])
        for e in range(splits[s], a):
            to = arcs[e].nextstate
            if record[to] == _NONE or token[to] != token[s]:
                return False
        y = int64(states.state_of_row[states.row[s]])
        b, last_b = int64(splits[y] + epsilons[y]), int64(splits[y + 1])
        while a < last or b < last_b:
            if a < last and _is_of_t(arcs[a].ilabel, blank):
                a += 1
                continue
            if b < last_b:
                label = arcs[b].ilabel & uint32(LABEL_MASK)
                if _is_of_t(arcs[b].ilabel, blank) or (y != s and label == token[s]):
                    b += 1
                    continue
            if a == last or b == last_b:
                return False
            one, other, to = arcs[a], arcs[b], arcs[a].nextstate
            if one.ilabel != other.ilabel or one.olabel != other.olabel:
                return False
            if one.nextstate != other.nextstate or one.cost != other.cost:
                return False
            label = one.ilabel & uint32(LABEL_MASK)
            if record[to] == _NONE or token[to] != label or token[s] == label:
                return False
            a += 1
            b += 1
    return held.all()


@inlined
def _is_of_t(ilabel, blank):
    """Tell whether an arc is of T alone: of a blank, or repeating a token."""
    return ilabel & uint32(LABEL_MASK) == blank or ilabel & uint32(REPEAT) != uint32(0)


@jit
def _records(count):
    """RECORD [count], to be filled."""
    return np.empty(count, RECORD)


@jit
def _steps(count):
    """STEP [count], to be filled."""
    return np.empty(count, STEP)


@jit
def _lay_out(states, arcs, splits, epsilons, blank, ranks, num_tokens):
    """Fill the arrays of `RowArrays`: `records` to `blank_arc`, bounds, `by_token`."""
    num_rows, num_records = len(states.state_of_row), len(states.state_of_record)
    first = np.zeros(num_rows + 1, np.int64)
    labels, least = np.zeros(num_rows, np.uint64), np.zeros(num_rows, np.float32)
    by_token = num_tokens <= SMALL
    for r in range(num_rows):
        s = int64(states.state_of_row[r])
        first[r + 1] = first[r]
        for a in range(splits[s] + epsilons[s], splits[s + 1]):
            if not _is_of_t(arcs[a].ilabel, blank):
                token = uint64(arcs[a].ilabel & uint32(LABEL_MASK)) - uint64(1)
                bit = uint64(1) << (token & uint64(63))
                by_token = by_token and labels[r] & bit == uint64(0)
                labels[r] |= bit
                least[r] = min(least[r], arcs[a].cost)
                first[r + 1] += 1
    steps, arc = _steps(first[-1]), np.empty(first[-1], np.uint32)
    tokens = np.empty(first[-1], np.uint16)
    costs = np.empty(0 if by_token else first[-1], np.float32)
    keys, stack = np.empty(_MOST, np.uint64), np.empty(STACK, np.int64)
    least_cost = float32(0)
    for r in range(num_rows):
        s, count = int64(states.state_of_row[r]), 0
        least_cost = min(least_cost, least[r])
        for a in range(splits[s] + epsilons[s], splits[s + 1]):
            if not _is_of_t(arcs[a].ilabel, blank):
                if by_token:
                    arc[first[r] + count] = a
                else:
                    keys[count] = key_of(arcs[a].cost, a)
                count += 1
        if not by_token:
            sort_keys(keys, count, stack)
            for i in range(count):
                arc[first[r] + i] = uint32(keys[i] & uint64(0xFFFFFFFF))
        for i in range(first[r], first[r + 1]):
            one = arcs[int64(arc[i])]
            steps[i].next, steps[i].cost = states.link[one.nextstate], one.cost
            if one.ilabel & uint32(CARRIES_WORD):
                steps[i].next |= uint32(WORD)
            tokens[i] = (one.ilabel & uint32(LABEL_MASK)) - 1
            if not by_token:
                costs[i] = one.cost
    begin = np.zeros(num_records + 1, np.int64)
    records, none = _records(num_records), num_tokens
    for u in range(num_records):
        s, after = int64(states.leaves[u]), int64(states.state_of_record[u])
        r, one = states.row[s], records[u]
        begin[u + 1] = begin[u] + epsilons[s]
        one.labels, one.first, one.least = labels[r], first[r], least[r]
        one.epsilon, one.epsilons, one.row = begin[u], epsilons[s], r
        one.length, one.rank = first[r + 1] - first[r], ranks[s]
        one.token = states.token[after] - 1 if states.token[after] > 0 else none
    inner, inner_arc = _steps(begin[-1]), np.empty(begin[-1], np.uint32)
    least_epsilon = float32(0)
    for u in range(num_records):
        s = int64(states.leaves[u])
        for i in range(epsilons[s]):
            one, at = arcs[int64(splits[s]) + i], begin[u] + i
            inner[at].next, inner[at].cost = states.link[one.nextstate], one.cost
            if one.ilabel & uint32(CARRIES_WORD):
                inner[at].next |= uint32(WORD)
            inner_arc[at] = int64(splits[s]) + i
            least_epsilon = min(least_epsilon, one.cost)
    repeat_arc, blank_arc = np.zeros(num_tokens, np.uint32), uint32(0)
    for a in range(len(arcs)):
        label = arcs[a].ilabel & uint32(LABEL_MASK)
        if label == blank:
            blank_arc = uint32(a)
        elif arcs[a].ilabel & uint32(REPEAT):
            repeat_arc[label - 1] = a
    return (
        *(records, steps, tokens, costs, arc, inner, inner_arc, repeat_arc),
        *(blank_arc, least_cost, least_epsilon, by_token),
    )
