"""ALSD++ and AES++ on a CPU: the model in torch, kernels between its calls.

Of a text the predictor is asked once, and not before a hypothesis with this text is
joined: what it gave is kept by text, in slots, as long as there is room. Tokens are
in trees, so that a step copies numbers only. Between runs all of it is a `Beam` again,
which batches and sessions put together and take apart.
"""

from __future__ import annotations

import numpy as np
import torch

from wfstdec.jit.records import longer
from wfstdec.search.threads import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu import greedy, kernels
from wfstdec.transducer.cpu.arrays import (
    BeamArrays,
    Choices,
    FrameSpan,
    Joiner,
    JoinerLogprobs,
    Rows,
    Scratch,
    as_array,
    empty_tree,
    scratch_of,
)
from wfstdec.transducer.options import TransducerOptions

_FORGET_FROM = 1 << 16
"""Nodes of trees that nothing is forgotten below."""
_SLOTS, _SLOTS_EACH = 256, 4
"""Texts whose predictor outputs there is always room for; and of each hypothesis."""


class CpuSearch:
    """A beam under way."""

    def __init__(self, joiner: Joiner, options: TransducerOptions, beam: Beam) -> None:
        self._joiner, self._options, self._before = joiner, options, beam
        num, width = beam.score.shape
        self._hyps = BeamArrays(
            *(as_array(part).copy() for part in (beam.score, beam.frame, beam.run)),
            *(np.zeros((num, width), np.int64) for _ in range(2)),
        )
        self._trees = Trees(self._hyps, beam)
        self._slots = Slots(self._hyps, self._trees, beam)
        self.bad = np.zeros(num, np.bool_)
        self.num_steps = 0
        self._is_sum = options.merge == "sum"
        self._rows, self._parents = np.empty((2, num * width), np.int64)
        self._scratch: dict[int, Scratch] = {}
        self._choices: dict[int, Choices] = {}

    def run(self, source: Source) -> Beam:
        """Advance as long as there are frames."""
        self._frames = source.frames.flatten(0, 1)
        self._num_frames = source.frames.shape[1]
        first, come, is_ended = map(as_array, source[1:])
        self._span = FrameSpan(first, come, is_ended, at=np.zeros_like(come))
        is_aes = self._options.strategy == "aes"
        step = self._step_frames if is_aes else self._step
        while step():
            self.num_steps += 1
            check()
        return self._beam()

    def _step(self) -> bool:
        """ALSD++: one symbol for each hypothesis; False where none is open."""
        longest = self._joiner.longest
        num = kernels.open_steps(self._hyps, self._span, longest, self._rows)
        if num:
            prices = self._price(num)
            self._advance(num, self._choose(num, prices, greedy.STEP))
        return num > 0

    def _step_frames(self) -> bool:
        """AES++: a frame of each utterance that has one; False where none has."""
        kernels.next_frames(self._hyps, self._span, self._joiner.longest)
        if (self._span.at < 0).all():
            return False
        for number in range(self._options.expansion_rounds):
            num = kernels.open_frames(self._hyps, self._span, self._rows)
            # Every hypothesis has left the frame, with a duration above 0.
            if not num:
                return True
            prices = self._price(num)
            first = number == 0 and self._options.prefix_search
            first = first and self._joiner.has_zero_step
            if first:
                self._search_prefixes(num, prices)
            found = self._choose(num, prices, greedy.EXPAND)
            self._advance(num, found, drops_seen=first)
        # Hypotheses still in the frame after all rounds leave it with a blank.
        num = kernels.open_frames(self._hyps, self._span, self._rows)
        if num:
            self._advance(num, self._choose(num, self._price(num), greedy.CLOSE))
        return True

    def _price(self, num: int) -> JoinerLogprobs:
        """Join frames and predictor outputs of the open rows."""
        slots = self._slots
        slots.fill(self._joiner, self._rows, num)
        frames, places = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        hyps, tree = self._hyps, self._trees.arrays
        shape = self._num_frames, self._rows, num
        kernels.find(hyps, tree, self._span, *shape, frames, places)
        self._places = places
        return self._joiner.prices(
            self._frames.index_select(0, torch.from_numpy(frames)),
            slots.given.g_at(places),
            slots.states_at(places[:num]),
        )

    def _choose(self, num: int, prices: JoinerLogprobs, kind: int) -> Choices:
        """Symbols of the open rows."""
        options, joiner = self._options, self._joiner
        most = options.beam_size
        if kind == greedy.EXPAND:
            most += options.expansion_beta
        found = self._room(num, most, kind)
        bad = np.empty(num, np.bool_)
        gamma, forced = options.expansion_gamma, options.max_symbols
        runs = self._hyps.run.ravel()[self._rows[:num]]
        greedy.choose(
            *(prices, joiner.steps, (kind, joiner.late, most)),
            *(np.array([gamma, most, forced], np.float64), runs, found, bad),
        )
        if bad.any():
            self.bad[self._rows[:num][bad] // self._hyps.score.shape[1]] = True
        # Early fusion: tokens were chosen by the model alone, and only these are asked
        # for.
        if not joiner.late and kind != greedy.CLOSE:
            ways = len(joiner.steps.of_blank)
            labels = found.label[:num, ways:]
            width = labels.shape[1]
            states = self._slots.states_at(np.repeat(self._places[:num], width))
            gains, _ = joiner.fusion.step(states, labels.ravel())
            found.gain[:num, ways:] += gains.reshape(labels.shape)
        return found

    def _room(self, num: int, most: int, kind: int) -> Choices:
        """Arrays for the choices of any number of rows, kept by their width."""
        ways = len(self._joiner.steps.of_blank)
        tokens = self._joiner.num_labels - 1
        lasting = max(self._joiner.num_durations, 1)
        wide = 1
        if kind != greedy.CLOSE:
            wide = ways + min(most, min(most, tokens) * lasting)
        # Kept for the next steps, which mostly are of the same width.
        if wide not in self._choices:
            rows = len(self._rows)
            label, step = np.empty((2, rows, wide), np.int64)
            value = np.empty(max(wide, most))
            order = np.empty((max(wide, most), 2), np.int64)
            gain = np.empty((rows, wide))
            self._choices[wide] = Choices(gain, label, step, value, order)
            self._scratch[wide] = scratch_of(self._hyps.score.shape[1], wide)
        return self._choices[wide]

    def _search_prefixes(self, num: int, prices: JoinerLogprobs) -> None:
        """Move scores from open texts to open ones that are one token longer."""
        hyps, tree, rows = self._hyps, self._trees.arrays, self._rows
        parents = self._parents[:num]
        kernels.find_prefixes(hyps, tree, rows, num, parents)
        if (parents < 0).all():
            return
        extra = np.empty(0, np.float32)
        if not self._joiner.late:
            texts = hyps.text.ravel()[rows[:num]]
            labels = np.maximum(tree.token[texts], 0)
            places = self._places[np.maximum(parents, 0)]
            states = self._slots.states_at(places)
            extra, _ = self._joiner.fusion.step(states, labels)
        given = prices, rows, num, parents, extra, self._joiner.zero, self._is_sum
        kernels.add_prefixes(hyps, tree, *given)

    def _advance(self, num: int, found: Choices, *, drops_seen: bool = False) -> None:
        """The hypotheses after a symbol."""
        self._trees.make_room(self._hyps)
        tree, scratch = self._trees.arrays, self._scratch[found.gain.shape[1]]
        given = self._rows, num, found, drops_seen, self._is_sum, scratch
        kernels.advance(self._hyps, tree, self._span, *given)

    def _beam(self) -> Beam:
        """The beam of this search state."""
        hyps, tree = self._hyps, self._trees.arrays
        num, width = hyps.score.shape
        alive = hyps.score > -np.inf
        # Where all is over only what may end is asked for, and no predictor.
        for chosen, predict in (
            (alive & ~self._span.is_ended[:, None], True),
            (alive, False),
        ):
            rows = np.flatnonzero(chosen)
            self._slots.fill(self._joiner, rows, len(rows), predict=predict)
        lengths = tree.depth[hyps.text]
        tokens = np.zeros((num * width, int(lengths.max(initial=0)), 3), np.int32)
        kernels.write_rows(hyps, tree, tokens)
        places = np.where(alive, tree.slot[hyps.text], 0).ravel()
        slots = self._slots
        return self._before._replace(
            score=torch.from_numpy(hyps.score),
            frame=torch.from_numpy(hyps.frame),
            run=torch.from_numpy(hyps.run),
            length=torch.from_numpy(lengths),
            last=torch.from_numpy(tree.token[hyps.text]),
            rows=torch.from_numpy(tokens),
            g=slots.given.g_at(places),
            state=slots.given.state_at(places),
            fusion=tuple(map(torch.from_numpy, slots.states_at(places))),
        )


class Trees:
    """Texts and traces that grow."""

    def __init__(self, hyps: BeamArrays, beam: Beam) -> None:
        num, width = hyps.score.shape
        lengths = as_array(beam.length)
        most = int(lengths.sum()) + 2 * num * width + num
        self.arrays = empty_tree(1 << max(most.bit_length(), 8))
        self._forget_from = _FORGET_FROM
        self.arrays.used[:] = num  # roots: empty texts, which free places are too
        kernels.read_rows(hyps, self.arrays, as_array(beam.rows), lengths)

    def make_room(self, hyps: BeamArrays) -> None:
        """Room for one token more of each hypothesis."""
        tree, more = self.arrays, hyps.score.size
        if tree.used.max() + more >= self._forget_from:
            scratch = np.empty((2, len(tree.parent)), np.int64)
            kernels.forget(hyps, tree, scratch[0], scratch[1])
            self._forget_from = max(_FORGET_FROM, 2 * int(tree.used.max()) + more)
        if tree.used.max() + more < len(tree.parent):
            return
        larger = empty_tree(2 * len(tree.parent))
        for name in ("parent", "token", "depth", "slot", "trace_parent", "trace_row"):
            old = getattr(tree, name)
            getattr(larger, name)[: len(old)] = old
        larger.used[:] = tree.used
        kernels.enter_all(larger)
        self.arrays = larger


class Slots:
    """Slots of texts: the predictor's output and states of fusion."""

    def __init__(self, hyps: BeamArrays, of_lanes: Trees, beam: Beam) -> None:
        self._hyps, self._trees = hyps, of_lanes
        num, texts = hyps.score.size, hyps.text.ravel()
        order = np.argsort(~(hyps.score.ravel() > -np.inf), kind="stable")
        nodes, which = np.unique(texts[order], return_index=True)
        of_lanes.arrays.slot[nodes] = np.arange(len(nodes))
        at = order[which]
        self._used = len(nodes)
        self._size = max(_SLOTS, _SLOTS_EACH * num, len(nodes))
        self.given = Rows(beam.g, beam.state).widened(at, self._size)
        self.fusion = [longer(as_array(one)[at], self._size) for one in beam.fusion]

    def fill(
        self, joiner: Joiner, rows: np.ndarray, num: int, *, predict: bool = True
    ) -> None:
        """Ask the predictor for the texts of some rows, where it has not been yet."""
        # Without `predict` the models of fusion alone are asked.
        if self._used + num > self._size:
            self._make_room(num)
        labels, parents = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        given = self._hyps, self._trees.arrays, rows, num, self._used
        count = kernels.place(*given, parents, labels)
        if not count:
            return
        first, last = self._used, self._used + count
        self._used = last
        states = self.states_at(parents[:count])
        _, after = joiner.fusion.step(states, labels[:count])
        for old, new in zip(self.fusion, after, strict=True):
            old[first:last] = new
        if not predict:
            return
        # A library may multiply few rows by another routine, which rounds otherwise.
        padded = max(count, LEAST_ROWS)
        parents[count:padded], labels[count:padded] = parents[0], labels[0]
        state = self.given.state_at(parents[:padded])
        g, state = joiner.predict(labels[:padded], state)
        self.given.put(slice(first, last), g, state, count)

    def states_at(self, places: np.ndarray) -> list[np.ndarray]:
        """Where the models of fusion are at some slots."""
        return [states[places] for states in self.fusion]

    def _make_room(self, num: int) -> None:
        """Keep what hypotheses need; the rest would be asked for again."""
        slots = np.empty(self._hyps.score.size, np.int64)
        kept = kernels.keep_slots(self._hyps, self._trees.arrays, slots)
        self._used = kept
        while self._size < 2 * (kept + num):
            self._size *= 2
        self.given = self.given.widened(slots[:kept], self._size)
        self.fusion = [longer(one[slots[:kept]], self._size) for one in self.fusion]
