"""ALSD++ and AES++ on a CPU: the model in torch, kernels between its calls.

Of a text the predictor is asked once, and not before a hypothesis with this text is
joined: what it gave is kept by text, in slots. Tokens are in trees, so that a step
copies numbers only. Where trees are full, and between runs, all of it is a `Beam`
again: what no hypothesis comes from is forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wfstdec.search.threads import check
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.cpu import greedy, kernels
from wfstdec.transducer.cpu.arrays import (
    Choices,
    Joiner,
    JoinerLogprobs,
    Rows,
    as_array,
    store_of,
)
from wfstdec.transducer.options import TransducerOptions

_ROOM, _ROOM_EACH, _MOST = 256, 4, 16
"""Texts that there is room for at first beyond those of a beam; and of each hypothesis;
how many times as many there may be later, where texts are long."""


class CpuSearch:
    """A beam search."""

    def __init__(self, joiner: Joiner, options: TransducerOptions) -> None:
        self._joiner, self._options = joiner, options
        self._is_sum, self._is_aes = options.merge == "sum", options.strategy == "aes"
        self.num_steps = 0
        self._kinds = [greedy.STEP]
        if self._is_aes:
            # Hypotheses still in the frame after all rounds leave it with a blank.
            self._kinds = [greedy.EXPAND] * options.expansion_rounds + [greedy.CLOSE]
        self._prefixes_first = options.prefix_search and joiner.has_zero_step

    def run(self, beam: Beam, source: Source) -> Beam:
        """Advance as long as there are frames."""
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
        """Begin with a beam, with room for some texts more."""
        self._before, room = beam, max(room, self._most)
        wide = max(map(self._num_choices, self._kinds))
        store = self._store = store_of(beam, self._source, room, wide)
        kernels.read_rows(store, as_array(beam.rows), as_array(beam.length).ravel())
        # Slots of texts: the predictor's output and states of fusion. Those of live
        # hypotheses are right.
        order = np.argsort(~(store.hyps["score"] > -np.inf), kind="stable")
        nodes, which = np.unique(store.hyps["text"][order], return_index=True)
        at, self._used = order[which], len(nodes)
        store.texts["slot"][nodes] = np.arange(len(nodes))
        size = len(nodes) + room
        self._given = Rows(self._joiner, beam, at, size)

    def _step(self) -> bool:
        """A symbol for each open hypothesis, of AES++ a whole frame; False if none."""
        kernels.next_frames(self._store, self._joiner.longest, self._is_aes)
        for number, kind in enumerate(self._kinds):
            num = kernels.open_rows(self._store)
            if not num:
                return number > 0  # with a duration above 0 all have left the frame
            prices = self._price(num)
            is_first = number == 0 and self._is_aes and self._prefixes_first
            if is_first:
                self._search_prefixes(num, prices)
            found = self._choose(num, prices, kind)
            kernels.advance(self._store, num, found, is_first, self._is_sum)
        return True

    def _price(self, num: int) -> JoinerLogprobs:
        """Join frames and predictor outputs of the open rows."""
        self._fill(self._store.rows[:num])
        frames, places = np.empty((2, max(num, LEAST_ROWS)), np.int64)
        num_frames = self._source.frames.shape[1]
        kernels.find(self._store, num, num_frames, frames, places)
        self._places = places
        return self._joiner.prices(
            self._frames.index_select(0, torch.from_numpy(frames)),
            self._given.g_at(places),
            self._given.states_at(places[:num]),
        )

    def _num_tokens(self, kind: int) -> int:
        is_expand = kind == greedy.EXPAND
        return self._options.beam_size + self._options.expansion_beta * is_expand

    def _num_choices(self, kind: int) -> int:
        """W: choices of a hypothesis."""
        if kind == greedy.CLOSE:
            return 1
        most, joiner = self._num_tokens(kind), self._joiner
        pairs = min(most, joiner.num_labels - 1) * max(joiner.num_durations, 1)
        return len(joiner.steps.of_blank) + min(most, pairs)

    def _choose(self, num: int, prices: JoinerLogprobs, kind: int) -> Choices:
        """Symbols of the open rows."""
        options, joiner, hyps = self._options, self._joiner, self._store.hyps
        wide, most = self._num_choices(kind), self._num_tokens(kind)
        label, step = np.empty((2, num, wide), np.int64)
        value, order = np.empty(max(wide, most)), np.empty((max(wide, most), 2), int)
        found = Choices(np.empty((num, wide)), label, step, value, order)
        bad, rows = np.empty(num, np.bool_), self._store.rows[:num]
        gamma, forced = options.expansion_gamma, options.max_symbols
        greedy.choose(
            *(prices, joiner.steps, (kind, joiner.late, most)),
            *(np.array([gamma, most, forced], np.float64), hyps["run"][rows]),
            *(found, bad),
        )
        if bad.any():
            self.bad[rows[bad] // self._store.width] = True
        # Early fusion: tokens were chosen by the model alone, and only these are asked
        # for.
        if not joiner.late and kind != greedy.CLOSE:
            ways = len(joiner.steps.of_blank)
            labels = found.label[:, ways:]
            places = np.repeat(self._places[:num], labels.shape[1])
            states = self._given.states_at(places)
            gains, _ = joiner.fusion.step(states, labels.ravel())
            found.gain[:, ways:] += gains.reshape(labels.shape)
        return found

    def _search_prefixes(self, num: int, prices: JoinerLogprobs) -> None:
        """Move scores from open texts to open ones that are one token longer."""
        store, parents = self._store, np.empty(num, np.int64)
        kernels.find_prefixes(store, parents)
        if (parents < 0).all():
            return
        extra = np.empty(0, np.float32)
        if not self._joiner.late:
            texts = store.hyps["text"][store.rows[:num]]
            labels = np.maximum(store.texts["token"][texts], 0)
            states = self._given.states_at(self._places[np.maximum(parents, 0)])
            extra, _ = self._joiner.fusion.step(states, labels)
        given = prices, parents, extra, self._joiner.zero, self._is_sum
        kernels.add_prefixes(store, *given)

    def _fill(self, rows: np.ndarray, *, predict: bool = True) -> None:
        """Ask the predictor for the texts of some rows, where it has not been yet."""
        labels, parents = np.empty((2, max(len(rows), LEAST_ROWS)), np.int64)
        first = self._used
        count = kernels.place(self._store, rows, first, parents, labels)
        self._used += count
        to = slice(first, self._used)
        self._given.advance(parents, labels, to, count, predict=predict)

    def _beam(self, *, is_over: bool) -> Beam:
        """The beam of this search state."""
        store, shape = self._store, self._before.score.shape
        hyps, texts = store.hyps, store.texts
        alive = hyps["score"] > -np.inf
        # Where all is over only what may end is asked for, and no predictor.
        is_ended = np.repeat(store.span["is_ended"] & is_over, store.width)
        self._fill(np.flatnonzero(alive & ~is_ended))
        self._fill(np.flatnonzero(alive), predict=False)
        lengths = texts["depth"][hyps["text"]]
        tokens = np.zeros((len(hyps), int(lengths.max(initial=0)), 3), np.int32)
        kernels.write_rows(store, tokens)
        arrays = {name: hyps[name].copy() for name in ("score", "frame", "run")}
        arrays |= {"length": lengths, "last": texts["token"][hyps["text"]]}
        places = np.where(alive, texts["slot"][hyps["text"]], 0)
        parts: Any = {
            name: torch.from_numpy(a).view(shape) for name, a in arrays.items()
        }
        return self._before._replace(
            **parts,
            rows=torch.from_numpy(tokens),
            **self._given.fields(places),
        )
