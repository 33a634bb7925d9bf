"""Logits as pyctcdecode takes them, to the tokens that a frame is searched with.

    frames = read_logits(logits, num_tokens)      # checked; float32 or float64 [T, V]
    kept = keep_tokens(frames, token_min_logp)
    kept.tokens[kept.splits[t] : kept.splits[t + 1]]  # in the order of their visits

Logits and log-probs are normalised; what looks like probabilities becomes its log. No
log-prob is below that of 1e-15.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int32, int64

from wfstdec.adapters.pyctcdecode.constants import MIN_TOKEN_CLIP_P
from wfstdec.adapters.pyctcdecode.token_order import table_size, visit_order
from wfstdec.errors import LogprobError, ShapeError
from wfstdec.jit import inlined, kernel
from wfstdec.search.logprobs import as_numpy

_FLOOR = math.log(MIN_TOKEN_CLIP_P)
_SUM_TOLERANCE = 1e-3
_LOG2_E = float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = float32(0.693359375), float32(-2.12194440e-4)
_UNIT = float32(1 << 30)
_LEAST_EXPONENT = float32(-87.0)
_SLACK, _ROUNDING = 1e-3, float32(1e-5)
_BLOCK = 64
_LEAST_INT, _MAGNITUDE, _SIGN = int32(-(1 << 31)), int32((1 << 31) - 1), int32(31)
_HALF, _ONE = float32(0.5), float32(1.0)
_P2, _P3 = float32(1.6666665459e-1), float32(4.1665795894e-2)
_P4, _P5 = float32(8.3334519073e-3), float32(1.3981999507e-3)
"""Cephes: exp(r) is about 1 + r + r^2 (1/2 + _P2 r + _P3 r^2 + _P4 r^3 + _P5 r^4)."""


class KeptTokens(NamedTuple):
    """The tokens of T frames.

    Attributes:
        splits: int64 [T + 1].
        tokens: int32, in the order of their visits.
        logps: float64, natural log.
    """

    splits: np.ndarray
    tokens: np.ndarray
    logps: np.ndarray


def read_logits(logits: Any, num_tokens: int) -> np.ndarray:
    """Check an utterance's logits, log-probs or probabilities.

    Args:
        logits: [T, V], NumPy, torch, or anything with DLPack.
        num_tokens: V.

    Returns:
        float32 or float64 [T, V] in C order; probabilities as their logs.

    Raises:
        ShapeError: It has other axes, or not V of these, or no numbers.
    """
    found = as_numpy(logits)
    if found.ndim != 2:
        raise ShapeError(
            f"logits have {found.ndim} axes {found.shape}, expected 2: [T, V]"
        )
    if found.shape[1] != num_tokens:
        raise ShapeError(
            f"logits have V={found.shape[1]} tokens, expected V={num_tokens} as labels "
            "(a blank is put behind labels that have none)"
        )
    if np.issubdtype(found.dtype, np.integer):
        found = found.astype(np.float64)
    if not np.issubdtype(found.dtype, np.floating):
        raise ShapeError(f"logits are {found.dtype}, expected numbers")
    wide = np.float64 if found.dtype == np.float64 else np.float32
    frames = np.require(found, wide, ["C", "W"])
    # pyctcdecode takes probabilities too, and tells them by their sums.
    if _are_probabilities(frames):
        return np.log(np.clip(frames, MIN_TOKEN_CLIP_P, 1)).astype(wide)
    return frames


def _are_probabilities(frames: np.ndarray) -> bool:
    """Tell whether no number is below 0 and rows sum to 1."""
    if not len(frames) or not frames[0].min() >= 0 or not frames.min() >= 0:
        return False
    sums = frames.sum(axis=1, dtype=np.float64)
    near = bool((np.abs(sums - 1) < _SUM_TOLERANCE).all())
    return near or math.isclose(sums.mean(), 1)


def keep_tokens(frames: np.ndarray, token_min_logp: float) -> KeptTokens:
    """Normalise the frames, and keep the best token of each and those near it.

    Args:
        frames: float32 or float64 [T, V], from `read_logits`.
        token_min_logp: Nats; tokens below it are dropped.

    Raises:
        LogprobError: NaN or +inf, or a frame of nothing but -inf.
    """
    num_frames, num_tokens = frames.shape
    best, total = np.empty(num_frames, np.int32), np.empty(num_frames, np.float64)
    if frames.dtype == np.float32:
        bad = _add_up_float32(frames, frames.view(np.int32), best, total)
    else:
        bad = _add_up_float64(frames, best, total)
    if bad < num_frames:
        wrong = frames[bad][~(frames[bad] < np.inf)]
        found = f"{float(wrong[0])!r}" if len(wrong) else "-inf alone"
        raise LogprobError(
            f"logits have {found} in frame {bad}, expected numbers (-inf for "
            "impossible tokens)"
        )
    log_total = np.log(total).astype(frames.dtype)
    near = frames.dtype.type(token_min_logp - _SLACK)
    scratch = np.empty((2, table_size(num_tokens)), np.int32)
    splits, row = np.zeros(num_frames + 1, np.int64), np.empty(num_tokens + 1, np.int32)
    size, frame = 4 * num_frames + num_tokens + 1, 0  # it grows
    tokens, logps = np.empty(size, np.int32), np.empty(size, np.float64)
    while True:
        frame = _keep(
            (frames, best, log_total, float(token_min_logp), near),
            (row, scratch[0], scratch[1]),
            (splits, tokens, logps),
            frame,
        )
        if frame == num_frames:
            return KeptTokens(splits, tokens, logps)
        more = max(len(tokens), num_tokens + 1)
        tokens = np.concatenate([tokens, np.empty(more, np.int32)])
        logps = np.concatenate([logps, np.empty(more, np.float64)])


@kernel
def _add_up_float32(frames, bits, best, total):
    """The best token of each frame and the sum of exp(logit - its); all frames done.

    Maxima and sums are of integers: their order is nothing to them, so that many are
    done at a time. `bits` are the frames as int32. Returns the first frame with bad
    numbers, T if there is none.
    """
    num_frames, num_tokens = frames.shape
    for t in range(num_frames):
        x, keys, highest = frames[t], bits[t], _LEAST_INT
        for i in range(num_tokens):
            key = keys[i]
            # Floats compare like integers once the bits of negative ones are turned.
            highest = max(highest, key ^ ((key >> _SIGN) & _MAGNITUDE))
        top = int32(highest ^ ((highest >> _SIGN) & _MAGNITUDE)).view(np.float32)
        if not (top < np.inf and top > -np.inf):
            return t
        units, good = int64(0), int32(0)
        for i in range(num_tokens):
            good += int32(x[i] <= top)
            z = x[i] - top
            z = z if z > _LEAST_EXPONENT else _LEAST_EXPONENT
            power = int32(z * _LOG2_E - _HALF)  # rounds: it is below 0
            k = float32(power)
            r = (z - k * _LN2_HIGH) - k * _LN2_LOW
            p = _P5 * r + _P4
            p = p * r + _P3
            p = p * r + _P2
            p = (p * r + _HALF) * r * r + r + _ONE
            scale = int32((power + int32(127)) << int32(23)).view(np.float32)
            # A sum of integers is the same in any order, so that loops may be
            # vectorised.
            units += int64(int32(p * scale * _UNIT + _HALF))
        if good < num_tokens:
            return t
        best[t] = _first_of(x, top)
        total[t] = float(units) / float(_UNIT)
    return num_frames


@kernel
def _add_up_float64(frames, best, total):
    """Sum in float64."""
    num_frames, num_tokens = frames.shape
    for t in range(num_frames):
        x, top = frames[t], frames[t, 0]
        for i in range(num_tokens):
            top = x[i] if not x[i] <= top else top  # NaN is none
        if not (top < np.inf and top > -np.inf):
            return t
        added, good = 0.0, int32(0)
        for i in range(num_tokens):
            good += int32(x[i] <= top)
            added += math.exp(x[i] - top)
        if good < num_tokens:
            return t
        best[t] = _first_of(x, top)
        total[t] = added
    return num_frames


@inlined
def _first_of(x, value):
    begin = int64(0)
    while not _has_any(x[begin : begin + _BLOCK], value):
        begin += _BLOCK
    while x[begin] != value:
        begin += 1
    return begin


@inlined
def _has_any(block, least):
    """Tell whether any number is not below another; no loop is left early."""
    found = int32(0)
    for i in range(len(block)):
        found += int32(block[i] >= least)
    return found > 0


@kernel
def _keep(given, scratch, kept, first):
    """Fill in what is kept from frame `first` on; the frame that has no room, or T."""
    frames, best, log_total, least, near = given
    row, table, other = scratch
    splits, tokens, logps = kept
    num_frames, num_tokens = frames.shape
    for t in range(first, num_frames):
        x, at, count = frames[t], splits[t], int64(0)
        if at + num_tokens >= len(tokens):
            return t
        top, total = x[best[t]], log_total[t]
        cut = (top + total + near) - abs(top) * _ROUNDING
        for begin in range(0, num_tokens, _BLOCK):
            # Most tokens are far below: blocks are passed over by a quick look; `cut`
            # is low enough to lose none to rounding.
            if least > _FLOOR and not _has_any(x[begin : begin + _BLOCK], cut):
                continue
            for i in range(begin, min(begin + _BLOCK, num_tokens)):
                row[count] = i
                count += int64(max(float((x[i] - top) - total), _FLOOR) >= least)
        count = visit_order(row, count, best[t], table, other)
        for i in range(count):
            logp = float((x[row[i]] - top) - total)
            tokens[at + i], logps[at + i] = row[i], min(max(logp, _FLOOR), 0.0)
        splits[t + 1] = at + count
    return num_frames
