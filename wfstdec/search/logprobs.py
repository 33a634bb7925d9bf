"""Validation and conversion of the user's log-probs; their costs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import float32

from wfstdec.errors import LogprobError, ShapeError
from wfstdec.jit import inlined, kernel

MAX_LOGPROB = np.float32(1e20)
"""Larger log-probs are errors; those below its negative become -inf. Costs then stay
above minus infinity and small enough to add."""


def as_utterances(logprobs: Any, lengths: Any, num_tokens: int) -> list[np.ndarray]:
    """Split a batch into one checked array per utterance, float32 [T, V], C order.

    `logprobs`: [B, T, V], a sequence of [T, V], or one [T, V]; NumPy, torch or any
    array with DLPack, of floats. `lengths`: [B] frames of each; None for all.
    """
    utterances = as_rows(logprobs, lengths, num_tokens)
    return list(map(with_numbers_checked, utterances, range(len(utterances))))


def as_rows(logprobs: Any, lengths: Any, num_tokens: int) -> list[np.ndarray]:
    """Do as `as_utterances` without `with_numbers_checked`."""
    arrays = split_batch(logprobs, as_numpy)
    counts = check_lengths(lengths, len(arrays), getattr(logprobs, "shape", ()))
    rows = []
    for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
        check_axes(array, i, count, num_tokens)
        used = array[:count]
        if used.dtype != np.float32 or not used.flags.carray:
            with np.errstate(over="ignore"):  # -1e300 is impossible, 1e300 an error
                # A read-only array would make numba compile again.
                used = np.require(used, np.float32, ["C", "W"])
        rows.append(used)
    return rows


def split_batch(logprobs: Any, as_array: Callable[[Any], Any]) -> list[Any]:
    """Split into one unchecked array per utterance, converted by `as_array`."""
    if isinstance(logprobs, Sequence):
        return [as_array(array) for array in logprobs]
    batch = as_array(logprobs)
    if batch.ndim == 2:
        return [batch]
    if batch.ndim != 3:
        raise ShapeError(
            f"logprobs has {batch.ndim} axes {tuple(batch.shape)}, expected [B, T, V], "
            "a list of [T, V], or one [T, V]"
        )
    return list(batch)


def as_numpy(array: Any) -> np.ndarray:
    """Convert to NumPy, without a copy if possible."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "requires_grad"):  # torch: no DLPack while gradients are needed
        array = array.detach()
        if "bfloat16" in str(array.dtype):
            array = array.float()
        if array.device.type != "cpu":
            array = array.cpu()
    if hasattr(array, "get") and hasattr(array, "__cuda_array_interface__"):  # CuPy
        return array.get()
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def check_lengths(
    lengths: Any, num_utterances: int, shape: Sequence[int] = ()
) -> list[int | None]:
    """Return the frames of each utterance; `None` for all."""
    if lengths is None:
        return [None] * num_utterances
    counts = as_numpy(lengths)
    integers = np.issubdtype(counts.dtype, np.integer) or counts.size == 0
    if counts.shape != (num_utterances,) or not integers:
        swapped = len(shape) == 3 and counts.shape == tuple(shape[1:2])
        hint = f"; [T, B, V] {tuple(shape)}? then swap the first two" if swapped else ""
        raise ShapeError(
            f"lengths is {counts.dtype} {counts.shape}, expected integers "
            f"({num_utterances},), one per utterance{hint}"
        )
    return [int(count) for count in counts]


def check_axes(array: Any, i: int, count: int | None, num_tokens: int) -> None:
    """Check type and shape of utterance `i`."""
    if array.ndim != 2:
        raise ShapeError(
            f"logprobs has {array.ndim} axes {array.shape}, expected [T, V]", i
        )
    if np.dtype(array.dtype).kind != "f":
        raise ShapeError(
            f"logprobs is {array.dtype}, expected a floating-point type", i
        )
    frames, found = array.shape
    if found != num_tokens:
        hint = "; [V, T]? then transpose" if frames == num_tokens else ""
        raise ShapeError(
            f"logprobs has V={found} tokens, expected V={num_tokens} of the decoder "
            f"(blank included){hint}",
            i,
        )
    if count is not None and not 0 <= count <= frames:
        raise ShapeError(f"length {count}, expected 0 to {frames} (T of logprobs)", i)


def with_numbers_checked(rows: np.ndarray, i: int | str) -> np.ndarray:
    """Return the rows of utterance `i`, very small ones as -inf; raise if invalid."""
    good, masked = count_numbers(rows)
    if good < rows.size:
        frame = int(np.flatnonzero(~(rows <= MAX_LOGPROB).all(axis=1))[0])
        raise bad_logprob(i, frame, rows[frame])
    if masked:
        return np.where(rows < -MAX_LOGPROB, np.float32(-np.inf), rows)
    return rows


_PART, _NONE = 1 << 16, np.int32(0)  # 32-bit counters are faster


@kernel
def count_numbers(rows):
    """Count the valid numbers and those that become -inf."""
    numbers = rows.reshape(-1)
    good, masked = 0, 0
    for first in range(0, len(numbers), _PART):
        part, good_here, masked_here = numbers[first : first + _PART], _NONE, _NONE
        for i in range(len(part)):
            good_here += np.int32(part[i] <= MAX_LOGPROB)
            masked_here += np.int32((part[i] < -MAX_LOGPROB) & (part[i] > -np.inf))
        good, masked = good + np.int64(good_here), masked + np.int64(masked_here)
    return good, masked


def bad_logprob(i: int | str, frame: int, row: np.ndarray) -> LogprobError:
    """Return the error for the first invalid number in a frame of utterance `i`."""
    found = row[~(row <= MAX_LOGPROB)][0]
    return LogprobError(
        f"logprobs has {float(found)!r} in frame {frame}, expected natural logs of "
        "probabilities (-inf for an impossible token)",
        i,
    )


_INF = np.float32(np.inf)


class Pricing(NamedTuple):
    """Options common to searches on log-probs, for kernels; see `WfstOptions`."""

    acoustic_scale: np.float32
    blank_penalty: np.float32
    blank_skip_logprob: np.float32  # inf: no frame is skipped


@functools.lru_cache(maxsize=64)
def pricing_of(options: Any) -> Pricing:
    """Return the options in float32."""
    skip = options.blank_skip_threshold
    return Pricing(
        acoustic_scale=np.float32(options.acoustic_scale),
        blank_penalty=np.float32(options.blank_penalty),
        blank_skip_logprob=np.float32(math.inf if skip is None else math.log(skip)),
    )


@kernel
def price(pricing, blank, logprobs, unscaled, costs):
    """Write the unscaled and the scaled cost of each token, float32 [V]."""
    for v in range(len(logprobs)):
        unscaled[v] = float32(-logprobs[v])
        costs[v] = scaled(pricing, unscaled[v])
    if logprobs[blank] >= pricing.blank_skip_logprob:
        unscaled[:] = _INF
        costs[:] = _INF
    unscaled[blank] = -penalised(pricing, logprobs[blank])
    costs[blank] = scaled(pricing, unscaled[blank])


@inlined
def penalised(pricing, logprob):
    """Return the log-prob of a blank minus its penalty."""
    return float32(logprob - pricing.blank_penalty)


@inlined
def scaled(pricing, unscaled):
    """Return the scaled cost of a token."""
    cost = float32(pricing.acoustic_scale * unscaled)
    return cost if unscaled < _INF else _INF
