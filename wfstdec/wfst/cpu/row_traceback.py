"""Traceback of a search on rows: nodes of its trace folded to tips.

A trace on rows has nodes for tokens and epsilon arcs alone. Between two of them a path
repeats the token before, up to the frame that the node after has in `ended`, and then
takes blanks; neither says anything, so that of these frames a tip gets the acoustic
costs, one after the other as on the packed graph: float64 sums have the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy import float64, int64, uint32

from wfstdec.jit import inlined, jit
from wfstdec.jit.copying import copy_rows, longer
from wfstdec.search.acoustics import penalised
from wfstdec.search.paths.traceback_kernels import (
    arc_of,
    new_events,
    new_tips,
    pass_arc,
    read,
    write_event,
)
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_entries import arc_at, spread, token_at
from wfstdec.wfst.final import best_end, best_so_far

_EPSILON_ARC, _FROM_TOKEN = uint32(k.EPSILON_ARC), uint32(k.FROM_TOKEN)
_NONE, _NOTHING = uint32(k.NONE), uint32(0)
_FIRST_TOKEN = int64(ilabel_of(0))
_MANY = 1024


@jit
def fold_all(rows, params, phrases, added, scratch, state, history, said):
    """Fold the paths of all entries; the nodes of the trace are then roots alone.

    Args:
        rows: The graph.
        params: The options.
        phrases: `RowPhrases`, or None.
        added: A `RowOverlay`, or None.
        scratch: Any.
        state: Of the utterance.
        history: Its rule, events and tips.
        said: Log-probs since the last fold, float32 [T, V], and the frames before.

    Returns:
        (position of the best entry's tip, its cost, that of ending; tips, events).
    """
    ends = scratch.ends[: spread(rows, phrases, added, scratch, state)]
    survived, counts = state.counts[k.DIED] < 0, state.counts
    final_cost, scale = rows.final_cost, params.lm_scale
    if phrases is None:
        best = best_so_far(ends, final_cost, scale, survived, None)
    else:
        at_end = scratch.end_boosts, phrases.final_cost, params.instalment
        best = best_so_far(ends, final_cost, scale, survived, at_end)
    folded, events = _fold(rows, params, added, state, ends, history, said)
    now = uint32(counts[k.FRAMES])
    for i in range(counts[k.ENTRIES]):
        state.token_node[i] = state.blank_node[i] = uint32(0)
    # Entries that no token is in have node 0, from which no path comes: a blank that
    # ties looks for the token whose node it has.
    state.nodes[0].before, state.nodes[0].arc = _NOTHING, _NONE
    for e in range(len(ends)):
        node, i = uint32(e + 1), int64(ends[e].arc & ~_FROM_TOKEN)
        root = state.nodes[e + 1]
        root.before, root.arc, root.frame, root.ended = uint32(e), _NONE, now, now
        if ends[e].arc & _FROM_TOKEN:
            state.token_node[i] = node
        else:
            state.blank_node[i] = node
    counts[k.NODES] = counts[k.FRESH] = len(ends) + 1
    return best, folded, events


@jit
def read_best(rows, params, phrases, added, scratch, state, history, said):
    """Read the path that the utterance ends with; arguments as of `fold_all`.

    Returns:
        (its cost, whether it is final, the final cost of its state; as `read`).
    """
    ends = scratch.ends[: spread(rows, phrases, added, scratch, state)]
    at, cost, final = end_of(rows, params, phrases, added, scratch, state, ends)
    one = ends[at : at + 1]
    tip, events = _fold(rows, params, added, state, one, history, said)
    no_arcs, no_costs = np.empty(0, np.int64), np.empty(0, np.float32)
    path = read(history[0], events, tip, 0, no_arcs, no_costs)
    ends_with = rows.final_cost[ends[at].state] if final else np.float32(0)
    return float64(cost), final, ends_with, path


@inlined
def end_of(rows, params, phrases, added, scratch, state, ends):
    """`best_end` of what `spread` gave."""
    survived = state.counts[k.DIED] < 0
    final_cost, scale = rows.final_cost, params.lm_scale
    if phrases is None:
        return best_end(ends, final_cost, scale, survived, None)
    else:
        at_end = scratch.end_boosts, phrases.final_cost, params.instalment
        return best_end(ends, final_cost, scale, survived, at_end)


@jit
def _fold(rows, params, added, state, ends, history, said):
    """Fold the paths that end as `ends` say, from `spread`.

    Args:
        rows: The graph.
        params: The options.
        added: A `RowOverlay`, or None.
        state: Of the utterance.
        ends: ENTRY [E].
        history: How arcs are read; EVENT, of the tips; TIP, of the trace's roots, which
            have their numbers in `before`.
        said: Log-probs since the last fold, float32 [T, V], and the frames before.

    Returns:
        (TIP [E], all events).
    """
    rule, events, tips = history
    nodes, now = state.nodes, int64(state.counts[k.FRAMES])
    number = np.full(state.counts[k.NODES], -1, np.int32)  # where `found` has a node
    waiting = np.empty(state.counts[k.NODES], np.int32)
    found, num = new_tips(_MANY), 0
    folded, num_events = new_tips(len(ends)), len(events)
    room = new_events(num_events + _MANY)
    copy_rows(events, room)
    for e in range(len(ends)):
        at, depth = int64(ends[e].node), 0
        while number[at] < 0 and nodes[at].arc != _NONE:
            waiting[depth] = at
            depth += 1
            at = int64(nodes[at].before)
        if num + depth + 1 > len(found):
            found = longer(found, num + depth + 1)
        if number[at] < 0:
            found[num] = tips[int64(nodes[at].before)]
            number[at] = num
            num += 1
        before = int64(number[at])
        while depth > 0:
            depth -= 1
            at = int64(waiting[depth])
            found[num] = found[before]
            one, node = found[num], nodes[at]
            frame = int64(node.frame)
            behind = int64(node.ended)
            if node.arc & _EPSILON_ARC:
                _stay(one, rule, rows.blank, params, said, behind, frame)
                own = int64(node.arc ^ _EPSILON_ARC)
                arc = arc_of(rule, int64(rows.epsilon_arc[own]))
            else:
                _stay(one, rule, rows.blank, params, said, behind, frame - 1)
                arc = arc_of(rule, int64(arc_at(rows, added, node.arc)))
                token = int64(token_at(rows, added, node.arc))
                one.acoustic += float64(-said[0][frame - 1 - said[1], token])
            tokens, passed, end = int64(one.tokens), int64(one.frame), int64(one.end)
            begins, word, one.label, one.tokens, one.frame, one.end = pass_arc(
                rule, arc, uint32(one.label), tokens, passed, end
            )
            one.graph += float64(arc.cost)
            if begins != _NOTHING or word != _NOTHING:
                if num_events == len(room):
                    room = longer(room, num_events + 1)
                write_event(room[num_events], one.event, begins, word, one.frame, end)
                one.event = num_events
                num_events += 1
            number[at] = before = num
            num += 1
        folded[e] = found[before]
        behind = now + 1
        if not ends[e].arc & _FROM_TOKEN:
            behind = int64(state.ended[int64(ends[e].arc)])
        _stay(folded[e], rule, rows.blank, params, said, behind, now)
    return folded, room[:num_events]


@inlined
def _stay(tip, rule, blank, params, said, behind, last):
    """Pass a tip through repeats and, from frame `behind` on, blanks, up to `last`."""
    logprobs, first = said
    acoustic, frame = float64(tip.acoustic), int64(tip.frame)
    token = int64(tip.label) - _FIRST_TOKEN
    while frame < last and frame + 1 < behind:
        acoustic += float64(-logprobs[frame - first, token])
        frame += 1
        tip.end = frame
    if frame < last:
        tip.label = rule.blank
    while frame < last:
        logprob = penalised(params.pricing, logprobs[frame - first, int64(blank)])
        acoustic += float64(-logprob)
        frame += 1
    tip.acoustic, tip.frame = acoustic, frame
