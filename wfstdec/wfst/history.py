"""What the paths of a search have said: folded out of its trace, which stays small.

A search writes a trace node per entry and frame, and an entry that waits through an
hour of silence would keep 180,000 of them. Folding reads the trace and keeps an event
only where a token begins or a word is carried, sums of costs and the like in a tip:

    fold     for each entry of the frontier: tip = the tip its path began at, passed
             through the arcs since; an event for each token and word on the way
             the trace then begins anew, with one root for each entry and its tip
    settle   equal events after equal ones are one; those that all tips have in common
             are no longer in question: they leave the tree for a list
    read     tokens and words of a path: the settled ones, those of its tip, and those
             of the arcs since

Sums are added from the first arc on, in float64, so that it does not matter when a
trace was folded: the result is the same bit for bit. The searches know nothing of it;
it works on the trace of any backend whose nodes have `previous`, `arc` and `acoustic`.
The `acoustic` of a root is the number of its tip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.path import PathTokens

NONE = 0xFFFFFFFF
"""No node, no arc: what the roots of a trace have."""
EVENT = np.dtype(
    [
        ("previous", "<i4"),
        ("ilabel", "<u4"),
        ("olabel", "<u4"),
        ("frame", "<i4"),
        ("end", "<i4"),
    ]
)
"""A token that begins (`ilabel`, else 0) and a word whose label stands on the same arc
(`olabel`, else 0); the event before or -1; frames passed with this arc; one behind the
last frame of the token before."""
TIP = np.dtype(
    [
        ("event", "<i4"),
        ("tokens", "<i4"),
        ("label", "<u4"),
        ("frame", "<i4"),
        ("end", "<i4"),
        ("unused", "<i4"),
        ("graph", "<f8"),
        ("acoustic", "<f8"),
    ]
)
"""How far a path has come: its last event or -1, tokens begun, the label of the last
frame, frames passed, one behind the last frame of the last token, and its costs."""


class Rule(NamedTuple):
    """How the arcs of a graph are read."""

    arcs: np.ndarray  # ARC [A]
    blank: np.uint32  # its ilabel
    marks_repeats: bool


def rule_of(graph: PackedGraph) -> Rule:
    """The rule by which paths through a graph are read."""
    blank = uint32(ilabel_of(graph.tokens.blank))
    return Rule(graph.arcs, blank, graph.tables.marks_repeats)


class History:
    """What the paths of one utterance have said.

    Args:
        rule: Of the graph.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._settled = Settled()
        self._events = _NO_EVENTS
        self._tips = _FIRST_TIP if rule.blank == 1 else _first_tip(int(rule.blank))

    @property
    def num_events(self) -> int:
        """Events in question: not those that are settled."""
        return len(self._events)

    @property
    def settled(self) -> Settled:
        """What all paths have in common, as of the last `fold`."""
        return self._settled

    def fold(self, frontier: np.ndarray, trace: np.ndarray, count: int) -> int:
        """Fold the trace of a frontier; how many nodes the trace then has.

        Args:
            frontier: [F], entries with `node`; these are renumbered.
            trace: [N], nodes with `previous`, `arc`, `acoustic`; written anew.
            count: Nodes of the trace.
        """
        self._tips, events = _fold(
            self._rule, frontier, trace, count, self._tips, self._events
        )
        settled, self._events, end = _settle(self._tips, events)
        if len(settled):
            self._settled.add(settled)
        self._settled.set_end(end)
        return len(frontier)

    def read(
        self,
        root: int,
        arcs: np.ndarray,
        acoustic: np.ndarray,
        since: tuple[int, int] = (0, 0),
    ) -> PathTokens:
        """The tokens and words of a path.

        Args:
            root: The number of the tip that it goes on from: what the root of its
                trace has for `acoustic`.
            arcs: int64 [N], the arcs since.
            acoustic: float32 [N], their unscaled acoustic costs.
            since: Tokens and words to leave out at the beginning: settled ones.
        """
        tip = self._tips[root : root + 1].copy()
        *read, end = _read(self._rule, self._events, tip, arcs, acoustic)
        settled, costs = self._settled, tip[0].item()[-2:]
        if settled.num_tokens == 0 and settled.num_words == 0:
            return PathTokens(*read, *costs)
        known = settled.since(*since)
        if len(known.end):
            known.end[-1] = end
        read[4] += settled.num_tokens - since[0]
        pairs = zip(known[:6], read, strict=True)
        arrays = [np.concatenate(pair) for pair in pairs]
        return PathTokens._make([*arrays, *costs])


class Settled:
    """Tokens and words that can no longer change, in arrays that grow.

    Attributes:
        num_tokens, num_words: How many there are.
        end_is_settled: Whether the end of the last token is, too.
    """

    def __init__(self) -> None:
        self.num_tokens = self.num_words = 0
        self.end_is_settled = True
        self._token = np.zeros((3, 0), np.int32)  # ilabel, start, end
        self._word = np.zeros((3, 0), np.int32)  # word, word_token, word_frame

    def add(self, events: np.ndarray) -> None:
        """Add what EVENT [N] say, in order."""
        begins, labelled = events["ilabel"] != 0, events["olabel"] != 0
        tokens, words = events[begins], events[labelled]
        first, self.num_tokens = self.num_tokens, self.num_tokens + len(tokens)
        self._token = _with_room(self._token, self.num_tokens)
        new = self._token[:, first : self.num_tokens]
        new[0], new[1] = tokens["ilabel"], tokens["frame"] - 1
        new[2, :-1] = tokens["end"][1:]
        if first and len(tokens):
            self._token[2, first - 1] = tokens["end"][0]
        before, self.num_words = self.num_words, self.num_words + len(words)
        self._word = _with_room(self._word, self.num_words)
        new = self._word[:, before : self.num_words]
        new[0], new[2] = words["olabel"], words["frame"]
        new[1] = first + np.cumsum(begins)[labelled]

    def set_end(self, end: int) -> None:
        """Say where the last token ends, -1 where that is not settled."""
        self.end_is_settled = end >= 0
        if self.num_tokens and end >= 0:
            self._token[2, self.num_tokens - 1] = end

    def since(self, token: int, word: int) -> PathTokens:
        """Copies of all but the first tokens and words; costs are not known."""
        ilabel, start, end = self._token[:, token : self.num_tokens].copy()
        label, word_token, frame = self._word[:, word : self.num_words].copy()
        return PathTokens(
            ilabel, start, end, label, word_token - np.int32(token), frame, 0.0, 0.0
        )

    def whole_since(self, token: int, word: int) -> PathTokens:
        """The same without the last token while its end is in question."""
        path = self.since(token, word)
        if self.end_is_settled or len(path.ilabel) == 0:
            return path
        return path._replace(
            ilabel=path.ilabel[:-1], start=path.start[:-1], end=path.end[:-1]
        )


def _with_room(rows: np.ndarray, count: int) -> np.ndarray:
    if count <= rows.shape[1]:
        return rows
    larger = np.zeros((len(rows), 2 * count), rows.dtype)
    larger[:, : rows.shape[1]] = rows
    return larger


def _first_tip(blank: int) -> np.ndarray:
    """Before the first frame."""
    tip = np.zeros(1, TIP)
    tip["event"], tip["label"] = -1, blank
    return tip


_NO_EVENTS = np.zeros(0, EVENT)
_FIRST_TIP = _first_tip(1)


@jit
def _pass(rule, tip, event, arc_id, acoustic):
    """Pass a tip through an arc; fill in the event, and say whether there is one."""
    arc = rule.arcs[arc_id]
    tip.graph += np.float64(arc.cost)
    tip.acoustic += np.float64(acoustic)
    label = arc.ilabel & uint32(LABEL_MASK)
    event.previous, event.ilabel, event.olabel = tip.event, uint32(0), uint32(0)
    event.end = tip.end
    if label != uint32(0):
        tip.frame += 1
        if rule.marks_repeats:
            repeats = arc.ilabel & uint32(REPEAT) != uint32(0)
        else:
            repeats = label == tip.label
        if label != rule.blank:
            if not (repeats and tip.tokens > 0):
                event.ilabel = label
                tip.tokens += 1
            if event.ilabel != uint32(0) or label == tip.label:
                tip.end = tip.frame
        tip.label = label
    if arc.ilabel & uint32(CARRIES_WORD):
        event.olabel = arc.olabel
    event.frame = tip.frame
    return event.ilabel != uint32(0) or event.olabel != uint32(0)


@jit
def _fold(rule, frontier, trace, count, tips, events):
    """See `History.fold`; the tips of the entries, and all events.

    Within a frame a node may stand before the one that it came from.
    """
    none = uint32(NONE)
    known = np.zeros(count, np.bool_)
    states = np.empty(count, TIP)
    waiting = np.empty(count, np.int64)
    num_events = len(events)
    room = np.empty(num_events + 256, EVENT)
    room[:num_events] = events
    for i in range(len(frontier)):
        at, depth = np.int64(frontier[i].node), 0
        while not known[at]:
            if trace[at].arc == none:
                states[at] = tips[np.int64(trace[at].acoustic)]
                known[at] = True
                break
            waiting[depth] = at
            depth += 1
            at = np.int64(trace[at].previous)
        while depth > 0:
            depth -= 1
            at = waiting[depth]
            states[at] = states[np.int64(trace[at].previous)]
            if num_events == len(room):
                room = _longer(room)
            arc, acoustic = np.int64(trace[at].arc), trace[at].acoustic
            if _pass(rule, states[at], room[num_events], arc, acoustic):
                states[at].event = num_events
                num_events += 1
            known[at] = True
    folded = np.empty(len(frontier), TIP)
    for i in range(len(frontier)):
        folded[i] = states[np.int64(frontier[i].node)]
    for i in range(len(frontier)):
        trace[i].previous, trace[i].arc = none, none
        trace[i].acoustic = np.float32(i)
        frontier[i].node = uint32(i)
    return folded, room[:num_events]


@jit
def _longer(rows):
    """Twice as many rows."""
    longer = np.empty(2 * len(rows), rows.dtype)
    longer[: len(rows)] = rows
    return longer


@jit
def _settle(tips, events):
    """Split events: those of all tips, and those of some; tips are renumbered.

    Events come after the ones that they follow. The end of the last token, -1 where
    that is in question, comes third.
    """
    first = _first_equal(events)
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
    settled, others = np.empty(num_settled, EVENT), np.empty(kept, EVENT)
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
def _first_equal(events):
    """The first event that says the same after the same, of each; int32 [N].

    Events are made to follow the first of those that they follow.
    """
    first = np.empty(len(events), np.int32)
    size = 256
    while size < 2 * len(events):
        size *= 2
    slots = np.full(size, -1, np.int32)
    for e in range(len(events)):
        one = events[e]
        if one.previous >= 0:
            one.previous = first[one.previous]
        key = (np.int64(one.previous) + 1) * 1000003 ^ np.int64(one.ilabel)
        key = (key * 1000003 ^ np.int64(one.olabel)) & 0x7FFFFFFF
        key = (key * 1000003 ^ np.int64(one.frame)) & 0x7FFFFFFF
        slot = (key * 2654435761 >> 16) & (size - 1)
        while slots[slot] >= 0 and not _equal(events[slots[slot]], one):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = e
        first[e] = slots[slot]
    return first


@jit
def _equal(a, b):
    return (
        a.previous == b.previous
        and a.ilabel == b.ilabel
        and a.olabel == b.olabel
        and a.frame == b.frame
        and a.end == b.end
    )


@jit
def _read(rule, events, tip, arcs, acoustic):
    """Pass the tip through the arcs; what was said since the settled events.

    Returns:
        The arrays of `PathTokens`, and where the token before them ends.
    """
    length, e = 0, np.int64(tip[0].event)
    while e >= 0:
        length += 1
        e = np.int64(events[e].previous)
    chain = np.empty(length + len(arcs), EVENT)
    e = np.int64(tip[0].event)
    for i in range(length):
        chain[length - 1 - i] = events[e]
        e = np.int64(events[e].previous)
    count = length
    for i in range(len(arcs)):
        if _pass(rule, tip[0], chain[count], arcs[i], acoustic[i]):
            count += 1
    num_tokens, num_words = 0, 0
    for i in range(count):
        num_tokens += np.int64(chain[i].ilabel != uint32(0))
        num_words += np.int64(chain[i].olabel != uint32(0))
    ilabel, start = np.empty(num_tokens, np.int32), np.empty(num_tokens, np.int32)
    end, word = np.empty(num_tokens, np.int32), np.empty(num_words, np.int32)
    word_token = np.empty(num_words, np.int32)
    word_frame = np.empty(num_words, np.int32)
    tokens, words, before = 0, 0, np.int64(tip[0].end)
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
        end[tokens - 1] = tip[0].end
    return ilabel, start, end, word, word_token, word_frame, before
