"""Kernels of the searches on a CPU: what is open, choices, merging, trees.

A step of a search, the model in between:

    num = open_steps(...) or open_frames(...)     # rows of hypotheses that take a step
    wanted = place(...)                           # texts that the predictor has not had
    find(...)                                     # rows of frames and predictor outputs
    choose(...)                                   # symbols that may follow
    advance(...)                                  # merged, cut; the new hypotheses

Sums are taken in the order of `wfstdec.transducer.beam`, which other devices run; sums
of exponentials may differ in the last bit, since the functions are others.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import inlined, kernel

NONE = -1
STEP, EXPAND, CLOSE = 0, 1, 2
"""Kinds of choices: of ALSD++, of AES++, and the blank alone."""
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
@inlined
def text_of(lanes, row):
    """The text of a row of [B * K]."""
    width = lanes.text.shape[1]
    return lanes.text[row // width, row % width]


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


# ------------------------------------------------------------------- what may follow
@inlined
def own(prices, i, label):
    """What a token gains but for fusion and its duration."""
    found = prices.logprobs[i, label]
    if len(prices.spoke):
        found = found + prices.weights[0] * prices.spoke[i]
    if prices.weights[1] != 0:
        found = found - prices.weights[1]
    return found


@inlined
def total(prices, i, label):
    """What a token gains with late fusion, its duration left out."""
    found = own(prices, i, label)
    if len(prices.gains):
        found = found + prices.gains[i, label]
    return found


@inlined
def blank_gain(prices, i, e, blank, weight):
    """What a blank gains with its duration number e."""
    found = weight * prices.logprobs[i, blank]
    if len(prices.blank_lasts):
        found = found + prices.blank_lasts[i, e]
    return found


@inlined
def is_good(prices, i):
    """Whether no log-prob of a row is NaN or +inf."""
    for label in range(prices.logprobs.shape[1]):
        if not prices.logprobs[i, label] < _INF:
            return False
    for d in range(prices.lasts.shape[1]):
        if not prices.lasts[i, d] < _INF:
            return False
    return True


@kernel
def choose(prices, steps, kind, late, num, limits, runs, found, bad):
    """Choose the symbols that may follow each row, as `Pricer` does.

    Args:
        prices: Of N rows or more.
        steps: What symbols are.
        kind: `STEP`, `EXPAND` or `CLOSE`.
        late: Tokens are chosen by all that they gain, else by the model alone; what
            fusion gives is then still to be added.
        num: Tokens of each.
        limits: float64 [3], gamma and labels of AES++, most tokens in a frame.
        runs: int64 [N], tokens in this frame so far.
        found: Written.
        bad: bool [N], written: NaN or +inf is among the row.
    """
    blank, ways = steps.blank[0], len(steps.of_blank)
    lasting = prices.lasts.shape[1]
    value, order = found.value, found.order
    for i in range(len(runs)):
        bad[i] = not is_good(prices, i)
        if kind == CLOSE:
            best = 0
            for e in range(1, ways):
                one = blank_gain(prices, i, e, blank, prices.weights[2])
                if one > blank_gain(prices, i, best, blank, prices.weights[2]):
                    best = e
            found.gain[i, 0] = blank_gain(prices, i, best, blank, prices.weights[2])
            found.label[i, 0] = NONE
            found.step[i, 0] = steps.of_blank[best]
            continue
        # The best tokens, of equal ones the lower first.
        most, count = min(num, prices.logprobs.shape[1] - 1), 0
        for label in range(prices.logprobs.shape[1]):
            if label == blank:
                continue
            one = np.float64(
                total(prices, i, label) if late else prices.logprobs[i, label]
            )
            if count == most and not one > value[count - 1]:
                continue
            at = min(count, most - 1)
            count = min(count + 1, most)
            while at > 0 and one > value[at - 1]:
                value[at], order[at, 0] = value[at - 1], order[at - 1, 0]
                at -= 1
            value[at], order[at, 0] = one, label
        # With durations the best pairs of these, of equal ones the first.
        gain, label, step = found.gain[i], found.label[i], found.step[i]
        wide = len(gain) - ways
        if lasting:
            filled = 0
            for r in range(count):
                for d in range(lasting):
                    one = value[r] + np.float64(prices.lasts[i, d])
                    if filled == wide and not one > gain[ways + filled - 1]:
                        continue
                    at = min(filled, wide - 1)
                    filled = min(filled + 1, wide)
                    while at > 0 and one > gain[ways + at - 1]:
                        gain[ways + at] = gain[ways + at - 1]
                        label[ways + at] = label[ways + at - 1]
                        step[ways + at] = step[ways + at - 1]
                        at -= 1
                    gain[ways + at], label[ways + at] = one, order[r, 0]
                    step[ways + at] = d
        else:
            for r in range(wide):
                gain[ways + r], label[ways + r] = value[r], order[r, 0]
                step[ways + r] = 0
        for e in range(ways):
            label[e], step[e] = NONE, steps.of_blank[e]
            gain[e] = blank_gain(prices, i, e, blank, prices.weights[2])
        forced = runs[i] >= limits[2]
        if kind == EXPAND:
            # Those far below the best, and those behind so many others, are left out.
            highest = -_INF
            for w in range(len(gain)):
                value[w] = gain[w]
                if w < ways and not late:
                    value[w] = blank_gain(prices, i, w, blank, prices.weights[3])
                if w >= ways and forced:
                    value[w] = -_INF
                highest = max(highest, value[w])
            for w in range(len(gain)):
                rank = 0
                for other in range(len(gain)):
                    if value[other] > value[w] or (
                        value[other] == value[w] and other < w
                    ):
                        rank += 1
                order[w, 1] = rank < limits[1] and value[w] > highest - limits[0]
        for w in range(ways, len(gain)):
            d = step[w]
            step[w] = steps.of_token[d]
            if not late and gain[w] > -_INF:
                gain[w] = np.float64(own(prices, i, label[w]))
                if lasting:
                    gain[w] = gain[w] + np.float64(prices.lasts[i, d])
            if forced:
                gain[w] = -_INF
        if kind == EXPAND:
            for w in range(len(gain)):
                if not order[w, 1]:
                    gain[w] = -_INF


# ------------------------------------------------------------------ prefixes of AES++
@kernel
def find_prefixes(lanes, tree, rows, num, parents):
    """Which of the open rows is each one's text without its last token, -1 for none."""
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
                high, low = max(one, came), min(one, came)
                if is_sum and low > -_INF:
                    high = high + np.log1p(np.exp(low - high))
                lanes.score[b, k] = high
        begin = end


# ---------------------------------------------------------------------------- texts
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
        node = tree.count[0]
        tree.count[0] += 1
        tree.parent[node], tree.token[node] = parent, token
        tree.depth[node] = tree.depth[parent] + 1
        tree.slot[node] = NONE
        _enter(tree, node)
    return node


@inlined
def add_trace(tree, parent, token, frame, after):
    """One more token behind a trace."""
    node = tree.count[1]
    tree.count[1] += 1
    tree.trace_parent[node] = parent
    tree.trace_row[node, 0] = token
    tree.trace_row[node, 1] = frame
    tree.trace_row[node, 2] = after
    return node


@kernel
def add_roots(tree, num):
    """The empty texts of so many utterances, nodes and traces 0 to num."""
    for b in range(num):
        tree.parent[b], tree.token[b], tree.depth[b] = NONE, NONE, 0
        tree.slot[b], tree.trace_parent[b] = NONE, NONE
    tree.count[:] = num


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
    texts[: tree.count[0]] = NONE
    traces[: tree.count[1]] = NONE
    for b in range(num):
        texts[b] = traces[b] = 0
        for k in range(width):
            node = lanes.text[b, k]
            while node >= 0 and texts[node] < 0:
                texts[node] = 0
                node = tree.parent[node]
            node = lanes.trace[b, k]
            while node >= 0 and traces[node] < 0:
                traces[node] = 0
                node = tree.trace_parent[node]
    tree.table[:] = NONE
    count = 0
    for node in range(tree.count[0]):
        if texts[node] < 0:
            continue
        texts[node] = count
        parent = tree.parent[node]
        tree.parent[count] = parent if parent < 0 else texts[parent]
        tree.token[count], tree.depth[count] = tree.token[node], tree.depth[node]
        tree.slot[count] = tree.slot[node]
        if parent >= 0:
            _enter(tree, np.int64(count))
        count += 1
    tree.count[0] = count
    count = 0
    for node in range(tree.count[1]):
        if traces[node] < 0:
            continue
        traces[node] = count
        parent = tree.trace_parent[node]
        tree.trace_parent[count] = parent if parent < 0 else traces[parent]
        for i in range(3):
            tree.trace_row[count, i] = tree.trace_row[node, i]
        count += 1
    tree.count[1] = count
    for b in range(num):
        for k in range(width):
            lanes.text[b, k] = texts[lanes.text[b, k]]
            lanes.trace[b, k] = traces[lanes.trace[b, k]]


@kernel
def enter_all(tree):
    """Fill an empty hash table."""
    for node in range(tree.count[0]):
        if tree.parent[node] >= 0:
            _enter(tree, np.int64(node))


@kernel
def keep_slots(lanes, tree, slots):
    """Number anew the slots that hypotheses need; `slots` are the old ones, in order.

    That of a text, or where it has none yet, that of its parent. Returns how many.
    """
    for node in range(tree.count[0]):
        if tree.slot[node] >= 0:
            tree.slot[node] = -2 - tree.slot[node]
    count = 0
    num, width = lanes.score.shape
    for row in range(num * width):
        node = text_of(lanes, row)
        if not lanes.score[row // width, row % width] > -_INF:
            continue
        if tree.slot[node] == NONE:
            node = tree.parent[node]
        if tree.slot[node] < NONE:
            slots[count] = -2 - tree.slot[node]
            tree.slot[node] = count
            count += 1
    for node in range(tree.count[0]):
        if tree.slot[node] < NONE:
            tree.slot[node] = NONE
    return count


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
    """One of each text and frame: the best keeps its place and gets all the score."""
    size = 4
    while size < 2 * num:
        size *= 2
    scratch.table[:size] = NONE
    for i in range(num):
        scratch.head[i] = scratch.best[i] = NONE
        scratch.total[i], scratch.merged[i] = 0.0, -_INF
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
            best = scratch.best[head]
            if best < 0 or scratch.score[i] > scratch.score[best]:
                scratch.best[head] = i
    for i in range(num):
        head = scratch.head[i]
        if head >= 0:
            best = scratch.score[scratch.best[head]]
            scratch.total[head] += np.exp(scratch.score[i] - best)
    for i in range(num):
        if scratch.best[i] >= 0:
            best = scratch.best[i]
            one = scratch.score[best]
            if is_sum:
                one = one + np.log(scratch.total[i])
            scratch.merged[best] = one


@inlined
def _keep(lanes, tree, b, scratch, wide):
    """The K best, of equal ones the first, become the hypotheses."""
    width = lanes.score.shape[1]
    merged, lane = scratch.merged, scratch.lane
    for k in range(width):
        best = 0
        for i in range(1, width * wide):
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
    for k in range(width):
        lanes.score[b, k], lanes.frame[b, k] = lane.score[0, k], lane.frame[0, k]
        lanes.run[b, k], lanes.text[b, k] = lane.run[0, k], lane.text[0, k]
        lanes.trace[b, k] = lane.trace[0, k]
