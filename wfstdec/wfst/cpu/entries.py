"""Entries of the frontier: lookup, insertion, compaction.

`slots` has an element per row and is never cleared: the entry at that position shows
whether it belongs to the record or row. Entries of a row that several records share
form a chain in order of insertion. Open vocabularies have chains of thousands; `exact`
maps their records to entries, and `tails` has their ends. `hashed` does the same as
`slots` by (row, boost state) for entries outside the initial boost state; entries of a
slot form a chain.
"""

import numpy as np
from numpy import float32, int64, uint16, uint32, uint64

from wfstdec.jit import inlined, jit, part
from wfstdec.jit.vectors import (
    STEP,
    below,
    count_bits,
    least,
    load,
    prefetch,
    select,
    splat,
    store,
    store_some,
)
from wfstdec.search.logprobs import penalised
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.cpu.arrays import FROM_TOKEN, HASHED, NONE
from wfstdec.wfst.cpu.boosts import LABEL, most_credited
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, SHARED

_NO_FLAG = uint32(0)
NO_ENTRY = uint64(NONE)
_INF = float32(np.inf)
_FIRST_TOKEN = uint64(ilabel_of(0))
_ALL = uint32(0xFFFF)
_SLOTS = uint32(HASHED - 1)
NO_BOOST = uint32(0)
"""Boost state if boosts have no states."""
_ZERO, _ONE = uint64(0), uint64(1)
_FEW = uint64(8)
"""Steps in a chain before `exact` is used."""


@inlined
def room_in(array):
    """Return the capacity in entries, without the padding of a vector."""
    return uint64(len(array)) - STEP


@inlined
def row_of(rows, oov, record):
    """Return an entry's row; nodes of an overlay follow the graph's rows."""
    u = uint64(record & RECORDS)
    if oov is not None and record & ADDED != _NO_FLAG:
        return rows.num_rows + u
    return u if u < rows.num_rows else uint64(rows.records[u].row)


@inlined
def state_after_blank(rows, oov, record):
    """Return the packed state after a blank in the row of a record."""
    if oov is not None and record & ADDED != _NO_FLAG:
        u = uint32(record & RECORDS)
        return uint32(oov.first_state + u * oov.per_record + uint32(1))
    return rows.state_of_row[row_of(rows, oov, record)]


@inlined
def state_after_token(rows, oov, record):
    """Return the packed state after the token of a record."""
    if oov is not None and record & ADDED != _NO_FLAG:
        u = uint32(record & RECORDS)
        return uint32(oov.first_state + u * oov.per_record)
    return rows.state_of_record[uint64(record & RECORDS)]


@inlined
def arc_at(rows, oov, a):
    """Return the packed number of token arc `a`; the overlay's follow the graph's."""
    if oov is not None and a >= uint32(len(rows.arcs)):
        return uint32(oov.first_arc + (a - uint32(len(rows.arcs))))
    return rows.arc[uint64(a)]


@inlined
def epsilon_at(rows, oov, e):
    """Return the packed number of epsilon arc `e`; the overlay's follow the graph's."""
    if oov is not None and e >= uint64(len(rows.epsilons)):
        return uint32(oov.first_arc + uint32(e - uint64(len(rows.epsilons))))
    return rows.epsilon_arc[e]


@inlined
def acoustic_cost(rows, params, logprobs, t, token):
    """Return the unscaled cost of a token or the blank in frame `t`."""
    logprob = logprobs[t, token]
    if uint64(token) == rows.blank:
        logprob = penalised(params.pricing, logprob)
    return -logprob


@inlined
def rank_of(rows, oov, record):
    """Return the epsilon rank of a record; 0 in an overlay."""
    if oov is not None and record & ADDED != _NO_FLAG:
        return _ZERO
    return uint64(rows.records[uint64(record & RECORDS)].rank)


@inlined
def epsilons_of(rows, oov, record):
    """Return the range of a record's epsilon arcs, as numbered by `epsilon_at`."""
    # Overlays have some only where rows are `plain`.
    u = uint64(record & RECORDS)
    if oov is not None and record & ADDED != _NO_FLAG:
        first = uint64(len(rows.epsilons))
        return first + uint64(oov.begin[u]), first + uint64(oov.first_token_arc[u])
    return uint64(rows.records[u].epsilon), uint64(rows.records[u + _ONE].epsilon)


@inlined
def token_at(rows, oov, a):
    """Return the token of arc `a`, numbered as by `arc_at`."""
    if oov is not None and a >= uint32(len(rows.arcs)):
        label = oov.arcs[uint64(a) - uint64(len(rows.arcs))].ilabel & LABEL
        return uint64(label) - _FIRST_TOKEN
    return uint64(rows.tokens[uint64(a)])


@inlined
def leaving_cost(rows, state, i):
    """Return the lowest cost from which the arcs of an entry's row leave."""
    if rows.has_hubs:
        return state.blank[i]
    return min(state.blank[i], state.token[i])


@inlined
def find(search, n, record, boost, of_row):
    """Find the entry of a record and a boost state."""
    # `of_row`: find the first entry of its row instead, of any record.
    # Returns (its position or `n`, the last entry of its chain or NO_ENTRY).
    scratch, state = search.scratch, search.state
    phrases, oov = search.phrases, search.oov
    if phrases is not None and boost != phrases.initial:
        return _find_boosted(search, n, record, boost, of_row)
    if record & SHARED == _NO_FLAG:
        slots = scratch.slots
        if oov is not None and record & ADDED != _NO_FLAG:
            slots = oov.slots
        i = uint64(slots[uint64(record & RECORDS)])
        found = i < n and state.record[i] == record
        if phrases is not None:
            found = found and state.boost[i] == phrases.initial
        return (i if found else n), NO_ENTRY
    return _find_shared(search, n, record, of_row)


@inlined
def _find_boosted(search, n, record, boost, of_row):
    phrases, oov = search.phrases, search.oov
    rows, scratch, state = search.rows, search.scratch, search.state
    slot = _slot_of(row_of(rows, oov, record), boost)
    i = uint64(scratch.hashed[slot])
    if i >= n or state.boost[i] == phrases.initial:
        return n, NO_ENTRY
    if _slot_of(row_of(rows, oov, state.record[i]), state.boost[i]) != slot:
        return n, NO_ENTRY
    while state.boost[i] != boost or state.record[i] != record:
        if of_row and state.boost[i] == boost:
            if row_of(rows, oov, state.record[i]) == row_of(rows, oov, record):
                break
        if state.chain[i] == NONE:
            return n, i
        i = uint64(state.chain[i])
    return i, NO_ENTRY


@inlined
def _slot_of(row, boost):
    mixed = uint32(row) ^ uint32(boost * uint32(0x9E3779B1))
    mixed ^= mixed >> uint32(15)
    return uint64(mixed & _SLOTS)


@inlined
def first_of(search, i):
    """Return first entry of the row and boost state of entry `i`; its row is shared."""
    phrases, oov = search.phrases, search.oov
    rows, scratch, state = search.rows, search.scratch, search.state
    row = row_of(rows, oov, state.record[i])
    if phrases is None:
        return uint64(scratch.slots[row])
    else:
        boost = state.boost[i]
        if boost == phrases.initial:
            return uint64(scratch.slots[row])
        first = uint64(scratch.hashed[_slot_of(row, boost)])
        while (
            state.boost[first] != boost or row_of(rows, oov, state.record[first]) != row
        ):
            first = uint64(state.chain[first])
        return first


@inlined
def is_beside(search, first, i):
    """Return whether entry `i` of a chain has the row and boost state of `first`."""
    rows, oov, state = search.rows, search.oov, search.state
    if search.phrases is None:
        return True
    else:
        row = row_of(rows, oov, state.record[i])
        same = row_of(rows, oov, state.record[first]) == row
        return same and state.boost[first] == state.boost[i]


@inlined
def _find_shared(search, n, record, of_row):
    phrases, oov = search.phrases, search.oov
    rows, scratch, state = search.rows, search.scratch, search.state
    row = row_of(rows, oov, record)
    i = uint64(scratch.slots[row])
    if i >= n or state.record[i] & SHARED == _NO_FLAG:
        return n, NO_ENTRY
    if row_of(rows, oov, state.record[i]) != row:
        return n, NO_ENTRY
    if phrases is not None and state.boost[i] != phrases.initial:
        return n, NO_ENTRY
    steps = _ZERO
    while state.record[i] != record and not of_row:
        if state.chain[i] == NONE:
            return n, i
        steps += _ONE
        if steps == _FEW:
            i = uint64(scratch.exact[uint64(record & RECORDS)])
            if i < n and state.record[i] == record:
                if phrases is None or state.boost[i] == phrases.initial:
                    return i, NO_ENTRY
            return n, uint64(scratch.tails[row])
        i = uint64(state.chain[i])
    return i, NO_ENTRY


@inlined
def insert(search, n, record, boost, after):
    """Insert entry `n` of a record after `after` in its chain; return the count."""
    rows, params, state = search.rows, search.params, search.state
    phrases, oov, u = search.phrases, search.oov, uint64(record & RECORDS)
    of_graph = True
    if oov is not None:
        # `expand_oov` follows the arcs of an overlay: none of them is in `labels`.
        of_graph = record & ADDED == _NO_FLAG
        if not of_graph:
            state.again[n], state.labels[n] = oov.token[u], _ZERO
            state.first[n], state.least[n] = uint32(0), float32(0)
    if of_graph:
        one = rows.records[u]
        state.again[n], state.labels[n] = uint32(one.token), one.labels
        state.first[n], state.least[n] = one.first, float32(params.lm_scale * one.least)
        prefetch(rows.arcs, uint64(one.first))
        prefetch(rows.epsilons, uint64(one.epsilon))
    state.record[n] = record
    state.blank[n], state.blank_node[n] = _INF, uint32(0)
    state.token[n], state.token_node[n] = _INF, uint32(0)
    if phrases is not None:
        state.boost[n] = boost
        state.credit[n] = most_credited(search, boost)
    register(search, n, record, boost, after)
    return n + _ONE


@inlined
def register(search, n, record, boost, after):
    """Enter entry `n` into the tables of `find`."""
    phrases, oov = search.phrases, search.oov
    rows, scratch, state = search.rows, search.scratch, search.state
    if phrases is not None and boost != phrases.initial:
        state.chain[n] = NONE
        state.progress[0].chained += int64(record & SHARED != _NO_FLAG)
        if after == NO_ENTRY:
            scratch.hashed[_slot_of(row_of(rows, oov, record), boost)] = uint32(n)
        else:
            state.chain[after] = uint32(n)
        return
    if oov is not None and record & ADDED != _NO_FLAG:
        oov.slots[uint64(record & RECORDS)] = uint32(n)
        return
    if record & SHARED == _NO_FLAG:
        scratch.slots[uint64(record & RECORDS)] = uint32(n)
    else:
        state.chain[n] = NONE
        row = row_of(rows, oov, record)
        scratch.exact[uint64(record & RECORDS)] = scratch.tails[row] = uint32(n)
        if after == NO_ENTRY:
            scratch.slots[row] = uint32(n)
        else:
            state.chain[after] = uint32(n)
            state.progress[0].chained += 1


@inlined
def clear_behind(state, n):
    """Set the costs after the last of `n` entries to infinity, in its vector."""
    behind = n & ~(STEP - _ONE)
    if behind < n:
        rest = uint16((_ALL << uint32(n - behind)) & _ALL)
        store(state.blank, behind, select(rest, splat(_INF), load(state.blank, behind)))
        store(state.token, behind, select(rest, splat(_INF), load(state.token, behind)))


@inlined
def _move(array, i, kept, alive):
    store_some(array, kept, load(array, i), alive)


@inlined
def compact(search, n):
    """Remove entries without an active state; return the count."""
    phrases, state, kept, i = search.phrases, search.state, _ZERO, _ZERO
    clear_behind(state, n)
    while i < n:
        alive = below(least(load(state.blank, i), load(state.token, i)), splat(_INF))
        _move(state.blank, i, kept, alive)
        _move(state.token, i, kept, alive)
        _move(state.again, i, kept, alive)
        _move(state.least, i, kept, alive)
        _move(state.record, i, kept, alive)
        _move(state.first, i, kept, alive)
        _move(state.labels, i, kept, alive)
        _move(state.ended, i, kept, alive)
        _move(state.blank_node, i, kept, alive)
        _move(state.token_node, i, kept, alive)
        if phrases is not None:
            _move(state.boost, i, kept, alive)
            _move(state.credit, i, kept, alive)
        kept += count_bits(uint64(alive))
        i += STEP
    state.progress[0].chained = 0
    for i in range(kept):
        record, boost = state.record[i], NO_BOOST
        if phrases is not None:
            boost = state.boost[i]
        _, after = find(search, uint64(i), record, boost, False)
        register(search, uint64(i), record, boost, after)
    return kept


@part
def spread(search):
    """Write the active packed states to `scratch.ends`; return their number."""
    # `arc` is the entry, flagged if it is the state after the token.
    rows, oov, scratch, state = search.rows, search.oov, search.scratch, search.state
    count, best = _ZERO, state.progress[0].best
    for i in range(uint64(state.progress[0].entries)):
        record = state.record[i]
        for after_token in range(2):
            cost = state.token[i] if after_token else state.blank[i]
            if not cost < _INF:
                continue
            end = scratch.ends[count]
            end.cost, end.arc = float32(cost - best), uint32(i)
            if after_token:
                end.arc |= FROM_TOKEN
                end.state = state_after_token(rows, oov, record)
                end.node = state.token_node[i]
            else:
                end.state = state_after_blank(rows, oov, record)
                end.node = state.blank_node[i]
            if search.phrases is not None:
                scratch.end_boosts[count] = state.boost[i]
            count += _ONE
    return count


@jit
def drop_nodes(state):
    """Remove trace nodes without successors; renumber the others in order."""
    progress, nodes = state.progress[0], state.nodes
    count = progress.nodes
    comes, number = np.zeros(count, np.bool_), np.zeros(count, np.uint32)
    comes[0] = True
    for i in range(progress.entries):
        if not state.token[i] < _INF:
            state.token_node[i] = uint32(0)
        if not state.blank[i] < _INF:
            state.blank_node[i] = uint32(0)
        for node in (state.token_node[i], state.blank_node[i]):
            at = int64(node)
            while not comes[at]:
                comes[at] = True
                if nodes[at].arc != NONE:
                    at = int64(nodes[at].before)
    kept, fresh = 0, 0
    for at in range(count):
        if comes[at]:
            number[at], nodes[kept] = kept, nodes[at]
            kept += 1
            if at < progress.fresh:
                fresh = kept
    for at in range(kept):
        if nodes[at].arc != NONE:
            nodes[at].before = number[int64(nodes[at].before)]
    for i in range(progress.entries):
        state.token_node[i] = number[int64(state.token_node[i])]
        state.blank_node[i] = number[int64(state.blank_node[i])]
    progress.nodes, progress.fresh = kept, fresh
