"""Beam search of attention decoders: one token per step for all active texts.

A sequence of tokens has one derivation, so nothing is merged. At each step the best K
continuations of an utterance survive, and ends among the best K are finished and kept
separately. They are not padded, and their scores are not changed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.ctc import CtcPrefixes, CtcRows, CtcUnits, best_labels, taken
from wfstdec.attention.model import AttentionModel, checked_rows
from wfstdec.attention.options import AttentionOptions
from wfstdec.boost.phrases import PhraseBoosts, initial_states
from wfstdec.boost.tables import CLOSED, CLOSING, OPEN, RowStates, credit_rows
from wfstdec.errors import LogprobError
from wfstdec.lm.ngram import NgramLM
from wfstdec.search.threads import check


class States(NamedTuple):
    """States of all terms, by row."""

    lm: tuple[np.ndarray, ...]  # int32 [N], of each language model
    phrase: np.ndarray  # int32 [N], of the row's list
    # int8 [N]: `OPEN`; `CLOSING`, phrases are closed for all successors; `CLOSED`
    mode: np.ndarray
    # int64 [N, U], the automaton's step at which each token ended one, -1 for none
    ended: np.ndarray
    loops: np.ndarray  # bool [N], whether the last token ended a phrase too often


LOOP_TOKENS = 16
"""A phrase that ends a second time within this many tokens is a loop, as is one that
ends a third time: Whisper would repeat it up to the limit of tokens."""


class Fusion:
    """The terms of a batch of utterances."""

    def __init__(
        self,
        lms: Sequence[tuple[NgramLM, float]],
        lists: Sequence[PhraseBoosts | None],
        options: AttentionOptions,
        units: CtcUnits,
    ) -> None:
        self.lms = [(lm, weight) for lm, weight in lms if weight]
        self.options, self.silent, self.eos = options, units.silent, units.eos
        none = initial_states()
        different = {id(one): one for one in lists if one is not None}
        self.lists = [none, *different.values()]
        numbers = {key: i + 1 for i, key in enumerate(different)}
        self._list_of = np.array([numbers.get(id(one), 0) for one in lists], np.int64)

    def start(self, num: int) -> States:
        """Return the states before `num` utterances, a row each."""
        lm = tuple(np.full(num, lm.start, np.int32) for lm, _ in self.lms)
        starts = np.array([one.start for one in self.lists], np.int32)[self._list_of]
        no, none = np.zeros(num, bool), np.zeros((num, 0), np.int64)
        return States(lm, starts, np.full(num, OPEN, np.int8), none, no)

    def fused(
        self, logprobs: np.ndarray, at: States, utterance: np.ndarray
    ) -> tuple[np.ndarray, States]:
        """Return log-probs with all terms except CTC; the states with `CLOSING` set."""
        fused = logprobs
        # The model's share, without CTC's; impossible tokens stay impossible.
        if self.options.ctc_weight:
            part = np.float32(1 - self.options.ctc_weight)
            possible = logprobs > -np.inf
            fused = np.where(possible, np.where(possible, logprobs, 0) * part, logprobs)
        if self.options.token_insertion:
            paid = fused - np.float32(self.options.token_insertion)
            paid[:, self.silent] = fused[:, self.silent]
            fused = paid
        for (lm, weight), states in zip(self.lms, at.lm, strict=True):
            costs = lm.row_batch(states)[0][:, : logprobs.shape[1]]
            costs[:, self.silent] = 0
            costs[:, self.eos] = lm.automaton.final_cost[states]
            gains = costs * np.float32(-weight)
            if weight < 0:  # impossible tokens stay impossible
                gains[np.isposinf(costs)] = -np.inf
            fused = fused + gains
        if len(self.lists) == 1:
            return fused, at
        if self.options.end_rule == "closed":
            closes = logprobs[:, self.eos] >= logprobs.max(1)
            closes = (closes | at.loops) & (at.mode == OPEN)
            at = at._replace(mode=np.where(closes, np.int8(CLOSING), at.mode))
        credited, ends = fused.copy(), np.array([self.eos])
        for boosts, rows in self._rows_of_lists(utterance):
            given = rows, at.phrase[rows], at.mode[rows], self.silent, ends
            row_states = RowStates(*given)
            credit_rows(boosts.automaton, row_states, fused, credited, False)
        return credited, at

    def _rows_of_lists(
        self, utterance: np.ndarray, counts: np.ndarray | bool = True
    ) -> Iterator[tuple[PhraseBoosts, np.ndarray]]:
        """Yield each active list and its rows."""
        which = np.where(counts, self._list_of[utterance], 0)
        for number, boosts in enumerate(self.lists):
            rows = np.flatnonzero(which == number)
            if number and len(rows):
                yield boosts, rows

    def stepped(self, at: States, labels: np.ndarray, utterance: np.ndarray) -> States:
        """Return the states after one token each, int64 [N]."""
        is_silent = np.isin(labels, self.silent)
        lm = tuple(
            np.where(is_silent, states, model.step_batch(states, labels)[1])
            for (model, _), states in zip(self.lms, at.lm, strict=True)
        )
        phrase = at.phrase.copy()
        new, loops = np.full(len(labels), -1), np.zeros(len(labels), bool)
        for boosts, rows in self._rows_of_lists(utterance, ~is_silent):
            paid, before = boosts.automaton.final_cost, phrase[rows]
            costs, after = boosts.step_batch(before, labels[rows])
            phrase[rows] = after
            # Payment beyond the change of credit means a complete phrase.
            completes = paid[before] - paid[after] - costs > 0
            step = before * np.int64(boosts.num_labels) + labels[rows]
            new[rows] = np.where(completes, step, -1)
        if (new >= 0).any():
            same = (at.ended == new[:, None]) & (new >= 0)[:, None]
            loops = same[:, -LOOP_TOKENS:].any(1) | (same.sum(1) > 1)
        mode = np.where(at.mode == OPEN, at.mode, np.int8(CLOSED))
        steps = np.concatenate([at.ended, new[:, None]], 1)
        return States(lm, phrase, mode, steps, loops)

    def paid_ahead(self, at: States, utterance: np.ndarray) -> np.ndarray:
        """Return the credit of incomplete phrases, float64 [N]."""
        found = np.zeros(len(at.phrase))
        for boosts, rows in self._rows_of_lists(utterance, at.mode != CLOSED):
            found[rows] = boosts.automaton.final_cost[at.phrase[rows]]
        return found

    def margin(self, utterance: int | np.integer) -> float:
        """Return the most that a text may still gain: the best phrase."""
        # Infinite if language models may favour tokens.
        if any(weight < 0 for _, weight in self.lms):
            return np.inf
        a = self.lists[self._list_of[utterance]].automaton
        source = np.repeat(np.arange(len(a.final_cost)), np.diff(a.state_arc_splits))
        return float((a.final_cost[source] - a.arc_cost).max(initial=0.0))


class FinishedHypothesis(NamedTuple):
    """Finished text."""

    tokens: tuple[int, ...]  # all tokens with marks, without the end
    total: float  # nats, higher is better
    attention: float  # of the model, with the end if it has one
    ctc: float  # of CTC; of the prefix if the text is cut off
    rank: float  # sort key of texts
    closed_at: int  # number of tokens when its phrases closed, -1 for never
    reached_final: bool  # whether it ends regularly


class ActiveHypotheses(NamedTuple):
    """Active texts, grouped by utterance, the best first."""

    utterance: np.ndarray  # int64 [N]
    tokens: np.ndarray  # int64 [N, U]
    score: np.ndarray  # float64 [N]
    attention: np.ndarray  # float64 [N], the model's part
    closed_at: np.ndarray  # int64 [N]
    at: States  # states of the fusion
    row: np.ndarray  # int64 [N], rows of the model
    ctc: CtcRows | None  # state of CTC; None without it


class Searcher:
    """Search with one set of options on one batch."""

    def __init__(
        self,
        model: AttentionModel,
        options: AttentionOptions,
        fusion: Fusion,
        *,
        ctc: CtcPrefixes | None = None,
    ) -> None:
        self.model, self.options, self.fusion = model, options, fusion
        self.ctc, self._eos = ctc, int(model.eos)
        self._num_tokens = len(model.tokens)

    def run(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor, limits: Sequence[int]
    ) -> list[list[FinishedHypothesis]]:
        """Return the texts of each utterance, best first; at least one, at most K."""
        num = len(lengths)
        self._limits, self._device = np.asarray(limits, np.int64), frames.device
        self._finished: list[list[FinishedHypothesis]] = [[] for _ in range(num)]
        state, logprobs = self.model.start(frames, lengths, prompts)
        none = np.zeros(num, np.int64)
        ctc, tokens = None, np.zeros((num, 0), np.int64)
        if self.ctc is not None:
            ctc = self.ctc.start()
        parts = np.arange(num), tokens, np.zeros(num), np.zeros(num), none - 1
        hyps = ActiveHypotheses(*parts, self.fusion.start(num), np.arange(num), ctc)
        rows = self._checked(logprobs, hyps, is_first=True)
        while True:
            check()
            hyps, labels, parents = self._advanced(hyps, rows)
            if not len(labels):
                return self._finished
            logprobs, state = self._stepped(state, labels, parents, hyps)
            rows = self._checked(logprobs, hyps, is_first=False)

    def _checked(
        self, logprobs: Any, hyps: ActiveHypotheses, *, is_first: bool
    ) -> np.ndarray:
        num = len(hyps.utterance)
        try:
            return checked_rows(logprobs, num, self._num_tokens, is_first=is_first)
        except LogprobError as error:
            error.utterance = int(hyps.utterance[hyps.row == error.utterance][0])
            raise

    def _advanced(
        self, hyps: ActiveHypotheses, rows: np.ndarray
    ) -> tuple[ActiveHypotheses, np.ndarray, np.ndarray]:
        fused, at = self.fusion.fused(rows, hyps.at, hyps.utterance)
        hyps, size = hyps._replace(at=at), self.options.no_repeat_ngram
        if size:
            fused = _without_repeats(fused, hyps.tokens, size, self._eos)
        scored = None
        if self.ctc is not None and hyps.ctc is not None:
            fused, scored = self.ctc.fused(fused, hyps.ctc, hyps.utterance)
        length = hyps.tokens.shape[1]
        is_last = length >= self._limits[hyps.utterance]
        self._end_all(hyps, fused[:, self._eos], rows, np.flatnonzero(is_last))
        active = np.flatnonzero(~is_last)
        if not len(active):
            return hyps, active, active
        if len(active) < len(is_last):  # copies of rows dominate the time
            hyps, fused, rows, scored = taken((hyps, fused, rows, scored), active)
        parent, label, total = self._chosen(hyps, fused, rows)
        after = taken(hyps, parent)
        # Closing is known before the step and takes effect after it.
        newly = after.at.mode == CLOSING
        after = after._replace(
            tokens=np.concatenate([after.tokens, label[:, None]], 1),
            score=total,
            attention=after.attention + rows[parent, label],
            closed_at=np.where(newly, length, after.closed_at),
            at=self.fusion.stepped(after.at, label, after.utterance),
        )
        if self.ctc is not None and after.ctc is not None and scored is not None:
            given = after.ctc, taken(scored, parent), label, after.utterance
            after = after._replace(ctc=self.ctc.stepped(*given))
        kept = np.flatnonzero(~self._is_over(after)[after.utterance])
        return taken(after, kept), label[kept], after.row[kept]

    def _chosen(
        self, hyps: ActiveHypotheses, fused: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return parents, tokens and totals of survivors; put ended texts aside."""
        width = self.options.beam_size
        shape = len(fused), min(width + 1, self._num_tokens)
        labels, gains = np.empty(shape, np.int64), np.empty(shape, np.float32)
        best_labels(fused, labels, gains)
        # Sorted by total; ties go to the lower row, then the lower token.
        totals = (hyps.score[:, None] + gains).ravel()
        order = np.lexsort((-totals, np.repeat(hyps.utterance, shape[1])))
        order = order[totals[order] > -np.inf]
        parent, label, total = order // shape[1], labels.ravel()[order], totals[order]
        utterance = hyps.utterance[parent]
        first = np.searchsorted(utterance, utterance)  # of the same utterance
        is_end = label == self._eos
        place, before = np.arange(len(order)), np.cumsum(~is_end) - ~is_end
        # Take ends among the first K, and the first K continuations.
        for i in np.flatnonzero(is_end & (place - first < width)).tolist():
            self._finish(self._text(hyps, parent[i], total[i], rows), utterance[i])
        kept = ~is_end & (before - before[first] < width)
        # Utterances without a possible continuation or end.
        lost = set(hyps.utterance.tolist()) - set(utterance[kept].tolist())
        dead = [one for one in lost if not self._finished[one]]
        which, none = np.isin(hyps.utterance, dead), np.full(len(rows), -np.inf)
        self._end_all(hyps, none, rows, np.flatnonzero(which))
        return parent[kept], label[kept], total[kept]

    def _end_all(
        self,
        hyps: ActiveHypotheses,
        ends: np.ndarray,
        rows: np.ndarray,
        which: np.ndarray,
    ) -> None:
        if not len(which):
            return
        totals = hyps.score + ends
        ahead = self.fusion.paid_ahead(hyps.at, hyps.utterance)
        for row in which.tolist():
            text = self._text(hyps, row, totals[row], rows)
            # Cut off without an end: advance payments of phrases are refunded.
            if totals[row] == -np.inf:
                text = text._replace(
                    total=float(hyps.score[row] - ahead[row]),
                    attention=float(hyps.attention[row]),
                    reached_final=False,
                )
                if hyps.ctc is not None:
                    text = text._replace(ctc=float(hyps.ctc.prefix[row]))
            self._finish(text, hyps.utterance[row])

    def _text(
        self, hyps: ActiveHypotheses, row: int, total: float, rows: np.ndarray
    ) -> FinishedHypothesis:
        tokens, total = tuple(hyps.tokens[row].tolist()), float(total)
        attention = float(hyps.attention[row] + rows[row, self._eos])
        rank = self.options.rank(total, len(tokens))
        closed_at = int(hyps.closed_at[row])
        ctc = 0.0 if hyps.ctc is None else float(hyps.ctc.whole[row])
        return FinishedHypothesis(tokens, total, attention, ctc, rank, closed_at, True)

    def _finish(self, text: FinishedHypothesis, utterance: int) -> None:
        """Add a text to the list of an utterance; keep the K best by rank."""
        found = [*self._finished[utterance], text]
        found.sort(key=lambda one: (not one.reached_final, -one.rank))
        self._finished[utterance] = found[: self.options.beam_size]

    def _is_over(self, hyps: ActiveHypotheses) -> np.ndarray:
        """Return the mask of finished utterances, bool [B]."""
        options, width = self.options, self.options.beam_size
        ended = [sum(text.reached_final for text in f) for f in self._finished]
        full = np.array(ended) >= width
        # Greedy search stops at its first end.
        if width == 1 or options.stop == "full":
            return full
        if options.stop == "never" or not full.any():
            return np.zeros_like(full)
        earned = hyps.score - self.fusion.paid_ahead(hyps.at, hyps.utterance)
        over, length = full.copy(), hyps.tokens.shape[1]
        for i in np.flatnonzero(full & np.isin(np.arange(len(full)), hyps.utterance)):
            # Upper bound of an active text's rank.
            limit = max(int(self._limits[i]), length)
            total = earned[hyps.utterance == i].max() + self.fusion.margin(i)
            total += max(0.0, -options.token_insertion) * (limit - length)
            bound = options.rank(total, length if total > 0 else limit)
            over[i] = bound <= min(text.rank for text in self._finished[i])
        return over

    def _stepped(
        self,
        state: Any,
        labels: np.ndarray,
        parents: np.ndarray,
        hyps: ActiveHypotheses,
    ) -> tuple[Any, Any]:
        hyps.row[:] = np.arange(len(labels))
        as_tensor = torch.from_numpy(np.stack([labels, parents])).to(self._device)
        return self.model.step(as_tensor[0], self.model.take(state, as_tensor[1]))


def _without_repeats(
    fused: np.ndarray, tokens: np.ndarray, size: int, eos: int
) -> np.ndarray:
    fused = fused.copy()
    start = tokens.shape[1] - size + 1
    for i, text in enumerate(tokens.tolist()):
        last = text[start:]
        for first in range(start):
            banned = text[first + size - 1]
            if text[first : first + size - 1] == last and banned != eos:
                fused[i, banned] = -np.inf
    return fused


def is_looped(tokens: Sequence[int]) -> bool:
    """Return whether a text ends with four repetitions of one or more tokens."""
    return any(
        tuple(tokens[-4 * size :]) == tuple(tokens[-size:]) * 4
        for size in range(1, len(tokens) // 4 + 1)
    )
