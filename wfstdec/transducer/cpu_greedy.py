"""Greedy search on a CPU: label looping, several frames joined at once.

    until no utterance has frames:
        join the next frames of each with its predictor's last output
        advance to the first token, over blanks
        step the predictor and the models of fusion where there was a token

Utterances do not wait for each other: each advances by a token or by the joined frames.
Frames joined after a token are wasted, which costs less than one call of the joiner per
frame. The longest utterance determines the number of calls, so it joins most frames at
once, and utterances near their end join few. Models of fusion are queried for tokens
only, since blanks are decided without them.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from wfstdec.jit import inlined, kernel
from wfstdec.jit.records import record
from wfstdec.search.threads import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu_arrays import NONE, Joiner, Rows, as_array
from wfstdec.transducer.pricing import Pricer

AT_ONCE = 6
"""Frames joined at once for the utterance with most left; see `plan`."""
_ROOM = 32
"""Step by which the capacity for tokens grows."""
_INF = np.inf
_WALKED = ("score", "frame", "run", "length")


WALK = record("f8 score", "i8 frame run length first stop limit", "? bad", align=True)
"""Progress of an utterance: nats, -inf without a path; the next frame; tokens since the
last frame advance; tokens; the first kept frame; frames from `stop` on cannot be joined
yet; `limit`, the last frame; whether the joiner gave NaN or +inf."""


class GreedyState(NamedTuple):
    """Progress of all utterances."""

    walks: np.ndarray  # WALK [B]
    # int32 [B, U, 3], of each token: itself, its frame, the frame after
    rows: np.ndarray


class JoinerStep(NamedTuple):
    """Result of frames that are joined at once."""

    active: np.ndarray  # int64 [B], utterances that have frames
    emitting: np.ndarray  # int64 [B or more], those of them that emit a token
    # int64 [B or more], the token; before models of fusion are queried, its row
    label: np.ndarray
    # int64 [B + 1 or more], the row of each one's first frame, and the end
    begin: np.ndarray
    counts: np.ndarray  # int64, numbers of active and of emitting ones


class GreedySearch:
    """Greedy search, K = 1."""

    def __init__(self, pricer: Pricer) -> None:
        self._joiner, self._options = Joiner(pricer), pricer.options
        self.num_steps = 0

    def run(self, beam: Beam, source: Source) -> Beam:
        """Advance while there are frames."""
        num, joiner = len(beam.score), self._joiner
        everything = np.arange(num)
        outputs = Rows(joiner, beam, everything, num)
        state = GreedyState(np.zeros(num, WALK), as_array(beam.rows).copy())
        walks = state.walks
        for name in _WALKED:
            walks[name] = as_array(getattr(beam, name)[:, 0])
        # A duration beyond the end is clipped. Frames from which one may exceed the
        # frames so far wait until the end is known.
        come, ended = as_array(source.come), as_array(source.is_ended)
        walks["first"], self.bad = as_array(source.first), walks["bad"]
        walks["stop"] = np.where(ended, come, come - joiner.longest + 1)
        walks["limit"] = np.where(ended, come, np.iinfo(np.int64).max)
        frames, num_frames = source.frames.flatten(0, 1), source.frames.shape[1]
        at, given = np.empty((2, max(AT_ONCE * num, LEAST_ROWS + num)), np.int64)
        step = JoinerStep(*(np.empty(num + LEAST_ROWS, np.int64) for _ in range(5)))
        most, most_tokens = self._options.max_symbols, int(walks["length"].max())
        sizes, is_fused = (num_frames, AT_ONCE, LEAST_ROWS), bool(joiner.fusion.terms)
        while size := plan(walks, sizes, step, at, given):
            check()
            self.num_steps += 1
            # A step emits at most one token per utterance.
            if most_tokens == state.rows.shape[1]:
                more = np.zeros((num, _ROOM, 3), np.int32)
                state = state._replace(rows=np.concatenate([state.rows, more], 1))
            most_tokens += 1
            joined = frames.index_select(0, torch.from_numpy(at[:size]))
            prices = joiner.prices(joined, outputs.g_at(given[:size]), None)
            advance_frames(prices, joiner.steps, most, is_fused, state, step)
            num_emitting = int(step.counts[1])
            if is_fused and num_emitting:
                # The best tokens with language models and boosts.
                states = outputs.states_at(step.emitting[:num_emitting])
                gains = joiner.fusion.rows(states)
                emit_fused(prices, joiner.steps, gains, state, step)
                num_emitting = int(step.counts[1])
            to = step.emitting[:num_emitting].copy()
            outputs.advance(step.emitting, step.label, to, num_emitting)
        arrays = {name: walks[name].copy() for name in _WALKED}
        arrays["last"] = np.full(num, NONE)
        some = np.flatnonzero(walks["length"])
        arrays["last"][some] = state.rows[some, walks["length"][some] - 1, 0]
        fields: dict[str, Any] = outputs.fields(everything)
        for name, array in arrays.items():
            fields[name] = torch.from_numpy(array)[:, None]
        return beam._replace(rows=torch.from_numpy(state.rows), **fields)


@inlined
def _advance(walk, gain, step):
    before = walk.frame
    walk.score += gain
    walk.frame = min(before + step, walk.limit)
    if walk.frame > before:
        walk.run = 0
    return walk.frame > before


@inlined
def _emit_blank(prices, steps, row, forced, state, b):
    e = 0
    for other in range(1, len(steps.of_blank)):
        if steps.of_blank[other] < steps.of_blank[e]:
            e = other
    if prices.lasts.shape[1] and not forced:
        best = 0
        for d in range(1, prices.lasts.shape[1]):
            if prices.lasts[row, d] > prices.lasts[row, best]:
                best = d
        if steps.of_token[best] > 0:
            e = 0
            for d in range(best):
                e += steps.of_token[d] > 0
    gain = blank_gain(prices, row, e, steps.blank[0])
    _advance(state.walks[b], np.float64(gain), steps.of_blank[e])


@inlined
def _emit(prices, steps, row, gains, i, state, b):
    """Emit the best token, or a blank if none is possible; return the token or -1."""
    # Gains, if any, are added in row `i`.
    best, blank = np.int64(NONE), steps.blank[0]
    most = prices.weights[3]
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
        _emit_blank(prices, steps, row, False, state, b)
    else:
        step = steps.of_token[0]
        if prices.lasts.shape[1]:
            longest = 0
            for d in range(1, prices.lasts.shape[1]):
                if prices.lasts[row, d] > prices.lasts[row, longest]:
                    longest = d
            most = most + prices.lasts[row, longest]
            step = steps.of_token[longest]
        walk = state.walks[b]
        before, at = walk.frame, walk.length
        if not _advance(walk, np.float64(most), step):
            walk.run += 1
        state.rows[b, at, 0], state.rows[b, at, 1] = best, before
        state.rows[b, at, 2] = max(walk.frame, before + 1)
        walk.length = at + 1
    return best


@kernel
def plan(walks, sizes, step, at, given):
    """Plan the frames to join next, with their predictor outputs."""
    (num_frames, at_once, least), num, most = sizes, 0, np.int64(0)
    for b in range(len(walks)):
        left = walks[b].stop - walks[b].frame
        if left > 0 and walks[b].score > -_INF and not walks[b].bad:
            step.active[num] = b
            num += 1
            most = max(most, left)
    step.counts[0], step.counts[1] = num, 0
    if num == 0:
        return 0
    few, size = (least + num - 1) // num, 0
    for i in range(num):
        b = step.active[i]
        walk = walks[b]
        left = walk.stop - walk.frame
        # Frames joined ahead are wasted after the next token. Rounded in integers, so
        # that plans are equal on all machines.
        window = max((2 * at_once * left * left + most * most) // (2 * most * most), 1)
        step.begin[i] = size
        for j in range(min(max(window, few), left)):
            # A duration may exceed the last kept frame.
            frame = min(walk.frame - walk.first + j, num_frames - 1)
            at[size] = b * num_frames + frame
            given[size] = b
            size += 1
    step.begin[num] = size
    while size < least:  # with fewer rows, products may be rounded differently
        at[size], given[size] = at[size - 1], given[size - 1]
        size += 1
    return size


@kernel
def advance_frames(prices, steps, most, fused, state, step):
    """Advance over the joined frames, to the first token of each utterance."""
    blank, num = steps.blank[0], 0
    for i in range(step.counts[0]):
        b = step.active[i]
        walk = state.walks[b]
        begin = step.begin[i] - walk.frame
        # Blanks keep the predictor: frames joined ahead are valid up to the next token.
        while begin + walk.frame < step.begin[i + 1]:
            row = begin + walk.frame
            if not is_good(prices, row):
                walk.bad = True
                break
            best = -_INF
            for label in range(prices.logprobs.shape[1]):
                if label != blank and prices.logprobs[row, label] > best:
                    best = prices.logprobs[row, label]
            speaks = best >= prices.logprobs[row, blank] and walk.run < most
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
                _emit_blank(prices, steps, row, walk.run >= most, state, b)
            if not walk.score > -_INF:
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
"""Kinds of choices: of ALSD++, of AES++, and only the blank."""


@inlined
def own(prices, i, label):
    """Return the gain of a token without fusion and duration."""
    found = prices.logprobs[i, label]
    if len(prices.spoke):
        found = found + prices.weights[0] * prices.spoke[i]
    if prices.weights[1] != 0:
        found = found - prices.weights[1]
    return found


@inlined
def total(prices, i, label):
    """Return the gain of a token without its duration."""
    found = own(prices, i, label)
    if len(prices.gains):
        found = found + prices.gains[i, label]
    return found


@inlined
def blank_gain(prices, i, e, blank):
    """Return the gain of a blank with its duration number e."""
    found = prices.weights[2] * prices.logprobs[i, blank]
    if len(prices.blank_lasts):
        found = found + prices.blank_lasts[i, e]
    return found


@inlined
def best_blank(prices, i, steps):
    """Return a blank's gain with its best duration, and the duration's number."""
    best, most = 0, blank_gain(prices, i, 0, steps.blank[0])
    for e in range(1, len(steps.of_blank)):
        gain = blank_gain(prices, i, e, steps.blank[0])
        if gain > most:
            best, most = e, gain
    return most, best


@inlined
def is_good(prices, i):
    """Return whether no log-prob of a row is NaN or +inf."""
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
    kind, num = rule
    lasting = prices.lasts.shape[1]
    value, order = found.value, found.order
    for i in range(len(runs)):
        bad[i] = not is_good(prices, i)
        if kind == CLOSE:
            found.gain[i, 0], best = best_blank(prices, i, steps)
            found.label[i, 0], found.step[i, 0] = NONE, steps.of_blank[best]
            continue
        # The best tokens; ties go to the lower one.
        most, count = min(num, prices.logprobs.shape[1] - 1), 0
        for label in range(prices.logprobs.shape[1]):
            if label == blank:
                continue
            one = np.float64(total(prices, i, label))
            if count == most and not one > value[count - 1]:
                continue
            at = min(count, most - 1)
            count = min(count + 1, most)
            while at > 0 and one > value[at - 1]:
                value[at], order[at, 0] = value[at - 1], order[at - 1, 0]
                at -= 1
            value[at], order[at, 0] = one, label
        # With durations the best pairs of these; ties go to the first.
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
            gain[e] = blank_gain(prices, i, e, blank)
        forced = runs[i] >= limits[2]
        if kind == EXPAND:
            # Those far below the best, and those of a lower rank, are dropped.
            highest = -_INF
            for w in range(len(gain)):
                value[w] = gain[w]
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
            step[w] = steps.of_token[step[w]]
            if forced:
                gain[w] = -_INF
        if kind == EXPAND:
            for w in range(len(gain)):
                if not order[w, 1]:
                    gain[w] = -_INF
