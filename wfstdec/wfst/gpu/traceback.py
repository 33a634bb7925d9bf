"""Traceback on the host: traces of rows, which have no blanks and no repeats.

Between two nodes a path repeats the token, up to the frame in `ended` of the later
node, and then takes blanks. The acoustic cost of a path is summed up on the device.
"""

import numpy as np
from numpy import int64, uint32

from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.jit import inlined, jit
from wfstdec.jit.records import record
from wfstdec.search.paths.tokens import Paths
from wfstdec.search.paths.traceback import (
    NO_STEPS,
    NONE,
    Rule,
    arc_of,
    clear,
    extend,
    new_events,
    new_tips,
    read_histories,
)

TIP = record("f4 cost", "u4 state boost node ended place", "f8 acoustic")
"""A state of a frontier: its cost, graph state and boost state; its trace node, the
first frame of blanks behind that, its number among the states of the frontier, and the
acoustic cost of its path."""
_LABEL = uint32(LABEL_MASK)


@jit
def tips_of(frontier, states, frames):
    """The active states of a frontier, TIP [E].

    `states`: uint32 [F, 2], graph states after a blank and after the token.
    """
    tips, count = np.zeros(2 * len(frontier), TIP), 0
    for i in range(len(frontier)):
        entry = frontier[i]
        for after_token in range(2):
            cost = entry.token if after_token else entry.blank
            if not cost < np.inf:
                continue
            tip = tips[count]
            tip.cost, tip.state, tip.boost = cost, states[i, after_token], entry.boost
            tip.place = 2 * i + after_token
            tip.node, tip.ended = entry.blank_node, entry.ended
            tip.acoustic = entry.blank_acoustic
            if after_token:
                tip.node, tip.ended = entry.token_node, uint32(frames + 1)
                tip.acoustic = entry.token_acoustic
            count += 1
    return tips[:count]


@inlined
def _stay(rule, tip, ended, last):
    """Repeat the token, then take blanks from frame `ended` on, up to frame `last`."""
    repeated = min(last, ended - 1)
    if int64(tip.frame) < repeated:
        tip.frame = tip.end = repeated
    if int64(tip.frame) < last:
        tip.frame, tip.label = last, rule.blank


@jit
def fold_rows(rule, tips, frames, trace, history):
    """Fold a trace into the paths of tips: `search/paths` TIP [E], number of events.

    `frames`: int64 [E], passed at each tip.
    """
    none, count = uint32(NONE), len(trace)
    number, waiting = np.full(count, -1, np.int32), np.empty(count, np.int32)
    found, num, num_events = new_tips(count), 0, history.progress[0].events
    folded = new_tips(len(tips))
    for e in range(len(tips)):
        # Back to a node whose path is known, then forwards again.
        at, depth = int64(tips[e].node), 0
        while number[at] < 0 and trace[at].arc != none:
            waiting[depth] = at
            depth, at = depth + 1, int64(trace[at].previous)
        if number[at] < 0:
            found[num], number[at] = history.tips[int64(trace[at].ended)], num
            num += 1
        before = int64(number[at])
        while depth > 0:
            depth -= 1
            at = int64(waiting[depth])
            found[num], node = found[before], trace[at]
            one, arc = found[num], arc_of(rule, int64(node.arc))
            emits = int64(arc.ilabel & _LABEL != uint32(0))
            _stay(rule, one, int64(node.ended), int64(node.frame) - emits)
            num_events = extend(rule, arc, one, history.events, num_events)
            number[at] = before = num
            num += 1
        folded[e] = found[before]
        _stay(rule, folded[e], int64(tips[e].ended), frames[e])
        folded[e].acoustic = tips[e].acoustic
    return folded, num_events


def roots_of(count: int, frames: int, dtype: np.dtype) -> np.ndarray:
    """A trace of roots, one for each tip of a history."""
    trace = np.full((count, dtype.itemsize // 4), NONE, np.uint32).view(dtype)[:, 0]
    trace["frame"], trace["ended"] = frames, np.arange(count)
    return trace


def read_row_paths(
    rule: Rule, ends: np.ndarray, nodes: np.ndarray, tips: np.ndarray
) -> Paths:
    """Read whole paths; their costs are added to the ends.

    `ends`: PATH_END [P]. `nodes`: NODE [N], of all paths. `tips`: TIP [P].
    """
    history = new_events(len(nodes), 1)
    clear(history, rule.blank, 0)
    frames = ends["num_frames"].astype(np.int64)
    folded, _ = fold_rows(rule, tips, frames, nodes, history)
    settled, events = history.settled[:0], history.events
    read = read_histories(rule, settled, events, folded, NO_STEPS, ends, (0, 0))
    return Paths(ends, *read)
