"""The greedy search on a CPU: label looping, several frames joined at once.

    search = GreedySearch(joiner, options, beam)
    beam = search.run(source)

    until no utterance has frames:
        join the next J frames of each with what its predictor gave last
        go through them to the first token, blanks by the way
        the predictor, and models of fusion, one token further where there was one

An utterance of few tokens waits for none of many: each goes on by a token or by J
frames. Frames behind a token are joined in vain, which costs less than a call of the
joiner for each: calls, not products, take the time. Models of fusion are asked where
there is a token alone, for blanks are judged without them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from wfstdec.jit import inlined, kernel
from wfstdec.search.interrupts import check
from wfstdec.transducer.beam import Beam
from wfstdec.transducer.cpu.arrays import NONE, Prices, as_array
from wfstdec.transducer.cpu.joined import Joiner
from wfstdec.transducer.cpu.kernels import blank_gain, is_good, own
from wfstdec.transducer.model import take_rows, tree_map
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.source import LEAST_ROWS, Source

AT_ONCE = 4
"""Frames of an utterance that are joined at once; more where there are few rows."""
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


class GreedySearch:
    """A greedy search under way, K = 1.

    Args:
        joiner: The model with what is added to it.
        options: Greedy.
        beam: Where the search stands.

    Attributes:
        bad: bool [B], whose joiner gave NaN or +inf.
    """

    def __init__(self, joiner: Joiner, options: TransducerOptions, beam: Beam) -> None:
        self._joiner, self._options, self._before = joiner, options, beam
        self.bad = np.zeros(len(beam.score), np.bool_)
        self._g = beam.g.clone()
        self._state = tree_map(torch.clone, beam.state)
        self._fusion = [as_array(states).copy() for states in beam.fusion]

    def run(self, source: Source) -> Beam:
        """Go on as long as there are frames to go on by."""
        walk = self._walk(source)
        while True:
            there = (walk.frame < walk.stop) & (walk.score > -_INF) & ~walk.bad
            utterances = np.flatnonzero(there)
            if not len(utterances):
                return self._beam(walk)
            check()
            prices, window = self._join(source, walk, utterances)
            spoke = np.empty(len(utterances), np.int64)
            most = self._options.max_symbols
            steps = self._joiner.steps
            walk_frames(prices, steps, utterances, window, most, walk, spoke)
            walk = self._say(source, walk, prices, utterances, spoke)

    def _walk(self, source: Source) -> Walk:
        """Where the search stands, and how far it can go now."""
        beam = self._before
        come, ended = as_array(source.come), as_array(source.is_ended)
        parts = beam.score, beam.frame, beam.run, beam.length
        return Walk(
            *(as_array(part[:, 0]).copy() for part in parts),
            stop=np.where(ended, come, come - self._joiner.longest + 1),
            limit=np.where(ended, come, np.iinfo(np.int64).max),
            bad=self.bad,
            rows=as_array(beam.rows).copy(),
        )

    def _join(
        self, source: Source, walk: Walk, utterances: np.ndarray
    ) -> tuple[Prices, int]:
        """The next frames of some utterances, and how many of each there are."""
        window = max(AT_ONCE, -(-LEAST_ROWS // len(utterances)))
        num_frames = source.frames.shape[1]
        first = as_array(source.first)[utterances]
        at = (walk.frame[utterances] - first)[:, None] + np.arange(window)
        at = np.minimum(at, num_frames - 1) + utterances[:, None] * num_frames
        frames = source.frames.flatten(0, 1)
        rows = torch.from_numpy(np.repeat(utterances, window))
        prices = self._joiner.prices(
            frames.index_select(0, torch.from_numpy(at.ravel())),
            self._g.index_select(0, rows),
            None,
        )
        return prices, window

    def _say(
        self,
        source: Source,
        walk: Walk,
        prices: Prices,
        utterances: np.ndarray,
        spoke: np.ndarray,
    ) -> Walk:
        """A token of each utterance that has come to one."""
        at, found = utterances[spoke >= 0], spoke[spoke >= 0]
        if not len(at):
            return walk
        if walk.length.max() >= walk.rows.shape[1]:
            more = np.zeros((len(walk.rows), _ROOM, 3), np.int32)
            walk = walk._replace(rows=np.concatenate([walk.rows, more], 1))
        joiner = self._joiner
        gains = joiner.gains([states[at] for states in self._fusion])
        labels = np.empty(len(at), np.int64)
        say(prices, joiner.steps, at, found, gains, walk, labels)
        said = labels >= 0
        at, labels = at[said], labels[said]
        new = joiner.next_states([states[at] for states in self._fusion], labels)
        for old, there in zip(self._fusion, new, strict=True):
            old[at] = there
        # Behind the end nobody asks what could follow.
        asked = (walk.frame[at] < walk.stop[at]) | ~as_array(source.is_ended)[at]
        self._predict(at[asked], labels[asked])
        return walk

    def _predict(self, at: np.ndarray, labels: np.ndarray) -> None:
        """The predictor of some utterances one token further."""
        if not len(at):
            return
        more = max(LEAST_ROWS - len(at), 0)
        padded = torch.from_numpy(np.append(at, np.repeat(at[:1], more)))
        labels = np.append(labels, np.repeat(labels[:1], more))
        new = self._joiner.predict(labels, take_rows(self._state, padded))
        rows = padded[: len(at)]
        tree_map(
            lambda to, part: to.index_copy_(0, rows, part[: len(rows)].to(to.dtype)),
            *((self._g, self._state), new),
        )

    def _beam(self, walk: Walk) -> Beam:
        """What other parts of the library take a search for."""
        last = np.full(len(walk.score), NONE)
        some = np.flatnonzero(walk.length)
        last[some] = walk.rows[some, walk.length[some] - 1, 0]
        parts = walk.score, walk.frame, walk.run, walk.length, last
        score, frame, run, length, last_token = (
            torch.from_numpy(part)[:, None] for part in parts
        )
        return self._before._replace(
            score=score,
            frame=frame,
            run=run,
            length=length,
            last=last_token,
            rows=torch.from_numpy(walk.rows),
            g=self._g,
            state=self._state,
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
    blank, best = steps.blank[0], 0
    for e in range(1, len(steps.of_blank)):
        one = blank_gain(prices, row, e, blank, prices.weights[2])
        if one > blank_gain(prices, row, best, blank, prices.weights[2]):
            best = e
    gain = blank_gain(prices, row, best, blank, prices.weights[2])
    _move(walk, b, np.float64(gain), steps.of_blank[best])


@kernel
def walk_frames(prices, steps, utterances, window, most, walk, spoke):
    """Go through the frames that were joined, to the first token of each utterance.

    Args:
        prices: Of `window` frames of each utterance, one after the other.
        steps: What symbols are.
        utterances: int64 [N].
        window: Frames.
        most: Tokens in a frame.
        walk: Where they are; written.
        spoke: int64 [N], written: the row where a token comes, -1 for none.
    """
    blank = steps.blank[0]
    for i in range(len(utterances)):
        b = utterances[i]
        begin = walk.frame[b]
        spoke[i] = NONE
        while walk.frame[b] < min(begin + window, walk.stop[b]):
            row = i * window + walk.frame[b] - begin
            if not is_good(prices, row):
                walk.bad[b] = True
                break
            best = -_INF
            for label in range(prices.logprobs.shape[1]):
                if label != blank and prices.logprobs[row, label] > best:
                    best = prices.logprobs[row, label]
            if best >= prices.logprobs[row, blank] and walk.run[b] < most:
                spoke[i] = row
                break
            _skip(prices, steps, row, walk, b)
            if not walk.score[b] > -_INF:
                break


@kernel
def say(prices, steps, utterances, spoke, gains, walk, labels):
    """Say the best token of each of these utterances, or a blank where none can be.

    Args:
        prices: Of some rows.
        steps: What symbols are.
        utterances: int64 [N].
        spoke: int64 [N], the row of each.
        gains: float32 [N, V + 1], of fusion; no rows where there is none.
        walk: Where they are; written.
        labels: int64 [N], written: what was said, -1 for nothing.
    """
    blank = steps.blank[0]
    for i in range(len(utterances)):
        b, row = utterances[i], spoke[i]
        labels[i] = best = NONE
        most = prices.logprobs.dtype.type(-_INF)
        for label in range(prices.logprobs.shape[1]):
            if label == blank:
                continue
            one = own(prices, row, label)
            if len(gains):
                one = one + gains[i, label]
            if one > most:
                most, best = one, label
        if best < 0:
            _skip(prices, steps, row, walk, b)
            continue
        step = steps.of_token[0]
        if prices.lasts.shape[1]:
            longest = 0
            for d in range(1, prices.lasts.shape[1]):
                if prices.lasts[row, d] > prices.lasts[row, longest]:
                    longest = d
            most = most + prices.lasts[row, longest]
            step = steps.of_token[longest]
        before, run = walk.frame[b], walk.run[b]
        labels[i] = best
        if not _move(walk, b, np.float64(most), step):
            walk.run[b] = run + 1
        at = walk.length[b]
        walk.rows[b, at, 0], walk.rows[b, at, 1] = best, before
        walk.rows[b, at, 2] = max(walk.frame[b], before + 1)
        walk.length[b] = at + 1
