"""Logits as pyctcdecode takes them, to the tokens that a frame is searched with.

Logits and log-probs are normalised, probabilities become their logs, and no log-prob is
below that of 1e-15. pyctcdecode iterates over the tokens of a frame in the order of a
Python set, which decides ties, and which beam's frames a merged beam has. `visit_order`
reproduces CPython's hash table (3.11 to 3.13).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int32, int64

from wfstdec.adapters.pyctcdecode.alphabet import MIN_TOKEN_CLIP_P
from wfstdec.errors import LogprobError, ShapeError
from wfstdec.jit import inlined, kernel, part
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
_PROBES, _SHIFT, _FIRST_SIZE, _LARGE, _EMPTY = 9, 5, 8, 50_000, -1
"""CPython's sets: linear probes, shift of the hash, smallest table, sparser growth."""


class KeptTokens(NamedTuple):
    """The tokens of T frames."""

    splits: np.ndarray  # int64 [T + 1]
    tokens: np.ndarray  # int32, in the order of their visits
    logps: np.ndarray  # float64, natural log


def read_logits(logits: Any, num_tokens: int) -> np.ndarray:
    """Check logits, log-probs or probabilities; float [T, V] in C order, logs."""
    array = as_numpy(logits)
    if array.ndim != 2:
        raise ShapeError(
            f"logits have {array.ndim} axes {array.shape}, expected 2: [T, V]"
        )
    if array.shape[1] != num_tokens:
        raise ShapeError(
            f"logits have V={array.shape[1]} tokens, expected V={num_tokens} as labels "
            "(a blank is put behind labels that have none)"
        )
    if np.issubdtype(array.dtype, np.integer):
        array = array.astype(np.float64)
    if not np.issubdtype(array.dtype, np.floating):
        raise ShapeError(f"logits are {array.dtype}, expected numbers")
    wide = np.float64 if array.dtype == np.float64 else np.float32
    frames = np.require(array, wide, ["C", "W"])
    # pyctcdecode also takes probabilities and recognises them by their sums.
    if _are_probabilities(frames):
        return np.log(np.clip(frames, MIN_TOKEN_CLIP_P, 1)).astype(wide)
    return frames


def _are_probabilities(frames: np.ndarray) -> bool:
    """Test whether no number is below 0 and rows sum to 1."""
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
def _add_up_float32(frames, best, total):
    """Sum exp(logit - best) of frames; the first bad frame, or T."""
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
            # The order of a sum of integers does not matter, so that it is vectorised.
            units += int64(int32(p * scale * _UNIT + _HALF))
        total[t] = float(units) / float(_UNIT)
    return num_frames


@kernel
def _add_up_float64(frames, best, total):
    """Do it in float64."""
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
    """Test if a number is not below another; no early exit, so that it vectorises."""
    count = int32(0)
    for i in range(len(block)):
        count += int32(block[i] >= least)
    return count > 0


@kernel
def _keep(given, scratch, kept, first):
    """Fill in `kept` from frame `first` on; the frame that has no room, or T."""
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
            # Most blocks are far below; `cut` is low enough to lose none to rounding.
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


def table_size(num_tokens: int) -> int:
    """Length of the scratch tables for sets of `num_tokens` integers."""
    return max(_FIRST_SIZE, 1 << (4 * (num_tokens + 1)).bit_length())


@kernel
def visit_order(tokens, count, best, table, other):
    """Put `tokens[:count]` (increasing) into the order of `set(tokens) | {best}`."""
    # There is room for `best` behind them; `table` and `other` are int32 scratch of
    # `table_size`. Returns the length.
    if count == 0:
        tokens[0] = best
        return int64(1)
    # `set(tokens)`
    size = int64(_FIRST_SIZE)
    for i in range(size):  # a slice is slower
        table[i] = _EMPTY
    for n in range(count):
        table[_slot(table, size, int64(tokens[n]))] = tokens[n]
        if _is_full(n + 1, size):
            size = _resize(table, size, (n + 1) * (2 if n + 1 > _LARGE else 4), other)
            for i in range(size):
                table[i] = other[i]
    # `|` copies it, into a table of the size of that or an exact copy, ...
    wanted = _fitting(count * 2) if _is_full(count, _FIRST_SIZE) else int64(_FIRST_SIZE)
    if wanted == size:
        for i in range(size):
            other[i] = table[i]
    else:
        size = _resize(table, size, wanted - 1, other)
    # ... makes room for one more, ...
    if _is_full(count + 1, size):
        size = _resize(other, size, (count + 1) * 2, table)
        table, other = other, table
    # ... and enters it.
    at = _slot(other, size, int64(best))
    if other[at] == _EMPTY:
        other[at] = best
        if _is_full(count + 1, size):
            size = _resize(
                other, size, (count + 1) * (2 if count + 1 > _LARGE else 4), table
            )
            table, other = other, table
    count = int64(0)
    for i in range(size):
        if other[i] != _EMPTY:
            tokens[count] = other[i]
            count += 1
    return count


@inlined
def _is_full(used, size):
    return used * 5 >= (size - 1) * 3


@inlined
def _fitting(wanted):
    """The smallest table that is larger than a number."""
    size = int64(_FIRST_SIZE)
    while size <= wanted:
        size <<= 1
    return size


@part
def _resize(table, size, wanted, other):
    """Put a set into the table `other` for more; the size of that."""
    new_size = _fitting(wanted)
    for i in range(new_size):
        other[i] = _EMPTY
    for i in range(size):
        number = int64(table[i])
        if number != _EMPTY:
            other[_slot(other, new_size, number)] = number
    return new_size


@inlined
def _slot(table, size, number):
    """The slot of a number, or the empty one where it belongs."""
    mask, shifted, at = size - 1, number, number & (size - 1)
    while True:  # ends, as in CPython: a set is at most 3/5 full
        last = at + _PROBES if at + _PROBES <= mask else at
        for i in range(at, last + 1):
            if table[i] == number or table[i] == _EMPTY:
                return i
        shifted >>= _SHIFT
        at = (at * 5 + 1 + shifted) & mask
