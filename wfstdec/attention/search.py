"""The search: one token a step for all live texts of all utterances.

    texts = Searcher(model, options, fusion, dense=False).run(frames, lengths, prompts,
                                                               limits)

A sequence of tokens comes about in one way, so nothing is merged. At each step the best
K of an utterance that are no ends go on, and ends among the best K are finished, kept
apart: never frozen in the beam, padded, or their scores multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.ctc import CtcPrefixes, CtcRows
from wfstdec.attention.fusion import Fusion, States
from wfstdec.attention.kernels import best_labels, no_choice, select
from wfstdec.attention.model import AttentionModel, checked_rows
from wfstdec.attention.options import AttentionOptions
from wfstdec.errors import LogprobError
from wfstdec.search.interrupts import check


class FoundText(NamedTuple):
    """A text that the search found.

    Attributes:
        tokens: All of them, marks too, the end not.
        total: Nats, higher is better.
        attention: What the model gives for it, the end included where there is one.
        ctc: What CTC gives for it; where it is cut off, for all that begins so.
        rank: What texts are ordered by.
        closed_at: How many tokens there were when its phrases closed, -1 for never.
        reached_final: Whether it ends as a text should; False where it could not.
    """

    tokens: tuple[int, ...]
    total: float
    attention: float
    ctc: float
    rank: float
    closed_at: int
    reached_final: bool


class Live(NamedTuple):
    """Texts that go on, those of an utterance together, the best first.

    Attributes:
        utterance: int64 [N].
        tokens: int64 [N, U].
        score: float64 [N].
        attention: float64 [N], the model's part.
        closed_at: int64 [N].
        at: States of the fusion.
        row: int64 [N], which rows of the model they are.
        ctc: How far CTC is with them; None without it.
    """

    utterance: np.ndarray
    tokens: np.ndarray
    score: np.ndarray
    attention: np.ndarray
    closed_at: np.ndarray
    at: States
    row: np.ndarray
    ctc: CtcRows | None

    def taken(self, rows: np.ndarray) -> Live:
        """Some of them."""
        *arrays, at, row, ctc = self
        ctc = None if ctc is None else ctc.taken(rows)
        taken = (one[rows] for one in arrays)
        return Live._make([*taken, at.taken(rows), row[rows], ctc])


class Searcher:
    """Searcher with one set of options on one batch.

    Args:
        model: The decoder.
        options: Of the search.
        fusion: Of the batch.
        ctc: Of the batch, where CTC counts.
        dense: The model always sees K rows for each utterance, needed or not.
    """

    def __init__(
        self,
        model: AttentionModel,
        options: AttentionOptions,
        fusion: Fusion,
        *,
        ctc: CtcPrefixes | None = None,
        dense: bool = False,
    ) -> None:
        self.model, self.options, self.fusion = model, options, fusion
        self.ctc, self.dense, self._eos = ctc, dense, int(model.eos)
        self._num_tokens = len(model.tokens)

    def run(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor, limits: Sequence[int]
    ) -> list[list[FoundText]]:
        """The texts of each utterance, best first; at least one, at most K.

        Args:
            frames: [B, T, D].
            lengths: int64 [B].
            prompts: int64 [B, P].
            limits: Tokens that each may have.

        Raises:
            ShapeError: The model gives other rows than it was asked for.
            LogprobError: No log-probs; has the position of the utterance.
        """
        num = len(lengths)
        self._limits, self._device = np.asarray(limits, np.int64), frames.device
        self._finished: list[list[FoundText]] = [[] for _ in range(num)]
        state, logprobs = self.model.start(frames, lengths, prompts)
        none = np.zeros(num, np.int64)
        live = Live(
            *(np.arange(num), np.zeros((num, 0), np.int64)),
            *(np.zeros(num), np.zeros(num), none - 1),
            *(self.fusion.start(num), np.arange(num)),
            None if self.ctc is None else self.ctc.start(),
        )
        rows = self._checked(logprobs, num, live, is_first=True)
        while True:
            check()
            live, labels, parents = self._advanced(live, rows)
            if not len(labels):
                return self._finished
            logprobs, state = self._stepped(state, labels, parents, live)
            count = len(limits) * self.options.beam_size if self.dense else len(labels)
            rows = self._checked(logprobs, count, live, is_first=False)

    def _checked(
        self, logprobs: Any, num: int, live: Live, *, is_first: bool
    ) -> np.ndarray:
        """The model's answer for the live texts, float32 [N, V]."""
        try:
            rows = checked_rows(logprobs, num, self._num_tokens, is_first=is_first)
        except LogprobError as error:
            at = np.flatnonzero(live.row == error.utterance)
            if not len(at):  # a row of nobody's, where it is dense
                rows = logprobs.detach().float().cpu().numpy()
            else:
                error.utterance = int(live.utterance[at[0]])
                raise
        return rows if len(rows) == len(live.row) else rows[live.row]

    def _advanced(
        self, live: Live, rows: np.ndarray
    ) -> tuple[Live, np.ndarray, np.ndarray]:
        """The texts that go on, their new tokens, and the model's rows before them."""
        fused, at = self.fusion.fused(rows, live.at, live.utterance)
        live = live._replace(at=at)
        if self.options.no_repeat_ngram:
            fused = _without_repeats(
                fused, live.tokens, self.options.no_repeat_ngram, self._eos
            )
        tried = None
        if self.ctc is not None and live.ctc is not None:
            fused, tried = self.ctc.fused(fused, live.ctc, live.utterance)
        length = live.tokens.shape[1]
        is_last = length >= self._limits[live.utterance]
        self._end_all(live, fused, rows, np.flatnonzero(is_last))
        goes_on = np.flatnonzero(~is_last)
        if not len(goes_on):
            return live, goes_on, goes_on
        if len(goes_on) < len(is_last):  # copies of rows are what takes time here
            live, fused, rows = live.taken(goes_on), fused[goes_on], rows[goes_on]
            tried = None if tried is None else tried.taken(goes_on)
        parent, label, total = self._chosen(live, fused, rows)
        after = live.taken(parent)
        # Where a list's phrases close is known before the step, and takes effect behind
        # it.
        newly = after.at.will_close & ~after.at.is_closed
        after = after._replace(
            tokens=np.concatenate([after.tokens, label[:, None]], 1),
            score=total,
            attention=after.attention + rows[parent, label],
            closed_at=np.where(newly, length, after.closed_at),
            at=self.fusion.stepped(after.at, label, after.utterance),
        )
        if self.ctc is not None and after.ctc is not None and tried is not None:
            given = after.ctc, tried.taken(parent), label, after.utterance
            after = after._replace(ctc=self.ctc.stepped(*given))
        kept = np.flatnonzero(~self._is_over(after)[after.utterance])
        return after.taken(kept), label[kept], after.row[kept]

    def _chosen(
        self, live: Live, fused: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parents, tokens and totals of what goes on; what ends is put aside."""
        width = self.options.beam_size
        shape = len(fused), min(width + 1, self._num_tokens)
        labels, gains = np.empty(shape, np.int64), np.empty(shape, np.float32)
        best_labels(fused, labels, gains)
        utterances, first = np.unique(live.utterance, return_index=True)
        splits = np.append(first, len(live.utterance)).astype(np.int64)
        chosen = no_choice(len(utterances), width)
        used = np.zeros(len(fused), np.int64)
        select(splits, live.score, labels, gains, self._eos, used, chosen)
        for i in np.flatnonzero(chosen.num_ends).tolist():
            count = chosen.num_ends[i]
            ends = zip(chosen.end_parent[i, :count], chosen.end_total[i], strict=False)
            self._finish([self._text(live, r, t, rows) for r, t in ends], utterances[i])
        for i in np.flatnonzero(chosen.num == 0).tolist():
            if not self._finished[utterances[i]]:  # nothing may follow, not even an end
                dead = np.arange(splits[i], splits[i + 1])
                self._end_all(live, np.full_like(fused, -np.inf), rows, dead)
        places = np.arange(width) < chosen.num[:, None]
        return chosen.parent[places], chosen.label[places], chosen.total[places]

    def _end_all(
        self, live: Live, fused: np.ndarray, rows: np.ndarray, which: np.ndarray
    ) -> None:
        """End texts at the price of the end, where that can be paid."""
        if not len(which):
            return
        totals = live.score + fused[:, self._eos]
        ahead = self.fusion.paid_ahead(live.at, live.utterance)
        for row in which.tolist():
            text = self._text(live, row, totals[row], rows)
            # Cut off without an end: what phrases paid ahead is taken back.
            if totals[row] == -np.inf:
                total, attention = live.score[row] - ahead[row], live.attention[row]
                text = text._replace(
                    total=float(total), attention=float(attention), reached_final=False
                )
                if live.ctc is not None:
                    text = text._replace(ctc=float(live.ctc.prefix[row]))
            self._finish([text], int(live.utterance[row]))

    def _text(self, live: Live, row: int, total: float, rows: np.ndarray) -> FoundText:
        tokens = tuple(live.tokens[row].tolist())
        attention = live.attention[row] + rows[row, self._eos]
        rank = self.options.rank(float(total), len(tokens))
        closed_at = int(live.closed_at[row])
        ctc = 0.0 if live.ctc is None else float(live.ctc.whole[row])
        return FoundText(
            *(tokens, float(total), float(attention), ctc, rank, closed_at, True)
        )

    def _finish(self, texts: list[FoundText], utterance: int) -> None:
        """Put texts on the list of an utterance: K by rank, the rest is gone."""
        found = [*self._finished[utterance], *texts]
        found.sort(key=lambda one: (not one.reached_final, -one.rank))
        self._finished[utterance] = found[: self.options.beam_size]

    def _is_over(self, live: Live) -> np.ndarray:
        """Mask of utterances that need not go on, bool [B]."""
        options, width = self.options, self.options.beam_size
        full = np.array(
            [sum(t.reached_final for t in f) >= width for f in self._finished]
        )
        # Greedy search stops at its first end.
        if width == 1 or options.stop == "full":
            return full
        if options.stop == "never" or not full.any():
            return np.zeros_like(full)
        earned = live.score - self.fusion.paid_ahead(live.at, live.utterance)
        over = full.copy()
        for i in np.flatnonzero(full).tolist():
            mine = earned[live.utterance == i]
            # Only where no live text can still come before the worst finished one.
            over[i] = not len(mine) or self._bound(
                mine.max(), i, live.tokens.shape[1]
            ) <= min(text.rank for text in self._finished[i])
        return over

    def _bound(self, earned: float, utterance: int, length: int) -> float:
        """The best rank that a live text of an utterance can still come to."""
        limit = int(self._limits[utterance])
        left = max(limit - length, 0)
        total = earned + self.fusion.margin(utterance)
        total += max(0.0, -self.options.token_insertion) * left
        best = length if total > 0 else max(limit, length)
        return self.options.rank(total, best)

    def _stepped(
        self, state: Any, labels: np.ndarray, parents: np.ndarray, live: Live
    ) -> tuple[Any, Any]:
        """The model one token further; `live.row` is set to its new rows."""
        rows = np.arange(len(labels))
        # As many rows in each step, whoever lives: a captured model asks for it.
        if self.dense:
            size = len(self._limits) * self.options.beam_size
            _, first, count = np.unique(
                live.utterance, return_index=True, return_counts=True
            )
            place = rows - np.repeat(first, count)
            rows = live.utterance * self.options.beam_size + place
            all_labels, all_parents = np.zeros((2, size), np.int64)
            all_labels[rows], all_parents[rows] = labels, parents
            labels, parents = all_labels, all_parents
        live.row[:] = rows
        as_tensor = torch.from_numpy(np.stack([labels, parents])).to(self._device)
        return self.model.step(as_tensor[0], self.model.take(state, as_tensor[1]))


def _without_repeats(
    fused: np.ndarray, tokens: np.ndarray, size: int, eos: int
) -> np.ndarray:
    """Drop tokens that make an n-gram come a second time."""
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
    """Tell whether a text ends in four times the same, of one token or more."""
    return any(
        tuple(tokens[-4 * size :]) == tuple(tokens[-size:]) * 4
        for size in range(1, len(tokens) // 4 + 1)
    )
