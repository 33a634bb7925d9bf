"""The lattice of a search: records become states, and arcs between them.

    read_notes      turn the records of some frames into states and arcs
    shrink_lattice  regularly: drop states that can no longer be part of the lattice, or
                    settled ones that were returned
    gather          the result, sorted; at the end of an utterance by `read_notes`

Records are read twice: backwards, to find the states that the lattice may have (most
entries of a frame are in none), and forwards, to write the arcs between these states
(`lattice_arcs.py`).

Until the utterance ends, the extra cost of an active entry may become anything from 0
on. `lattice_pack.py` has the rule.
"""

import numpy as np
from numpy import float32, int64, uint16, uint32, uint64

from wfstdec.jit import inlined, jit
from wfstdec.jit.sorting import STACK, sort_keys
from wfstdec.jit.vectors import (
    LANES,
    STEP,
    below,
    count_bits,
    least,
    load,
    prefetch,
    select,
    splat,
    store,
)
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.wfst.cpu.arrays import FROM_TOKEN
from wfstdec.wfst.cpu.entries import spread
from wfstdec.wfst.cpu.lattice_arcs import append_states_and_arcs, place_of, winners_of
from wfstdec.wfst.cpu.lattice_record import DROPPED, MOVE, REPEAT_WINS, TOKEN_WINS
from wfstdec.wfst.cpu.traceback import boosts_at_end, end_of
from wfstdec.wfst.lattice_pack import ends as excess_of_ends
from wfstdec.wfst.lattice_pack import spread as spread_extra

_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)
_LOW, _HALF = uint64(0xFFFFFFFF), uint64(32)


@jit
def read_notes(search, lattice, chunk, first_frame):
    """Append the states and arcs of the records to a lattice, and drop the records."""
    # `lattice` has capacity in `here`, `other` and `frames`. `chunk`: log-probs,
    # float32 [T, V], the frames before them, and the frames before the records.
    # `first_frame`: of the first state if the utterance ends here, else -1. Returns
    # (states and arcs to grow for, in which case nothing changed; `STATE` [S], `ARC`
    # [A]: the whole lattice of an utterance that ends).
    final_cost, scale = search.rows.final_cost, search.params.lm_scale
    limit, is_last = search.record.progress[0].limit, first_frame >= 0
    ends = search.scratch.ends[: spread(search)]
    excess = np.zeros(len(ends), np.float32)
    rest, final = excess, False
    if is_last:
        _, best, final = end_of(search, ends)
        boosts = boosts_at_end(search)
        excess, rest = excess_of_ends(ends, boosts, final_cost, scale, best, final)
    num_nodes, num_arcs = _find_surviving(search, ends, excess)
    before = lattice.progress[0].nodes
    num_nodes, num_arcs = num_nodes + before, num_arcs + lattice.progress[0].arcs
    states, arcs = np.empty(0, STATE), np.empty(0, ARC)
    if num_nodes > len(lattice.number) or num_arcs > len(lattice.arcs):
        return num_nodes, num_arcs, states, arcs
    append_states_and_arcs(search, lattice, chunk)
    if not is_last:
        return num_nodes, num_arcs, states, arcs
    for e in range(len(ends)):
        ends[e].node = uint32(0)
        if excess[e] <= limit and excess[e] < _INF:  # both may be inf
            ends[e].node = lattice.here[place_of(ends[e].arc)]
    if before > 0:  # otherwise `_find_surviving` has seen every record
        _drop(lattice, ends, excess, limit)
    states, arcs = gather(lattice, 0, lattice.progress[0].lines - 1, first_frame)
    for e in range(len(ends)):
        if excess[e] <= limit and excess[e] < _INF:
            one = states[lattice.number[ends[e].node]]
            one.final_excess, one.final_boost_cost = excess[e], rest[e]
            one.final_cost = float32(0)
            if final:
                one.final_cost = final_cost[ends[e].state]
    return num_nodes, num_arcs, states, arcs


@jit
def shrink_lattice(search, lattice, limit, line):
    """Drop states and arcs whose extra cost is above the limit; renumber the rest."""
    # With a `line`, which has one state, drop everything before it instead.
    ends = search.scratch.ends[: spread(search)]
    for e in range(len(ends)):
        ends[e].node = lattice.here[place_of(ends[e].arc)]
    if line > 0:
        _forget_lines(lattice, ends, line)
    else:
        _drop(lattice, ends, np.zeros(len(ends), np.float32), limit)
    for e in range(len(ends)):
        lattice.here[place_of(ends[e].arc)] = ends[e].node


@jit
def _forget_lines(lattice, ends, line):
    frames, progress = lattice.frames, lattice.progress[0]
    first, first_arc = frames[line - 1, 0], frames[line, 1]
    for n in range(progress.nodes - first):
        lattice.graph_state[n] = lattice.graph_state[first + n]
        lattice.record[n] = lattice.record[first + n]
        lattice.boost[n] = lattice.boost[first + n]
    for a in range(progress.arcs - first_arc):
        one = lattice.arcs[a]
        lattice.arcs[a] = lattice.arcs[first_arc + a]
        one.state -= uint32(first)
        one.nextstate -= uint32(first)
    for at in range(line, progress.lines):
        frames[at - line, 0] = frames[at, 0] - first
        frames[at - line, 1] = frames[at, 1] - first_arc
    for e in range(len(ends)):
        ends[e].node -= uint32(first)
    progress.nodes -= first
    progress.arcs -= first_arc
    progress.lines -= line


@jit
def gather(lattice, first_line, last_line, first_frame):
    """Return sorted states and arcs between two lines of `frames`."""
    # The first line has one state, unless it is line 0. `lattice.number` receives the
    # new number of each state.
    # Returns (`STATE` [S], none of them final, `ARC` [A]).
    frames, number = lattice.frames, lattice.number
    first = frames[first_line - 1, 0] if first_line > 0 else int64(0)
    states = np.empty(frames[last_line, 0] - first, STATE)
    keys, stack = np.empty(len(states), np.uint64), np.empty(STACK, np.int64)
    begin = int64(0)
    for line in range(first_line, last_line + 1):
        end = frames[line, 0] - first
        for i in range(begin, end):
            n = uint64(first + i)
            keys[i] = uint64(lattice.graph_state[n]) << _HALF | n
        if end > begin + 1:
            sort_keys(keys[begin:end], end - begin, stack)
        for i in range(begin, end):
            # Few lattice states share a graph state: insertion sort is enough.
            key, at = keys[i], i
            boost = lattice.boost[int64(key & _LOW)]
            while at > begin and keys[at - 1] >> _HALF == key >> _HALF:
                if lattice.boost[int64(keys[at - 1] & _LOW)] < boost:
                    break
                keys[at] = keys[at - 1]
                at -= 1
            keys[at] = key
        for i in range(begin, end):
            n, one = int64(keys[i] & _LOW), states[i]
            number[n], one.frame = i, first_frame + line
            one.graph_state = lattice.graph_state[n]
            one.boost_state = lattice.boost[n]
            one.final_cost = one.final_excess = _INF
            one.final_boost_cost = float32(0)
        begin = end
    return states, _sorted_arcs(lattice, first_line, last_line, len(states))


@jit
def _sorted_arcs(lattice, first_line, last_line, num_states):
    first = lattice.frames[first_line, 1] if first_line > 0 else int64(0)
    last, number = lattice.frames[last_line, 1], lattice.number
    begin = np.zeros(num_states + 1, np.int64)
    for a in range(first, last):
        begin[int64(number[lattice.arcs[a].state]) + 1] += 1
    for i in range(num_states):
        begin[i + 1] += begin[i]
    order, end = np.empty(last - first, np.uint64), begin.copy()
    for a in range(first, last):
        one = lattice.arcs[a]
        i = int64(number[one.state])
        order[end[i]] = uint64(one.arc) << _HALF | uint64(a)
        end[i] += 1
    arcs, stack = np.empty(last - first, ARC), np.empty(STACK, np.int64)
    for i in range(num_states):
        if begin[i + 1] > begin[i] + 1:
            sort_keys(order[begin[i] : begin[i + 1]], begin[i + 1] - begin[i], stack)
        for at in range(begin[i], begin[i + 1]):
            arcs[at] = lattice.arcs[int64(order[at] & _LOW)]
            one = arcs[at]
            one.state, one.nextstate = i, number[one.nextstate]
    return arcs


@jit
def _drop(lattice, ends, excess, limit):
    # `ends`: ENTRY [E], with nodes. `excess`: float32 [E], cost of ending at each
    # relative to the best.
    number, frames, arcs = lattice.number, lattice.frames, lattice.arcs
    progress = lattice.progress[0]
    extra = spread_extra(ends, excess, progress.nodes, arcs[: progress.arcs], limit)
    num_nodes = num_arcs = first = first_arc = int64(0)
    for line in range(progress.lines):
        last, last_arc = frames[line, 0], frames[line, 1]
        for n in range(first, last):
            if extra[n] < _INF:
                number[n] = num_nodes
                lattice.graph_state[num_nodes] = lattice.graph_state[n]
                lattice.record[num_nodes] = lattice.record[n]
                lattice.boost[num_nodes] = lattice.boost[n]
                num_nodes += 1
        for a in range(first_arc, last_arc):
            if arcs[a].excess < _INF:
                arcs[num_arcs] = arcs[a]
                one = arcs[num_arcs]
                one.state, one.nextstate = number[one.state], number[one.nextstate]
                num_arcs += 1
        frames[line, 0], frames[line, 1] = num_nodes, num_arcs
        first, first_arc = last, last_arc
    progress.nodes, progress.arcs = num_nodes, num_arcs
    for e in range(len(ends)):
        if excess[e] <= limit:
            ends[e].node = number[ends[e].node]


@jit
def _find_surviving(search, ends, excess):
    """Mark possible lattice states in `record.alive`; drop other records."""
    # `ends`, `excess`: active states and their extra costs.
    # Returns (number of states, upper bound of the number of arcs), int64.
    rows, record, size = search.rows, search.record, len(search.state.record) + LANES
    limit, steps = record.progress[0].limit, record.steps
    blank, token = np.full(size, _INF), np.full(size, _INF)
    before_blank, before_token = np.full(size, _INF), np.full(size, _INF)
    for e in range(len(ends)):
        if excess[e] <= limit:
            i = int64(ends[e].arc & ~FROM_TOKEN)
            if ends[e].arc & FROM_TOKEN:
                token[i] = excess[e]
            else:
                blank[i] = excess[e]
    inf, num_states, num_arcs = splat(_INF), _ZERO, _ZERO
    for s in range(record.progress[0].steps - 1, -1, -1):
        last = uint64(steps[s].entries)
        if steps[s].kind == MOVE:
            i = _ZERO
            while i < last:
                store(before_blank, i, inf)
                store(before_token, i, inf)
                i += STEP
            first = steps[s - 1].moved if s > 0 else int64(0)
            for kept in range(steps[s].moved - first):
                i = uint64(record.moved[first + kept])
                before_blank[i], before_token[i] = blank[kept], token[kept]
        else:
            first = steps[s - 1].arcs if s > 0 else int64(0)
            reached, before = (blank, token), (before_blank, before_token)
            # Backwards: epsilon arcs out of a state come before those into it.
            for a in range(steps[s].arcs - 1, steps[s].emitted - 1, -1):
                one = record.arcs[a]
                num_arcs += _pass_back(one, limit, reached, reached)
            block = uint64(steps[s - 1].blocks) if s > 0 else _ZERO
            i = _ZERO
            while i < last:
                here, there = load(blank, i), load(token, i)
                live = uint32(below(here, inf)) | uint32(below(there, inf)) << uint32(
                    LANES
                )
                record.alive[block] = live
                winners = record.winners[block]
                stays = uint16(winners)
                leaves = uint16(winners >> uint64(TOKEN_WINS))
                again = uint16(winners >> uint64(REPEAT_WINS))
                store(before_blank, i, select(stays, here, inf))
                passed = least(select(leaves, here, inf), select(again, there, inf))
                store(before_token, i, passed)
                num_states += count_bits(uint64(live))
                num_arcs += count_bits(winners & winners_of(live))
                i, block = i + STEP, block + _ONE
            for a in range(steps[s].emitted - 1, first - 1, -1):
                one = record.arcs[a]
                passes = _pass_back(one, limit, reached, before)
                if passes != _ZERO and one.arc < uint32(len(rows.arcs)):
                    # Read when the arcs are written.
                    prefetch(rows.arcs, uint64(one.arc))
                    prefetch(rows.arc, uint64(one.arc))
                    if rows.by_token:
                        prefetch(rows.path_arcs, uint64(one.arc))
                num_arcs += passes
        blank, before_blank = before_blank, blank
        token, before_token = before_token, token
    return int64(num_states), int64(num_arcs)


@inlined
def _pass_back(one, limit, reached, before):
    """Pass the extra cost back through an arc, or drop the arc; return 1 or 0."""
    # `reached`, `before`: extra costs of destination and source states, after a blank
    # and after the token.
    (blank, token), (before_blank, before_token) = reached, before
    to = uint64(one.to & ~FROM_TOKEN)
    extra = token[to] if one.to & FROM_TOKEN else blank[to]
    through = float32(one.excess + extra)
    if not (through <= limit and through < _INF):
        one.arc = DROPPED
        return _ZERO
    source = uint64(one.source & ~FROM_TOKEN)
    if one.source & FROM_TOKEN:
        before_token[source] = min(before_token[source], through)
    else:
        before_blank[source] = min(before_blank[source], through)
    return _ONE
