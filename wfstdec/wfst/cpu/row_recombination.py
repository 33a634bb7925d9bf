"""Recombination on rows: candidates and epsilon arcs to entries, one for each record.

A tie goes to the arc that comes first in the packed graph; an arc that repeats the
token leaves the entry's own state; emitting arcs beat epsilon arcs. Of equal arcs, from
entries with several boost states, it goes to the lower one.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.intrinsics import prefetch
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_boosts import bonus_at, may_step, step
from wfstdec.wfst.cpu.row_entries import (
    NO_BOOST,
    arc_at,
    find,
    first_of,
    insert,
    is_beside,
    room_in,
    state_after_blank,
    state_after_token,
)
from wfstdec.wfst.cpu.row_notes import MADE, has_room_for_epsilons, note_epsilon
from wfstdec.wfst.cpu.rows import EPSILONS, RECORDS, SHARED, WORD

_EPSILONS, _WORD, _RECORDS = uint32(EPSILONS), uint32(WORD), uint32(RECORDS)
_SHARED = uint32(SHARED)
_NO_FLAG = uint32(0)
_EPSILON_ARC, _FROM_TOKEN = uint32(k.EPSILON_ARC), uint32(k.FROM_TOKEN)
_NONE = uint32(k.NONE)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


@inlined
def recombine(
    rows, params, words, phrases, added, scratch, state, made, waiting, record
):
    """Candidates to entries: the least (cost, arc, boost state left) of each."""
    counts, cutoff = state.counts, state.costs[k.CUTOFF]
    n, fresh = uint64(counts[k.ENTRIES]), uint64(counts[k.NODES])
    frame = uint32(counts[k.FRAMES] + 1)
    if record is not None:
        record.counts[MADE] = int64(made)
    for q in range(made):
        candidate = scratch.candidates[q]
        if not candidate.cost <= cutoff:
            continue
        to, boost = candidate.record, NO_BOOST
        if phrases is not None:
            boost = scratch.goals[q]
        i, after = find(rows, phrases, added, scratch, state, n, to, boost, False)
        if i == n:
            n = insert(
                *(rows, params, words, phrases, added, scratch, state),
                *(n, to, boost, after),
            )
        if record is not None:
            record.found[q] = uint32(i)
        before = state.token[i]
        better = candidate.cost < before
        if candidate.cost == before:
            better = _comes_first(
                rows, phrases, added, scratch, state, uint64(q), i, fresh
            )
        if better:
            node = _node_of(state, i, fresh)
            node.before, node.arc, node.frame = candidate.before, candidate.arc, frame
            node.ended = candidate.ended
            state.token[i], scratch.winner[i] = candidate.cost, uint32(q)
        scratch.waiting[waiting] = uint32(i)
        has_epsilons = to & _EPSILONS != _NO_FLAG
        waiting += uint64((before == _INF) & has_epsilons)
    counts[k.ENTRIES], counts[k.WAITING] = int64(n), int64(waiting)
    counts[k.FRESH], counts[k.AT], counts[k.PASSES] = int64(fresh), 0, 1
    counts[k.PHASE] = k.PASSING
    if waiting > _ZERO:
        for rank in range(rows.num_ranks):
            scratch.heads[rank] = _NONE


@inlined
def _node_of(state, i, fresh):
    """The node of this frame that entry `i` has, or a new one."""
    if uint64(state.token_node[i]) < fresh:
        state.token_node[i] = uint32(state.counts[k.NODES])
        state.counts[k.NODES] += 1
    return state.nodes[uint64(state.token_node[i])]


@part
def _comes_first(rows, phrases, added, scratch, state, q, i, fresh):
    """Tell whether candidate `q` has an arc before that by which entry `i` is there.

    Before in the packed graph: it leaves a lower state, or the same one earlier. An arc
    that repeats the token leaves the entry's own state.
    """
    source, arc = _left_by(rows, added, scratch, state, q)
    if uint64(state.token_node[i]) < fresh:
        # Only exits to OOV words have a state that may be the entry's own: of the first
        # state of an overlay, whose arcs come behind them.
        return source <= state_after_token(rows, added, state.record[i])
    winner = uint64(scratch.winner[i])
    other, other_arc = _left_by(rows, added, scratch, state, winner)
    if phrases is not None:
        if source == other and arc == other_arc:
            mine = scratch.candidates[q].source & ~_FROM_TOKEN
            theirs = scratch.candidates[winner].source & ~_FROM_TOKEN
            return state.boost[uint64(mine)] < state.boost[uint64(theirs)]
    return source < other or (source == other and arc < other_arc)


@inlined
def _left_by(rows, added, scratch, state, q):
    """The state that a candidate leaves, and an arc with its position in the row.

    Exits to OOV words are numbered behind the graph's arcs and before the overlay's, by
    the states that they leave: they all count as of the overlay's first state.
    """
    candidate = scratch.candidates[q]
    record = state.record[uint64(candidate.source & ~_FROM_TOKEN)]
    arc = arc_at(rows, added, candidate.arc)
    if added is not None:
        if arc >= added.first_arc and arc < added.first_inner_arc:
            return added.first_state, arc
    if candidate.source & _FROM_TOKEN:
        return state_after_token(rows, added, record), arc
    return state_after_blank(rows, added, record), arc


@inlined
def fall_back(rows, phrases, added, scratch, state):
    """Let tokens lead to the hubs behind them; hubs with epsilon arcs wait.

    At equal cost a blank beats a token, and of tokens the lower state does.
    """
    counts, n, behind = state.counts, uint64(state.counts[k.ENTRIES]), _behind(state)
    for i in range(n):
        cost, first = state.token[i], uint64(i)
        if not cost < _INF:
            continue
        if state.record[i] & _SHARED != _NO_FLAG:
            first = first_of(rows, phrases, added, scratch, state, uint64(i))
        better = cost < state.blank[first]
        if cost == state.blank[first] and state.ended[first] == behind:
            mine = state_after_token(rows, added, state.record[i])
            better = mine < fallen_from(rows, phrases, added, state, first)
        if better:
            state.blank[first], state.ended[first] = cost, behind
            state.blank_node[first] = state.token_node[i]
    waiting, alive = _ZERO, 0
    for i in range(n):
        alive += int64(state.blank[i] < _INF or state.token[i] < _INF)
        scratch.waiting[waiting] = uint32(i)
        has_epsilons = state.record[i] & _EPSILONS != _NO_FLAG
        waiting += uint64(has_epsilons & (state.blank[i] < _INF))
    counts[k.WAITING], counts[k.ALIVE] = int64(waiting), alive
    for rank in range(rows.num_ranks):
        scratch.heads[rank] = _NONE


@inlined
def _behind(state):
    """The first frame behind those that are done once epsilon arcs are followed."""
    return uint32(state.counts[k.FRAMES] + state.counts[k.PASSES] + 1)


@inlined
def fallen_from(rows, phrases, added, state, first):
    """The state whose token led to a row's hub, by the node that they share."""
    i = uint64(first)
    while (
        not state.token[i] < _INF
        or state.token_node[i] != state.blank_node[first]
        or not is_beside(rows, phrases, added, state, first, i)
    ):
        i = uint64(state.chain[i])
    return state_after_token(rows, added, state.record[i])


@inlined
def close(rows, params, words, phrases, added, scratch, state, record):
    """Follow epsilon arcs in rank order; OK, or what must grow before it goes on.

    Sources are final when their rank comes, since every epsilon arc leads to a higher
    rank. Most are of rank 0.
    """
    counts = state.counts
    waiting = uint64(counts[k.WAITING])
    if waiting == _ZERO:
        return k.OK
    at = uint64(counts[k.AT])
    for q in range(at, waiting if counts[k.PHASE] == k.PASSING else at):
        own = state.record[uint64(scratch.waiting[q])]
        prefetch(rows.epsilons, uint64(rows.records[uint64(own & _RECORDS)].epsilon))
    while True:
        if counts[k.PHASE] == k.PASSING:  # `at` counts those that waited
            if at == waiting:
                counts[k.PHASE], at = k.RANKS, _ONE
                continue
            i = uint64(scratch.waiting[at])
            rank = uint64(rows.records[uint64(state.record[i] & _RECORDS)].rank)
            if rank > _ZERO:
                scratch.links[i] = scratch.heads[rank]
                scratch.heads[rank] = uint32(i)
                at += _ONE
                continue
        else:  # `at` is the rank
            while at < rows.num_ranks and scratch.heads[at] == _NONE:
                at += _ONE
            if at >= rows.num_ranks:
                return k.OK
            i = uint64(scratch.heads[at])
        status = _relax(rows, params, words, phrases, added, scratch, state, i, record)
        if status != k.OK:
            counts[k.AT] = int64(at)
            return status
        if counts[k.PHASE] == k.PASSING:
            at += _ONE
        else:
            scratch.heads[at] = scratch.links[i]


@inlined
def _relax(rows, params, words, phrases, added, scratch, state, i, record):
    """Follow the epsilon arcs of entry `i`; OK, or what must grow before that.

    At equal cost an emitting arc beats an epsilon arc, then the first one does, then
    that from the lower boost state.
    """
    counts, cutoff = state.counts, state.costs[k.CUTOFF]
    # Epsilon arcs lead from token to token, or else from hub to hub.
    costs, nodes, hubs = state.token, state.token_node, rows.through_epsilon
    if hubs:
        costs, nodes = state.blank, state.blank_node
    cost, behind = costs[i], _behind(state)
    one, n = rows.records[uint64(state.record[i] & _RECORDS)], uint64(counts[k.ENTRIES])
    many, fresh = uint64(one.epsilons), uint64(counts[k.FRESH])
    if n + many > room_in(state.record):
        return k.GROW_ENTRIES
    if uint64(counts[k.NODES]) + many > room_in(state.nodes):
        return k.GROW_NODES
    if not has_room_for_epsilons(record, many):
        return k.GROW_NOTES
    for a in range(uint64(one.epsilon), uint64(one.epsilon) + many):
        via, boost = rows.epsilons[a], NO_BOOST
        reached = float32(cost + float32(params.lm_scale * via.cost))
        has_word = via.next & _WORD != _NO_FLAG
        if params.has_insertion:
            if has_word:
                reached = float32(reached + params.word_insertion)
        position, arc = uint64(len(rows.arcs)) + a, rows.epsilon_arc[a]
        if phrases is None:
            if params.has_words:
                if has_word:
                    reached = float32(reached - bonus_at(rows, words, position, arc))
        else:
            boost = state.boost[i]
            if has_word and may_step(words, phrases, boost, _NO_FLAG, position, True):
                paid, boost = step(
                    *(rows, params, words, phrases, boost),
                    *(_NO_FLAG, position, arc, has_word),
                )
                reached = float32(reached - paid)
        if not reached <= cutoff:
            continue
        to = via.next & ~_WORD
        j, after = find(rows, phrases, added, scratch, state, n, to, boost, hubs)
        if j == n:
            n = insert(
                rows, params, words, phrases, added, scratch, state, n, to, boost, after
            )
        before, flagged = costs[j], uint32(a) | _EPSILON_ARC
        if record is not None:
            note_epsilon(record, i, j, flagged, reached)
        better, has_node = reached < before, uint64(nodes[j]) >= fresh
        other = state.nodes[uint64(nodes[j])].arc
        by_epsilon = has_node and other & _EPSILON_ARC != _NO_FLAG
        if reached == before:
            if hubs and not by_epsilon and state.ended[j] == behind:
                mine = state_after_blank(rows, added, state.record[i])
                better = mine < fallen_from(rows, phrases, added, state, j)
            if by_epsilon:
                better = arc < rows.epsilon_arc[uint64(other & ~_EPSILON_ARC)]
                if phrases is not None:
                    if other == flagged:
                        source = state.boost[uint64(scratch.winner[j])]
                        better = state.boost[i] < source
        if better:
            if not by_epsilon and (hubs or not has_node):
                nodes[j] = uint32(counts[k.NODES])  # a hub may have that of a token
                counts[k.NODES] += 1
            node = state.nodes[uint64(nodes[j])]
            node.before, node.arc = nodes[i], flagged
            node.frame, node.ended = behind - uint32(1), behind
            if hubs:
                node.ended, state.ended[j] = state.ended[i], behind
            costs[j], scratch.winner[j] = reached, uint32(i)
        if before == _INF and to & _EPSILONS != _NO_FLAG:
            rank = uint64(rows.records[uint64(to & _RECORDS)].rank)
            scratch.links[j] = scratch.heads[rank]
            scratch.heads[rank] = uint32(j)
    counts[k.ENTRIES] = int64(n)
    return k.OK
