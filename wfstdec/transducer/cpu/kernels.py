"""Kernels of texts and traces: growing, reading, writing, forgetting.

node = add_text(tree, parent, token)          # the same for the same text
trace = add_trace(tree, parent, token, frame, after)
forget(lanes, tree, ...)                      # what no hypothesis came from
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import inlined, kernel
from wfstdec.search.log_add import add_scores
from wfstdec.transducer.cpu.greedy import total

NONE = -1
_INF = np.inf


@inlined
def text_of(hyps, row):
    """The text of a row of [B * K]."""
    width = hyps.text.shape[1]
    return hyps.text[row // width, row % width]


@inlined
def _begin(parent, token, size):
    """The first slot to try in a hash table of `size` slots."""
    key = (parent * 31 + token) * 0x9E3779B1
    return (key ^ (key >> 17)) & (size - 1)


@inlined
def child_of(tree, parent, token):
    """The text that is one token longer, -1 where it is new."""
    size = len(tree.table)
    at = _begin(parent, token, size)
    while tree.table[at] >= 0:  # ends: the table has four slots a node
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
def read_rows(hyps, tree, rows, lengths):
    """Texts and traces of live hypotheses; rows int32 [B * K, U, 3]."""
    num, width = hyps.score.shape
    for b in range(num):
        for k in range(width):
            text = trace = np.int64(b)
            if hyps.score[b, k] > -_INF:
                for u in range(lengths[b, k]):
                    row = rows[b * width + k, u]
                    text = add_text(tree, text, np.int64(row[0]))
                    trace = add_trace(tree, trace, row[0], row[1], row[2])
            hyps.text[b, k], hyps.trace[b, k] = text, trace


@kernel
def write_rows(hyps, tree, rows):
    """Tokens of all hypotheses, int32 [B * K, U, 3]."""
    num, width = hyps.score.shape
    for b in range(num):
        for k in range(width):
            trace, at = hyps.trace[b, k], tree.depth[hyps.text[b, k]]
            while at > 0:
                at -= 1
                for i in range(3):
                    rows[b * width + k, at, i] = tree.trace_row[trace, i]
                trace = tree.trace_parent[trace]


@kernel
def forget(hyps, tree, texts, traces):
    """Forget what no hypothesis came from; the scratch is int64 [N] each."""
    # Parents precede their children, so that nodes can move down in place.
    num, width = hyps.score.shape
    texts[: tree.used[0]] = NONE
    traces[: tree.used[1]] = NONE
    for b in range(num):
        texts[b] = traces[b] = 0
        for k in range(width):
            node = hyps.text[b, k]
            # Up to what is marked already: each node is visited once.
            while node >= 0 and texts[node] < 0:
                texts[node] = 0
                node = tree.parent[node]
            node = hyps.trace[b, k]
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
        # The root has no parent: it is not in the table.
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
            hyps.text[b, k] = texts[hyps.text[b, k]]
            hyps.trace[b, k] = traces[hyps.trace[b, k]]


@kernel
def enter_all(tree):
    """Fill an empty hash table."""
    for node in range(tree.used[0]):
        if tree.parent[node] >= 0:
            _enter(tree, np.int64(node))


@kernel
def keep_slots(hyps, tree, slots):
    """Renumber the slots that hypotheses need; `slots` are the old ones, in order."""
    # That of a text, or where it has none yet, that of its parent. Returns how many.
    for node in range(tree.used[0]):
        if tree.slot[node] >= 0:
            tree.slot[node] = -2 - tree.slot[node]
    count = 0
    num, width = hyps.score.shape
    for row in range(num * width):
        node = text_of(hyps, row)
        if not hyps.score[row // width, row % width] > -_INF:
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


# -------------------------------------------------------------------- what is open
@kernel
def open_steps(hyps, span, longest, rows):
    """ALSD++: rows of hypotheses whose frame has come; returns how many."""
    # In chunks all of an utterance wait until none can pass the last frame that came.
    num, width = hyps.score.shape
    count = 0
    for b in range(num):
        latest = np.int64(0)
        for k in range(width):
            if hyps.score[b, k] > -_INF:
                latest = max(latest, hyps.frame[b, k])
        if not span.is_ended[b] and latest + longest > span.come[b]:
            continue
        for k in range(width):
            if hyps.score[b, k] > -_INF and hyps.frame[b, k] < span.come[b]:
                rows[count] = b * width + k
                count += 1
    return count


@kernel
def next_frames(hyps, span, longest):
    """AES++: the frame that each utterance expands next, -1 where it has to wait."""
    num, width = hyps.score.shape
    for b in range(num):
        first = span.come[b]
        for k in range(width):
            if hyps.score[b, k] > -_INF:
                first = min(first, hyps.frame[b, k])
        needed = first + (1 if span.is_ended[b] else longest)
        span.at[b] = first if needed <= span.come[b] else NONE


@kernel
def open_frames(hyps, span, rows):
    """AES++: rows of hypotheses at the frames of `next_frames`; returns how many."""
    num, width = hyps.score.shape
    count = 0
    for b in range(num):
        for k in range(width):
            if hyps.score[b, k] > -_INF and hyps.frame[b, k] <= span.at[b]:
                rows[count] = b * width + k
                count += 1
    return count


# ---------------------------------------------------------- what the model is to see
@kernel
def place(hyps, tree, rows, num, first, parents, labels):
    """Give slots from `first` on to texts that have none; returns how many."""
    count = 0
    for i in range(num):
        node = text_of(hyps, rows[i])
        if tree.slot[node] < 0:
            tree.slot[node] = first + count
            parents[count] = tree.slot[tree.parent[node]]
            labels[count] = tree.token[node]
            count += 1
    return count


@kernel
def find(hyps, tree, span, num_frames, rows, num, frames, slots):
    """Where the frame and the predictor's output of each row are."""
    width = hyps.score.shape[1]
    for i in range(len(frames)):
        row = rows[i if i < num else 0]
        b, k = row // width, row % width
        frame = min(max(hyps.frame[b, k] - span.first[b], 0), num_frames - 1)
        frames[i] = b * num_frames + frame
        slots[i] = tree.slot[hyps.text[b, k]]


# ------------------------------------------------------------------ prefixes of AES++
@kernel
def find_prefixes(hyps, tree, rows, num, parents):
    """Find the open row that is each one's text less its last token, -1 for none."""
    width = hyps.score.shape[1]
    begin = 0
    for i in range(num):
        if rows[i] // width != rows[begin] // width:
            begin = i
        parents[i] = NONE
        wanted, j = tree.parent[text_of(hyps, rows[i])], begin
        while j < num and rows[j] // width == rows[i] // width:
            if text_of(hyps, rows[j]) == wanted:
                parents[i] = j
                break
            j += 1


@kernel
def add_prefixes(hyps, tree, prices, rows, num, parents, extra, zero, is_sum):
    """Move scores from texts to those one token longer, in order of length."""
    width = hyps.score.shape[1]
    begin = 0
    while begin < num:
        end = begin
        while end < num and rows[end] // width == rows[begin] // width:
            end += 1
        depth = np.int64(-1)
        # Short texts first: what one gains it hands on to those that are longer by one.
        while True:  # the next length, of the rows begin..end
            following = np.int64(-1)
            for i in range(begin, end):
                length = tree.depth[text_of(hyps, rows[i])]
                if length > depth and (following < 0 or length < following):
                    following = length
            if following < 0:
                break
            depth = following
            for i in range(begin, end):
                node, parent = text_of(hyps, rows[i]), parents[i]
                if parent < 0 or tree.depth[node] != depth:
                    continue
                label = tree.token[node]
                gain = np.float64(total(prices, parent, label))
                if len(extra):
                    gain = gain + np.float64(extra[i])
                if zero >= 0:
                    gain = gain + np.float64(prices.lasts[parent, zero])
                b, k = rows[i] // width, rows[i] % width
                one, came = (
                    hyps.score[b, k],
                    hyps.score[b, rows[parent] % width],
                )
                came = came + gain
                both = add_scores(one, came) if is_sum else max(one, came)
                hyps.score[b, k] = both
        begin = end


# ------------------------------------------------------------------------- the step
@kernel
def advance(hyps, tree, span, rows, num, found, drops_seen, is_sum, scratch):
    """Merge and prune the candidates of all utterances; write the kept hypotheses."""
    width, wide = hyps.score.shape[1], found.gain.shape[1]
    at = 0
    while at < num:
        b = rows[at] // width
        end = at
        while end < num and rows[end] // width == b:
            end += 1
        _gather(hyps, tree, span, b, rows, at, end, found, scratch)
        if drops_seen:
            _drop_seen(hyps, b, rows, at, end, scratch, wide)
        if width * wide > 1:
            _merge(scratch, width * wide, is_sum)
        else:
            scratch.merged[0] = scratch.score[0]
        _keep(hyps, tree, b, scratch, wide)
        at = end


@inlined
def _gather(hyps, tree, span, b, rows, at, end, found, scratch):
    """Candidates of an utterance: symbols of open hypotheses, others as they are."""
    width, wide = hyps.score.shape[1], found.gain.shape[1]
    num_labels = np.int64(1) << 24
    for k in range(width):
        opens = at < end and rows[at] == b * width + k
        for w in range(wide):
            i = k * wide + w
            scratch.score[i], scratch.label[i] = -_INF, NONE
            scratch.frame[i], scratch.text[i] = (
                hyps.frame[b, k],
                hyps.text[b, k],
            )
            if not opens:
                if w == 0:
                    scratch.score[i] = hyps.score[b, k]
                continue
            scratch.score[i] = hyps.score[b, k] + found.gain[at, w]
            frame = hyps.frame[b, k] + found.step[at, w]
            if span.is_ended[b]:
                frame = min(frame, span.come[b])
            scratch.frame[i] = frame
            label = found.label[at, w]
            if label >= 0 and scratch.score[i] > -_INF:
                scratch.label[i] = label
                node = child_of(tree, hyps.text[b, k], label)
                if node < 0:
                    # A text that the tree lacks gets its own number, below those
                    # of nodes: few candidates are kept, and only they are entered.
                    node = -2 - (hyps.text[b, k] * num_labels + label)
                scratch.text[i] = node
        if opens:
            at += 1


@inlined
def _drop_seen(hyps, b, rows, at, end, scratch, wide):
    """Leave out tokens, taking no frame, to texts that the prefix search saw."""
    width = hyps.score.shape[1]
    for first in range(at, end):
        k = rows[first] - b * width
        for w in range(wide):
            i = k * wide + w
            if scratch.label[i] < 0 or scratch.frame[i] != hyps.frame[b, k]:
                continue
            for second in range(at, end):
                if scratch.text[i] == hyps.text[b, rows[second] - b * width]:
                    scratch.score[i] = -_INF


@inlined
def _merge(scratch, num, is_sum):
    """Merge equal texts and frames: the best keeps its place and gets all the score."""
    size = 4
    while size < 2 * num:
        size *= 2
    scratch.table[:size] = NONE
    for i in range(num):
        scratch.head[i] = scratch.best[i] = NONE
        scratch.total[i], scratch.merged[i] = -_INF, -_INF
        # Impossible ones merge with nothing.
        if not scratch.score[i] > -_INF:
            continue
        text, frame = scratch.text[i], scratch.frame[i]
        at = ((text * 31 + frame) ^ (text >> 20)) & (size - 1)
        while scratch.table[at] >= 0:  # ends: half of the slots stay free
            j = scratch.table[at]
            if scratch.text[j] == text and scratch.frame[j] == frame:
                break
            at = (at + 1) & (size - 1)
        if scratch.table[at] < 0:
            scratch.table[at] = i
        scratch.head[i] = scratch.table[at]
    for i in range(num):
        head = scratch.head[i]
        if head >= 0:
            best, score = scratch.best[head], scratch.score[i]
            if best < 0 or score > scratch.score[best]:
                scratch.best[head] = i
            total = scratch.total[head]
            total = add_scores(total, score) if is_sum else max(total, score)
            scratch.total[head] = total
    for i in range(num):
        if scratch.best[i] >= 0:
            scratch.merged[scratch.best[i]] = scratch.total[i]


@inlined
def _keep(hyps, tree, b, scratch, wide):
    """The K best, of equal ones the first, become the hypotheses."""
    width = hyps.score.shape[1]
    merged, lane = scratch.merged, scratch.lane
    for k in range(width):
        best = 0
        for i in range(1, width * wide):
            # Strictly more: of equal ones the first, as `torch.sort` keeps them.
            if merged[i] > merged[best]:
                best = i
        score, parent = merged[best], best // wide
        merged[best] = -_INF
        text, trace = hyps.text[b, parent], hyps.trace[b, parent]
        before, frame = hyps.frame[b, parent], scratch.frame[best]
        label, run = scratch.label[best], hyps.run[b, parent]
        if score > -_INF and label >= 0:
            text = add_text(tree, text, label)
            trace = add_trace(tree, trace, label, before, max(frame, before + 1))
            run = run + 1
        lane.score[0, k], lane.frame[0, k] = score, frame
        lane.run[0, k] = 0 if frame > before else run
        lane.text[0, k], lane.trace[0, k] = text, trace
    # Written only now: parents were read from the same arrays.
    for k in range(width):
        hyps.score[b, k], hyps.frame[b, k] = (
            lane.score[0, k],
            lane.frame[0, k],
        )
        hyps.run[b, k], hyps.text[b, k] = lane.run[0, k], lane.text[0, k]
        hyps.trace[b, k] = lane.trace[0, k]
