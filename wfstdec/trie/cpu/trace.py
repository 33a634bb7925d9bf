"""The trace of the trie search: the way back, and what is settled in it."""

from __future__ import annotations

import numpy as np
from numpy import int64

from wfstdec.jit import inlined, jit
from wfstdec.jit.hashing import first_equal
from wfstdec.trie.cpu import records as k


@jit
def trace_back(trace, at, token_end):
    """As `endings.trace_back`, from a position in the trace.

    Returns:
        (int32 [N, 4], where the token before them ends: `token_end` if there are none).
    """
    length, before = 0, at
    while before >= 0:
        length += 1
        before = int64(trace[before].previous)
    tokens = np.empty((length, 4), np.int32)
    while at >= 0:
        length -= 1
        node = trace[at]
        tokens[length, 0], tokens[length, 1] = node.token, node.start
        tokens[length, 2], tokens[length, 3] = token_end, node.pron
        token_end = int64(node.previous_end)
        at = int64(node.previous)
    return tokens, token_end


@jit
def settle_trace(channel):
    """Take out of the trace what all entries have in common, and what none has.

    Nodes that say the same after the same become one. Nodes come after the ones that
    they follow.

    Returns:
        (TRACE_NODE [N], what is settled, in order; where its last token ends, -1 where
        that is in question).
    """
    trace, counts, frontier = channel.trace, channel.counts, channel.frontier
    num_nodes = counts[k.TRACE]
    nodes = trace[:num_nodes]
    first = first_equal(
        nodes["previous"],
        nodes["token"],
        nodes["pron"],
        nodes["start"],
        nodes["previous_end"],
    )
    through = np.zeros(num_nodes, np.int64)
    num_paths = 0
    for i in range(counts[k.FRONTIER]):
        entry = frontier[i]
        entry.blank_trace = _canonical(entry.blank_cost, entry.blank_trace, first)
        at = _canonical(entry.nonblank_cost, entry.nonblank_trace, first)
        entry.nonblank_trace = at
        num_paths += _count(entry.blank_cost, entry.blank_trace, through)
        num_paths += _count(entry.nonblank_cost, at, through)
    for i in range(num_nodes - 1, -1, -1):
        if trace[i].previous >= 0:
            through[trace[i].previous] += through[i]
    number, kept, num_settled = np.full(num_nodes + 1, -1, np.int32), 0, 0
    for i in range(num_nodes):
        num_settled += int64(through[i] == num_paths)
    settled = np.empty(num_settled, k.TRACE_NODE)
    num_settled = 0
    for i in range(num_nodes):
        if through[i] == num_paths:
            settled[num_settled] = trace[i]
            num_settled += 1
        elif through[i] > 0:
            number[i] = kept
            trace[kept] = trace[i]
            trace[kept].previous = number[trace[kept].previous]
            kept += 1
    counts[k.TRACE] = kept
    end, any_end = int64(-1), False
    for i in range(counts[k.FRONTIER]):
        entry = frontier[i]
        entry.blank_trace = number[entry.blank_trace]
        entry.nonblank_trace = number[entry.nonblank_trace]
        if entry.blank_cost < np.inf and not any_end:
            end, any_end = int64(entry.token_end), True
    for i in range(counts[k.FRONTIER]):
        entry = frontier[i]
        if entry.nonblank_cost < np.inf or entry.blank_trace >= 0:
            end = int64(-1)
        elif entry.token_end != end:
            end = int64(-1)
    return settled, end


@inlined
def _canonical(cost, at, first):
    """The node of a phase, -1 where it has none, or nothing leads there."""
    return first[at] if cost < np.inf and at >= 0 else np.int32(-1)


@inlined
def _count(cost, at, through):
    """Count the path of a phase, if something leads there."""
    if cost < np.inf:
        if at >= 0:
            through[at] += 1
        return 1
    return 0
