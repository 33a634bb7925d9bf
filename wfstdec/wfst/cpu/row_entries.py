"""The entries of a search on rows: how they are found, made and left out.

`slots` has a place for each row and needs no clearing: the entry there tells whether it
is of the record, or the row, that was asked for. Entries of a row that several records
share are a chain, in the order in which they were made. So it is with `hashed`, for
entries whose boost states are not the quiet one: its slots have chains of them.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint16, uint32, uint64

from wfstdec.jit import inlined, jit, part
from wfstdec.jit.vectors import STEP, load, select, splat, store
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.arc_costs import LABEL, most_credited
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, SHARED

_SHARED, _RECORDS, _NO_FLAG = uint32(SHARED), uint32(RECORDS), uint32(0)
_ADDED = uint32(ADDED)
_FROM_TOKEN, _NONE = uint32(k.FROM_TOKEN), uint32(k.NONE)
NO_ENTRY = uint64(k.NONE)
"""In the place of an entry's position: there is none."""
_INF = float32(np.inf)
_FIRST_TOKEN = uint64(ilabel_of(0))
_ALL = uint32(0xFFFF)
_SLOTS = uint32(k.HASHED - 1)
NO_BOOST = uint32(0)
"""The boost state where boosts have none."""
_ZERO, _ONE = uint64(0), uint64(1)


@inlined
def room_in(array):
    """Number of entries that fit, a vector behind them left free."""
    return uint64(len(array)) - STEP


@inlined
def row_of(rows, added, record):
    """The row of an entry's record; those of an overlay are numbered on."""
    u = uint64(record & _RECORDS)
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            return rows.num_rows + u
    return u if u < rows.num_rows else uint64(rows.records[u].row)


@inlined
def state_after_blank(rows, added, record):
    """The state after a blank in the row of an entry's record."""
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            u = uint32(record & _RECORDS)
            return uint32(added.first_state + (u << uint32(1)) + uint32(1))
    return rows.state_of_row[row_of(rows, added, record)]


@inlined
def state_after_token(rows, added, record):
    """The state that an entry's record stands for."""
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            u = uint32(record & _RECORDS)
            return uint32(added.first_state + (u << uint32(1)))
    return rows.state_of_record[uint64(record & _RECORDS)]


@inlined
def arc_at(rows, added, a):
    """The packed number of token arc `a`; those of an overlay are numbered on."""
    if added is not None:
        if a >= uint32(len(rows.arcs)):
            return uint32(added.first_arc + (a - uint32(len(rows.arcs))))
    return rows.arc[uint64(a)]


@inlined
def token_at(rows, added, a):
    """The token of token arc `a`, numbered as of `arc_at`."""
    if added is not None:
        if a >= uint32(len(rows.arcs)):
            label = added.arcs[uint64(a) - uint64(len(rows.arcs))].ilabel & LABEL
            return uint64(label) - _FIRST_TOKEN
    return uint64(rows.tokens[uint64(a)])


@inlined
def leaving_cost(rows, state, i):
    """The least cost at which an entry is left by its row's arcs."""
    if rows.through_epsilon:
        return state.blank[i]
    return min(state.blank[i], state.token[i])


@inlined
def find(rows, phrases, added, scratch, state, n, record, boost, of_row):
    """Find the entry of a record and a boost state.

    `of_row`: the first entry of its row instead, whichever record that is of.

    Returns:
        (its position or `n`, the last entry of its chain or none).
    """
    if phrases is not None:
        if boost != phrases.quiet:
            return _find_boosted(
                *(rows, phrases, added, scratch, state, n, record, boost, of_row)
            )
    if record & _SHARED == _NO_FLAG:
        slots = scratch.slots
        if added is not None:
            if record & _ADDED != _NO_FLAG:
                slots = added.slots
        i = uint64(slots[uint64(record & _RECORDS)])
        found = i < n and state.record[i] == record
        if phrases is not None:
            found = found and state.boost[i] == phrases.quiet
        return (i if found else n), NO_ENTRY
    return _find_shared(rows, phrases, added, scratch, state, n, record, of_row)


@inlined
def _find_boosted(rows, phrases, added, scratch, state, n, record, boost, of_row):
    """Find an entry whose boost state is not the quiet one: in the chain of a slot."""
    slot = _slot_of(row_of(rows, added, record), boost)
    i = uint64(scratch.hashed[slot])
    if i >= n or state.boost[i] == phrases.quiet:
        return n, NO_ENTRY
    if _slot_of(row_of(rows, added, state.record[i]), state.boost[i]) != slot:
        return n, NO_ENTRY
    while state.boost[i] != boost or state.record[i] != record:
        if of_row and state.boost[i] == boost:
            if row_of(rows, added, state.record[i]) == row_of(rows, added, record):
                break
        if state.chain[i] == _NONE:
            return n, i
        i = uint64(state.chain[i])
    return i, NO_ENTRY


@inlined
def _slot_of(row, boost):
    """The slot of a row with a boost state."""
    mixed = uint32(row) ^ uint32(boost * uint32(0x9E3779B1))
    mixed ^= mixed >> uint32(15)
    return uint64(mixed & _SLOTS)


@inlined
def first_of(rows, phrases, added, scratch, state, i):
    """The first entry of a row that several records share, and of the boost state."""
    row = row_of(rows, added, state.record[i])
    if phrases is None:
        return uint64(scratch.slots[row])
    else:
        boost = state.boost[i]
        if boost == phrases.quiet:
            return uint64(scratch.slots[row])
        first = uint64(scratch.hashed[_slot_of(row, boost)])
        while (
            state.boost[first] != boost
            or row_of(rows, added, state.record[first]) != row
        ):
            first = uint64(state.chain[first])
        return first


@inlined
def is_beside(rows, phrases, added, state, first, i):
    """Tell whether entry `i` of a chain is of the first one's row and boost state."""
    if phrases is None:
        return True
    else:
        row = row_of(rows, added, state.record[i])
        same = row_of(rows, added, state.record[first]) == row
        return same and state.boost[first] == state.boost[i]


@inlined
def _find_shared(rows, phrases, added, scratch, state, n, record, of_row):
    """Find an entry where records share the row: its entries are a chain."""
    row = row_of(rows, added, record)
    i = uint64(scratch.slots[row])
    if i >= n or state.record[i] & _SHARED == _NO_FLAG:
        return n, NO_ENTRY
    if row_of(rows, added, state.record[i]) != row:
        return n, NO_ENTRY
    if phrases is not None:
        if state.boost[i] != phrases.quiet:
            return n, NO_ENTRY
    while state.record[i] != record and not of_row:
        if state.chain[i] == _NONE:
            return n, i
        i = uint64(state.chain[i])
    return i, NO_ENTRY


@inlined
def insert(
    rows, params, words, phrases, added, scratch, state, n, record, boost, after
):
    """Make entry number `n` of a record, behind another of its chain or the first."""
    u = uint64(record & _RECORDS)
    of_graph = True
    if added is not None:
        # The arcs of an overlay are looked at apart: none of them is in `labels`.
        of_graph = record & _ADDED == _NO_FLAG
        if not of_graph:
            state.again[n], state.labels[n] = added.token[u], _ZERO
            state.first[n], state.least[n] = uint32(0), float32(0)
    if of_graph:
        one = rows.records[u]
        state.again[n], state.labels[n] = uint32(one.token), one.labels
        state.first[n], state.least[n] = one.first, float32(params.lm_scale * one.least)
    state.record[n] = record
    state.blank[n], state.blank_node[n] = _INF, uint32(0)
    state.token[n], state.token_node[n] = _INF, uint32(0)
    if phrases is not None:
        state.boost[n] = boost
        state.credit[n] = most_credited(params, words, phrases, boost)
    register(rows, phrases, added, scratch, state, n, record, boost, after)
    return n + _ONE


@inlined
def register(rows, phrases, added, scratch, state, n, record, boost, after):
    """Let entry number `n` be found."""
    if phrases is not None:
        if boost != phrases.quiet:
            state.chain[n] = _NONE
            state.counts[k.CHAINED] += int64(record & _SHARED != _NO_FLAG)
            if after == NO_ENTRY:
                scratch.hashed[_slot_of(row_of(rows, added, record), boost)] = uint32(n)
            else:
                state.chain[after] = uint32(n)
            return
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            added.slots[uint64(record & _RECORDS)] = uint32(n)
            return
    if record & _SHARED == _NO_FLAG:
        scratch.slots[uint64(record & _RECORDS)] = uint32(n)
    else:
        state.chain[n] = _NONE
        if after == NO_ENTRY:
            scratch.slots[row_of(rows, added, record)] = uint32(n)
        else:
            state.chain[after] = uint32(n)
            state.counts[k.CHAINED] += 1


@inlined
def clear_behind(state, n):
    """Make what stands in the last vector behind the last of `n` entries infinite."""
    behind = n & ~(STEP - _ONE)
    if behind < n:
        rest = uint16((_ALL << uint32(n - behind)) & _ALL)
        store(state.blank, behind, select(rest, splat(_INF), load(state.blank, behind)))
        store(state.token, behind, select(rest, splat(_INF), load(state.token, behind)))


@inlined
def compact(rows, phrases, added, scratch, state, n):
    """Leave out entries that have died; how many are left."""
    kept = _ZERO
    for i in range(n):
        if state.blank[i] < _INF or state.token[i] < _INF:
            if kept < uint64(i):
                state.blank[kept], state.token[kept] = state.blank[i], state.token[i]
                state.again[kept], state.least[kept] = state.again[i], state.least[i]
                state.record[kept], state.first[kept] = state.record[i], state.first[i]
                state.labels[kept], state.ended[kept] = state.labels[i], state.ended[i]
                state.blank_node[kept] = state.blank_node[i]
                state.token_node[kept] = state.token_node[i]
                if phrases is not None:
                    boost, credit = state.boost[i], state.credit[i]
                    state.boost[kept], state.credit[kept] = boost, credit
            kept += _ONE
    state.counts[k.CHAINED] = 0
    for i in range(kept):
        record, boost = state.record[i], NO_BOOST
        if phrases is not None:
            boost = state.boost[i]
        _, after = find(
            rows, phrases, added, scratch, state, uint64(i), record, boost, False
        )
        register(rows, phrases, added, scratch, state, uint64(i), record, boost, after)
    return kept


@part
def spread(rows, phrases, added, scratch, state):
    """Fill `scratch.ends` with the states of the packed graph that entries stand for.

    Their node is that of the last token or epsilon arc, `arc` the entry, with a flag
    where it is the state after the token. `end_boosts` has their boost states.

    Returns:
        How many there are.
    """
    count, best = _ZERO, state.costs[k.BEST]
    for i in range(uint64(state.counts[k.ENTRIES])):
        record = state.record[i]
        if state.blank[i] < _INF:
            end = scratch.ends[count]
            end.cost = float32(state.blank[i] - best)
            end.state = state_after_blank(rows, added, record)
            end.node, end.arc = state.blank_node[i], uint32(i)
            if phrases is not None:
                scratch.end_boosts[count] = state.boost[i]
            count += _ONE
        if state.token[i] < _INF:
            end = scratch.ends[count]
            end.cost = float32(state.token[i] - best)
            end.state = state_after_token(rows, added, record)
            end.node, end.arc = state.token_node[i], uint32(i) | _FROM_TOKEN
            if phrases is not None:
                scratch.end_boosts[count] = state.boost[i]
            count += _ONE
    return count


@jit
def drop_nodes(state):
    """Drop nodes that no entry comes from, and renumber the rest, in order."""
    counts, nodes = state.counts, state.nodes
    count = counts[k.NODES]
    comes, number = np.zeros(count, np.bool_), np.zeros(count, np.uint32)
    comes[0] = True
    for i in range(counts[k.ENTRIES]):
        if not state.token[i] < _INF:
            state.token_node[i] = uint32(0)
        if not state.blank[i] < _INF:
            state.blank_node[i] = uint32(0)
        for node in (state.token_node[i], state.blank_node[i]):
            at = int64(node)
            while not comes[at]:
                comes[at] = True
                if nodes[at].arc != _NONE:
                    at = int64(nodes[at].before)
    kept, fresh = 0, 0
    for at in range(count):
        if comes[at]:
            number[at], nodes[kept] = kept, nodes[at]
            kept += 1
            if at < counts[k.FRESH]:
                fresh = kept
    for at in range(kept):
        if nodes[at].arc != _NONE:
            nodes[at].before = number[int64(nodes[at].before)]
    for i in range(counts[k.ENTRIES]):
        state.token_node[i] = number[int64(state.token_node[i])]
        state.blank_node[i] = number[int64(state.blank_node[i])]
    counts[k.NODES], counts[k.FRESH] = kept, fresh
