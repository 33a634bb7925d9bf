"""Tell whether the kernels have passed the tests on the GPU of this machine.

    why = why_not(PROGRAM)                  # None where they have
    record_pass(PROGRAM)                    # `pytest -m gpu` does, when nothing failed

Kept in `~/.cache/wfstdec/gpu_passed.json`, or in the folder WFSTDEC_CACHE: an entry for
each GPU, driver and version of the kernels. Where there is none CuPy is not imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import COMPILE_OPTIONS
from wfstdec.gpu.cupy_device import load_cupy
from wfstdec.gpu.program import Program
from wfstdec.text.files import atomic_write

FILE = "gpu_passed.json"
_DIGEST_BYTES = 16


def why_not(program: Program) -> str | None:
    """Why no GPU is taken unasked; None where its kernels have passed the tests.

    Args:
        program: The kernels.
    """
    entries = _read()
    if not entries:
        return (
            "no GPU has passed the tests on this machine (pytest -m gpu), so that "
            "backend 'cuda' has to be asked for by name"
        )
    try:
        # A key of kernels, GPU and driver: with another of these the tests say nothing.
        key = _key(program)
    except BackendError as error:
        return str(error)
    if key not in entries:
        return (
            "these kernels have not passed the tests on this GPU with its driver "
            "(pytest -m gpu), so that backend 'cuda' has to be asked for by name"
        )
    return None


def record_pass(program: Program) -> None:
    """Say that the kernels have passed the tests on the current GPU.

    Args:
        program: The kernels.

    Raises:
        BackendError: There is no GPU.
    """
    entries = sorted({*_read(), _key(program)})
    _path().parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(_path()) as file:
        file.write(json.dumps(entries, indent=1).encode())


def _path() -> Path:
    folder = os.environ.get("WFSTDEC_CACHE") or "~/.cache/wfstdec"
    return Path(folder).expanduser() / FILE


def _read() -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        return list(map(str, json.loads(_path().read_text("utf-8"))))
    return []


def _key(program: Program) -> str:
    """The GPU, its driver, and the kernels."""
    cupy = load_cupy()
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    text = repr((program.source(), COMPILE_OPTIONS)).encode()
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name}, driver {runtime.driverGetVersion()}, kernels {digest}"
