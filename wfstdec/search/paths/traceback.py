"""Traceback of WFST searches: folds a trace into the tokens and words of its paths.

An event is a token or word of a path. `History` has the events of all paths; those
common to all paths are settled.
"""

from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined, jit, kernel, read_only
from wfstdec.jit.arrays import copy_rows, first_equal
from wfstdec.jit.records import longer as with_rows
from wfstdec.jit.records import record
from wfstdec.search.paths.tokens import PATH_END, PartialPath, Path, Paths, PathTokens
from wfstdec.text.tokens import ilabel_of

NONE = 0xFFFFFFFF  # no node, no arc: at the roots of a trace
EVENT = record("i4 previous", "u4 ilabel olabel", "i4 frame end")
"""Token that begins (`ilabel` or 0) and word label on the same arc (`olabel` or 0); the
previous event or -1; frames passed with this arc; the end of the previous token."""
TIP = record("i4 event tokens", "u4 label", "i4 frame end unused", "f8 graph acoustic")
"""End of a path: its last event or -1, number of tokens, last label, frames passed, end
of the last token, costs."""

STEP = record("u4 arc", "f4 acoustic")
"""Arc of a path and its unscaled acoustic cost."""
_FIRST_ILABEL = np.int32(ilabel_of(0))


class Rule(NamedTuple):
    """Rule by which a graph's arcs are read."""

    arcs: np.ndarray  # ARC [A]
    blank: np.uint32  # its ilabel
    marks_repeats: bool
    oov: np.ndarray  # ARC [A']: arcs from number A on


@jit
def new_steps(count):
    """Return STEP [count], uninitialised."""
    return np.empty(count, STEP)


@jit
def new_tips(count):
    """Return TIP [count], uninitialised."""
    return np.empty(count, TIP)


@inlined
def arc_of(rule, arc):
    """Return the arc of a number."""
    if arc < len(rule.arcs):
        return rule.arcs[arc]
    return rule.oov[arc - len(rule.arcs)]


@inlined
def pass_arc(rule, arc, label, tokens, frame, end):
    """Pass an arc: return ilabel of a new token and word id, or 0; then as in TIP."""
    begins, word, now = uint32(0), uint32(0), arc.ilabel & uint32(LABEL_MASK)
    if now != uint32(0):
        frame += 1
        if rule.marks_repeats:
            repeats = arc.ilabel & uint32(REPEAT) != uint32(0)
        else:
            # Without marks, the same token in the next frame is a repeat, as in CTC,
            # where a blank separates two equal tokens.
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
    """Write an event."""
    event.previous, event.ilabel, event.olabel = previous, begins, word
    event.frame, event.end = frame, end


@inlined
def extend(rule, arc, tip, events, num_events):
    """Extend a path by an arc without its acoustic cost; return the event count."""
    tokens, passed, end = np.int64(tip.tokens), np.int64(tip.frame), np.int64(tip.end)
    begins, word, tip.label, tip.tokens, tip.frame, tip.end = pass_arc(
        rule, arc, uint32(tip.label), tokens, passed, end
    )
    tip.graph += np.float64(arc.cost)
    if begins != uint32(0) or word != uint32(0):
        write_event(events[num_events], tip.event, begins, word, tip.frame, end)
        tip.event = num_events
        num_events += 1
    return num_events


HISTORY = record(
    "i8 events tips settled tokens labels whole first tokens_before labels_before",
    "i8 cut_tokens cut_labels lost",
    "f8 cut_cost",
)
"""Events and tips; settled events, their tokens, labels, and tokens with settled ends;
the first event not read by the last look, with the tokens and labels before it; tokens
and labels already cut into words; the rest of a `CutPoint`."""


class Events(NamedTuple):
    """Paths of one utterance; arrays may be longer than their content."""

    progress: np.ndarray  # HISTORY [1]
    settled: np.ndarray  # EVENT: common prefix of all paths
    events: np.ndarray  # EVENT: the others
    tips: np.ndarray  # TIP


@kernel
def clear(history, blank, first_frame):
    """Begin an utterance: one path without tokens."""
    now, tip = history.progress[0], history.tips[0]
    now.events = now.settled = now.tokens = now.labels = now.whole = 0
    now.first = now.tokens_before = now.labels_before = 0
    now.cut_tokens = now.cut_labels = now.lost = 0
    tip.event, tip.tokens, tip.label = -1, 0, blank
    tip.frame, tip.end, tip.graph, tip.acoustic = first_frame, 0, 0.0, 0.0
    now.tips, now.cut_cost = 1, 0.0


@jit
def room_needed(history, nodes, tips):
    """Return array lengths that suffice to fold a trace."""
    now = history.progress[0]
    return now.settled + now.events + nodes, now.events + nodes, tips


@jit
def fold_trace(rule, frontier, trace, count, history):
    """Fold a trace into the paths of a frontier's entries; see `History.fold`."""
    # Within a frame a node may precede its predecessor. Few nodes lead to the frontier;
    # only these get states.
    none, tips, events = uint32(NONE), history.tips, history.events
    number = np.full(count, -1, np.int32)  # position in `states`
    waiting, states = np.empty(count, np.int32), new_tips(count)
    num_states, num_events = 0, history.progress[0].events
    for i in range(len(frontier)):
        # Back to a node with a state, then forwards again.
        at, depth = np.int64(frontier[i].node), 0
        while number[at] < 0 and trace[at].arc != none:
            waiting[depth] = at
            depth += 1
            at = np.int64(trace[at].previous)
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
            one.acoustic += np.float64(trace[at].acoustic)
            num_events = extend(rule, arc, one, events, num_events)
            number[at] = before = num_states
            num_states += 1
    folded = new_tips(len(frontier))
    for i in range(len(frontier)):
        folded[i] = states[np.int64(number[np.int64(frontier[i].node)])]
    # Entries become the roots of the trace; tips have the paths to them.
    for i in range(len(frontier)):
        trace[i].previous, trace[i].arc = none, none
        trace[i].acoustic = np.float32(i)
        frontier[i].node = uint32(i)
    settle_events(history, folded, num_events)


@jit
def settle_events(history, tips, count):
    """Keep tips and the first events; settle events common to all tips."""
    events = history.events[:count]
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
    number = np.full(len(events) + 1, -1, np.int32)  # the last one represents -1
    now, kept, settled = history.progress[0], 0, history.settled
    for e in range(len(events)):
        if through[e] == len(tips):
            settled[now.settled] = events[e]
            now.settled += 1
            now.tokens += np.int64(events[e].ilabel != uint32(0))
            now.labels += np.int64(events[e].olabel != uint32(0))
        elif through[e] > 0:
            number[e] = kept
            events[kept] = events[e]
            events[kept].previous = number[events[e].previous]
            kept += 1
    now.events, now.tips = kept, len(tips)
    end, ends = tips[0].end, True  # whether the last token's end is settled
    for i in range(len(tips)):
        tips[i].event = number[tips[i].event]
        if tips[i].event >= 0 or tips[i].end != end or tips[i].frame == end:
            ends = False
        history.tips[i] = tips[i]
    now.whole = now.tokens - np.int64(now.tokens > 0 and not ends)


@jit
def read_from(since, rule, history, root):
    """Read tokens and words of a tip from `since` on; see `PartialPath`."""
    now, tip = history.progress[0], history.tips[root : root + 1]
    settled, events = history.settled, history.events
    if since[0] < now.tokens_before or since[1] < now.labels_before:
        now.first = now.tokens_before = now.labels_before = 0
    while now.first < now.settled:  # read for the last time
        event = settled[now.first]
        tokens = now.tokens_before + np.int64(event.ilabel != uint32(0))
        labels = now.labels_before + np.int64(event.olabel != uint32(0))
        if tokens > since[0] or labels > since[1]:
            break
        now.first, now.tokens_before, now.labels_before = now.first + 1, tokens, labels
    skip = since[0] - now.tokens_before, since[1] - now.labels_before
    beginning = settled[now.first : now.settled]
    steps, ends = new_steps(0), np.zeros(1, PATH_END)
    path = read_histories(rule, beginning, events, tip, steps, ends, skip)[0]
    return path, max(now.whole - since[0], 0), now.labels


@jit
def read_histories(rule, settled, events, tips, steps, ends, skip):
    """Pass tips through the steps of whole paths: see `read_paths`."""
    # `settled`: EVENT, common prefix. `skip`: tokens and words omitted from each.
    # Returns the last three arguments of `Paths`.
    paths, total, most, shared = len(ends), np.int64(0), np.int64(0), len(settled)
    for i in range(paths):
        length, e = np.int64(ends[i].count), np.int64(tips[min(i, len(tips) - 1)].event)
        while e >= 0:
            length += 1
            e = np.int64(events[e].previous)
        total, most = total + length + shared, max(most, length)
    chain = np.empty(most + shared, EVENT)
    copy_rows(settled, chain)
    token, start = np.empty(total, np.int32), np.empty(total, np.int32)
    end, word = np.empty(total, np.int32), np.empty(total, np.int32)
    word_token, word_frame = np.empty(total, np.int32), np.empty(total, np.int32)
    tokens, words = np.zeros(paths + 1, np.int64), np.zeros(paths + 1, np.int64)
    t, w = np.int64(0), np.int64(0)
    for i in range(paths):
        tip, path = tips[min(i, len(tips) - 1)], ends[i]
        length, e = np.int64(shared), np.int64(tip.event)
        while e >= 0:
            length += 1
            e = np.int64(events[e].previous)
        e = np.int64(tip.event)
        for k in range(length - shared):
            chain[length - 1 - k] = events[e]
            e = np.int64(events[e].previous)
        label, begun = uint32(tip.label), np.int64(tip.tokens)
        frame, last_end = np.int64(tip.frame), np.int64(tip.end)
        graph, acoustic = np.float64(tip.graph), np.float64(tip.acoustic)
        for k in range(path.first + path.count - 1, path.first - 1, -1):
            arc, old_end = arc_of(rule, np.int64(steps[k].arc)), last_end
            graph += np.float64(arc.cost)
            acoustic += np.float64(steps[k].acoustic)
            begins, olabel, label, begun, frame, last_end = pass_arc(
                rule, arc, label, begun, frame, last_end
            )
            if begins != uint32(0) or olabel != uint32(0):
                write_event(chain[length], -1, begins, olabel, frame, old_end)
                length += 1
        path.graph_cost, path.acoustic_cost = path.graph_cost + graph, acoustic
        passed, labels = -skip[0], -skip[1]
        for k in range(length):
            event = chain[k]
            if event.ilabel != uint32(0):
                if t > tokens[i]:
                    end[t - 1] = event.end
                if passed >= 0:
                    token[t] = np.int32(event.ilabel) - _FIRST_ILABEL
                    start[t], end[t] = event.frame - 1, last_end
                    t += 1
                passed += 1
            if event.olabel != uint32(0):
                if labels >= 0:
                    word[w], word_token[w] = event.olabel, passed
                    word_frame[w] = event.frame
                    w += 1
                labels += 1
        tokens[i + 1], words[i + 1] = t, w
    arrays = (token[:t], start[:t], end[:t], word[:w], word_token[:w], word_frame[:w])
    return arrays, tokens, words


def rule_of(graph: PackedGraph) -> Rule:
    """Return the rule for reading paths through a graph."""
    blank = uint32(ilabel_of(graph.tokens.blank))
    return Rule(graph.arcs, blank, graph.info.marks_repeats, read_only(NO_ARCS))


def new_events(events: int, tips: int) -> Events:
    """Allocate the paths of an utterance; `clear` begins one."""
    settled, others = np.zeros((2, events), EVENT)
    return Events(np.zeros(1, HISTORY), settled, others, np.zeros(tips, TIP))


def with_room(history: Events, nodes: int, tips: int) -> Events:
    """Enlarge arrays that are too small for a trace and its tips."""
    needed = zip(Events._fields[1:], room_needed(history, nodes, tips), strict=True)
    for name, size in needed:
        if len(getattr(history, name)) < size:
            larger = with_rows(getattr(history, name), 2 * size)
            history = history._replace(**{name: larger})
    return history


class History:
    """Tokens and words of one utterance's paths."""

    def __init__(self, rule: Rule, first_frame: int = 0) -> None:
        self._rule, self.paths = rule, new_events(0, 1)
        clear(self.paths, rule.blank, first_frame)

    def go_on(self, rule: Rule, arcs: np.ndarray, acoustic: np.ndarray) -> None:
        """Fold one path that continues the only one; `acoustic` is unscaled."""
        trace = np.zeros(len(arcs) + 1, _NODE)
        trace["previous"] = np.arange(len(trace), dtype=np.uint32) - np.uint32(1)
        trace["arc"][0], trace["arc"][1:] = NONE, arcs
        trace["acoustic"][1:] = acoustic
        self._rule = rule
        self.fold(np.full(1, len(arcs), _AT_NODE), trace, len(trace))

    def fold(self, frontier: np.ndarray, trace: np.ndarray, count: int) -> int:
        """Fold the trace of a frontier; return the trace's new number of nodes."""
        # Overwrites `node` of the entries, and the nodes.
        self.paths = with_room(self.paths, count, len(frontier))
        fold_trace(self._rule, frontier, trace, count, self.paths)
        return len(frontier)

    def read(self, root: int, end: np.ndarray) -> Path:
        """Return the path to a tip; its costs are added to `end`, PATH_END [1]."""
        progress, settled, events, tips = self.paths
        settled, tip = settled[: progress["settled"][0]], tips[root : root + 1]
        read = read_histories(self._rule, settled, events, tip, NO_STEPS, end, (0, 0))
        return Paths(end, *read)[0]

    def look(
        self, root: int, since: tuple[int, int], num_frames: int, final_cost: float
    ) -> PartialPath:
        """Return a tip's partial path; `since`: settled tokens and words to skip."""
        path, whole, labels = read_from(since, self._rule, self.paths, root)
        return PartialPath(PathTokens(*path), whole, labels, num_frames, final_cost)


def read_paths(
    rule: Rule, steps: np.ndarray, ends: np.ndarray, first_frame: int = 0
) -> Paths:
    """Read whole paths; their costs are added to `ends`, PATH_END [P]."""
    # `steps`: STEP of all paths, each from last to first.
    _, settled, events, tips = History(rule, first_frame).paths
    read = read_histories(rule, settled, events, tips, steps, ends, (0, 0))
    return Paths(ends, *read)


_AT_NODE, _NODE = record("u4 node"), record("u4 previous arc", "f4 acoustic")
NO_STEPS = np.zeros(0, STEP)
