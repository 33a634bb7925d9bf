"""The greedy search on a CPU: label looping, several frames joined at once.

    search = GreedySearch(joiner, options, beam)
    beam = search.run(source)

    until no utterance has frames:
        join the next frames of each with what its predictor gave last
        go through them to the first token, blanks by the way
        the predictor, and models of fusion, one token further where there was one

An utterance of few tokens waits for none of many: each goes on by a token or by the
frames that are joined. Frames behind a token are joined in vain, which costs less than
a call of the joiner for each. The longest utterance says how many calls there are, so
it has most frames at once, and those that are near their end few. Models of fusion are
asked where there is a token alone, for blanks are judged without them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from wfstdec.jit import inlined, kernel
from wfstdec.search.interrupts import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu.arrays import NONE, Prices, as_array
from wfstdec.transducer.cpu.choices import best_blank, is_good, own
from wfstdec.transducer.cpu.joined import Joiner
from wfstdec.transducer.cpu.rows import Rows
from wfstdec.transducer.options import TransducerOptions

AT_ONCE = 6
"""Frames joined at once of the utterance that has most left; see `plan`."""
_ROOM = 32
"""Room for tokens is made in steps of this many."""
_INF = np.inf


class Walk(NamedTuple):
    """Where each utterance is, [B].

    Attributes:
        score: float64, nats; -inf where nothing can be said.
        frame: int64, t: the next frame.
        run: int64, tokens since the frame last moved.
        length: int64, tokens in `rows`.
        stop: int64, frames from here on cannot be joined now.
        limit: int64, no frame is beyond it.
        bad: bool, the joiner gave NaN or +inf.
        rows: int32 [B, U, 3], of each token: itself, its frame, the frame after.
    """

    score: np.ndarray
    frame: np.ndarray
    run: np.ndarray
    length: np.ndarray
    stop: np.ndarray
    limit: np.ndarray
    bad: np.ndarray
    rows: np.ndarray


class Turn(NamedTuple):
    """Outcome of frames that are joined at once.

    Attributes:
        goes_on: int64 [B], utterances that have frames.
        said: int64 [B or more], those of them that say a token.
        label: int64 [B or more], which; before models of fusion are asked, its row.
        begin: int64 [B + 1 or more], the row of each one's first frame, and the end.
        counts: int64, how many go on, and how many say a token.
    """

    goes_on: np.ndarray
    said: np.ndarray
    label: np.ndarray
    begin: np.ndarray
    counts: np.ndarray


class GreedySearch:
    """A greedy search under way, K = 1.

    Args:
        joiner: The model with what is added to it.
        options: Greedy.
        beam: Where the search stands.

    Attributes:
        bad: bool [B], whose joiner gave NaN or +inf.
        num_steps: Turns of the model so far.
    """

    def __init__(self, joiner: Joiner, options: TransducerOptions, beam: Beam) -> None:
        self._joiner, self._options, self._before = joiner, options, beam
        self.bad = np.zeros(len(beam.score), np.bool_)
        self.num_steps = 0
        self._given = Rows(beam.g, beam.state)
        self._fusion = [as_array(states).copy() for states in beam.fusion]

    def run(self, source: Source) -> Beam:
        """Go on as long as there are frames to go on by."""
        walk, joiner = self._walk(source), self._joiner
        frames, num_frames = source.frames.flatten(0, 1), source.frames.shape[1]
        first, num = as_array(source.first), len(walk.score)
        at, given = np.empty((2, max(AT_ONCE * num, LEAST_ROWS + num)), np.int64)
        turn = Turn(*(np.empty(num + LEAST_ROWS, np.int64) for _ in range(5)))
        most, most_tokens = self._options.max_symbols, int(walk.length.max(initial=0))
        while True:
            size = plan(walk, first, num_frames, AT_ONCE, LEAST_ROWS, turn, at, given)
            if not size:
                return self._beam(walk)
            check()
            self.num_steps += 1
            # A step says one token an utterance at most.
            if most_tokens == walk.rows.shape[1]:
                more = np.zeros((num, _ROOM, 3), np.int32)
                walk = walk._replace(rows=np.concatenate([walk.rows, more], 1))
            most_tokens += 1
            prices = joiner.prices(
                frames.index_select(0, torch.from_numpy(at[:size])),
                self._given.g_at(given[:size]),
                None,
            )
            fused = bool(self._fusion)
            walk_frames(prices, joiner.steps, most, fused, walk, turn)
            if fused:
                self._fuse(prices, walk, turn)
            self._predict(turn)

    def _walk(self, source: Source) -> Walk:
        """Where the search stands, and how far it can go now."""
        beam = self._before
        come, ended = as_array(source.come), as_array(source.is_ended)
        # A duration that leads behind the end is cut there. Frames from which one may
        # lead beyond what has come wait until it is known where the end is.
        parts = beam.score, beam.frame, beam.run, beam.length
        score, frame, run, length = (as_array(part[:, 0]).copy() for part in parts)
        return Walk(
            *(score, frame, run, length),
            stop=np.where(ended, come, come - self._joiner.longest + 1),
            limit=np.where(ended, come, np.iinfo(np.int64).max),
            bad=self.bad,
            rows=as_array(beam.rows).copy(),
        )

    def _fuse(self, prices: Prices, walk: Walk, turn: Turn) -> None:
        """Say the tokens that language models and boosts make the best."""
        num = int(turn.counts[1])
        if not num:
            return
        said = turn.said[:num]
        fusion = self._joiner.fusion
        gains = fusion.gains_on_cpu([states[said] for states in self._fusion])
        say(prices, self._joiner.steps, gains, walk, turn)
        num = int(turn.counts[1])
        said, labels = turn.said[:num], turn.label[:num]
        at = [states[said] for states in self._fusion]
        _, new = fusion.step_on_cpu(at, labels)
        for old, there in zip(self._fusion, new, strict=True):
            old[said] = there

    def _predict(self, turn: Turn) -> None:
        """The predictor one token further where one was said."""
        num = int(turn.counts[1])
        if not num:
            return
        padded = max(num, LEAST_ROWS)
        turn.said[num:padded], turn.label[num:padded] = turn.said[0], turn.label[0]
        state = self._given.state_at(turn.said[:padded])
        g, state = self._joiner.predict(turn.label[:padded], state)
        self._given.put(turn.said[:num], g, state, num)

    def _beam(self, walk: Walk) -> Beam:
        """Make the beam that other parts of the library take a search for."""
        last = np.full(len(walk.score), NONE)
        some = np.flatnonzero(walk.length)
        last[some] = walk.rows[some, walk.length[some] - 1, 0]
        everything = np.arange(len(walk.score))
        names = ("score", "frame", "run", "length")
        arrays = {name: getattr(walk, name) for name in names} | {"last": last}
        parts = {name: torch.from_numpy(one)[:, None] for name, one in arrays.items()}
        return self._before._replace(
            **parts,
            rows=torch.from_numpy(walk.rows),
            g=self._given.g_at(everything),
            state=self._given.state_at(everything),
            fusion=tuple(map(torch.from_numpy, self._fusion)),
        )


@inlined
def _move(walk, b, gain, step):
    """Go on by a symbol; true where the frame moved."""
    before = walk.frame[b]
    walk.score[b] += gain
    walk.frame[b] = min(before + step, walk.limit[b])
    moved = walk.frame[b] > before
    if moved:
        walk.run[b] = 0
    return moved


@inlined
def _skip(prices, steps, row, walk, b):
    """Go on by a blank with its best duration."""
    gain, best = best_blank(prices, row, steps)
    _move(walk, b, np.float64(gain), steps.of_blank[best])


@inlined
def _speak(prices, steps, row, gains, i, walk, b):
    """Say the best token, or a blank where none can be; the token or -1.

    Where there are gains, those in row `i` are added.
    """
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
        _skip(prices, steps, row, walk, b)
    else:
        step = steps.of_token[0]
        if prices.lasts.shape[1]:
            longest = 0
            for d in range(1, prices.lasts.shape[1]):
                if prices.lasts[row, d] > prices.lasts[row, longest]:
                    longest = d
            most = most + prices.lasts[row, longest]
            step = steps.of_token[longest]
        before, run, at = walk.frame[b], walk.run[b], walk.length[b]
        if not _move(walk, b, np.float64(most), step):
            walk.run[b] = run + 1
        walk.rows[b, at, 0], walk.rows[b, at, 1] = best, before
        walk.rows[b, at, 2] = max(walk.frame[b], before + 1)
        walk.length[b] = at + 1
    return best


@kernel
def plan(walk, first, num_frames, at_once, least, turn, at, given):
    """Plan which frames are joined next with which predictor outputs.

    Args:
        walk: Where utterances are.
        first: int64 [B], the number of the first frame at hand.
        num_frames: Frames of an utterance at hand, padding included.
        at_once: Frames of the utterance that has most left. Of others as many less as
            the square of what they have left, for these can catch up; more of all
            where rows would be fewer than `least`.
        least: Rows.
        turn: The utterances that go on, and their rows, are written.
        at: int64, written: rows of [B * num_frames].
        given: int64, written: rows of [B].

    Returns:
        Rows, `least` or more; 0 where no utterance goes on.
    """
    num, most = 0, 0
    for b in range(len(walk.score)):
        if walk.frame[b] < walk.stop[b] and walk.score[b] > -_INF and not walk.bad[b]:
            turn.goes_on[num] = b
            num += 1
            most = max(most, walk.stop[b] - walk.frame[b])
    turn.counts[0], turn.counts[1] = num, 0
    if num == 0:
        return 0
    few, size = (least + num - 1) // num, 0
    for i in range(num):
        b = turn.goes_on[i]
        left = walk.stop[b] - walk.frame[b]
        # Frames joined ahead are in vain behind the next token. Rounded in integers, so
        # that plans are the same on all machines.
        window = max((2 * at_once * left * left + most * most) // (2 * most * most), 1)
        turn.begin[i] = size
        for j in range(min(max(window, few), left)):
            # A duration may lead behind the last frame at hand.
            frame = min(walk.frame[b] - first[b] + j, num_frames - 1)
            at[size] = b * num_frames + frame
            given[size] = b
            size += 1
    turn.begin[num] = size
    while size < least:  # products of fewer rows may be rounded otherwise
        at[size], given[size] = at[size - 1], given[size - 1]
        size += 1
    return size


@kernel
def walk_frames(prices, steps, most, fused, walk, turn):
    """Go through the frames that were joined, to the first token of each utterance.

    Args:
        prices: Of frames of each utterance, one after the other.
        steps: What symbols are.
        most: Tokens in a frame.
        fused: Models of fusion have still to be asked: tokens are not said.
        walk: Where they are; written.
        turn: What was said, or where tokens come; written.
    """
    blank, num = steps.blank[0], 0
    for i in range(turn.counts[0]):
        b = turn.goes_on[i]
        begin = turn.begin[i] - walk.frame[b]
        # Blanks change no predictor: frames joined ahead count until a token comes.
        while begin + walk.frame[b] < turn.begin[i + 1]:
            row = begin + walk.frame[b]
            if not is_good(prices, row):
                walk.bad[b] = True
                break
            best = -_INF
            for label in range(prices.logprobs.shape[1]):
                if label != blank and prices.logprobs[row, label] > best:
                    best = prices.logprobs[row, label]
            speaks = best >= prices.logprobs[row, blank] and walk.run[b] < most
            if speaks and fused:
                turn.said[num], turn.label[num] = b, row
                num += 1
                break
            if speaks:
                label = _speak(prices, steps, row, prices.gains, 0, walk, b)
                if label >= 0:
                    turn.said[num], turn.label[num] = b, label
                    num += 1
                    break
            else:
                _skip(prices, steps, row, walk, b)
            if not walk.score[b] > -_INF:
                break
    turn.counts[1] = num


@kernel
def say(prices, steps, gains, walk, turn):
    """Say the best token of utterances that have come to one, by all models together.

    Args:
        prices: Of some rows.
        steps: What symbols are.
        gains: float32 [N, V + 1], of fusion.
        walk: Where they are; written.
        turn: Where tokens come, then what was said; written.
    """
    num = 0
    for i in range(turn.counts[1]):
        b, row = turn.said[i], turn.label[i]
        label = _speak(prices, steps, row, gains, i, walk, b)
        if label >= 0:
            turn.said[num], turn.label[num] = b, label
            num += 1
    turn.counts[1] = num
