"""Tell those who wait in one line that kernels are being compiled.

It is said once in a process, and only where machine code is really made: on the
terminal or in the notebook, otherwise to the log.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator

_LOG = logging.getLogger("wfstdec")
_LINE = "compiling kernels, once, about 20 s; `wfstdec warm-up` does it beforehand"
_SPENT = {"seconds": 0.0}


def seconds_compiling() -> float:
    """The wall-clock time that this process has compiled kernels for, seconds."""
    return _SPENT["seconds"]


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Say that kernels are compiled, the first time, and count the seconds."""
    if not _SPENT["seconds"]:
        _say(_LINE)
    begin = time.perf_counter()
    try:
        yield
    finally:
        _SPENT["seconds"] += time.perf_counter() - begin


def _say(line: str) -> None:
    """Tell the log; where nobody would see it, the terminal or the notebook."""
    _LOG.info(line)
    is_logged = _LOG.isEnabledFor(logging.INFO) and _LOG.hasHandlers()
    stream = sys.stderr
    if is_logged or _LOG.handlers or stream is None:  # handlers of its own: quiet
        return
    if stream.isatty() or type(stream).__module__.startswith("ipykernel"):
        stream.write(f"wfstdec: {line}\n")
