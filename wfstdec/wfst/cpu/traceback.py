"""Traceback: the trace is folded into the paths of its tips.

A trace has nodes for token and epsilon arcs only. Between two nodes a path repeats the
token, up to the frame in `ended` of the later node, and then takes blanks. Both have no
labels: a tip gets the acoustic costs of these frames, added one by one as on the packed
graph, so that float64 sums have the same bits.
"""

import numpy as np
from numpy import float64, int64, uint32, uint64

from wfstdec.jit import inlined, jit
from wfstdec.jit.vectors import prefetch
from wfstdec.search.logprobs import penalised
from wfstdec.search.paths.traceback import (
    arc_of,
    extend,
    new_tips,
)
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.cpu.arrays import (
    EPSILON_ARC,
    FROM_TOKEN,
    NONE,
)
from wfstdec.wfst.cpu.boosts import LABEL
from wfstdec.wfst.cpu.entries import (
    acoustic_cost,
    arc_at,
    epsilon_at,
    spread,
)
from wfstdec.wfst.final import best_end, best_so_far

_NOTHING = uint32(0)
_FIRST_TOKEN = int64(ilabel_of(0))
_UNSEEN, _SEEN = -2, -1
"""In place of a number."""


@jit
def fold_paths(search, chunk, whole):
    """Fold the paths of all entries; afterwards the trace has roots only."""
    # `chunk`: log-probs since the last fold, float32 [T, V]. `whole`: the utterance
    # ends here: only the best path is folded, and the trace is unchanged. Returns
    # (position of the best entry's tip, its cost, cost with the final cost; tips,
    # number of events); of a whole utterance (0, its cost with the final cost, the
    # unscaled final cost or infinity).
    chunk = chunk, search.state.progress[0].folded
    rows, scratch, state = search.rows, search.scratch, search.state
    ends = scratch.ends[: spread(search)]
    progress = state.progress[0]
    if whole:
        at, cost, final = end_of(search, ends)
        folded, count = _fold(search, ends[at : at + 1], chunk)
        of_state = float64(rows.final_cost[ends[at].state]) if final else np.inf
        return (int64(0), float64(cost), of_state), folded, count
    best = best_so_far(
        *(ends, rows.final_cost, search.params.lm_scale),
        *(progress.died < 0, boosts_at_end(search)),
    )
    folded, count = _fold(search, ends, chunk)
    now = uint32(progress.frames)
    for i in range(progress.entries):
        state.token_node[i] = state.blank_node[i] = uint32(0)
    # Entries without a token get node 0, which no path has: a tie of blanks searches
    # for the token with the same node.
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
    progress.folded = progress.frames
    return best, folded, count


@inlined
def boosts_at_end(search):
    """Return boosts of the entries that `spread` wrote, as `best_end` has them."""
    if search.phrases is None:
        return None
    else:
        scratch, phrases = search.scratch, search.phrases
        return scratch.end_boosts, phrases.final_cost, search.params.instalment


@inlined
def end_of(search, ends):
    """Return the best of the states that `spread` wrote; as `best_end`."""
    return best_end(
        *(ends, search.rows.final_cost, search.params.lm_scale),
        *(search.state.progress[0].died < 0, boosts_at_end(search)),
    )


@jit
def _fold(search, ends, chunk):
    rows, params, state = search.rows, search.params, search.state
    oov, rule, history = search.oov, search.rule, state.history
    nodes, now = state.nodes, int64(state.progress[0].frames)
    count = state.progress[0].nodes
    number = np.full(count, _UNSEEN, np.int32)  # position in `found`
    waiting, arcs = np.empty(count, np.int32), np.empty(count, np.uint32)
    splits, depth = np.zeros(len(ends) + 1, np.int64), 0
    # Back from each entry to visited nodes. Arcs are far apart in memory and are
    # prefetched.
    for e in range(len(ends)):
        at = int64(ends[e].node)
        while number[at] == _UNSEEN and nodes[at].arc != NONE:
            number[at], waiting[depth], arc = _SEEN, at, nodes[at].arc
            if arc & EPSILON_ARC:
                arcs[depth] = epsilon_at(rows, oov, uint64(arc ^ EPSILON_ARC))
            else:
                arcs[depth] = arc_at(rows, oov, arc)
            prefetch(rule.arcs, int64(arcs[depth]))
            depth, at = depth + 1, int64(nodes[at].before)
        splits[e + 1] = depth
    # Forwards again, from a root or a node with a tip.
    found, num, num_events = new_tips(count), 0, history.progress[0].events
    folded = new_tips(len(ends))
    for e in range(len(ends)):
        first, depth = splits[e], splits[e + 1]
        at = int64(ends[e].node)
        if first < depth:
            at = int64(nodes[int64(waiting[depth - 1])].before)
        if number[at] == _UNSEEN:
            found[num] = history.tips[int64(nodes[at].before)]
            number[at] = num
            num += 1
        before = int64(number[at])
        while depth > first:
            depth -= 1
            at = int64(waiting[depth])
            found[num] = found[before]
            one, node, arc = found[num], nodes[at], arc_of(rule, int64(arcs[depth]))
            frame, behind = int64(node.frame), int64(node.ended)
            if node.arc & EPSILON_ARC:
                _stay(one, rule, rows.blank, params, chunk, behind, frame)
            else:
                _stay(one, rule, rows.blank, params, chunk, behind, frame - 1)
                t, token = (
                    frame - 1 - chunk[1],
                    int64(arc.ilabel & LABEL) - _FIRST_TOKEN,
                )
                one.acoustic += float64(acoustic_cost(rows, params, chunk[0], t, token))
            num_events = extend(rule, arc, one, history.events, num_events)
            number[at] = before = num
            num += 1
        folded[e] = found[before]
        behind = now + 1
        if not ends[e].arc & FROM_TOKEN:
            behind = int64(state.ended[int64(ends[e].arc)])
        _stay(folded[e], rule, rows.blank, params, chunk, behind, now)
    return folded, num_events


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
