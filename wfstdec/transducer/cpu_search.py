"""ALSD++ and AES++ on a CPU: the model in torch, kernels between its calls.

The predictor runs once per text, and only when a hypothesis with this text is joined;
its output is cached by text, in slots. Tokens are in trees, so that a step copies only
numbers. When trees are full, and between runs, the state is converted to a `Beam`,
which drops nodes without hypotheses.

    node = add_text(store, parent, token)         # the same for the same text
    trace = add_trace(store, parent, token, frame, after)
"""

from typing import Any

import numpy as np
import torch

from wfstdec.jit import inlined, kernel
from wfstdec.search.log_add import add_scores
from wfstdec.search.threads import check
from wfstdec.transducer import cpu_greedy as greedy
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu_arrays import (
    NONE,
    Choices,
    Joiner,
    JoinerLogprobs,
    Rows,
    as_array,
    store_of,
)
from wfstdec.transducer.cpu_greedy import total
from wfstdec.transducer.pricing import Pricer

_ROOM, _ROOM_EACH, _MOST = 256, 4, 16
"""Initial capacity for texts in addition to a beam's, and per hypothesis; largest
factor by which it grows for long texts."""
_INF = np.inf
_NUM_LABELS = 1 << 24


class CpuSearch:
    """A beam search on the CPU."""

    def __init__(self, pricer: Pricer) -> None:
        self._joiner, options = Joiner(pricer), pricer.options
        self._options = options
        self._is_sum, self._is_aes = options.merge == "sum", options.strategy == "aes"
        self.num_steps = 0
        self._kinds = [greedy.STEP]
        if self._is_aes:
            # Hypotheses still in the frame after all rounds leave it with a blank.
            self._kinds = [greedy.EXPAND] * options.expansion_rounds + [greedy.CLOSE]
        self._prefixes_first = options.prefix_search and pricer.has_zero_step

    def run(self, beam: Beam, source: Source) -> Beam:
        """Advance while there are frames."""
        self._source, self._frames = source, source.frames.flatten(0, 1)
        self.bad = np.zeros(len(beam.score), np.bool_)
        self._most = beam.score.numel() * len(self._kinds)  # texts that a step may add
        least = max(_ROOM, _ROOM_EACH * beam.score.numel())
        room = least
        self._lay_out(beam, room)
        while self._step():
            self.num_steps += 1
            check()
            if self._store.used.max() + self._most > len(self._store.texts):
                room = min(2 * room, _MOST * least)
                self._lay_out(self._beam(is_over=False), room)
        return self._beam(is_over=True)

    def _lay_out(self, beam: Beam, room: int) -> None:
        self._before, room = beam, max(room, self._most)
        wide, _ = max(map(self._sizes, self._kinds))
        store = self._store = store_of(beam, self._source, room, wide)
        read_rows(store, as_array(beam.rows), as_array(beam.length).ravel())
        # Slots of texts: the predictor's output and states of fusion. Those of live
        # hypotheses are valid.
        order = np.argsort(~(store.hyps["score"] > -np.inf), kind="stable")
        nodes, which = np.unique(store.hyps["text"][order], return_index=True)
        at, self._used = order[which], len(nodes)
        store.texts["slot"][nodes] = np.arange(len(nodes))
        self._given = Rows(self._joiner, beam, at, len(nodes) + room)

    def _step(self) -> bool:
        next_frames(self._store, self._joiner.longest, self._is_aes)
        for number, kind in enumerate(self._kinds):
            num = open_rows(self._store)
            if not num:
                return number > 0  # with a duration above 0 all have left the frame
            prices = self._price(num)
            is_first = number == 0 and self._is_aes and self._prefixes_first
            if is_first:
                self._search_prefixes(num, prices)
            found = self._choose(num, prices, kind)
            advance(self._store, num, found, is_first, self._is_sum)
        return True

    def _price(self, num: int) -> JoinerLogprobs:
        self._fill(self._store.rows[:num])
        frames, places = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        num_frames = self._source.frames.shape[1]
        find(self._store, num, num_frames, frames, places)
        return self._joiner.prices(
            self._frames.index_select(0, torch.from_numpy(frames)),
            self._given.g_at(places),
            self._given.states_at(places[:num]),
        )

    def _sizes(self, kind: int) -> tuple[int, int]:
        """Return W, choices of a hypothesis, and how many tokens are considered."""
        options, joiner = self._options, self._joiner
        most = options.beam_size + options.expansion_beta * (kind == greedy.EXPAND)
        pairs = min(most, joiner.num_labels - 1) * max(joiner.num_durations, 1)
        wide = len(joiner.steps.of_blank) + min(most, pairs)
        return 1 if kind == greedy.CLOSE else wide, most

    def _choose(self, num: int, prices: JoinerLogprobs, kind: int) -> Choices:
        options, joiner, hyps = self._options, self._joiner, self._store.hyps
        wide, most = self._sizes(kind)
        label, step = np.empty((2, num, wide), np.int64)
        value, order = np.empty(max(wide, most)), np.empty((max(wide, most), 2), int)
        found = Choices(np.empty((num, wide)), label, step, value, order)
        bad, rows = np.empty(num, np.bool_), self._store.rows[:num]
        gamma, forced = options.expansion_gamma, options.max_symbols
        greedy.choose(
            *(prices, joiner.steps, (kind, most)),
            *(np.array([gamma, most, forced], np.float64), hyps["run"][rows]),
            *(found, bad),
        )
        if bad.any():
            self.bad[rows[bad] // self._store.width] = True
        return found

    def _search_prefixes(self, num: int, prices: JoinerLogprobs) -> None:
        store, parents = self._store, np.empty(num, np.int64)
        find_prefixes(store, parents)
        if (parents < 0).all():
            return
        add_prefixes(store, prices, parents, self._joiner.zero, self._is_sum)

    def _fill(self, rows: np.ndarray, *, predict: bool = True) -> None:
        labels, parents = np.empty((2, max(len(rows), LEAST_ROWS)), np.int64)
        first = self._used
        count = place(self._store, rows, first, parents, labels)
        self._used += count
        to = slice(first, self._used)
        self._given.advance(parents, labels, to, count, predict=predict)

    def _beam(self, *, is_over: bool) -> Beam:
        store, shape = self._store, self._before.score.shape
        hyps, texts = store.hyps, store.texts
        alive = hyps["score"] > -np.inf
        # At the end only hypotheses that may end are queried, without the predictor.
        is_ended = np.repeat(store.span["is_ended"] & is_over, store.width)
        self._fill(np.flatnonzero(alive & ~is_ended))
        self._fill(np.flatnonzero(alive), predict=False)
        lengths = texts["depth"][hyps["text"]]
        tokens = np.zeros((len(hyps), int(lengths.max(initial=0)), 3), np.int32)
        write_rows(store, tokens)
        arrays = {name: hyps[name].copy() for name in ("score", "frame", "run")}
        arrays |= {"length": lengths, "last": texts["token"][hyps["text"]]}
        places = np.where(alive, texts["slot"][hyps["text"]], 0)
        fields: dict[str, Any] = self._given.fields(places)
        for name, array in arrays.items():
            fields[name] = torch.from_numpy(array).view(shape)
        return self._before._replace(rows=torch.from_numpy(tokens), **fields)


@inlined
def slot_of(store, parent, token):
    """Return the slot of the text that is one token longer, taken or free."""
    mask = len(store.table) - 1
    key = (parent * 31 + token) * 0x9E3779B1
    at = (key ^ (key >> 17)) & mask
    while store.table[at] >= 0:  # ends: at most half of the slots are taken
        text = store.texts[store.table[at]]
        if text.parent == parent and text.token == token:
            break
        at = (at + 1) & mask
    return at


@inlined
def add_text(store, parent, token):
    """Return the text that is one token longer; add it if new."""
    at = slot_of(store, parent, token)
    node = store.table[at]
    if node < 0:
        node = store.used[0]
        store.used[0] += 1
        text = store.texts[node]
        text.parent, text.token, text.slot = parent, token, NONE
        text.depth = store.texts[parent].depth + 1
        store.table[at] = node
    return node


@inlined
def add_trace(store, parent, token, frame, after):
    """Add a token after a trace."""
    node = store.used[1]
    store.used[1] += 1
    trace = store.traces[node]
    trace.parent, trace.token, trace.frame, trace.after = parent, token, frame, after
    return node


@kernel
def read_rows(store, rows, lengths):
    """Enter texts and traces of live hypotheses; rows int32 [B * K, U, 3]."""
    for row in range(len(store.hyps)):
        hyp = store.hyps[row]
        text = trace = np.int64(row // store.width)
        if hyp.score > -_INF:
            for u in range(lengths[row]):
                token = rows[row, u, 0]
                text = add_text(store, text, np.int64(token))
                trace = add_trace(store, trace, token, rows[row, u, 1], rows[row, u, 2])
        hyp.text, hyp.trace = text, trace


@kernel
def write_rows(store, rows):
    """Write tokens of all hypotheses, int32 [B * K, U, 3]."""
    for row in range(len(store.hyps)):
        at, node = store.texts[store.hyps[row].text].depth, store.hyps[row].trace
        while at > 0:
            at -= 1
            trace = store.traces[node]
            rows[row, at, 0], rows[row, at, 1] = trace.token, trace.frame
            rows[row, at, 2], node = trace.after, trace.parent


# -------------------------------------------------------------------- open hypotheses
@kernel
def next_frames(store, longest, is_aes):
    """Write the last frame at which each utterance has open hypotheses, or -1."""
    # In chunks all wait until none can exceed the last frame so far.
    for b in range(len(store.span)):
        span = store.span[b]
        first, latest = np.int64(span.come), np.int64(0)
        for row in range(b * store.width, (b + 1) * store.width):
            if store.hyps[row].score > -_INF:
                first = min(first, store.hyps[row].frame)
                latest = max(latest, store.hyps[row].frame)
        if is_aes:  # the frame that is expanded
            needed = first + (1 if span.is_ended else longest)
            span.at = first if needed <= span.come else NONE
        else:
            waits = not span.is_ended and latest + longest > span.come
            span.at = NONE if waits else span.come - 1


@kernel
def open_rows(store):
    """Write the open hypotheses to `store.rows`; return how many."""
    count = 0
    for row in range(len(store.hyps)):
        hyp = store.hyps[row]
        if hyp.score > -_INF and hyp.frame <= store.span[row // store.width].at:
            store.rows[count] = row
            count += 1
    return count


# ---------------------------------------------------------------- input of the model
@kernel
def place(store, rows, first, parents, labels):
    """Give slots from `first` on to texts without one; return how many."""
    count = 0
    for i in range(len(rows)):
        text = store.texts[store.hyps[rows[i]].text]
        if text.slot < 0:
            text.slot = first + count
            parents[count] = store.texts[text.parent].slot
            labels[count] = text.token
            count += 1
    return count


@kernel
def find(store, num, num_frames, frames, slots):
    """Write the position of the frame and the predictor output of each row."""
    for i in range(len(frames)):
        row = store.rows[i if i < num else 0]
        hyp, b = store.hyps[row], row // store.width
        frame = min(max(hyp.frame - store.span[b].first, 0), num_frames - 1)
        frames[i] = b * num_frames + frame
        slots[i] = store.texts[hyp.text].slot


@inlined
def _end_of(store, begin, num):
    end, b = begin, store.rows[begin] // store.width
    while end < num and store.rows[end] // store.width == b:
        end += 1
    return end


# ------------------------------------------------------------------ prefixes of AES++
@kernel
def find_prefixes(store, parents):
    """Write the open row of each text without its last token, -1 for none."""
    begin, num = 0, len(parents)
    while begin < num:
        end = _end_of(store, begin, num)
        for i in range(begin, end):
            wanted = store.texts[store.hyps[store.rows[i]].text].parent
            parents[i] = NONE
            for j in range(end - 1, begin - 1, -1):
                if store.hyps[store.rows[j]].text == wanted:
                    parents[i] = j
        begin = end


@kernel
def add_prefixes(store, prices, parents, zero, is_sum):
    """Move scores from texts to those one token longer, in order of length."""
    hyps, begin, num = store.hyps, 0, len(parents)
    while begin < num:
        end, depth = _end_of(store, begin, num), np.int64(-1)
        # Short texts first: they pass their gain on to texts one token longer.
        while True:  # the next length, of the rows begin..end
            following = np.int64(-1)
            for i in range(begin, end):
                length = store.texts[hyps[store.rows[i]].text].depth
                if length > depth and (following < 0 or length < following):
                    following = length
            if following < 0:
                break
            depth = following
            for i in range(begin, end):
                hyp, parent = hyps[store.rows[i]], parents[i]
                text = store.texts[hyp.text]
                if parent < 0 or text.depth != depth:
                    continue
                gain = np.float64(total(prices, parent, text.token))
                if zero >= 0:
                    gain = gain + np.float64(prices.lasts[parent, zero])
                came = hyps[store.rows[parent]].score + gain
                both = add_scores(hyp.score, came) if is_sum else max(hyp.score, came)
                hyp.score = both
        begin = end


# ------------------------------------------------------------------------- the step
@kernel
def advance(store, num, found, drops_seen, is_sum):
    """Merge and prune the candidates of all utterances; write the kept hypotheses."""
    begin, wide = 0, found.gain.shape[1]
    candidates = store.candidates[: store.width * wide]
    while begin < num:
        end = _end_of(store, begin, num)
        _gather(store, begin, end, found)
        if drops_seen:
            _drop_seen(store, begin, end, wide)
        if len(candidates) > 1:
            _merge(candidates, store.slots, is_sum)
        else:
            candidates[0].merged = candidates[0].score
        _keep(store, store.rows[begin] // store.width, candidates)
        begin = end


@inlined
def _gather(store, begin, end, found):
    """Write an utterance's candidates: symbols of open hypotheses, others unchanged."""
    width, wide, at = store.width, found.gain.shape[1], begin
    b = store.rows[begin] // width
    span = store.span[b]
    for k in range(width):
        hyp = store.hyps[b * width + k]
        opens = at < end and store.rows[at] == b * width + k
        for w in range(wide):
            c = store.candidates[k * wide + w]
            c.score, c.label, c.frame, c.text = -_INF, NONE, hyp.frame, hyp.text
            if not opens:
                if w == 0:
                    c.score = hyp.score
                continue
            c.score = hyp.score + found.gain[at, w]
            c.frame = hyp.frame + found.step[at, w]
            if span.is_ended:
                c.frame = min(c.frame, span.come)
            label = found.label[at, w]
            if label >= 0 and c.score > -_INF:
                c.label, c.text = label, store.table[slot_of(store, hyp.text, label)]
                if c.text < 0:
                    # A text that the tree lacks gets its own number, below those of
                    # nodes: only the few kept ones are added.
                    c.text = -2 - (hyp.text * _NUM_LABELS + label)
        if opens:
            at += 1


@inlined
def _drop_seen(store, begin, end, wide):
    """Drop tokens without a frame that lead to texts seen by the prefix search."""
    for first in range(begin, end):
        row = store.rows[first]
        k = row % store.width
        for i in range(k * wide, (k + 1) * wide):
            c = store.candidates[i]
            if c.label < 0 or c.frame != store.hyps[row].frame:
                continue
            for second in range(begin, end):
                if c.text == store.hyps[store.rows[second]].text:
                    c.score = -_INF


@inlined
def _merge(candidates, slots, is_sum):
    """Merge equal texts and frames: the best keeps its place and gets the sum."""
    size = 4
    while size < 2 * len(candidates):
        size *= 2
    slots[:size] = NONE
    for i in range(len(candidates)):
        c = candidates[i]
        c.best, c.total, c.merged = NONE, -_INF, -_INF
        # Impossible ones merge with nothing.
        if not c.score > -_INF:
            continue
        at = ((c.text * 31 + c.frame) ^ (c.text >> 20)) & (size - 1)
        while slots[at] >= 0:  # ends: half of the slots stay free
            other = candidates[slots[at]]
            if other.text == c.text and other.frame == c.frame:
                break
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = i
        head = candidates[slots[at]]
        if head.best < 0 or c.score > candidates[head.best].score:
            head.best = i
        total = add_scores(head.total, c.score) if is_sum else max(head.total, c.score)
        head.total = total
    for i in range(len(candidates)):
        best = candidates[i].best
        if best >= 0:
            candidates[best].merged = candidates[i].total


@inlined
def _keep(store, b, candidates):
    width = store.width
    wide = len(candidates) // width
    for k in range(width):
        best = 0
        for i in range(1, len(candidates)):
            # Strictly greater: ties go to the first, as with `torch.sort`.
            if candidates[i].merged > candidates[best].merged:
                best = i
        c, parent = candidates[best], store.hyps[b * width + best // wide]
        kept = store.kept[k]
        kept.score, kept.frame, kept.run = c.merged, c.frame, parent.run
        kept.text, kept.trace = parent.text, parent.trace
        c.merged = -_INF
        if kept.score > -_INF and c.label >= 0:
            before, after = parent.frame, max(c.frame, parent.frame + 1)
            kept.text = add_text(store, parent.text, c.label)
            kept.trace = add_trace(store, parent.trace, c.label, before, after)
            kept.run += 1
        if c.frame > parent.frame:
            kept.run = 0
    # Written last: parents are read from the same arrays.
    for k in range(width):
        store.hyps[b * width + k] = store.kept[k]
