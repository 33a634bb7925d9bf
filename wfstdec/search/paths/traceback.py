"""Tokens and words of a search's paths, folded out of its trace, which stays small.

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

import copy
from itertools import pairwise

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import NO_ARCS
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import read_only
from wfstdec.jit.records import record
from wfstdec.search.paths import traceback_kernels as kernels
from wfstdec.search.paths.label_path import PathTokens
from wfstdec.search.paths.traceback_kernels import EVENT, TIP, Rule
from wfstdec.text.symbols import ilabel_of


def rule_of(graph: PackedGraph) -> Rule:
    """The rule by which paths through a graph are read."""
    blank = uint32(ilabel_of(graph.tokens.blank))
    return Rule(graph.arcs, blank, graph.info.marks_repeats, read_only(NO_ARCS))


class History:
    """Tokens and words of one utterance's paths.

    Args:
        rule: Of the graph.
        first_frame: Frames passed before.
    """

    def __init__(self, rule: Rule, first_frame: int = 0) -> None:
        self._rule = rule
        self._settled = Settled()
        self._events = _NO_EVENTS
        self._tips = np.zeros(1, TIP)  # before anything was said
        tip = self._tips[0]
        tip["event"], tip["label"], tip["frame"] = -1, rule.blank, first_frame

    def go_on(self, rule: Rule, arcs: np.ndarray, acoustic: np.ndarray) -> None:
        """Fold one path, which goes on from the only one so far.

        Args:
            rule: What `arcs` are numbers by.
            arcs: int64 [N].
            acoustic: float32 [N], their unscaled acoustic costs.
        """
        trace = np.zeros(len(arcs) + 1, _NODE)
        trace["previous"] = np.arange(len(trace), dtype=np.uint32) - np.uint32(1)
        trace["arc"][0], trace["arc"][1:] = kernels.NONE, arcs
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

        Args:
            frontier: [F], entries with `node`; these are renumbered.
            trace: [N], nodes with `previous`, `arc`, `acoustic`; written anew.
            count: Nodes of the trace.
        """
        folded = kernels.fold(
            self._rule, frontier, trace, count, self._tips, self._events
        )
        self.go_on_from(*folded)
        return len(frontier)

    def go_on_from(self, tips: np.ndarray, events: np.ndarray) -> None:
        """Take the tips of a trace that a search has folded itself.

        Args:
            tips: TIP [F], of the roots that the trace has from now on.
            events: EVENT, those so far and those that followed.
        """
        self._tips = tips
        settled, self._events, end = kernels.settle(tips, events)
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

        Args:
            root: The number of the tip that it goes on from: what the root of its
                trace has for `acoustic`.
            arcs: int64 [N], the arcs since.
            acoustic: float32 [N], their unscaled acoustic costs.
            since: Tokens and words to leave out at the beginning: settled ones.
        """
        read, end, costs = kernels.read(*self.state, root, arcs, acoustic)
        return self.after_settled(read, end, costs, since)

    @property
    def state(self) -> tuple[Rule, np.ndarray, np.ndarray]:
        """State that the kernel `read` asks for first."""
        return self._rule, self._events, self._tips

    def after_settled(
        self,
        read: tuple[np.ndarray, ...],
        end: int,
        costs: tuple[float, float],
        since: tuple[int, int] = (0, 0),
    ) -> PathTokens:
        """Join what the kernel `read` has read to what is settled; see `read`."""
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


def read_paths(
    rule: Rule, steps: np.ndarray, first: np.ndarray, count: np.ndarray
) -> list[PathTokens]:
    """The tokens and words of whole paths, in one call of a kernel.

    Args:
        rule: Of the graph.
        steps: Records with `arc` and `acoustic`, each path's last one first.
        first: int64 [B], where the steps of each begin.
        count: int64 [B], how many it has.
    """
    state = History(rule).state
    arrays, tokens, words, *costs = kernels.read_all(state, steps, first, count)
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
