"""The kernels of a search as machine code of the current GPU: by NVRTC, kept on disk.

    kernels = load_kernels(cupy, PROGRAM, macros)      # CuPy's RawKernel by name

CuPy's own way to compile always ends with `-ftz=true`, which sets numbers below 1.2e-38
to 0: every subnormal float16 among them, and many a log-prob of blank is one. So its
NVRTC is called directly. CuPy's module is passed in: only `cupy_device.py` imports it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wfstdec.errors import BackendError
from wfstdec.gpu.program import Macros, Program
from wfstdec.text.files import atomic_write

COMPILE_OPTIONS = (
    "--std=c++17",
    # sums as those of every other backend: no fused multiply-add, subnormal numbers
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    # lines of the source in what profilers and compute-sanitizer say
    "--generate-line-info",
)
_DIGEST_BYTES = 16


def load_kernels(cupy: Any, program: Program, macros: Macros = ()) -> dict[str, Any]:
    """Kernels for the current device, compiled where they are not on disk.

    Args:
        cupy: The module.
        program: What to compile.
        macros: What for.

    Raises:
        BackendError: This CUDA does not compile for the device.
    """
    capability = int(cupy.cuda.Device().compute_capability)
    target = target_of(capability, cupy.cuda.nvrtc.getSupportedArchs())
    with _compiled(cupy, program, macros, target) as path:
        module = cupy.RawModule(path=str(path))
        return {name: module.get_function(name) for name in program.kernels}


def target_of(capability: int, supported: Iterable[int]) -> str:
    """What to compile for: the device, or PTX for one that is newer than the compiler.

    Args:
        capability: Of the device, 90 for 9.0.
        supported: What the compiler knows.

    Raises:
        BackendError: The device is older than what it knows.
    """
    known = sorted(supported)
    older = [one for one in known if one <= capability]
    if not older:
        raise BackendError(
            f"the GPU has compute capability {capability / 10:.1f}, expected at least "
            f"{known[0] / 10:.1f}, what this CUDA compiles for; install CuPy for an "
            "older CUDA, or use backend='cpu'"
        )
    kind = "sm" if older[-1] == capability else "compute"
    return f"{kind}_{older[-1]}"


def compile_kernels(cupy: Any, source: str, target: str, file: str) -> bytes:
    """Machine code for `sm_...`, PTX for `compute_...`; needs no GPU.

    Args:
        cupy: The module.
        source: The kernels, nothing left to include.
        target: From `target_of`.
        file: What messages call the source.

    Raises:
        BackendError: It does not compile; the message has the compiler's log.
    """
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(source, file, (), ())
    try:
        options = (f"--gpu-architecture={target}", *COMPILE_OPTIONS)
        nvrtc.compileProgram(program, options)
        to_machine_code = target.startswith("sm_")
        return nvrtc.getCUBIN(program) if to_machine_code else nvrtc.getPTX(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise BackendError(f"kernels for {target}: {error}: {log}") from None
    finally:
        nvrtc.destroyProgram(program)


@contextlib.contextmanager
def _compiled(
    cupy: Any, program: Program, macros: Macros, target: str
) -> Iterator[Path]:
    """The file with the compiled kernels: beside CuPy's, or one that is not kept."""
    source = program.source(macros)
    version = cupy.cuda.nvrtc.getVersion()
    what = repr((source, target, COMPILE_OPTIONS, version)).encode()
    digest = hashlib.blake2b(what, digest_size=_DIGEST_BYTES).hexdigest()
    name = f"wfstdec-{digest}.{'cubin' if target.startswith('sm_') else 'ptx'}"
    with contextlib.ExitStack() as stack:
        folder = _writable_cache()
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / name
        if not path.exists():
            with atomic_write(path) as file:
                file.write(compile_kernels(cupy, source, target, program.file))
        yield path


def _writable_cache() -> Path | None:
    """The folder where CuPy keeps its kernels; None where nothing can be kept."""
    folder = os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache"
    path = Path(folder).expanduser()
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path if os.access(path, os.W_OK | os.X_OK) else None
