"""Kernels of the searches on a CPU: what is open, prefixes, merging, cutting.

A step of a search, the model in between:

    num = open_steps(...) or open_frames(...)     # rows of hypotheses that take a step
    wanted = place(...)                           # texts that the predictor has not had
    find(...)                                     # rows of frames and predictor outputs
    choices.choose(...)                           # symbols that may follow
    advance(...)                                  # merged, cut; the new hypotheses

Sums are taken in the order of `wfstdec.transducer.beam`, which other devices run, by
the rule of `wfstdec.search.log_add`: the same bits.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import inlined, kernel
from wfstdec.search.log_add import add_scores
from wfstdec.transducer.cpu.choices import total
from wfstdec.transducer.cpu.trees import add_text, add_trace, child_of, text_of

NONE = -1
_INF = np.inf


# -------------------------------------------------------------------- what is open
@kernel
def open_steps(lanes, reach, longest, rows):
    """ALSD++: rows of hypotheses whose frame has come; returns how many.

    In chunks all of an utterance wait until none can pass the last frame that came.
    """
    num, width = lanes.score.shape
    count = 0
    for b in range(num):
        latest = np.int64(0)
        for k in range(width):
            if lanes.score[b, k] > -_INF:
                latest = max(latest, lanes.frame[b, k])
        if not reach.is_ended[b] and latest + longest > reach.come[b]:
            continue
        for k in range(width):
            if lanes.score[b, k] > -_INF and lanes.frame[b, k] < reach.come[b]:
                rows[count] = b * width + k
                count += 1
    return count


@kernel
def next_frames(lanes, reach, longest):
    """AES++: the frame that each utterance expands next, -1 where it has to wait."""
    num, width = lanes.score.shape
    for b in range(num):
        first = reach.come[b]
        for k in range(width):
            if lanes.score[b, k] > -_INF:
                first = min(first, lanes.frame[b, k])
        needed = first + (1 if reach.is_ended[b] else longest)
        reach.at[b] = first if needed <= reach.come[b] else NONE


@kernel
def open_frames(lanes, reach, rows):
    """AES++: rows of hypotheses at the frames of `next_frames`; returns how many."""
    num, width = lanes.score.shape
    count = 0
    for b in range(num):
        for k in range(width):
            if lanes.score[b, k] > -_INF and lanes.frame[b, k] <= reach.at[b]:
                rows[count] = b * width + k
                count += 1
    return count


# ---------------------------------------------------------- what the model is to see
@kernel
def place(lanes, tree, rows, num, first, parents, labels):
    """Give slots from `first` on to texts that have none; returns how many.

    Args:
        lanes: The hypotheses.
        tree: Of their texts.
        rows: Those that are to have slots.
        num: How many these are.
        first: The first free slot.
        parents: int64 [num], written: the slot of each new one's parent.
        labels: int64 [num], written: its last token.
    """
    count = 0
    for i in range(num):
        node = text_of(lanes, rows[i])
        if tree.slot[node] < 0:
            tree.slot[node] = first + count
            parents[count] = tree.slot[tree.parent[node]]
            labels[count] = tree.token[node]
            count += 1
    return count


@kernel
def find(lanes, tree, reach, num_frames, rows, num, frames, slots):
    """Where the frame and the predictor's output of each row are.

    Args:
        lanes: The hypotheses.
        tree: Of their texts.
        reach: Of their frames, which stand in [B, num_frames].
        num_frames: Frames of an utterance at hand, padding included.
        rows: int64.
        num: How many of them count.
        frames: int64, written: from `num` on copies of the first, to its end.
        slots: int64, written: likewise.
    """
    width = lanes.score.shape[1]
    for i in range(len(frames)):
        row = rows[i if i < num else 0]
        b, k = row // width, row % width
        frame = min(max(lanes.frame[b, k] - reach.first[b], 0), num_frames - 1)
        frames[i] = b * num_frames + frame
        slots[i] = tree.slot[lanes.text[b, k]]


# ------------------------------------------------------------------ prefixes of AES++
@kernel
def find_prefixes(lanes, tree, rows, num, parents):
    """Find the open row that is each one's text less its last token, -1 for none."""
    width = lanes.score.shape[1]
    begin = 0
    for i in range(num):
        if rows[i] // width != rows[begin] // width:
            begin = i
        parents[i] = NONE
        wanted, j = tree.parent[text_of(lanes, rows[i])], begin
        while j < num and rows[j] // width == rows[i] // width:
            if text_of(lanes, rows[j]) == wanted:
                parents[i] = j
                break
            j += 1


@kernel
def add_prefixes(lanes, tree, prices, rows, num, parents, extra, zero, is_sum):
    """Move scores from texts to those one token longer, in the order of their length.

    Args:
        lanes: The hypotheses; their scores are written.
        tree: Of their texts.
        prices: Of the rows.
        rows: int64 [num], those that are open.
        num: How many.
        parents: Of `find_prefixes`.
        extra: float32 [num], what early fusion gives; no rows where it is late.
        zero: Position of the duration 0; -1 where there are none.
        is_sum: Add up; else the best counts.
    """
    width = lanes.score.shape[1]
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
                length = tree.depth[text_of(lanes, rows[i])]
                if length > depth and (following < 0 or length < following):
                    following = length
            if following < 0:
                break
            depth = following
            for i in range(begin, end):
                node, parent = text_of(lanes, rows[i]), parents[i]
                if parent < 0 or tree.depth[node] != depth:
                    continue
                label = tree.token[node]
                gain = np.float64(total(prices, parent, label))
                if len(extra):
                    gain = gain + np.float64(extra[i])
                if zero >= 0:
                    gain = gain + np.float64(prices.lasts[parent, zero])
                b, k = rows[i] // width, rows[i] % width
                one, came = lanes.score[b, k], lanes.score[b, rows[parent] % width]
                came = came + gain
                both = add_scores(one, came) if is_sum else max(one, came)
                lanes.score[b, k] = both
        begin = end


# ------------------------------------------------------------------------- the step
@kernel
def advance(lanes, tree, reach, rows, num, found, drops_seen, is_sum, scratch):
    """Merge the candidates of all utterances, cut them, and write the hypotheses kept.

    Args:
        lanes: The hypotheses; written.
        tree: Grows.
        reach: No hypothesis passes the end, where it has come.
        rows: int64, those that are open, in order.
        num: How many.
        found: Their choices.
        drops_seen: Leave out tokens, taking no frame, to texts of open hypotheses.
        is_sum: Add up; else the best counts.
        scratch: For the widest.
    """
    width, wide = lanes.score.shape[1], found.gain.shape[1]
    at = 0
    while at < num:
        b = rows[at] // width
        end = at
        while end < num and rows[end] // width == b:
            end += 1
        _gather(lanes, tree, reach, b, rows, at, end, found, scratch)
        if drops_seen:
            _drop_seen(lanes, b, rows, at, end, scratch, wide)
        if width * wide > 1:
            _merge(scratch, width * wide, is_sum)
        else:
            scratch.merged[0] = scratch.score[0]
        _keep(lanes, tree, b, scratch, wide)
        at = end


@inlined
def _gather(lanes, tree, reach, b, rows, at, end, found, scratch):
    """Candidates of an utterance: symbols of open hypotheses, others as they are."""
    width, wide = lanes.score.shape[1], found.gain.shape[1]
    num_labels = np.int64(1) << 24
    for k in range(width):
        opens = at < end and rows[at] == b * width + k
        for w in range(wide):
            i = k * wide + w
            scratch.score[i], scratch.label[i] = -_INF, NONE
            scratch.frame[i], scratch.text[i] = lanes.frame[b, k], lanes.text[b, k]
            if not opens:
                if w == 0:
                    scratch.score[i] = lanes.score[b, k]
                continue
            scratch.score[i] = lanes.score[b, k] + found.gain[at, w]
            frame = lanes.frame[b, k] + found.step[at, w]
            if reach.is_ended[b]:
                frame = min(frame, reach.come[b])
            scratch.frame[i] = frame
            label = found.label[at, w]
            if label >= 0 and scratch.score[i] > -_INF:
                scratch.label[i] = label
                node = child_of(tree, lanes.text[b, k], label)
                if node < 0:
                    # A text that the tree lacks gets a number of its own, below those
                    # of nodes: few candidates are kept, and only they are entered.
                    node = -2 - (lanes.text[b, k] * num_labels + label)
                scratch.text[i] = node
        if opens:
            at += 1


@inlined
def _drop_seen(lanes, b, rows, at, end, scratch, wide):
    """Leave out tokens, taking no frame, to texts that the prefix search saw."""
    width = lanes.score.shape[1]
    for first in range(at, end):
        k = rows[first] - b * width
        for w in range(wide):
            i = k * wide + w
            if scratch.label[i] < 0 or scratch.frame[i] != lanes.frame[b, k]:
                continue
            for second in range(at, end):
                if scratch.text[i] == lanes.text[b, rows[second] - b * width]:
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
        while scratch.table[at] >= 0:
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
def _keep(lanes, tree, b, scratch, wide):
    """The K best, of equal ones the first, become the hypotheses."""
    width = lanes.score.shape[1]
    merged, lane = scratch.merged, scratch.lane
    for k in range(width):
        best = 0
        for i in range(1, width * wide):
            # Strictly more: of equal ones the first, as `torch.sort` keeps them.
            if merged[i] > merged[best]:
                best = i
        score, parent = merged[best], best // wide
        merged[best] = -_INF
        text, trace = lanes.text[b, parent], lanes.trace[b, parent]
        before, frame = lanes.frame[b, parent], scratch.frame[best]
        label, run = scratch.label[best], lanes.run[b, parent]
        if score > -_INF and label >= 0:
            text = add_text(tree, text, label)
            trace = add_trace(tree, trace, label, before, max(frame, before + 1))
            run = run + 1
        lane.score[0, k], lane.frame[0, k] = score, frame
        lane.run[0, k] = 0 if frame > before else run
        lane.text[0, k], lane.trace[0, k] = text, trace
    # Written only now: parents were read from the same arrays.
    for k in range(width):
        lanes.score[b, k], lanes.frame[b, k] = lane.score[0, k], lane.frame[0, k]
        lanes.run[b, k], lanes.text[b, k] = lane.run[0, k], lane.text[0, k]
        lanes.trace[b, k] = lane.trace[0, k]
