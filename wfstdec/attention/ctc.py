"""CTC with attention: prefix and text probabilities of hypotheses.

An active text h is scored by psi(h), the probability of all texts that begin with it, a
finished one by its own (Watanabe et al. 2017, algorithm 2). For a token c after h,

    phi[t] = blank[t] + (nonblank[t] unless c is the last token of h)
    psi(hc) = sum over t of phi[t] * p[t, c]

where blank[t] and nonblank[t] are the alignments of the first t frames to h that end in
a blank, or in its last token: equal tokens are separated by a blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wfstdec.attention.model import SUM_TOLERANCE, AttentionModel, tree_map
from wfstdec.errors import LogprobError, OptionError, ShapeError
from wfstdec.jit import inlined, kernel
from wfstdec.text.tokens import TokenTable

NO_CTC = "ctc_weight without CTC log-probs, expected ctc=, or a model's `ctc`"
_LEAST = np.float32(-np.inf)


def taken(parts: Any, rows: np.ndarray) -> Any:
    """Take rows, int64 [M], of all arrays of nested tuples."""
    return tree_map(lambda one: one[rows], parts)


@kernel
def best_labels(fused, labels, gains):
    """Write the best labels of each row, best first; ties go to the lower."""
    width = labels.shape[1]
    for i in range(len(fused)):
        gains[i] = _LEAST
        labels[i] = 0
        worst = _LEAST
        for label in range(fused.shape[1]):
            gain = fused[i, label]
            if gain > worst:  # a later equal one stays out: the lower counts
                place = width - 1
                while place > 0 and gains[i, place - 1] < gain:
                    gains[i, place] = gains[i, place - 1]
                    labels[i, place] = labels[i, place - 1]
                    place -= 1
                gains[i, place], labels[i, place] = gain, label
                worst = gains[i, width - 1]


class CtcUnits(NamedTuple):
    """Columns of an attention decoder's tokens in CTC."""

    # int64 [V], the column of each token; -1 for marks
    column: np.ndarray
    blank: int  # column of the blank
    num_columns: int  # of the log-probs
    silent: np.ndarray  # int64 [M], marks, the end included
    eos: int  # the end

    @classmethod
    def of(cls, model: AttentionModel, table: TokenTable | None) -> CtcUnits:
        """Match the columns by name."""
        names, eos = model.tokens, int(model.eos)
        silent = np.array(sorted({eos, *model.neutral}), np.int64)
        column, blank, num = np.arange(len(names)), eos, len(names)
        if table is not None:
            places = {name: i for i, name in enumerate(table.names) if i != table.blank}
            column = np.array([places.get(name, -1) for name in names], np.int64)
            blank, num = table.blank, len(table)
        lacking = np.setdiff1d(np.flatnonzero(column < 0), silent)
        if len(lacking):
            what = f"CTC log-probs without the token {names[lacking[0]]!r}"
            raise OptionError(f"{what}, expected all: rescore lists where units differ")
        # Timestamps and the like, which CTC does not have.
        column[silent] = -1
        return cls(column, blank, num, silent, eos)

    def check(
        self, logprobs: np.ndarray, num_frames: int, utterance: int | None = None
    ) -> np.ndarray:
        """Return validated log-probs of an utterance, float32 [T, num_columns]."""
        if logprobs.ndim != 2 or logprobs.shape[1] != self.num_columns:
            text = f"CTC log-probs {logprobs.shape}, expected [T, {self.num_columns}]"
            raise ShapeError(text, utterance)
        if (num := len(logprobs)) < num_frames:
            expected = f"expected {num_frames} as of the encoder"
            raise ShapeError(f"CTC log-probs of {num} frames, {expected}", utterance)
        rows = np.ascontiguousarray(logprobs[:num_frames], np.float32)
        if not (rows < np.inf).all():
            text = "CTC log-probs with NaN or +inf, expected logs"
            raise LogprobError(text, utterance)
        sums = np.exp(rows).sum(1, dtype=np.float64)
        if (np.abs(sums - 1) > SUM_TOLERANCE).any():
            worst = sums[np.abs(sums - 1).argmax()]
            text = f"exp of a row of CTC log-probs adds up to {worst:.4g}, expected 1"
            raise LogprobError(text, utterance)
        return rows


class CtcRows(NamedTuple):
    """CTC state of the texts of N rows; natural logs."""

    # float32 [N, T + 1], of alignments of the first t frames to the text that end in
    # its last token
    nonblank: np.ndarray
    # float32 [N, T + 1], of those that end in a blank, or of no frame
    blank: np.ndarray
    prefix: np.ndarray  # float64 [N], psi: of all texts with this prefix
    whole: np.ndarray  # float64 [N], of the text itself
    last: np.ndarray  # int64 [N], the last token that is not a mark; -1 for none


ScoredTokens = tuple[np.ndarray, np.ndarray]
"""Scored tokens, int64 [N, C], and psi with each, float32 [N, C]."""


class CtcPrefixes:
    """The CTC log-probs of a batch."""

    def __init__(
        self,
        logprobs: Sequence[np.ndarray],
        units: CtcUnits,
        *,
        weight: float,
        width: int,
    ) -> None:
        self._units, self._weight = units, np.float32(weight)
        self._width = min(width, len(units.column))
        self._lengths = np.array([len(one) for one in logprobs], np.int64)
        shape = len(logprobs), units.num_columns, max(map(len, logprobs))
        self._logprobs = np.full(shape, _LEAST)  # by columns: sums are over frames
        for rows, one in zip(self._logprobs, logprobs, strict=True):
            rows[:, : len(one)] = one.T
        self._scratch = np.empty((2, shape[2]), np.float32)

    def start(self) -> CtcRows:
        """Return the empty text, for every utterance."""
        num, _, most = self._logprobs.shape
        blank: np.ndarray = np.zeros((num, most + 1), np.float32)
        blank[:, 1:] = np.cumsum(self._logprobs[:, self._units.blank], 1)
        nonblank = np.full_like(blank, _LEAST)
        whole = blank[np.arange(num), self._lengths].astype(np.float64)
        return CtcRows(nonblank, blank, np.zeros(num), whole, np.full(num, -1))

    def fused(
        self, fused: np.ndarray, rows: CtcRows, utterance: np.ndarray
    ) -> tuple[np.ndarray, ScoredTokens]:
        """Add CTC to the scores of the best tokens; ends and marks are kept."""
        units = self._units
        others = fused.copy()
        others[:, units.silent] = _LEAST
        labels = np.empty((len(fused), self._width), np.int64)
        gains = np.empty(labels.shape, np.float32)
        best_labels(others, labels, gains)
        asked = gains > _LEAST
        prefix = np.where(asked, _LEAST, np.float32(0))
        frames = self._logprobs, self._lengths, utterance
        _prefixes(*frames, units.column, rows, labels, prefix, self._scratch)
        out = np.full_like(fused, _LEAST)
        out[:, units.silent] = fused[:, units.silent]
        out[:, units.eos] += self._weight * (rows.whole - rows.prefix)
        more = self._weight * (prefix - rows.prefix[:, None])
        # Unused places have token 0, which another place may have: skip them.
        row, place = np.nonzero(asked)
        out[row, labels[row, place]] = gains[row, place] + more[row, place]
        return out, (labels, prefix)

    def stepped(
        self,
        rows: CtcRows,
        scored: ScoredTokens,
        labels: np.ndarray,
        utterance: np.ndarray,
    ) -> CtcRows:
        """Step the rows by one token; those of the parents are overwritten."""
        units, (tokens, prefix) = self._units, scored
        says = units.column[labels] >= 0
        chosen = (tokens == labels[:, None]) & says[:, None]
        psi = np.where(chosen, prefix, 0.0).sum(1, dtype=np.float64)
        rows.prefix[:] = np.where(says, psi, rows.prefix)
        return self._stepped(rows, labels, utterance)

    def _stepped(
        self, rows: CtcRows, labels: np.ndarray, utterance: np.ndarray
    ) -> CtcRows:
        units, frames = self._units, (self._logprobs, self._lengths, utterance)
        _step(*frames, units.column, units.blank, rows, labels)
        return rows

    def texts(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """Return log-probabilities of the only utterance's whole texts, float64 [N]."""
        none = np.zeros(len(texts), np.int64)
        rows = taken(self.start(), none)
        longest = max((len(text) for text in texts), default=0)
        labels = np.full((len(texts), longest), self._units.eos)
        for row, text in zip(labels, texts, strict=True):
            row[: len(text)] = text
        for place in range(longest):
            self._stepped(rows, np.ascontiguousarray(labels[:, place]), none)
        return rows.whole


@inlined
def _add_logs(one, other):
    high, low = max(one, other), min(one, other)
    if low == -np.inf:
        return high
    return high + np.log1p(np.exp(low - high))


@kernel
def _prefixes(logprobs, lengths, utterance, column, rows, labels, prefix, scratch):
    """Write psi of each row with each of its labels, float32 [N, C]."""
    nonblank, blank, last = rows.nonblank, rows.blank, rows.last
    both, terms = scratch[0], scratch[1]
    for row in range(len(labels)):
        u = utterance[row]
        size = lengths[u]
        for t in range(size):
            both[t] = _add_logs(nonblank[row, t], blank[row, t])
        for place in range(labels.shape[1]):
            label = labels[row, place]
            if prefix[row, place] > -np.inf:  # an unused place
                continue
            # The same token again needs a blank in between.
            before = blank[row] if label == last[row] else both
            at = column[label]
            top = np.float32(-np.inf)
            for t in range(size):
                terms[t] = before[t] + logprobs[u, at, t]
                # The largest is factored out of the sum, or `exp` would underflow.
                top = max(top, terms[t])
            if top == -np.inf:
                continue
            total = np.float32(0)
            for t in range(size):
                total += np.exp(terms[t] - top)
            prefix[row, place] = top + np.log(total)


@kernel
def _step(logprobs, lengths, utterance, column, blank_at, rows, labels):
    """Advance rows by one token each, in place; marks change nothing."""
    nonblank, blank, none = rows.nonblank, rows.blank, np.float32(-np.inf)
    for row in range(len(labels)):
        label = labels[row]
        at = column[label]
        if at < 0:
            continue
        u = utterance[row]
        emitted, silent = none, none  # the new text, by how its alignments end
        for t in range(lengths[u]):
            phi = blank[row, t]
            if label != rows.last[row]:
                phi = _add_logs(phi, nonblank[row, t])
            next_emitted = _add_logs(emitted, phi) + logprobs[u, at, t]
            next_silent = _add_logs(silent, emitted) + logprobs[u, blank_at, t]
            # In place: the old values of this frame have been read.
            nonblank[row, t], blank[row, t] = emitted, silent
            emitted, silent = next_emitted, next_silent
        end = lengths[u]
        nonblank[row, end], blank[row, end] = emitted, silent
        rows.whole[row] = _add_logs(emitted, silent)
        rows.last[row] = label


def token_spans(
    logprobs: np.ndarray, columns: np.ndarray, blank: int
) -> np.ndarray | None:
    """Return first frames of tokens, and one after their last; int32 [N, 2]."""
    # Ties between alignments go to the one whose tokens end late.
    spans = np.zeros((len(columns), 2), np.int32)
    states = 2 * len(columns) + 1
    scores = np.full((2, states), -np.inf)
    step = np.zeros((len(logprobs), states), np.int8)
    columns = np.ascontiguousarray(columns, np.int64)
    return spans if _align(logprobs, columns, blank, scores, step, spans) else None


@kernel
def _align(logprobs, columns, blank, scores, step, spans):
    """Write the spans; return whether there is an alignment."""
    # State 2 * i + 1 is token i, even ones are the blanks around them.
    num_frames, num_states = step.shape
    now, after = scores[0], scores[1]
    for t in range(num_frames):
        for state in range(num_states):
            at = columns[state // 2] if state % 2 else blank
            # Ties go to staying, then to the lesser step.
            best, by = now[state], 0
            if t == 0:
                best = 0.0 if state < 2 else -np.inf
            else:
                if state > 0 and now[state - 1] > best:
                    best, by = now[state - 1], 1
                # Past a blank, where two tokens differ.
                skips = state % 2 == 1 and state > 1
                if skips and columns[state // 2] != columns[state // 2 - 1]:
                    if now[state - 2] > best:
                        best, by = now[state - 2], 2
            after[state] = best + logprobs[t, at]
            step[t, state] = by
        for state in range(num_states):
            now[state] = after[state]
    state = num_states - 1
    # The last token, or the blank after it.
    if num_states > 1 and now[state - 1] >= now[state]:
        state -= 1
    if num_frames == 0 or now[state] == -np.inf:
        return num_frames == 0 and len(columns) == 0
    for t in range(num_frames - 1, -1, -1):
        if state % 2:
            i = state // 2
            spans[i, 0] = t
            if spans[i, 1] == 0:
                spans[i, 1] = t + 1
        state -= step[t, state]
    return True
