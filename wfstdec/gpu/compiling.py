"""Compilation of kernels for the current GPU: by NVRTC, cached on disk.

CuPy always compiles with `-ftz=true`, which sets numbers below 1.2e-38 to 0: every
subnormal float16 among them, as blank log-probs often are. So its NVRTC is called
directly. CuPy's module is an argument: only `cupy_device.py` imports it.

A file that does not load is tried again from memory, and then as PTX, which the driver
compiles: `Loaded.way` has the successful one.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import BackendError
from wfstdec.gpu.records import CONSTANTS, KERNELS, MAX_THREADS, layout_checks
from wfstdec.text.files import atomic_write

Macros = tuple[tuple[str, int], ...]
"""Compile-time macros and values of a kernel; empty for all features."""


@dataclass(frozen=True, eq=False)
class Program:
    """The kernels of a search, and their requirements."""

    file: str  # the kernel file, in `folder`
    folder: Path  # its folder, with the headers that only it includes
    kernels: tuple[str, ...]  # their names; the first is the search
    own_bytes: int  # largest shared memory of a block's variables
    # bytes that a block of the search uses, of its available dynamic shared memory
    shared_bytes: Callable[[int], int]
    # NumPy type of each record shared by host and kernels
    structs: Mapping[str, np.dtype] = field(repr=False)
    # value of each shared constant
    constants: Mapping[str, int | float] = field(repr=False)
    threads: int = MAX_THREADS  # of the search's blocks

    def source(self, macros: Macros = ()) -> str:
        """Return the file with all its includes, and checks of the records."""
        checks = layout_checks(self.structs, CONSTANTS | dict(self.constants))
        head = "".join(f"#define {name} {value}\n" for name, value in macros)
        return head + join_includes(self.file, self.folder) + checks


def join_includes(file: str, folder: Path) -> str:
    """Return a kernel file with its included headers inserted, each once."""
    done: set[str] = set()

    def read(name: str) -> str:
        done.add(name)
        path = folder / name
        text = (path if path.exists() else KERNELS / name).read_text("utf-8")
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith('#include "'):
                other = line.split('"')[1]
                body = "" if other in done else read(other)
                # Errors of the compiler name the repository's file.
                line = f'{body}#line {number + 1} "{name}"'
            lines.append("" if line == "#pragma once" else line)
        return f'#line 1 "{name}"\n' + "\n".join(lines) + "\n"

    return read(file)


COMPILE_OPTIONS = (
    "--std=c++17",
    # sums as those of every other backend: no fused multiply-add, subnormal numbers
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    # source lines for profilers and compute-sanitizer
    "--generate-line-info",
)
FORMAT = 2  # incremented when files of the same digest would have other bytes
FILE, BYTES, PTX = "the file", "its bytes", "PTX"
WAYS = (FILE, BYTES, PTX)
"""Ways to load kernels, the usual one first: machine code by the driver from its file
or from memory, or PTX."""
_DIGEST_BYTES = 16


class Loaded(NamedTuple):
    """Kernels on a device."""

    kernels: dict[str, Any]  # by name; CuPy's RawKernel or equivalent
    way: str  # one of `WAYS`


def load_kernels(cupy: Any, program: Program, macros: Macros = ()) -> Loaded:
    """Return kernels for the current device, compiled unless they are on disk."""
    refused = []
    # Drivers differ in what they load: the fastest way first, PTX last.
    for way in WAYS:
        try:
            return Loaded(load_by(cupy, program, way, macros), way)
        except cupy.cuda.driver.CUDADriverError as error:
            refused.append(f"{way}: {error}")
    raise BackendError(
        f"the driver does not load {program.file}: {'; '.join(refused)}; use "
        "backend='cpu'"
    )


def load_by(
    cupy: Any, program: Program, way: str, macros: Macros = ()
) -> dict[str, Any]:
    """Return kernels for the current device, loaded in one of `WAYS`."""
    capability = int(cupy.cuda.Device().compute_capability)
    target = target_of(capability, cupy.cuda.nvrtc.getSupportedArchs())
    if way == PTX:
        target = target.replace("sm_", "compute_")
    with _compiled(cupy, program, macros, target) as path:
        if way == FILE:
            by_path = cupy.RawModule(path=str(path))
            return {name: by_path.get_function(name) for name in program.kernels}
        module = cupy.cuda.function.Module()
        module.load(path.read_bytes())
        return {name: _Function(cupy, module, name) for name in program.kernels}


def _attribute(name: str) -> property:
    return property(
        lambda kernel: kernel._get(name), lambda kernel, x: kernel._set(name, x)
    )


class _Function:
    """A kernel of a module loaded from memory, compatible with CuPy's RawKernel."""

    _ATTRIBUTES = (
        *("max_threads_per_block", "shared_size_bytes", "const_size_bytes"),
        *("local_size_bytes", "num_regs", "ptx_version", "binary_version"),
        *("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout"),
    )

    def __init__(self, cupy: Any, module: Any, name: str) -> None:
        self.name, self._driver = name, cupy.cuda.driver
        self._function = module.get_function(name)  # keeps the module

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, **more: int
    ) -> None:
        self._function(grid, block, args, **more)

    @property
    def attributes(self) -> dict[str, int]:
        return {name: self._get(name) for name in self._ATTRIBUTES}

    shared_size_bytes = _attribute("shared_size_bytes")
    max_dynamic_shared_size_bytes = _attribute("max_dynamic_shared_size_bytes")
    preferred_shared_memory_carveout = _attribute("preferred_shared_memory_carveout")

    def _get(self, name: str) -> int:
        code = getattr(self._driver, f"CU_FUNC_ATTRIBUTE_{name.upper()}")
        return self._driver.funcGetAttribute(code, self._function.ptr)

    def _set(self, name: str, value: int) -> None:
        code = getattr(self._driver, f"CU_FUNC_ATTRIBUTE_{name.upper()}")
        self._driver.funcSetAttribute(self._function.ptr, code, value)


def target_of(capability: int, supported: Iterable[int]) -> str:
    """Return the target: the device, or PTX if it is newer than the compiler."""
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
    """Return machine code for `sm_...`, PTX for `compute_...`; needs no GPU."""
    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(source, file, (), ())
    try:
        options = (f"--gpu-architecture={target}", *COMPILE_OPTIONS)
        nvrtc.compileProgram(program, options)
        if not target.startswith("sm_"):
            return nvrtc.getPTX(program)
        # CuPy removes the last byte as a string terminator: it is 0.
        return nvrtc.getCUBIN(program) + b"\0"
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise BackendError(f"kernels for {target}: {error}: {log}") from None
    finally:
        nvrtc.destroyProgram(program)


@contextlib.contextmanager
def _compiled(
    cupy: Any, program: Program, macros: Macros, target: str
) -> Iterator[Path]:
    source = program.source(macros)
    version = cupy.cuda.nvrtc.getVersion()
    # Everything that the machine code depends on: a change results in another file.
    what = repr((FORMAT, source, target, COMPILE_OPTIONS, version)).encode()
    digest = hashlib.blake2b(what, digest_size=_DIGEST_BYTES).hexdigest()
    name = f"wfstdec-{digest}.{'cubin' if target.startswith('sm_') else 'ptx'}"
    with contextlib.ExitStack() as stack:
        folder = _writable_cache()
        folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / name
        if not path.exists():
            with atomic_write(path) as file:
                file.write(compile_kernels(cupy, source, target, program.file))
        yield path


def _writable_cache() -> Path | None:
    folder = os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache"
    path = Path(folder).expanduser()
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path if os.access(path, os.W_OK | os.X_OK) else None
