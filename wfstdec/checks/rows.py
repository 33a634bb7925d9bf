"""Recognition of arrays that are not log-probs: log10, logits, probabilities, [V, T].

kind = kind_of(array)                  # float [T, V] -> a RowKind; None: too few rows
kind.doubt                             # a warning with the remedy
sums = row_sums(rows)                  # ln of the sum of exp(x), float32 [N]

Rows of log-probs sum to one. On real data float16 in steps of 1/16 nat errs by up to
0.032 nats; a row pruned to the 8 best of 43 tokens loses up to 0.18. With logs to base
10 the sum is at least 0.1 nats too high in 94 % of the rows, and 0.27 in the median.
"""

import math
from enum import Enum
from typing import Any

import numpy as np

from wfstdec.errors import OptionError

LN10 = math.log(10.0)
FEWEST_ROWS = 8  # Fewer show nothing: warm-up with a frame of zeros is not input
MOST_ROWS = 32  # Rows of an utterance to inspect
TOO_HIGH = 0.1  # Nats above 0 that rounding does not explain
TOO_LOW = math.log(0.5)  # Nats below 0 that pruned tokens do not explain, in the median
FEW = 0.05  # Share of rows that may be off
ROUNDING = 0.05  # Nats that float16 and steps of 1/16 nat explain
PRUNED = 0.2  # Share of a row at its floor if tokens were pruned


class RowKind(Enum):
    """Kind of rows of numbers, with the remedy."""

    LOGPROBS = "exp of each row sums to one", ""
    LOG2 = (
        "2 ** x of each row sums to one, exp(x) to less: logs to base 2",
        f"multiply them by ln 2 = {math.log(2):.6f}",
    )
    LOG10 = (
        "10 ** x of each row sums to one, exp(x) to more: logs to base 10",
        f"multiply them by ln 10 = {LN10:.6f}",
    )
    LOGITS = (
        "numbers of both signs whose exp does not sum to one: logits",
        "take log_softmax over the tokens; of log-probs that priors were divided out "
        "of, add these first",
    )
    PROBABILITIES = "each row sums to one as it is: probabilities", "take the log"
    TRANSPOSED = (
        "exp of each column sums to one, not of each row: [V, T]",
        "transpose them to [T, V]",
    )
    UNNORMALISED = (
        "exp of a row is far from a sum of one",
        "take log_softmax over the tokens, or leave out what was added to them or "
        "multiplied (priors, a scale, a penalty)",
    )

    @property
    def doubt(self) -> str:
        """Warning in a line, with the remedy."""
        found, remedy = self.value
        return f"logprobs: {found}, expected natural logs; {remedy}"


def kind_of(logprobs: Any) -> RowKind | None:
    """Return the kind of an utterance's numbers, float [T, V], from a few rows."""
    rows = spread(logprobs, MOST_ROWS).astype(np.float32)
    sums = row_sums(rows)
    fine = sums < np.inf  # the decoder refuses NaN and +inf
    if not fine.all():
        rows, sums = rows[fine], sums[fine]
    if len(rows) < FEWEST_ROWS:
        return None
    if _are_base2(rows, sums):
        return RowKind.LOG2
    if _are_logs(sums):
        low = sums < TOO_LOW
        # Pruned tokens have one floor; a row of many values with a small sum is not
        # log-probs.
        pruned = (rows <= rows.min(axis=1, keepdims=True)).mean(axis=1) > PRUNED
        if np.count_nonzero(low & ~pruned) > FEW * len(sums):
            return RowKind.UNNORMALISED
        return RowKind.LOGPROBS
    off = np.abs(rows.sum(axis=1) - 1) > TOO_HIGH
    if rows.min() >= 0 and rows.max() <= 1 + TOO_HIGH and off.mean() <= FEW:
        return RowKind.PROBABILITIES
    if _are_logs(base10 := row_sums(rows * LN10)) and np.median(base10) > -TOO_HIGH:
        return RowKind.LOG10
    if _are_columns_logs(logprobs):
        return RowKind.TRANSPOSED
    return RowKind.LOGITS if rows.max() > TOO_HIGH else RowKind.UNNORMALISED


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Return ln of the sum of exp(x) over rows of [N, V]; NaN with NaN or +inf."""
    rows = rows.astype(np.float32, copy=False)
    top = np.maximum(rows.max(axis=1, keepdims=True), np.float32(-1e30))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.exp(rows - top).sum(axis=1)) + top[:, 0]


def spread(array: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows of an array, evenly spaced."""
    if len(array) <= most:
        return array
    return array[np.arange(most) * len(array) // most]


def _are_logs(sums: np.ndarray) -> bool:
    high = np.count_nonzero(sums > TOO_HIGH)
    return bool(high <= FEW * len(sums) and np.median(sums) >= TOO_LOW)


def _are_base2(rows: np.ndarray, sums: np.ndarray) -> bool:
    """Return whether rows sum to one to base 2, much closer than to base e."""
    base2 = np.abs(row_sums(rows * np.float32(math.log(2))))
    exact = np.count_nonzero(base2 > ROUNDING) <= FEW * len(sums)
    return bool(exact and 2 * base2.mean() < np.abs(sums).mean())


def _are_columns_logs(logprobs: np.ndarray) -> bool:
    """Return whether columns are log-probs, in an array with few rows."""
    columns = spread(logprobs.T, MOST_ROWS).astype(np.float32)
    sums = row_sums(columns)
    if len(sums) < FEWEST_ROWS or not (sums < np.inf).all():
        return False
    return _are_logs(sums) and bool(np.median(sums) > -TOO_HIGH)


LONGEST_S = 1.0  # Models have shorter frames: longer ones would miss whole words


def check_frame_shift(frame_shift_s: float) -> float:
    """Return valid seconds per frame, or raise `OptionError`."""
    if not (math.isfinite(frame_shift_s) and frame_shift_s > 0):
        raise OptionError(f"frame_shift_s={frame_shift_s!r}, expected seconds, above 0")
    if frame_shift_s > LONGEST_S:
        raise OptionError(
            f"frame_shift_s={frame_shift_s!r}, expected seconds, at most "
            f"{LONGEST_S:g}; milliseconds? then {frame_shift_s / 1000:g}"
        )
    return frame_shift_s
