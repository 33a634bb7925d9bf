"""Kernels of texts and traces: growing, reading, writing, forgetting.

node = add_text(tree, parent, token)          # the same for the same text
trace = add_trace(tree, parent, token, frame, after)
forget(lanes, tree, ...)                      # what no hypothesis came from
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import inlined, kernel

NONE = -1
_INF = np.inf


@inlined
def text_of(lanes, row):
    """The text of a row of [B * K]."""
    width = lanes.text.shape[1]
    return lanes.text[row // width, row % width]


@inlined
def _begin(parent, token, size):
    """Where in a hash table of so many places a search begins."""
    key = (parent * 31 + token) * 0x9E3779B1
    return (key ^ (key >> 17)) & (size - 1)


@inlined
def child_of(tree, parent, token):
    """The text that is one token longer, -1 where it is new."""
    size = len(tree.table)
    at = _begin(parent, token, size)
    while tree.table[at] >= 0:
        node = tree.table[at]
        if tree.parent[node] == parent and tree.token[node] == token:
            return node
        at = (at + 1) & (size - 1)
    return np.int64(NONE)


@inlined
def _enter(tree, node):
    size = len(tree.table)
    at = _begin(tree.parent[node], tree.token[node], size)
    while tree.table[at] >= 0:
        at = (at + 1) & (size - 1)
    tree.table[at] = node


@inlined
def add_text(tree, parent, token):
    """The text that is one token longer, made where it is new."""
    node = child_of(tree, parent, token)
    if node < 0:
        node = tree.used[0]
        tree.used[0] += 1
        tree.parent[node], tree.token[node] = parent, token
        tree.depth[node] = tree.depth[parent] + 1
        tree.slot[node] = NONE
        _enter(tree, node)
    return node


@inlined
def add_trace(tree, parent, token, frame, after):
    """Add a token behind a trace."""
    node = tree.used[1]
    tree.used[1] += 1
    tree.trace_parent[node] = parent
    tree.trace_row[node, 0] = token
    tree.trace_row[node, 1] = frame
    tree.trace_row[node, 2] = after
    return node


@kernel
def read_rows(lanes, tree, rows, lengths):
    """Texts and traces of live hypotheses; rows int32 [B * K, U, 3]."""
    num, width = lanes.score.shape
    for b in range(num):
        for k in range(width):
            text = trace = np.int64(b)
            if lanes.score[b, k] > -_INF:
                for u in range(lengths[b, k]):
                    row = rows[b * width + k, u]
                    text = add_text(tree, text, np.int64(row[0]))
                    trace = add_trace(tree, trace, row[0], row[1], row[2])
            lanes.text[b, k], lanes.trace[b, k] = text, trace


@kernel
def write_rows(lanes, tree, rows):
    """Tokens of all hypotheses, int32 [B * K, U, 3]."""
    num, width = lanes.score.shape
    for b in range(num):
        for k in range(width):
            trace, at = lanes.trace[b, k], tree.depth[lanes.text[b, k]]
            while at > 0:
                at -= 1
                for i in range(3):
                    rows[b * width + k, at, i] = tree.trace_row[trace, i]
                trace = tree.trace_parent[trace]


@kernel
def forget(lanes, tree, texts, traces):
    """Forget what no hypothesis came from; the scratch is int64 [N] each.

    Parents stand before their children, so that what stays can move down in place.
    """
    num, width = lanes.score.shape
    texts[: tree.used[0]] = NONE
    traces[: tree.used[1]] = NONE
    for b in range(num):
        texts[b] = traces[b] = 0
        for k in range(width):
            node = lanes.text[b, k]
            # Up to what is marked already: each node is visited once.
            while node >= 0 and texts[node] < 0:
                texts[node] = 0
                node = tree.parent[node]
            node = lanes.trace[b, k]
            while node >= 0 and traces[node] < 0:
                traces[node] = 0
                node = tree.trace_parent[node]
    tree.table[:] = NONE
    count = 0
    for node in range(tree.used[0]):
        if texts[node] < 0:
            continue
        texts[node] = count
        parent = tree.parent[node]
        tree.parent[count] = parent if parent < 0 else texts[parent]
        tree.token[count], tree.depth[count] = tree.token[node], tree.depth[node]
        tree.slot[count] = tree.slot[node]
        # The root is nobody's child: it is not looked up.
        if parent >= 0:
            _enter(tree, np.int64(count))
        count += 1
    tree.used[0] = count
    count = 0
    for node in range(tree.used[1]):
        if traces[node] < 0:
            continue
        traces[node] = count
        parent = tree.trace_parent[node]
        tree.trace_parent[count] = parent if parent < 0 else traces[parent]
        for i in range(3):
            tree.trace_row[count, i] = tree.trace_row[node, i]
        count += 1
    tree.used[1] = count
    for b in range(num):
        for k in range(width):
            lanes.text[b, k] = texts[lanes.text[b, k]]
            lanes.trace[b, k] = traces[lanes.trace[b, k]]


@kernel
def enter_all(tree):
    """Fill an empty hash table."""
    for node in range(tree.used[0]):
        if tree.parent[node] >= 0:
            _enter(tree, np.int64(node))


@kernel
def keep_slots(lanes, tree, slots):
    """Number anew the slots that hypotheses need; `slots` are the old ones, in order.

    That of a text, or where it has none yet, that of its parent. Returns how many.
    """
    for node in range(tree.used[0]):
        if tree.slot[node] >= 0:
            tree.slot[node] = -2 - tree.slot[node]
    count = 0
    num, width = lanes.score.shape
    for row in range(num * width):
        node = text_of(lanes, row)
        if not lanes.score[row // width, row % width] > -_INF:
            continue
        # The predictor has not been asked for this text: it will be, from its parent's
        # state.
        if tree.slot[node] == NONE:
            node = tree.parent[node]
        if tree.slot[node] < NONE:
            slots[count] = -2 - tree.slot[node]
            tree.slot[node] = count
            count += 1
    for node in range(tree.used[0]):
        if tree.slot[node] < NONE:
            tree.slot[node] = NONE
    return count
