"""Tell those who wait in one line that kernels are being compiled.

It is said once in a process, and only where machine code is really made: on the
terminal or in the notebook, otherwise to the log.
"""

from __future__ import annotations

import functools
import logging
import sys

_LOG = logging.getLogger("wfstdec")
_LINE = "compiling kernels, once, about 20 s; `wfstdec warm-up` does it beforehand"


@functools.cache
def say_compiling() -> None:
    """Tell the log; where nobody would see it, the terminal or the notebook."""
    _LOG.info(_LINE)
    is_logged = _LOG.isEnabledFor(logging.INFO) and _LOG.hasHandlers()
    stream = sys.stderr
    if is_logged or _LOG.handlers or stream is None:  # handlers of its own: quiet
        return
    if stream.isatty() or type(stream).__module__.startswith("ipykernel"):
        stream.write(f"wfstdec: {_LINE}\n")
