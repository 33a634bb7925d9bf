"""The kernels of `traceback.py`: paths are passed arc by arc, events told apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.jit import inlined, jit
from wfstdec.jit.copying import copy_rows, longer
from wfstdec.jit.hashing import first_equal
from wfstdec.jit.records import record

NONE = 0xFFFFFFFF
"""No node, no arc: what the roots of a trace have."""
EVENT = record("i4 previous", "u4 ilabel olabel", "i4 frame end")
"""A token that begins (`ilabel`, else 0) and a word whose label stands on the same arc
(`olabel`, else 0); the event before or -1; frames passed with this arc; one behind the
last frame of the token before."""
TIP = record("i4 event tokens", "u4 label", "i4 frame end unused", "f8 graph acoustic")
"""How far a path has come: its last event or -1, tokens begun, the label of the last
frame, frames passed, one behind the last frame of the last token, and its costs."""


class Rule(NamedTuple):
    """How the arcs of a graph are read."""

    arcs: np.ndarray  # ARC [A]
    blank: np.uint32  # its ilabel
    marks_repeats: bool
    added: np.ndarray  # ARC [A']: arcs from number A on


@jit
def new_events(count):
    """EVENT [count], to be filled."""
    return np.empty(count, EVENT)


@jit
def new_tips(count):
    """TIP [count], to be filled."""
    return np.empty(count, TIP)


@inlined
def arc_of(rule, arc):
    """The arc of a number."""
    if arc < len(rule.arcs):
        return rule.arcs[arc]
    return rule.added[arc - len(rule.arcs)]


@inlined
def pass_arc(rule, arc, label, tokens, frame, end):
    """Pass through an arc.

    Returns:
        (the ilabel of a token that begins or 0, the word id or 0; label, tokens, frames
        and end as in TIP, now).
    """
    begins, word, now = uint32(0), uint32(0), arc.ilabel & uint32(LABEL_MASK)
    if now != uint32(0):
        frame += 1
        if rule.marks_repeats:
            repeats = arc.ilabel & uint32(REPEAT) != uint32(0)
        else:
            # Without marks the same token in the next frame is taken for a repeat, as
            # in CTC, where a blank stands between two equal tokens.
            repeats = now == label
        if now != rule.blank:
            if not repeats:
                begins = now
                tokens += 1
            if not repeats or (now == label and tokens > 0):
                end = frame
        label = now
    if arc.ilabel & uint32(CARRIES_WORD):
        word = arc.olabel
    return begins, word, label, tokens, frame, end


@inlined
def write_event(event, previous, begins, word, frame, end):
    """Fill in an event."""
    event.previous, event.ilabel, event.olabel = previous, begins, word
    event.frame, event.end = frame, end


@jit
def fold(rule, frontier, trace, count, tips, events):
    """See `History.fold`; the tips of the entries, and all events.

    Within a frame a node may stand before the one that it came from. Few of the nodes
    lead to the frontier: only these have states.
    """
    none = uint32(NONE)
    number = np.full(count, -1, np.int32)  # where `states` has a node
    waiting = np.empty(count, np.int32)
    states, num_states = new_tips(1024), 0
    num_events = len(events)
    room = new_events(num_events + 256)
    copy_rows(events, room)
    for i in range(len(frontier)):
        # Back to a node whose state is known, then forwards again.
        at, depth = np.int64(frontier[i].node), 0
        while number[at] < 0 and trace[at].arc != none:
            waiting[depth] = at
            depth += 1
            at = np.int64(trace[at].previous)
        if num_states + depth + 1 > len(states):
            states = longer(states, num_states + depth + 1)
        if number[at] < 0:
            states[num_states] = tips[np.int64(trace[at].acoustic)]
            number[at] = num_states
            num_states += 1
        before = np.int64(number[at])
        while depth > 0:
            depth -= 1
            at = np.int64(waiting[depth])
            states[num_states] = states[before]
            one, arc = states[num_states], arc_of(rule, np.int64(trace[at].arc))
            tokens, frame = np.int64(one.tokens), np.int64(one.frame)
            old_end = np.int64(one.end)
            begins, word, one.label, one.tokens, one.frame, one.end = pass_arc(
                rule, arc, uint32(one.label), tokens, frame, old_end
            )
            one.graph += np.float64(arc.cost)
            one.acoustic += np.float64(trace[at].acoustic)
            if begins != uint32(0) or word != uint32(0):
                if num_events == len(room):
                    room = longer(room, num_events + 1)
                write_event(
                    room[num_events], one.event, begins, word, one.frame, old_end
                )
                one.event = num_events
                num_events += 1
            number[at] = before = num_states
            num_states += 1
    folded = new_tips(len(frontier))
    for i in range(len(frontier)):
        folded[i] = states[np.int64(number[np.int64(frontier[i].node)])]
    # Entries are the roots of the trace from now on: what is behind them is in tips.
    for i in range(len(frontier)):
        trace[i].previous, trace[i].arc = none, none
        trace[i].acoustic = np.float32(i)
        frontier[i].node = uint32(i)
    return folded, room[:num_events]


@jit
def settle(tips, events):
    """Split events: those of all tips, and those of some; tips are renumbered.

    Events come after the ones that they follow. The end of the last token, -1 where
    that is in question, comes third.
    """
    first = first_equal(
        *(events["previous"], events["ilabel"], events["olabel"]),
        *(events["frame"], events["end"]),
    )
    through = np.zeros(len(events), np.int64)
    for i in range(len(tips)):
        if tips[i].event >= 0:
            tips[i].event = first[tips[i].event]
            through[tips[i].event] += 1
    for e in range(len(events) - 1, -1, -1):
        if events[e].previous >= 0:
            through[events[e].previous] += through[e]
    number = np.full(len(events) + 1, -1, np.int32)  # the last one stands for -1
    num_settled, kept = 0, 0
    for e in range(len(events)):
        if through[e] == len(tips):
            num_settled += 1
        elif through[e] > 0:
            number[e] = kept
            kept += 1
    settled, others = new_events(num_settled), new_events(kept)
    num_settled = 0
    for e in range(len(events)):
        if through[e] == len(tips):
            settled[num_settled] = events[e]
            num_settled += 1
        elif through[e] > 0:
            others[number[e]] = events[e]
            others[number[e]].previous = number[events[e].previous]
    end = np.int64(tips[0].end)
    for i in range(len(tips)):
        tips[i].event = number[tips[i].event]
        if tips[i].event >= 0 or tips[i].end != end or tips[i].frame == end:
            end = np.int64(-1)
    return settled, others, end


@jit
def read(rule, events, tips, root, arcs, acoustic):
    """Pass a tip through the arcs; what was said since the settled events.

    Returns:
        The arrays of `PathTokens`, where the token before them ends, and the costs.
    """
    tip = tips[root]
    length, e = 0, np.int64(tip.event)
    while e >= 0:
        length += 1
        e = np.int64(events[e].previous)
    chain = new_events(length + len(arcs))
    e = np.int64(tip.event)
    for i in range(length):
        chain[length - 1 - i] = events[e]
        e = np.int64(events[e].previous)
    count, label, tokens = length, uint32(tip.label), np.int64(tip.tokens)
    frame, last_end = np.int64(tip.frame), np.int64(tip.end)
    graph, acoustic_sum = np.float64(tip.graph), np.float64(tip.acoustic)
    for i in range(len(arcs)):
        arc, old_end = arc_of(rule, arcs[i]), last_end
        graph += np.float64(arc.cost)
        acoustic_sum += np.float64(acoustic[i])
        begins, word, label, tokens, frame, last_end = pass_arc(
            rule, arc, label, tokens, frame, last_end
        )
        if begins != uint32(0) or word != uint32(0):
            write_event(chain[count], -1, begins, word, frame, old_end)
            count += 1
    said, before = _as_arrays(chain, count, last_end)
    return said, before, (graph, acoustic_sum)


@jit
def read_all(state, steps, first, count):
    """`read` for many whole paths, whose steps lie in one array, the last one first.

    `state`: of a history that nothing was folded into. `first`, `count`: where the
    steps of each path begin, and how many it has.

    Returns:
        The arrays of `PathTokens` of all, one after the other; where the tokens and the
        words of each begin, int64 [B + 1]; its graph and acoustic costs, float64 [B].
    """
    most, paths = 0, len(first)
    total = np.int64(0)
    for i in range(paths):
        most, total = max(most, count[i]), total + count[i]
    arcs, acoustic = np.empty(most, np.int64), np.empty(most, np.float32)
    ilabel, start = np.empty(total, np.int32), np.empty(total, np.int32)
    end, word = np.empty(total, np.int32), np.empty(total, np.int32)
    word_token, word_frame = np.empty(total, np.int32), np.empty(total, np.int32)
    tokens, words = np.zeros(paths + 1, np.int64), np.zeros(paths + 1, np.int64)
    graph_cost, acoustic_cost = np.empty(paths), np.empty(paths)
    for i in range(paths):
        for k in range(count[i]):
            step = steps[first[i] + count[i] - 1 - k]
            arcs[k], acoustic[k] = np.int64(step.arc), step.acoustic
        said, _, costs = read(*state, 0, arcs[: count[i]], acoustic[: count[i]])
        t, w = tokens[i], words[i]
        tokens[i + 1], words[i + 1] = t + len(said[0]), w + len(said[3])
        ilabel[t : tokens[i + 1]], start[t : tokens[i + 1]] = said[0], said[1]
        end[t : tokens[i + 1]], word[w : words[i + 1]] = said[2], said[3]
        word_token[w : words[i + 1]] = said[4]
        word_frame[w : words[i + 1]] = said[5]
        graph_cost[i], acoustic_cost[i] = costs
    t, w = tokens[paths], words[paths]
    arrays = (ilabel[:t], start[:t], end[:t], word[:w], word_token[:w], word_frame[:w])
    return arrays, tokens, words, graph_cost, acoustic_cost


@jit
def _as_arrays(chain, count, last_end):
    """Make the arrays of `PathTokens` of events; also where the token before ends."""
    num_tokens, num_words = 0, 0
    for i in range(count):
        num_tokens += np.int64(chain[i].ilabel != uint32(0))
        num_words += np.int64(chain[i].olabel != uint32(0))
    ilabel, start = np.empty(num_tokens, np.int32), np.empty(num_tokens, np.int32)
    end, word = np.empty(num_tokens, np.int32), np.empty(num_words, np.int32)
    word_token = np.empty(num_words, np.int32)
    word_frame = np.empty(num_words, np.int32)
    tokens, words, before = 0, 0, last_end
    for i in range(count):
        if chain[i].ilabel != uint32(0):
            if tokens > 0:
                end[tokens - 1] = chain[i].end
            else:
                before = np.int64(chain[i].end)
            ilabel[tokens], start[tokens] = chain[i].ilabel, chain[i].frame - 1
            tokens += 1
        if chain[i].olabel != uint32(0):
            word[words], word_token[words] = chain[i].olabel, tokens
            word_frame[words] = chain[i].frame
            words += 1
    if tokens > 0:
        end[tokens - 1] = last_end
    return (ilabel, start, end, word, word_token, word_frame), before
