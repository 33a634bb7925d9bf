"""Token selection of pyctcdecode: from logits to the tokens of each frame.

Logits and log-probs are normalised, probabilities become their logs, and the floor of a
log-prob is log 1e-15. pyctcdecode iterates over the tokens of a frame in the order of a
Python set, which decides ties, and the frames of merged beams. The kernels reproduce
this order.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, float64, int32, int64

from wfstdec.adapters.pyctcdecode.alphabet import MIN_TOKEN_CLIP_P
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
_HALF, _ONE = float32(0.5), float32(1.0)
_P2, _P3 = float32(1.6666665459e-1), float32(4.1665795894e-2)
_P4, _P5 = float32(8.3334519073e-3), float32(1.3981999507e-3)
"""Cephes: exp(r) is about 1 + r + r^2 (1/2 + _P2 r + _P3 r^2 + _P4 r^3 + _P5 r^4)."""


class KeptTokens(NamedTuple):
    """Tokens of T frames."""

    splits: np.ndarray  # int64 [T + 1]
    tokens: np.ndarray  # int32, in order of visits
    logps: np.ndarray  # float64, natural log


def read_logits(logits: Any, num_tokens: int) -> np.ndarray:
    """Return logits, log-probs or probabilities as logs, float [T, V] in C order."""
    array = as_numpy(logits)
    if array.ndim != 2:
        raise ShapeError(
            f"logits have {array.ndim} axes {array.shape}, expected 2: [T, V]"
        )
    if array.shape[1] != num_tokens:
        raise ShapeError(
            f"logits have V={array.shape[1]} tokens, expected V={num_tokens} as labels "
            "(a blank is appended to labels without one)"
        )
    if np.issubdtype(array.dtype, np.integer):
        array = array.astype(np.float64)
    if not np.issubdtype(array.dtype, np.floating):
        raise ShapeError(f"logits are {array.dtype}, expected numbers")
    wide = np.float64 if array.dtype == np.float64 else np.float32
    frames = np.require(array, wide, ["C", "W"])
    # pyctcdecode also accepts probabilities and recognises them by their sums.
    if _are_probabilities(frames):
        return np.log(np.clip(frames, MIN_TOKEN_CLIP_P, 1)).astype(wide)
    return frames


def _are_probabilities(frames: np.ndarray) -> bool:
    """Return whether all numbers are 0 or more and rows sum to 1."""
    if not len(frames) or not frames[0].min() >= 0 or not frames.min() >= 0:
        return False
    sums = frames.sum(axis=1, dtype=np.float64)
    near = bool((np.abs(sums - 1) < _SUM_TOLERANCE).all())
    return near or math.isclose(sums.mean(), 1)


def keep_tokens(frames: np.ndarray, token_min_logp: float) -> KeptTokens:
    """Normalise frames; keep the best token of each and those above the threshold."""
    num_frames, num_tokens = frames.shape
    best, total = frames.argmax(axis=1).astype(np.int32), np.empty(num_frames)
    add_up = _add_up_float32 if frames.dtype == np.float32 else _add_up_float64
    bad = add_up(frames, best, total)
    if bad < num_frames:
        wrong = frames[bad][~(frames[bad] < np.inf)]
        value = f"{float(wrong[0])!r}" if len(wrong) else "-inf alone"
        raise LogprobError(
            f"logits have {value} in frame {bad}, expected numbers or -inf"
        )
    log_total = np.log(total).astype(frames.dtype)
    near = frames.dtype.type(token_min_logp - _SLACK)
    splits, tokens = np.zeros(num_frames + 1, np.int64), np.empty(frames.size, np.int32)
    _keep(frames, best, log_total, float(token_min_logp), near, splits, tokens)
    listed = tokens[: splits[-1]].tolist()
    for (begin, end), top in zip(pairwise(splits.tolist()), best.tolist(), strict=True):
        if end - begin > 1:
            listed[begin:end] = set(listed[begin:end]) | {top}
    tokens, rows = np.array(listed, np.int32), np.arange(num_frames)
    frame, tops = np.repeat(rows, np.diff(splits)), frames[rows, best]
    logps = (frames[frame, tokens] - tops[frame]) - log_total[frame]
    return KeptTokens(splits, tokens, np.clip(logps.astype(float64), _FLOOR, 0.0))


@kernel
def _add_up_float32(frames, best, total):
    """Sum exp(logit - best) of frames; return the first bad frame, or T."""
    num_frames, num_tokens = frames.shape
    for t in range(num_frames):
        x, top, units = frames[t], frames[t, best[t]], int64(0)
        if not (top < np.inf and top > -np.inf):  # also NaN
            return t
        for i in range(num_tokens):
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
            # Integer sums are exact in any order, so this vectorises.
            units += int64(int32(p * scale * _UNIT + _HALF))
        total[t] = float(units) / float(_UNIT)
    return num_frames


@kernel
def _add_up_float64(frames, best, total):
    num_frames, num_tokens = frames.shape
    for t in range(num_frames):
        x, top, added_up = frames[t], frames[t, best[t]], 0.0
        if not (top < np.inf and top > -np.inf):
            return t
        for i in range(num_tokens):
            added_up += math.exp(x[i] - top)
        total[t] = added_up
    return num_frames


@inlined
def _has_any(block, least):
    """Return whether a number is `least` or more; without early exit it vectorises."""
    count = int32(0)
    for i in range(len(block)):
        count += int32(block[i] >= least)
    return count > 0


@kernel
def _keep(frames, best, log_total, least, near, splits, tokens):
    """Write the tokens of each frame in order: the best, and those near it."""
    num_frames, num_tokens = frames.shape
    for t in range(num_frames):
        x, at = frames[t], splits[t]
        top, total = x[best[t]], log_total[t]
        cut = (top + total + near) - abs(top) * _ROUNDING
        for begin in range(0, num_tokens, _BLOCK):
            # Most blocks are far below; `cut` leaves a margin for rounding.
            if least > _FLOOR and not _has_any(x[begin : begin + _BLOCK], cut):
                continue
            for i in range(begin, min(begin + _BLOCK, num_tokens)):
                tokens[at] = i
                at += int64(max(float((x[i] - top) - total), _FLOOR) >= least)
        if at == splits[t]:
            tokens[at] = best[t]
            at += 1
        splits[t + 1] = at
