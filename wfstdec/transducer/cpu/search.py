"""ALSD++ and AES++ on a CPU: the model in torch, between its calls nothing but kernels.

    search = CpuSearch(joiner, options, beam)
    beam = search.run(source)                  # what `Searcher.run` gives

Of a text the predictor is asked once, and not before a hypothesis with this text is
joined: what it gave is kept by text, in slots, as long as there is room. Tokens stand
in trees, so that a step copies numbers only. Between runs all of it is a `Beam` again,
which batches and sessions put together and take apart.
"""

from __future__ import annotations

import numpy as np
import torch

from wfstdec.search.interrupts import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu import choices, kernels, trees
from wfstdec.transducer.cpu.arrays import (
    Choices,
    Lanes,
    Prices,
    Reach,
    Scratch,
    as_array,
    empty_tree,
    scratch_of,
)
from wfstdec.transducer.cpu.joined import Joiner
from wfstdec.transducer.cpu.rows import Rows
from wfstdec.transducer.options import TransducerOptions

_FORGET_FROM = 1 << 16
"""Nodes of trees that nothing is forgotten below."""
_SLOTS, _SLOTS_EACH = 256, 4
"""Texts whose predictor outputs there is always room for; and of each hypothesis."""


class CpuSearch:
    """A beam under way.

    Args:
        joiner: The model with what is added to it.
        options: ALSD++ or AES++.
        beam: Where the search stands.

    Attributes:
        bad: bool [B], whose joiner gave NaN or +inf.
        num_steps: Steps, or frames of AES++, so far.
    """

    def __init__(self, joiner: Joiner, options: TransducerOptions, beam: Beam) -> None:
        self._joiner, self._options, self._before = joiner, options, beam
        num, width = beam.score.shape
        self._lanes = Lanes(
            *(as_array(part).copy() for part in (beam.score, beam.frame, beam.run)),
            *(np.zeros((num, width), np.int64) for _ in range(2)),
        )
        self._trees = Trees(self._lanes, beam)
        self._slots = Slots(self._lanes, self._trees, beam)
        self.bad = np.zeros(num, np.bool_)
        self.num_steps = 0
        self._is_sum = options.merge == "sum"
        self._rows, self._parents = np.empty((2, num * width), np.int64)
        self._scratch: dict[int, Scratch] = {}
        self._choices: dict[int, Choices] = {}

    def run(self, source: Source) -> Beam:
        """Go on as long as there are frames to go on by."""
        self._frames = source.frames.flatten(0, 1)
        self._num_frames = source.frames.shape[1]
        first, come, is_ended = map(as_array, source[1:])
        self._reach = Reach(first, come, is_ended, at=np.zeros_like(come))
        is_aes = self._options.strategy == "aes"
        step = self._step_frames if is_aes else self._step
        while step():
            self.num_steps += 1
            check()
        return self._beam()

    def _step(self) -> bool:
        """ALSD++: one symbol for each hypothesis; False where none is open."""
        longest = self._joiner.longest
        num = kernels.open_steps(self._lanes, self._reach, longest, self._rows)
        if num:
            prices = self._price(num)
            self._advance(num, self._choose(num, prices, choices.STEP))
        return num > 0

    def _step_frames(self) -> bool:
        """AES++: a frame of each utterance that has one; False where none has."""
        kernels.next_frames(self._lanes, self._reach, self._joiner.longest)
        if (self._reach.at < 0).all():
            return False
        for number in range(self._options.expansion_rounds):
            num = kernels.open_frames(self._lanes, self._reach, self._rows)
            # Every hypothesis has left the frame, with a duration above 0.
            if not num:
                return True
            prices = self._price(num)
            first = number == 0 and self._options.prefix_search
            first = first and self._joiner.says_in_no_time
            if first:
                self._search_prefixes(num, prices)
            found = self._choose(num, prices, choices.EXPAND)
            self._advance(num, found, drops_seen=first)
        # Who is still in the frame after all rounds leaves it with a blank.
        num = kernels.open_frames(self._lanes, self._reach, self._rows)
        if num:
            self._advance(num, self._choose(num, self._price(num), choices.CLOSE))
        return True

    def _price(self, num: int) -> Prices:
        """Join frames and predictor outputs of the open rows."""
        slots = self._slots
        slots.fill(self._joiner, self._rows, num)
        frames, places = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        lanes, tree = self._lanes, self._trees.arrays
        shape = self._num_frames, self._rows, num
        kernels.find(lanes, tree, self._reach, *shape, frames, places)
        self._places = places
        return self._joiner.prices(
            self._frames.index_select(0, torch.from_numpy(frames)),
            slots.given.g_at(places),
            slots.states_at(places[:num]),
        )

    def _choose(self, num: int, prices: Prices, kind: int) -> Choices:
        """Symbols of the open rows."""
        options, joiner = self._options, self._joiner
        most = options.beam_size
        if kind == choices.EXPAND:
            most += options.expansion_beta
        found = self._room(num, most, kind)
        bad = np.empty(num, np.bool_)
        gamma, forced = options.expansion_gamma, options.max_symbols
        runs = self._lanes.run.ravel()[self._rows[:num]]
        choices.choose(
            *(prices, joiner.steps, kind, joiner.late, most),
            *(np.array([gamma, most, forced], np.float64), runs, found, bad),
        )
        if bad.any():
            self.bad[self._rows[:num][bad] // self._lanes.score.shape[1]] = True
        # Early fusion: tokens were chosen by the model alone, and only these are asked
        # for.
        if not joiner.late and kind != choices.CLOSE:
            ways = len(joiner.steps.of_blank)
            labels = found.label[:num, ways:]
            width = labels.shape[1]
            states = self._slots.states_at(np.repeat(self._places[:num], width))
            gains, _ = joiner.fusion.step_on_cpu(states, labels.ravel())
            found.gain[:num, ways:] += gains.reshape(labels.shape)
        return found

    def _room(self, num: int, most: int, kind: int) -> Choices:
        """Arrays for the choices of any number of rows, kept by their width."""
        ways = len(self._joiner.steps.of_blank)
        tokens = self._joiner.num_labels - 1
        lasting = max(self._joiner.num_durations, 1)
        wide = 1
        if kind != choices.CLOSE:
            wide = ways + min(most, min(most, tokens) * lasting)
        # Kept for the next steps, which mostly are of the same width.
        if wide not in self._choices:
            rows = len(self._rows)
            label, step = np.empty((2, rows, wide), np.int64)
            value = np.empty(max(wide, most))
            order = np.empty((max(wide, most), 2), np.int64)
            gain = np.empty((rows, wide))
            self._choices[wide] = Choices(gain, label, step, value, order)
            self._scratch[wide] = scratch_of(self._lanes.score.shape[1], wide)
        return self._choices[wide]

    def _search_prefixes(self, num: int, prices: Prices) -> None:
        """Move scores from open texts to open ones that are one token longer."""
        lanes, tree, rows = self._lanes, self._trees.arrays, self._rows
        parents = self._parents[:num]
        kernels.find_prefixes(lanes, tree, rows, num, parents)
        if (parents < 0).all():
            return
        extra = np.empty(0, np.float32)
        if not self._joiner.late:
            texts = lanes.text.ravel()[rows[:num]]
            labels = np.maximum(tree.token[texts], 0)
            places = self._places[np.maximum(parents, 0)]
            states = self._slots.states_at(places)
            extra, _ = self._joiner.fusion.step_on_cpu(states, labels)
        given = prices, rows, num, parents, extra, self._joiner.zero, self._is_sum
        kernels.add_prefixes(lanes, tree, *given)

    def _advance(self, num: int, found: Choices, *, drops_seen: bool = False) -> None:
        """The hypotheses after a symbol."""
        self._trees.make_room(self._lanes)
        tree, scratch = self._trees.arrays, self._scratch[found.gain.shape[1]]
        given = self._rows, num, found, drops_seen, self._is_sum, scratch
        kernels.advance(self._lanes, tree, self._reach, *given)

    def _beam(self) -> Beam:
        """Make the beam that other parts of the library take a search for."""
        lanes, tree = self._lanes, self._trees.arrays
        num, width = lanes.score.shape
        alive = lanes.score > -np.inf
        # Where all is over only what may end is asked for, and no predictor.
        for chosen, predict in (
            (alive & ~self._reach.is_ended[:, None], True),
            (alive, False),
        ):
            rows = np.flatnonzero(chosen)
            self._slots.fill(self._joiner, rows, len(rows), predict=predict)
        lengths = tree.depth[lanes.text]
        tokens = np.zeros((num * width, int(lengths.max(initial=0)), 3), np.int32)
        trees.write_rows(lanes, tree, tokens)
        places = np.where(alive, tree.slot[lanes.text], 0).ravel()
        slots = self._slots
        return self._before._replace(
            score=torch.from_numpy(lanes.score),
            frame=torch.from_numpy(lanes.frame),
            run=torch.from_numpy(lanes.run),
            length=torch.from_numpy(lengths),
            last=torch.from_numpy(tree.token[lanes.text]),
            rows=torch.from_numpy(tokens),
            g=slots.given.g_at(places),
            state=slots.given.state_at(places),
            fusion=tuple(
                torch.from_numpy(states) for states in slots.states_at(places)
            ),
        )


class Trees:
    """Texts and traces that grow.

    Args:
        lanes: The hypotheses; their nodes are written.
        beam: What they have said.

    Attributes:
        arrays: Of the kernels.
    """

    def __init__(self, lanes: Lanes, beam: Beam) -> None:
        num, width = lanes.score.shape
        lengths = as_array(beam.length)
        most = int(lengths.sum()) + 2 * num * width + num
        self.arrays = empty_tree(1 << max(most.bit_length(), 8))
        self._forget_from = _FORGET_FROM
        self.arrays.used[:] = num  # roots: empty texts, which free places are too
        trees.read_rows(lanes, self.arrays, as_array(beam.rows), lengths)

    def make_room(self, lanes: Lanes) -> None:
        """Room for one token more of each hypothesis."""
        tree, more = self.arrays, lanes.score.size
        if tree.used.max() + more >= self._forget_from:
            scratch = np.empty((2, len(tree.parent)), np.int64)
            trees.forget(lanes, tree, scratch[0], scratch[1])
            self._forget_from = max(_FORGET_FROM, 2 * int(tree.used.max()) + more)
        if tree.used.max() + more < len(tree.parent):
            return
        larger = empty_tree(2 * len(tree.parent))
        for name in ("parent", "token", "depth", "slot", "trace_parent", "trace_row"):
            old = getattr(tree, name)
            getattr(larger, name)[: len(old)] = old
        larger.used[:] = tree.used
        trees.enter_all(larger)
        self.arrays = larger


class Slots:
    """Slots of texts: the predictor's output and states of fusion.

    Args:
        lanes: The hypotheses.
        of_lanes: Their texts.
        beam: What is known of them.

    Attributes:
        given: C rows of the predictor.
        fusion: int64 [C] for each term.
    """

    def __init__(self, lanes: Lanes, of_lanes: Trees, beam: Beam) -> None:
        self._lanes, self._trees = lanes, of_lanes
        num, texts = lanes.score.size, lanes.text.ravel()
        order = np.argsort(~(lanes.score.ravel() > -np.inf), kind="stable")
        nodes, which = np.unique(texts[order], return_index=True)
        of_lanes.arrays.slot[nodes] = np.arange(len(nodes))
        at = order[which]
        self._used = len(nodes)
        self._size = max(_SLOTS, _SLOTS_EACH * num, len(nodes))
        self.given = Rows(beam.g, beam.state).widened(at, self._size)
        self.fusion = [_wide(as_array(one)[at], self._size) for one in beam.fusion]

    def fill(
        self, joiner: Joiner, rows: np.ndarray, num: int, *, predict: bool = True
    ) -> None:
        """Ask the predictor for the texts of some rows, where it has not been yet.

        Without `predict` the models of fusion alone are asked.
        """
        if self._used + num > self._size:
            self._make_room(num)
        labels, parents = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        given = self._lanes, self._trees.arrays, rows, num, self._used
        count = kernels.place(*given, parents, labels)
        if not count:
            return
        first, last = self._used, self._used + count
        self._used = last
        states = self.states_at(parents[:count])
        _, after = joiner.fusion.step_on_cpu(states, labels[:count])
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
        slots = np.empty(self._lanes.score.size, np.int64)
        kept = trees.keep_slots(self._lanes, self._trees.arrays, slots)
        self._used = kept
        while self._size < 2 * (kept + num):
            self._size *= 2
        self.given = self.given.widened(slots[:kept], self._size)
        self.fusion = [_wide(one[slots[:kept]], self._size) for one in self.fusion]


def _wide(numbers: np.ndarray, size: int) -> np.ndarray:
    """A copy with free places behind."""
    wide = np.zeros(size, numbers.dtype)
    wide[: len(numbers)] = numbers
    return wide
