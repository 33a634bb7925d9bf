"""The greedy search on a CPU: label looping, several frames joined at once.

    until no utterance has frames:
        join the next frames of each with what its predictor gave last
        go through them to the first token, blanks by the way
        the predictor, and models of fusion, one token further where there was one

An utterance of few tokens waits for none of many: each advances by a token or by the
frames that are joined. Frames behind a token are joined in vain, which costs less than
a call of the joiner for each. The longest utterance decides the number of calls, so
it has most frames at once, and those that are near their end few. Models of fusion are
asked where there is a token alone, for blanks are judged without them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from wfstdec.jit import inlined, kernel
from wfstdec.search.threads import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu.arrays import NONE, Joiner, JoinerLogprobs, Rows, as_array
from wfstdec.transducer.options import TransducerOptions

AT_ONCE = 6
"""Frames joined at once of the utterance that has most left; see `plan`."""
_ROOM = 32
"""Room for tokens is made in steps of this many."""
_INF = np.inf


class GreedyState(NamedTuple):
    """Where each utterance is, [B]."""

    score: np.ndarray  # float64, nats; -inf where no path is left
    frame: np.ndarray  # int64, t: the next frame
    run: np.ndarray  # int64, tokens since the frame last moved
    length: np.ndarray  # int64, tokens in `rows`
    stop: np.ndarray  # int64, frames from here on cannot be joined now
    limit: np.ndarray  # int64, no frame is beyond it
    bad: np.ndarray  # bool, the joiner gave NaN or +inf
    # int32 [B, U, 3], of each token: itself, its frame, the frame after
    rows: np.ndarray


class JoinerStep(NamedTuple):
    """Outcome of frames that are joined at once."""

    active: np.ndarray  # int64 [B], utterances that have frames
    emitting: np.ndarray  # int64 [B or more], those of them that emit a token
    # int64 [B or more], which; before models of fusion are asked, its row
    label: np.ndarray
    # int64 [B + 1 or more], the row of each one's first frame, and the end
    begin: np.ndarray
    counts: np.ndarray  # int64, how many are active, and how many emit a token


class GreedySearch:
    """A greedy search, K = 1."""

    def __init__(self, joiner: Joiner, options: TransducerOptions) -> None:
        self._joiner, self._options = joiner, options
        self.num_steps = 0

    def run(self, beam: Beam, source: Source) -> Beam:
        """Advance as long as there are frames."""
        self._given = Rows(beam.g, beam.state)
        self._fusion = [as_array(states).copy() for states in beam.fusion]
        state, joiner = self._start(beam, source), self._joiner
        self.bad = state.bad
        frames, num_frames = source.frames.flatten(0, 1), source.frames.shape[1]
        first, num = as_array(source.first), len(state.score)
        at, given = np.empty((2, max(AT_ONCE * num, LEAST_ROWS + num)), np.int64)
        step = JoinerStep(*(np.empty(num + LEAST_ROWS, np.int64) for _ in range(5)))
        most, most_tokens = self._options.max_symbols, int(state.length.max(initial=0))
        while True:
            size = plan(state, first, num_frames, AT_ONCE, LEAST_ROWS, step, at, given)
            if not size:
                return self._beam(beam, state)
            check()
            self.num_steps += 1
            # A step emits at most one token per utterance.
            if most_tokens == state.rows.shape[1]:
                more = np.zeros((num, _ROOM, 3), np.int32)
                state = state._replace(rows=np.concatenate([state.rows, more], 1))
            most_tokens += 1
            prices = joiner.prices(
                frames.index_select(0, torch.from_numpy(at[:size])),
                self._given.g_at(given[:size]),
                None,
            )
            fused = bool(self._fusion)
            advance_frames(prices, joiner.steps, most, fused, state, step)
            if fused:
                self._fuse(prices, state, step)
            self._predict(step)

    def _start(self, beam: Beam, source: Source) -> GreedyState:
        """The state of the search, and how far it can advance now."""
        come, ended = as_array(source.come), as_array(source.is_ended)
        # A duration that leads behind the end is cut there. Frames from which one may
        # lead beyond what has come wait until it is known where the end is.
        parts = beam.score, beam.frame, beam.run, beam.length
        score, frame, run, length = (as_array(part[:, 0]).copy() for part in parts)
        return GreedyState(
            *(score, frame, run, length),
            stop=np.where(ended, come, come - self._joiner.longest + 1),
            limit=np.where(ended, come, np.iinfo(np.int64).max),
            bad=np.zeros(len(score), np.bool_),
            rows=as_array(beam.rows).copy(),
        )

    def _fuse(
        self, prices: JoinerLogprobs, state: GreedyState, step: JoinerStep
    ) -> None:
        """Emit the tokens that are best with language models and boosts."""
        num = int(step.counts[1])
        if not num:
            return
        emitting = step.emitting[:num]
        fusion = self._joiner.fusion
        gains = fusion.rows([states[emitting] for states in self._fusion])
        emit_fused(prices, self._joiner.steps, gains, state, step)
        num = int(step.counts[1])
        emitting, labels = step.emitting[:num], step.label[:num]
        at = [states[emitting] for states in self._fusion]
        _, new = fusion.step(at, labels)
        for old, there in zip(self._fusion, new, strict=True):
            old[emitting] = there

    def _predict(self, step: JoinerStep) -> None:
        """The predictor one token further where one was emitted."""
        num = int(step.counts[1])
        if not num:
            return
        padded = max(num, LEAST_ROWS)
        step.emitting[num:padded] = step.emitting[0]
        step.label[num:padded] = step.label[0]
        state = self._given.state_at(step.emitting[:padded])
        g, state = self._joiner.predict(step.label[:padded], state)
        self._given.put(step.emitting[:num], g, state, num)

    def _beam(self, before: Beam, state: GreedyState) -> Beam:
        """The beam of this search state."""
        last = np.full(len(state.score), NONE)
        some = np.flatnonzero(state.length)
        last[some] = state.rows[some, state.length[some] - 1, 0]
        everything = np.arange(len(state.score))
        names = ("score", "frame", "run", "length")
        arrays = {name: getattr(state, name) for name in names} | {"last": last}
        parts = {name: torch.from_numpy(one)[:, None] for name, one in arrays.items()}
        return before._replace(
            **parts,
            rows=torch.from_numpy(state.rows),
            g=self._given.g_at(everything),
            state=self._given.state_at(everything),
            fusion=tuple(map(torch.from_numpy, self._fusion)),
        )


@inlined
def _advance(state, b, gain, step):
    """Advance by a symbol; true if the frame moved."""
    before = state.frame[b]
    state.score[b] += gain
    state.frame[b] = min(before + step, state.limit[b])
    moved = state.frame[b] > before
    if moved:
        state.run[b] = 0
    return moved


@inlined
def _emit_blank(prices, steps, row, state, b):
    """Emit a blank with its best duration."""
    gain, best = best_blank(prices, row, steps)
    _advance(state, b, np.float64(gain), steps.of_blank[best])


@inlined
def _emit(prices, steps, row, gains, i, state, b):
    """Emit the best token, or a blank if none is possible; the token or -1."""
    # Where there are gains, those in row `i` are added.
    best, blank = np.int64(NONE), steps.blank[0]
    most = prices.weights[4]
    for label in range(prices.logprobs.shape[1]):
        if label == blank:
            continue
        one = own(prices, row, label)
        # Late fusion: models choose the token, never between token and blank.
        if len(gains):
            one = one + gains[i, label]
        if one > most:
            most, best = one, np.int64(label)
    if best < 0:
        _emit_blank(prices, steps, row, state, b)
    else:
        step = steps.of_token[0]
        if prices.lasts.shape[1]:
            longest = 0
            for d in range(1, prices.lasts.shape[1]):
                if prices.lasts[row, d] > prices.lasts[row, longest]:
                    longest = d
            most = most + prices.lasts[row, longest]
            step = steps.of_token[longest]
        before, run, at = state.frame[b], state.run[b], state.length[b]
        if not _advance(state, b, np.float64(most), step):
            state.run[b] = run + 1
        state.rows[b, at, 0], state.rows[b, at, 1] = best, before
        state.rows[b, at, 2] = max(state.frame[b], before + 1)
        state.length[b] = at + 1
    return best


@kernel
def plan(state, first, num_frames, at_once, least, step, at, given):
    """Plan which frames are joined next with which predictor outputs."""
    num, most = 0, 0
    for b in range(len(state.score)):
        if (
            state.frame[b] < state.stop[b]
            and state.score[b] > -_INF
            and not state.bad[b]
        ):
            step.active[num] = b
            num += 1
            most = max(most, state.stop[b] - state.frame[b])
    step.counts[0], step.counts[1] = num, 0
    if num == 0:
        return 0
    few, size = (least + num - 1) // num, 0
    for i in range(num):
        b = step.active[i]
        left = state.stop[b] - state.frame[b]
        # Frames joined ahead are in vain behind the next token. Rounded in integers, so
        # that plans are the same on all machines.
        window = max((2 * at_once * left * left + most * most) // (2 * most * most), 1)
        step.begin[i] = size
        for j in range(min(max(window, few), left)):
            # A duration may lead behind the last frame at hand.
            frame = min(state.frame[b] - first[b] + j, num_frames - 1)
            at[size] = b * num_frames + frame
            given[size] = b
            size += 1
    step.begin[num] = size
    while size < least:  # products of fewer rows may be rounded otherwise
        at[size], given[size] = at[size - 1], given[size - 1]
        size += 1
    return size


@kernel
def advance_frames(prices, steps, most, fused, state, step):
    """Go through the frames that were joined, to the first token of each utterance."""
    blank, num = steps.blank[0], 0
    for i in range(step.counts[0]):
        b = step.active[i]
        begin = step.begin[i] - state.frame[b]
        # Blanks change no predictor: frames joined ahead count until a token comes.
        while begin + state.frame[b] < step.begin[i + 1]:
            row = begin + state.frame[b]
            if not is_good(prices, row):
                state.bad[b] = True
                break
            best = -_INF
            for label in range(prices.logprobs.shape[1]):
                if label != blank and prices.logprobs[row, label] > best:
                    best = prices.logprobs[row, label]
            speaks = best >= prices.logprobs[row, blank] and state.run[b] < most
            if speaks and fused:
                step.emitting[num], step.label[num] = b, row
                num += 1
                break
            if speaks:
                label = _emit(prices, steps, row, prices.gains, 0, state, b)
                if label >= 0:
                    step.emitting[num], step.label[num] = b, label
                    num += 1
                    break
            else:
                _emit_blank(prices, steps, row, state, b)
            if not state.score[b] > -_INF:
                break
    step.counts[1] = num


@kernel
def emit_fused(prices, steps, gains, state, step):
    """Emit the best fused token of utterances that have reached one."""
    num = 0
    for i in range(step.counts[1]):
        b, row = step.emitting[i], step.label[i]
        label = _emit(prices, steps, row, gains, i, state, b)
        if label >= 0:
            step.emitting[num], step.label[num] = b, label
            num += 1
    step.counts[1] = num


STEP, EXPAND, CLOSE = 0, 1, 2
"""Kinds of choices: of ALSD++, of AES++, and the blank alone."""


@inlined
def own(prices, i, label):
    """Gain of a token but for fusion and its duration."""
    found = prices.logprobs[i, label]
    if len(prices.spoke):
        found = found + prices.weights[0] * prices.spoke[i]
    if prices.weights[1] != 0:
        found = found - prices.weights[1]
    return found


@inlined
def total(prices, i, label):
    """Gain of a token with late fusion, its duration left out."""
    found = own(prices, i, label)
    if len(prices.gains):
        found = found + prices.gains[i, label]
    return found


@inlined
def blank_gain(prices, i, e, blank, weight):
    """Gain of a blank with its duration number e."""
    found = weight * prices.logprobs[i, blank]
    if len(prices.blank_lasts):
        found = found + prices.blank_lasts[i, e]
    return found


@inlined
def best_blank(prices, i, steps):
    """A blank's gain with its best duration, and the number of that."""
    best, most = 0, blank_gain(prices, i, 0, steps.blank[0], prices.weights[2])
    for e in range(1, len(steps.of_blank)):
        gain = blank_gain(prices, i, e, steps.blank[0], prices.weights[2])
        if gain > most:
            best, most = e, gain
    return most, best


@inlined
def is_good(prices, i):
    """Tell whether no log-prob of a row is NaN or +inf."""
    for label in range(prices.logprobs.shape[1]):
        if not prices.logprobs[i, label] < _INF:
            return False
    for d in range(prices.lasts.shape[1]):
        if not prices.lasts[i, d] < _INF:
            return False
    return True


@kernel
def choose(prices, steps, rule, limits, runs, found, bad):
    """Choose the symbols that may follow each row, as `Pricer` does."""
    blank, ways = steps.blank[0], len(steps.of_blank)
    kind, late, num = rule
    lasting = prices.lasts.shape[1]
    value, order = found.value, found.order
    for i in range(len(runs)):
        bad[i] = not is_good(prices, i)
        if kind == CLOSE:
            found.gain[i, 0], best = best_blank(prices, i, steps)
            found.label[i, 0], found.step[i, 0] = NONE, steps.of_blank[best]
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
            # Those far below the best, and those of a lower rank, are left out.
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
