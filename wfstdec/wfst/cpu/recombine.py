"""Recombination: candidates and epsilon arcs to entries, the best path of each state.

A tie goes to the arc that comes first in the packed graph; emitting arcs beat epsilon
arcs; an arc that repeats the token counts as leaving the entry's own state. Among equal
arcs from several boost states the lower boost state wins.
"""

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.vectors import prefetch
from wfstdec.wfst.cpu.arrays import (
    EPSILON_ARC,
    FROM_TOKEN,
    GROW_ENTRIES,
    GROW_NODES,
    GROW_NOTES,
    NONE,
    OK,
    PASSING,
    RANKS,
)
from wfstdec.wfst.cpu.boosts import bonus_at, may_step, step
from wfstdec.wfst.cpu.entries import (
    NO_BOOST,
    arc_at,
    epsilon_at,
    epsilons_of,
    find,
    first_of,
    insert,
    is_beside,
    rank_of,
    room_in,
    state_after_blank,
    state_after_token,
)
from wfstdec.wfst.cpu.lattice_record import has_room_for_epsilons, record_epsilon
from wfstdec.wfst.cpu.rows import EPSILONS, SHARED, WORD

_NO_FLAG = uint32(0)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


@inlined
def recombine(search, made, waiting):
    """Recombine candidates: keep each entry's least (cost, arc, source boost state)."""
    rows, scratch, state = search.rows, search.scratch, search.state
    progress, record = state.progress[0], search.record
    cutoff = progress.cutoff
    n, fresh = uint64(progress.entries), uint64(progress.nodes)
    frame = uint32(progress.frames + 1)
    if record is not None:
        record.progress[0].made = int64(made)
    for q in range(made):
        candidate = scratch.candidates[q]
        if not candidate.cost <= cutoff:
            continue
        to, boost = candidate.record, NO_BOOST
        if search.phrases is not None:
            boost = scratch.goals[q]
        i, after = find(search, n, to, boost, False)
        if i == n:
            n = insert(search, n, to, boost, after)
        if record is not None:
            record.found[q] = uint32(i)
        before = state.token[i]
        better = candidate.cost < before
        if candidate.cost == before:
            better = _comes_first(search, uint64(q), i, fresh)
        progress.alive += int64(rows.plain and before == _INF)
        if better:
            node = _node_of(state, i, fresh)
            node.before, node.arc, node.frame = candidate.before, candidate.arc, frame
            node.ended = candidate.ended
            state.token[i], scratch.winner[i] = candidate.cost, uint32(q)
        scratch.waiting[waiting] = uint32(i)
        has_epsilons = to & EPSILONS != _NO_FLAG
        waiting += uint64((before == _INF) & has_epsilons)
    progress.entries, progress.waiting = int64(n), int64(waiting)
    progress.fresh, progress.at, progress.passes = int64(fresh), 0, 1
    progress.phase = PASSING
    if waiting > _ZERO:
        for rank in range(rows.num_ranks):
            scratch.heads[rank] = NONE


@inlined
def _node_of(state, i, fresh):
    if uint64(state.token_node[i]) < fresh:
        state.token_node[i] = uint32(state.progress[0].nodes)
        state.progress[0].nodes += 1
    return state.nodes[uint64(state.token_node[i])]


@part
def _comes_first(search, q, i, fresh):
    # It does if it leaves a lower packed state, or the same one by an earlier arc.
    rows, scratch, state = search.rows, search.scratch, search.state
    source, arc = _left_by(search, q)
    if uint64(state.token_node[i]) < fresh:
        # By a repeat. Only exits to OOV words can leave that state: they count as arcs
        # of the first state of the overlay, before its own arcs.
        return source <= state_after_token(rows, search.oov, state.record[i])
    winner = uint64(scratch.winner[i])
    other, other_arc = _left_by(search, winner)
    if search.phrases is not None and source == other and arc == other_arc:
        mine = scratch.candidates[q].source & ~FROM_TOKEN
        theirs = scratch.candidates[winner].source & ~FROM_TOKEN
        return state.boost[uint64(mine)] < state.boost[uint64(theirs)]
    return source < other or (source == other and arc < other_arc)


@inlined
def _left_by(search, q):
    # Exits to OOV words are numbered after the graph's arcs and before the overlay's:
    # they count as arcs of the overlay's first state.
    rows, oov = search.rows, search.oov
    scratch, state = search.scratch, search.state
    candidate = scratch.candidates[q]
    record = state.record[uint64(candidate.source & ~FROM_TOKEN)]
    arc = arc_at(rows, oov, candidate.arc)
    if oov is not None and arc >= oov.first_arc and arc < oov.first_inner_arc:
        return oov.first_state, arc
    if candidate.source & FROM_TOKEN:
        return state_after_token(rows, oov, record), arc
    return state_after_blank(rows, oov, record), arc


@inlined
def enter_hubs(search):
    """Follow the epsilon arcs from tokens to hubs; those of hubs are then pending."""
    # At equal cost a blank beats a token, and among tokens the lower state wins.
    rows, scratch, state = search.rows, search.scratch, search.state
    progress = state.progress[0]
    n, behind = uint64(progress.entries), _behind(state)
    for i in range(n):
        cost, first = state.token[i], uint64(i)
        if not cost < _INF:
            continue
        if state.record[i] & SHARED != _NO_FLAG:
            first = first_of(search, uint64(i))
        better = cost < state.blank[first]
        if cost == state.blank[first] and state.ended[first] == behind:
            mine = state_after_token(rows, search.oov, state.record[i])
            better = mine < fallen_from(search, first)
        if better:
            state.blank[first], state.ended[first] = cost, behind
            state.blank_node[first] = state.token_node[i]
    waiting, alive = _ZERO, 0
    for i in range(n):
        alive += int64(state.blank[i] < _INF or state.token[i] < _INF)
        scratch.waiting[waiting] = uint32(i)
        has_epsilons = state.record[i] & EPSILONS != _NO_FLAG
        waiting += uint64(has_epsilons & (state.blank[i] < _INF))
    progress.waiting, progress.alive = int64(waiting), alive
    for rank in range(rows.num_ranks):
        scratch.heads[rank] = NONE


@inlined
def _behind(state):
    """Return the first frame after those done once epsilon arcs are followed."""
    return uint32(state.progress[0].frames + state.progress[0].passes + 1)


@inlined
def fallen_from(search, first):
    """Return the packed state whose token led to a row's hub: they share a node."""
    rows, state, i = search.rows, search.state, uint64(first)
    while (
        not state.token[i] < _INF
        or state.token_node[i] != state.blank_node[first]
        or not is_beside(search, first, i)
    ):
        i = uint64(state.chain[i])
    return state_after_token(rows, search.oov, state.record[i])


@inlined
def close(search):
    """Follow epsilon arcs in rank order; return OK, or the array to grow."""
    # Every epsilon arc leads to a higher rank, so a source is final when its rank
    # comes. Most sources have rank 0.
    rows, oov = search.rows, search.oov
    scratch, state = search.scratch, search.state
    progress = state.progress[0]
    waiting = uint64(progress.waiting)
    if waiting == _ZERO:
        return OK
    at = uint64(progress.at)
    for q in range(at, waiting if progress.phase == PASSING else at):
        own = state.record[uint64(scratch.waiting[q])]
        prefetch(rows.epsilons, epsilons_of(rows, oov, own)[0])
    while True:
        if progress.phase == PASSING:  # `at` is a position among pending entries
            if at == waiting:
                progress.phase, at = RANKS, _ONE
                continue
            i = uint64(scratch.waiting[at])
            rank = rank_of(rows, oov, state.record[i])
            if rank > _ZERO:
                scratch.links[i] = scratch.heads[rank]
                scratch.heads[rank] = uint32(i)
                at += _ONE
                continue
        else:  # `at` is the rank
            while at < rows.num_ranks and scratch.heads[at] == NONE:
                at += _ONE
            if at >= rows.num_ranks:
                return OK
            i = uint64(scratch.heads[at])
        status = _relax(search, i)
        if status != OK:
            progress.at = int64(at)
            return status
        if progress.phase == PASSING:
            at += _ONE
        else:
            scratch.heads[at] = scratch.links[i]


@inlined
def _relax(search, i):
    # At equal cost an emitting arc beats an epsilon arc, then the first arc wins, then
    # the one from the lower boost state.
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    phrases, oov, record = search.phrases, search.oov, search.record
    progress = state.progress[0]
    cutoff = progress.cutoff
    # Epsilon arcs lead from token to token, or else from hub to hub.
    costs, nodes, hubs = state.token, state.token_node, rows.has_hubs
    if hubs:
        costs, nodes = state.blank, state.blank_node
    cost, behind = costs[i], _behind(state)
    first, last = epsilons_of(rows, oov, state.record[i])
    n, fresh, many = (
        uint64(progress.entries),
        uint64(progress.fresh),
        last - first,
    )
    if n + many > room_in(state.record):
        return GROW_ENTRIES
    if uint64(progress.nodes) + many > room_in(state.nodes):
        return GROW_NODES
    if not has_room_for_epsilons(record, many):
        return GROW_NOTES
    for a in range(first, last):
        reached, has_word, boost, of_graph = cost, False, NO_BOOST, True
        if oov is not None and a >= uint64(len(rows.epsilons)):  # of an overlay
            to, of_graph = oov.next[a - uint64(len(rows.epsilons))], False
        if of_graph:
            via = rows.epsilons[a]
            to, has_word = via.next & ~WORD, via.next & WORD != _NO_FLAG
            reached = float32(cost + float32(params.lm_scale * via.cost))
        if params.has_insertion:
            if has_word:
                reached = float32(reached + params.word_insertion)
        position, arc = uint64(len(rows.arcs)) + a, epsilon_at(rows, oov, a)
        if phrases is None:
            if params.has_words:
                if has_word:
                    reached = float32(reached - bonus_at(rows, words, position, arc))
        else:
            boost = state.boost[i]
            if has_word and may_step(search, boost, _NO_FLAG, position, True):
                paid, boost = step(search, boost, _NO_FLAG, position, arc, has_word)
                reached = float32(reached - paid)
        if not reached <= cutoff:
            continue
        j, after = find(search, n, to, boost, hubs)
        if j == n:
            n = insert(search, n, to, boost, after)
        before, flagged = costs[j], uint32(a) | EPSILON_ARC
        if record is not None:
            record_epsilon(record, i, j, flagged, reached)
        better, has_node = reached < before, uint64(nodes[j]) >= fresh
        other = state.nodes[uint64(nodes[j])].arc
        by_epsilon = has_node and other & EPSILON_ARC != _NO_FLAG
        if reached == before:
            if hubs and not by_epsilon and state.ended[j] == behind:
                mine = state_after_blank(rows, oov, state.record[i])
                better = mine < fallen_from(search, j)
            if by_epsilon:
                # Records that share a hub number its arcs separately.
                other_arc = epsilon_at(rows, oov, uint64(other & ~EPSILON_ARC))
                better = arc < other_arc
                if phrases is not None and arc == other_arc:
                    source = state.boost[uint64(scratch.winner[j])]
                    better = state.boost[i] < source
        if better:
            if not by_epsilon and (hubs or not has_node):
                nodes[j] = uint32(
                    progress.nodes
                )  # the hub may share the node of a token
                progress.nodes += 1
            node = state.nodes[uint64(nodes[j])]
            node.before, node.arc = nodes[i], flagged
            node.frame, node.ended = behind - uint32(1), behind
            if hubs:
                node.ended, state.ended[j] = state.ended[i], behind
            costs[j], scratch.winner[j] = reached, uint32(i)
        progress.alive += int64(rows.plain and before == _INF)
        if before == _INF and to & EPSILONS != _NO_FLAG:
            rank = rank_of(rows, oov, to)
            scratch.links[j] = scratch.heads[rank]
            scratch.heads[rank] = uint32(j)
    progress.entries = int64(n)
    return OK
