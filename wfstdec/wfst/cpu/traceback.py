"""Traceback: the trace is folded into the paths of its tips.

A trace has nodes for token and epsilon arcs only. Between two nodes a path repeats the
token, up to the frame in `ended` of the later node, and then takes blanks. Both have no
labels: a tip gets the acoustic costs of these frames, added one by one as on the packed
graph, so that float64 sums have the same bits.
"""

import numpy as np
from numpy import float64, int64, uint32, uint64

from wfstdec.jit import inlined, jit
from wfstdec.jit.arrays import copy_rows, longer
from wfstdec.search.logprobs import penalised
from wfstdec.search.paths.traceback import (
    arc_of,
    new_events,
    new_tips,
    pass_arc,
    write_event,
)
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.cpu.arrays import (
    EPSILON_ARC,
    FROM_TOKEN,
    NONE,
)
from wfstdec.wfst.cpu.entries import (
    acoustic_cost,
    arc_at,
    epsilon_at,
    spread,
    token_at,
)
from wfstdec.wfst.final import best_end, best_so_far

_NOTHING = uint32(0)
_FIRST_TOKEN = int64(ilabel_of(0))
_MANY = 1024


@jit
def fold_paths(search, history, chunk, whole):
    """Fold the paths of all entries; afterwards the trace has roots only.

    `history`: of the utterance. `chunk`: log-probs since the last fold, float32 [T, V],
    and the number of frames before them. `whole`: the utterance ends here: only the
    best path is folded, and the trace stays.

    Returns (position of the best entry's tip, its cost, cost with the final cost; tips,
    events); of a whole utterance (0, its cost with the final cost, the unscaled final
    cost or infinity).
    """
    rows, scratch, state = search.rows, search.scratch, search.state
    ends = scratch.ends[: spread(search)]
    progress = state.progress[0]
    if whole:
        at, cost, final = end_of(search, ends)
        folded, events = _fold(search, ends[at : at + 1], history, chunk)
        of_state = float64(rows.final_cost[ends[at].state]) if final else np.inf
        return (int64(0), float64(cost), of_state), folded, events
    best = best_so_far(
        *(ends, rows.final_cost, search.params.lm_scale),
        *(progress.died < 0, boosts_at_end(search)),
    )
    folded, events = _fold(search, ends, history, chunk)
    now = uint32(progress.frames)
    for i in range(progress.entries):
        state.token_node[i] = state.blank_node[i] = uint32(0)
    # Entries without a token get node 0, which no path has: a tie of blanks looks for
    # the token that has the same node.
    state.nodes[0].before, state.nodes[0].arc = _NOTHING, NONE
    for e in range(len(ends)):
        node, i = uint32(e + 1), int64(ends[e].arc & ~FROM_TOKEN)
        root = state.nodes[e + 1]
        root.before, root.arc, root.frame, root.ended = uint32(e), NONE, now, now
        if ends[e].arc & FROM_TOKEN:
            state.token_node[i] = node
        else:
            state.blank_node[i] = node
    progress.nodes = progress.fresh = len(ends) + 1
    return best, folded, events


@inlined
def boosts_at_end(search):
    """Boosts of the entries that `spread` wrote, as `best_end` has them."""
    if search.phrases is None:
        return None
    else:
        scratch, phrases = search.scratch, search.phrases
        return scratch.end_boosts, phrases.final_cost, search.params.instalment


@inlined
def end_of(search, ends):
    """The best of the states that `spread` wrote; as `best_end`."""
    return best_end(
        *(ends, search.rows.final_cost, search.params.lm_scale),
        *(search.state.progress[0].died < 0, boosts_at_end(search)),
    )


@jit
def _fold(search, ends, history, chunk):
    """Fold the paths to `ends`, as written by `spread`.

    Returns (TIP [E], all events).
    """
    rows, params, state = search.rows, search.params, search.state
    oov = search.oov
    rule, events, tips = history
    nodes, now = state.nodes, int64(state.progress[0].frames)
    number = np.full(state.progress[0].nodes, -1, np.int32)  # where `found` has a node
    waiting = np.empty(state.progress[0].nodes, np.int32)
    most = min(_MANY, int64(state.progress[0].nodes))
    found, num = new_tips(most), 0
    folded, num_events = new_tips(len(ends)), len(events)
    room = new_events(num_events + most)
    copy_rows(events, room)
    for e in range(len(ends)):
        at, depth = int64(ends[e].node), 0
        while number[at] < 0 and nodes[at].arc != NONE:
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
            if node.arc & EPSILON_ARC:
                _stay(one, rule, rows.blank, params, chunk, behind, frame)
                own = uint64(node.arc ^ EPSILON_ARC)
                arc = arc_of(rule, int64(epsilon_at(rows, oov, own)))
            else:
                _stay(one, rule, rows.blank, params, chunk, behind, frame - 1)
                arc = arc_of(rule, int64(arc_at(rows, oov, node.arc)))
                token = int64(token_at(rows, oov, node.arc))
                t = frame - 1 - chunk[1]
                one.acoustic += float64(acoustic_cost(rows, params, chunk[0], t, token))
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
        if not ends[e].arc & FROM_TOKEN:
            behind = int64(state.ended[int64(ends[e].arc)])
        _stay(folded[e], rule, rows.blank, params, chunk, behind, now)
    return folded, room[:num_events]


@inlined
def _stay(tip, rule, blank, params, chunk, behind, last):
    """Add the costs of repeats, then blanks (from frame `behind`), up to `last`."""
    logprobs, first = chunk
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
