"""Sum of two probabilities given as costs, in float32.

    log_add(a, b)            # -ln(e^-a + e^-b): in kernels; in Python on np.float32
    add_scores(a, b)         # ln(e^a + e^b) of float64: the increment is float32
    log_one_plus(x)          # ln(1 + e^-x), x >= 0

Every operation is rounded, none is fused, and no library function is called. NumPy,
torch and CUDA's `log_add.cuh` therefore give the same bits.

    log_add(a, b) = low - log_one_plus(high - low)
    log_one_plus(x), x < 17.5:
        x = k ln 2 - r,  |r| <= ln(2) / 2          k whole; ln 2 in two parts
        t = e^-x = (1 + r p(r)) 2^-k               p of degree 5
        ln(1 + t) = t + t^2 q(t)                   q of degree 8

The error is at most 1.2e-7; float64's `log1p` and `exp`, rounded once, have 6e-8. The
function is not strictly monotonic.

Scores of transducers are sums over an utterance; at 1,000 nats float32 has steps of
6e-5. They are float64, and the increment, at most ln 2, is float32 as above.
"""

import numpy as np
from numpy import float32, float64, int32, uint32

from wfstdec.jit import inlined


def _floats(*digits: str) -> tuple[np.float32, ...]:
    return tuple(float32(float.fromhex(x)) for x in digits)


LIMIT = float32(17.5)  # for larger differences the larger cost adds nothing
LOG2_E, LN2_HIGH, LN2_LOW = _floats("0x1.715476p+0", "0x1.62ep-1", "0x1.0bfbe8p-15")
"""1 / ln 2; ln 2 in two parts, the first so short that k times it is exact."""
E0, E1, E2, E3, E4, E5 = _floats(
    *("0x1p+0", "0x1.fffffcp-2", "0x1.555492p-3"),
    *("0x1.5558acp-5", "0x1.12398p-7", "0x1.6a51b2p-10"),
)
"""Coefficients of (e^r - 1) / r."""
L1, L2, L3, L4, L5, L6, L7, L8, L9 = _floats(
    *("-0x1.ffffd2p-2", "0x1.554dd8p-2", "-0x1.ff251ap-3"),
    *("0x1.935406p-3", "-0x1.3a62fap-3", "0x1.b52d92p-4"),
    *("-0x1.d7d268p-5", "0x1.4a731ep-6", "-0x1.b1f45ep-9"),
)
"""Coefficients of (ln(1 + t) - t) / t^2."""
_ONE, _HALF, _NOTHING, _INF = float32(1), float32(0.5), float32(0), float32(np.inf)
_EXPONENT_OF_ONE, _MANTISSA_BITS = 127, uint32(23)


@inlined
def log_one_plus(x):
    """Return ln(1 + e^-x), float32, for x >= 0."""
    if not x < LIMIT:
        return _NOTHING
    k = int32(x * LOG2_E + _HALF)
    n = float32(k)
    r = (n * LN2_HIGH - x) + n * LN2_LOW
    r2 = r * r
    # Estrin's scheme: short independent chains, since each operation waits for its
    # inputs.
    p = ((E4 + E5 * r) * r2 + (E2 + E3 * r)) * r2 + (E0 + E1 * r)
    power = uint32(uint32(_EXPONENT_OF_ONE - k) << _MANTISSA_BITS).view(float32)
    t = (_ONE + r * p) * power
    t2 = t * t
    t4 = t2 * t2
    q = ((L7 + L8 * t) * t2 + (L5 + L6 * t)) + L9 * t4
    q = q * t4 + ((L3 + L4 * t) * t2 + (L1 + L2 * t))
    return t + t2 * q


@inlined
def log_add(a, b):
    """Return the cost of two probabilities together, float32."""
    low, high = min(a, b), max(a, b)
    # Infinity minus infinity would be NaN.
    if high == _INF:
        return low
    return low - log_one_plus(high - low)


@inlined
def add_scores(a, b):
    """Return the joint score of two probabilities, float64 (logs, not costs)."""
    high, low = max(a, b), min(a, b)
    # Infinity minus infinity would be NaN.
    if low == -_INF:
        return high
    return high + float64(log_one_plus(float32(high - low)))
