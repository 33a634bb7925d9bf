"""Traceback of WFST searches: a trace is folded into the tokens and words of its paths.

A path is passed arc by arc; an event is a token or a word that it writes. `History`
keeps the events that all paths share, which no later frame can change.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined, jit, read_only
from wfstdec.jit.arrays import copy_rows, first_equal, longer
from wfstdec.jit.records import record
from wfstdec.search.paths.tokens import PathTokens
from wfstdec.text.tokens import ilabel_of

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
    oov: np.ndarray  # ARC [A']: arcs from number A on


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
    return rule.oov[arc - len(rule.arcs)]


@inlined
def pass_arc(rule, arc, label, tokens, frame, end):
    """Pass through an arc.

    Returns (the ilabel of a token that begins or 0, the word id or 0; label, tokens,
    frames and end as in TIP, now).
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
def fold_trace(rule, frontier, trace, count, tips, events):
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
def settle_events(tips, events):
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
def read_history(rule, events, tips, root, arcs, acoustic):
    """Pass a tip through the arcs; what was said since the settled events."""
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
    read, before = _as_arrays(chain, count, last_end)
    return read, before, (graph, acoustic_sum)


@jit
def read_histories(state, steps, first, count):
    """`read` for many whole paths, whose steps lie in one array, the last one first.

    `state`: of a history that nothing was folded into. `first`, `count`: where the
    steps of each path begin, and how many it has.

    Returns the arrays of `PathTokens` of all, one after the other; where the tokens and
    the words of each begin, int64 [B + 1]; its graph and acoustic costs, float64 [B].
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
        read, _, costs = read_history(*state, 0, arcs[: count[i]], acoustic[: count[i]])
        t, w = tokens[i], words[i]
        tokens[i + 1], words[i + 1] = t + len(read[0]), w + len(read[3])
        ilabel[t : tokens[i + 1]], start[t : tokens[i + 1]] = read[0], read[1]
        end[t : tokens[i + 1]], word[w : words[i + 1]] = read[2], read[3]
        word_token[w : words[i + 1]] = read[4]
        word_frame[w : words[i + 1]] = read[5]
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


def rule_of(graph: PackedGraph) -> Rule:
    """The rule by which paths through a graph are read."""
    blank = uint32(ilabel_of(graph.tokens.blank))
    return Rule(graph.arcs, blank, graph.info.marks_repeats, read_only(NO_ARCS))


class History:
    """Tokens and words of one utterance's paths."""

    def __init__(self, rule: Rule, first_frame: int = 0) -> None:
        self._rule = rule
        self._settled = Settled()
        self._events = _NO_EVENTS
        self._tips = np.zeros(1, TIP)  # before anything was said
        tip = self._tips[0]
        tip["event"], tip["label"], tip["frame"] = -1, rule.blank, first_frame

    def go_on(self, rule: Rule, arcs: np.ndarray, acoustic: np.ndarray) -> None:
        """Fold one path, which goes on from the only one so far.

        `arcs`: int64 [N]. `acoustic`: float32 [N], their unscaled acoustic costs.
        """
        trace = np.zeros(len(arcs) + 1, _NODE)
        trace["previous"] = np.arange(len(trace), dtype=np.uint32) - np.uint32(1)
        trace["arc"][0], trace["arc"][1:] = NONE, arcs
        trace["acoustic"][1:] = acoustic
        self._rule = rule
        self.fold(np.full(1, len(arcs), _AT_NODE), trace, len(trace))

    def copy(self) -> History:
        """Copy the history, to be folded on its own."""
        other = copy.copy(self)
        other._settled = self._settled.copy()
        return other

    @property
    def num_events(self) -> int:
        """Events in question: not those that are settled."""
        return len(self._events)

    @property
    def settled(self) -> Settled:
        """Beginning that all paths have in common, as of the last `fold`."""
        return self._settled

    def fold(self, frontier: np.ndarray, trace: np.ndarray, count: int) -> int:
        """Fold the trace of a frontier; how many nodes the trace then has.

        `frontier`: [F], entries with `node`; these are renumbered. `trace`: [N], nodes
        with `previous`, `arc`, `acoustic`; written anew.
        """
        folded = fold_trace(
            self._rule, frontier, trace, count, self._tips, self._events
        )
        self.go_on_from(*folded)
        return len(frontier)

    def go_on_from(
        self, tips: np.ndarray, events: np.ndarray, *, last: bool = False
    ) -> None:
        """Take the tips of a trace that a search has folded itself.

        `tips`: TIP [F], of the roots that the trace has from now on. `last`: they are
        only read, so that nothing needs to be settled.
        """
        self._tips, self._events = tips, events
        if last:
            return
        settled, self._events, end = settle_events(tips, events)
        if len(settled):
            self._settled.add(settled)
        self._settled.set_end(end)

    def read(
        self,
        root: int,
        arcs: np.ndarray,
        acoustic: np.ndarray,
        since: tuple[int, int] = (0, 0),
    ) -> PathTokens:
        """The tokens and words of a path.

        `arcs`: int64 [N], the arcs since. `acoustic`: float32 [N], their unscaled
        acoustic costs.
        """
        read, end, costs = read_history(*self.state, root, arcs, acoustic)
        settled = self._settled
        if settled.num_tokens == 0 and settled.num_words == 0:
            return PathTokens._make([*read, *costs])
        known = settled.since(*since)
        if len(known.end):
            known.end[-1] = end
        read[4][:] += settled.num_tokens - since[0]
        pairs = zip(known[:6], read, strict=True)
        arrays = [np.concatenate(pair) for pair in pairs]
        return PathTokens._make([*arrays, *costs])

    @property
    def state(self) -> tuple[Rule, np.ndarray, np.ndarray]:
        """State that the kernel `read` asks for first."""
        return self._rule, self._events, self._tips


def read_paths(
    rule: Rule, steps: np.ndarray, first: np.ndarray, count: np.ndarray
) -> list[PathTokens]:
    """The tokens and words of whole paths, in one call of a kernel.

    `first`: int64 [B], where the steps of each begin. `count`: int64 [B], how many it
    has.
    """
    state = History(rule).state
    arrays, tokens, words, *costs = read_histories(state, steps, first, count)
    splits = [tokens.tolist()] * 3 + [words.tolist()] * 3
    columns = [
        [array[a:b] for a, b in pairwise(split)]
        for array, split in zip(arrays, splits, strict=True)
    ]
    columns += [cost.tolist() for cost in costs]
    return list(map(PathTokens, *columns))


class Settled:
    """Tokens and words that can no longer change, in arrays that grow.

    Attributes:
        num_tokens, num_words: How many there are.
        end_is_settled: Whether the end of the last token is, too.
    """

    def __init__(self) -> None:
        self.num_tokens = self.num_words = 0
        self.end_is_settled = True
        self._token = _NO_ROWS  # ilabel, start, end
        self._word = _NO_ROWS  # word, word_token, word_frame

    def copy(self) -> Settled:
        """Copy it, to be added to on its own."""
        other = copy.copy(self)
        other._token = self._token[:, : self.num_tokens].copy()
        other._word = self._word[:, : self.num_words].copy()
        return other

    def add(self, events: np.ndarray) -> None:
        """Add what EVENT [N] say, in order."""
        begins, labelled = events["ilabel"] != 0, events["olabel"] != 0
        tokens, words = events[begins], events[labelled]
        first, self.num_tokens = self.num_tokens, self.num_tokens + len(tokens)
        self._token = _with_room(self._token, self.num_tokens)
        new = self._token[:, first : self.num_tokens]
        new[0], new[1] = tokens["ilabel"], tokens["frame"] - 1
        # An event has the end of the token before it.
        new[2, :-1] = tokens["end"][1:]
        if first and len(tokens):
            self._token[2, first - 1] = tokens["end"][0]
        before, self.num_words = self.num_words, self.num_words + len(words)
        self._word = _with_room(self._word, self.num_words)
        new = self._word[:, before : self.num_words]
        new[0], new[2] = words["olabel"], words["frame"]
        # A token and a label on one arc: the token is counted before the label.
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
        """Read on without the last token while its end is in question."""
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


_AT_NODE, _NODE = record("u4 node"), record("u4 previous arc", "f4 acoustic")
_NO_ROWS = np.zeros((3, 0), np.int32)
_NO_EVENTS = np.zeros(0, EVENT)
