"""Resident memory of this process: now, and its peak while something runs.

    with Peak() as peak:
        decode()
    peak.growth_mb

The growth is the highest resident set size (RSS) while the block ran, less that before
it, so it holds what the block took at most and not what was there already. Memory that
was freed is handed back to the system first, where glibc can, and the kernel's own mark
of the peak is reset (Linux: `/proc/self/clear_refs`). Where that cannot be done, the
growth of `ru_maxrss` is taken, which only sees what goes beyond all peaks before: then
it is a lower bound, and `IS_EXACT` is False.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

from wfstdec.fst.build_log import peak_memory_gb

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Peak:
    """Measures the growth of the resident set over a `with` block.

    Attributes:
        growth_mb: Megabytes (1e6 bytes), once the block has ended.
    """

    growth_mb: float = 0.0

    def __enter__(self) -> Peak:
        _give_back()
        self._before: float = 1e9 * peak_memory_gb()
        if IS_EXACT:  # the peak is lowered to the present
            _CLEAR_REFS.write_text(_RESET_PEAK)
            self._before = _status_bytes("VmRSS")
        return self

    def __exit__(self, *error: object) -> None:
        peak = _status_bytes("VmHWM") if IS_EXACT else 1e9 * peak_memory_gb()
        growth = peak - self._before
        self.growth_mb = round(max(0, growth) / 1e6, 2)


def resident_mb() -> float:
    """The resident set now, megabytes; what was freed is handed back first.

    Where the system does not tell, its peak so far.
    """
    _give_back()
    return (_status_bytes("VmRSS") or 1e9 * peak_memory_gb()) / 1e6


def _give_back() -> None:
    """Free what is free: cycles, and memory that malloc keeps."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # not glibc
        return


def _status_bytes(name: str) -> int:
    """A line of the process's status in bytes, 0 where there is none."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith(name + ":")]
    return 1024 * int(found[0]) if found else 0


def _can_reset() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return _status_bytes("VmHWM") > 0


IS_EXACT = _can_reset()
"""True where the system lets the peak be reset."""
