"""`log_add` in NumPy, float32 throughout, and the inputs that a GPU is asked it for.

    a, b = inputs()                     # costs, 2**20 of each
    digest(log_add(a, b)) == KEPT       # on this machine, and on every GPU

The kernels' own is in `wfstdec/gpu/kernels/log_add.cuh`; both round every operation and
fuse none.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

COUNT = 1 << 20
KEPT = "f0b240646ad0b84791f73d9d5a7e752f"
"""The digest of all sums of `inputs`."""
LIMIT = np.float32(17.5)
"""Costs that lie further apart: the larger one adds nothing."""
_LOG2_E, _LN2_HIGH, _LN2_LOW = (
    np.float32(float.fromhex(x))
    for x in ("0x1.715476p+0", "0x1.62ep-1", "0x1.0bfbe8p-15")
)
_E = [
    np.float32(float.fromhex(x))
    for x in (
        *("0x1p+0", "0x1.fffffcp-2", "0x1.555492p-3"),
        *("0x1.5558acp-5", "0x1.12398p-7", "0x1.6a51b2p-10"),
    )
]
_L = [
    np.float32(float.fromhex(x))
    for x in (
        *("0x0p+0", "-0x1.ffffd2p-2", "0x1.554dd8p-2", "-0x1.ff251ap-3"),
        *("0x1.935406p-3", "-0x1.3a62fap-3", "0x1.b52d92p-4"),
        *("-0x1.d7d268p-5", "0x1.4a731ep-6", "-0x1.b1f45ep-9"),
    )
]
_DIGEST_BYTES = 16


def log_one_plus(x: np.ndarray) -> np.ndarray:
    """ln(1 + e^-x), float32 [n] of x >= 0."""
    near = np.where(x < LIMIT, x, np.float32(0))
    k = (near * _LOG2_E + np.float32(0.5)).astype(np.int32)
    n = k.astype(np.float32)
    r = (n * _LN2_HIGH - near) + n * _LN2_LOW
    r2 = r * r
    p = ((_E[4] + _E[5] * r) * r2 + (_E[2] + _E[3] * r)) * r2 + (_E[0] + _E[1] * r)
    power = ((127 - k).astype(np.uint32) << np.uint32(23)).view(np.float32)
    t = (np.float32(1) + r * p) * power
    t2 = t * t
    t4 = t2 * t2
    q = ((_L[7] + _L[8] * t) * t2 + (_L[5] + _L[6] * t)) + _L[9] * t4
    q = q * t4 + ((_L[3] + _L[4] * t) * t2 + (_L[1] + _L[2] * t))
    return np.where(x < LIMIT, t + t2 * q, np.float32(0))


def log_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cost of either of two things that cost `a` and `b`, float32 [n]."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    both = high < np.inf
    apart = np.where(both, high, np.float32(0)) - np.where(both, low, np.float32(0))
    return np.where(both, low - log_one_plus(apart), low)


@functools.cache
def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Costs [COUNT] each: apart by anything up to 18 nats, equal ones, impossible ones.

    They come from an integer hash, so that they are the same wherever this runs.
    """
    index = np.arange(3 * COUNT, dtype=np.uint32)
    words = _mix(index).reshape(3, COUNT)
    # half of the distances even over the bits of a float, from 0 so that they are kept;
    # half even over the line, from anywhere
    from_zero = (words[2] & np.uint32(1)) > 0
    anywhere = (words[0] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-18)
    a = np.where(from_zero, np.float32(0), anywhere)
    most = int(np.float32(18.0).view(np.uint32))
    by_bits = (words[1] % np.uint32(most)).view(np.float32)
    by_size = (words[1] >> np.uint32(8)).astype(np.float32) * np.float32(18 * 2.0**-24)
    b = a + np.where(from_zero, by_bits, by_size)
    a[::1024], b[512::1024], b[1::1024] = np.inf, np.inf, a[1::1024]
    b[::2048] = np.inf
    swap = (words[2] & np.uint32(2)) > 0
    return np.where(swap, b, a), np.where(swap, a, b)


def digest(numbers: np.ndarray) -> str:
    """Names the bits of an array of float32."""
    content = np.ascontiguousarray(numbers, "<f4").tobytes()
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _mix(key: np.ndarray) -> np.ndarray:
    """An integer hash, uint32 [n]: that of `wfstdec/gpu/kernels/boosts.cuh`."""
    key = (key ^ (key >> np.uint32(16))) * np.uint32(0x7FEB352D)
    key = (key ^ (key >> np.uint32(15))) * np.uint32(0x846CA68B)
    return key ^ (key >> np.uint32(16))
