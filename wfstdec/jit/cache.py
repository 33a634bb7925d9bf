"""Disk cache of machine code: compiled ahead, or on this machine.

    jit/compiled/<Python>        travels with the package: for every machine of a level,
                                x86-64-v3; read only; also of the installed package
    NUMBA_CACHE_DIR, or         what this machine compiled, for itself; the first of
    __pycache__ of the source,  these that can be written
    or ~/.cache/wfstdec
    memory                      where none of these can; a warning, once

A file holds one kernel for one combination of types, and its origin: the sources'
digest, versions, processor. Any other, or a damaged one, counts as missing.
"""

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import pickle
import platform
import re
import stat
import sys
import sysconfig
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba import config

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^[ ]*(?:from[ ]+([\w.]+)[ ]+)?import[ ]+(?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE
)
"""An import statement: its module, and its names."""


def digest_of(function: Callable[..., Any]) -> str:
    """Return the digest of a function's sources; in other packages of its file only."""
    module = function.__module__
    if _path(module) is not None:
        return stamp(module)
    content = Path(function.__code__.co_filename).read_bytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@functools.cache
def stamp(module: str) -> str:
    """Return a digest of the sources of a module and its imports in the package."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sources(module):
        digest.update(_source(name))
    return digest.hexdigest()


def sources(module: str) -> list[str]:
    """Return a module and its imports in the package, recursively; sorted."""
    found, waiting = {module}, [module]
    while waiting:
        for name in _imported(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return sorted(found)


@functools.cache
def _imported(module: str) -> tuple[str, ...]:
    names: list[str] = []
    for match in _IMPORT.finditer(_source(module).decode()):
        source, *named = match.groups()
        parts = (named[0] or named[1] or "").split(",")
        plain = [part.split("#")[0].split(" as ")[0].strip() for part in parts]
        names += [source, *(f"{source}.{n}" for n in plain)] if source else plain
    return tuple(name for name in names if _path(name) is not None)


@functools.cache
def _source(module: str) -> bytes:
    path = _path(module)
    return path.read_bytes() if path else b""


@functools.cache
def _path(module: str) -> Path | None:
    root, *parts = module.split(".")
    place = _PACKAGE.joinpath(*parts)
    files = [place / "__init__.py", place.with_suffix(".py")]
    return next((f for f in files if root == _PACKAGE.name and f.is_file()), None)


_LOG = logging.getLogger("wfstdec")
_LINE = "compiling kernels, once, about 20 s; `wfstdec warm-up` does it beforehand"


class NotOnDisk(BaseException):
    """A kernel is not on disk, and this process may not compile it now."""


num_ready = 0
"""Number of kernels and parts that this process has compiled or loaded."""
_may_compile = True


@contextlib.contextmanager
def loading_only() -> Iterator[None]:
    """Raise NotOnDisk, in any thread, instead of compiling a kernel."""
    global _may_compile
    _may_compile = False
    try:
        yield
    finally:
        _may_compile = True


def begin_compiling() -> None:
    """Log that kernels are compiled, or raise NotOnDisk if they may not be."""
    if not _may_compile:
        raise NotOnDisk
    say_compiling()


def count_ready() -> None:
    """Count a kernel that was compiled or loaded."""
    global num_ready
    num_ready += 1


@functools.cache
def say_compiling() -> None:
    """Log a compilation; without log handlers, show it in the terminal or notebook."""
    _LOG.info(_LINE)
    is_logged = _LOG.isEnabledFor(logging.INFO) and _LOG.hasHandlers()
    stream = sys.stderr
    if is_logged or _LOG.handlers or stream is None:  # its own handlers: quiet
        return
    if stream.isatty() or type(stream).__module__.startswith("ipykernel"):
        stream.write(f"wfstdec: {_LINE}\n")


def warn_of_numba(error: Exception) -> None:
    """Warn that numba's internals are not those that the package expects."""
    warnings.warn(
        f"numba {numba.__version__}: its internals have changed "
        f"({type(error).__name__}: {error}), expected 0.62 to 0.68; kernels are "
        "compiled by numba alone, which takes minutes in each process",
        stacklevel=2,
    )


SYSTEM = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
COMPILED = Path(__file__).parent / "compiled" / SYSTEM
"""Folder of code compiled ahead in this package."""
_INSTALLED = [
    Path(sysconfig.get_path(name)) / COMPILED.relative_to(Path(__file__).parents[2])
    for name in ("platlib", "purelib")
]
AHEAD = tuple(dict.fromkeys([COMPILED, *_INSTALLED]))
"""Folders of code compiled ahead: here, and in the installed package, which the sources
of a checkout shadow if Python starts in its root."""
LEVEL = "x86-64-v3"
"""Target processors: Intel since Haswell (2013), AMD since Excavator (2015)."""
_LEVEL_FEATURES = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt"),
    *("sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
)
ENTRY, PART = ".kernel", ".part"
"""File suffixes: machine code, and intermediate code for compiling kernels."""
_VERSIONS = f"{numba.__version__} {llvmlite.__version__}"
if config.BOUNDSCHECK:  # code of its own
    _VERSIONS += " bounds checked"
_DIGEST_SIZE = 16
_PATIENCE_S, _LOOK_S = 60.0, 0.02
"""Seconds to wait for another process that compiles, and between two checks."""
_not_kept: set[str] = set()
"""Suffixes of cache files that are not written."""


class KernelCache:
    """The machine code of one kernel, for numba's dispatchers."""

    def __init__(
        self, function: Callable[..., Any], library: Any, suffix: str = ENTRY
    ) -> None:
        self._function, self._library, self._suffix = function, library, suffix

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the kernel's source while it is compiled."""
        with contextlib.ExitStack() as held:
            try:
                file = held.enter_context(open(self._function.__code__.co_filename))
                _lock(file)
            except OSError:  # entered in a notebook; a file system without locks
                pass
            else:
                # A process forked meanwhile has the lock too, unless it is released.
                held.callback(fcntl.flock, file, fcntl.LOCK_UN)
            yield

    @property
    def cache_path(self) -> str:
        """The folder of compiled code, for numba's statistics."""
        return str(self._places()[0])

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load the code for these types; None if there is none."""
        target.refresh()
        for path, made_of in self._candidates(signature, target):
            payload = _read(path, made_of)
            if payload is not None:
                try:
                    stored, parts = pickle.loads(payload)
                    # Names are digests of texts, so different signatures may share one.
                    if stored == signature:
                        return self._rebuild(target, parts)
                except Exception:  # written by a different version with the same name
                    continue
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write compiled code for other processes, or keep it in memory."""
        from numba.core.serialize import dumps

        if result.library.has_dynamic_globals or self._suffix in _not_kept:
            return
        name, made_of = self._name(signature, result.codegen.magic_tuple())
        if made_of is None:
            return
        content = dumps((signature, result._reduce()))
        if not any(_write(place / name, made_of, content) for place in self._places()):
            _warn_once()

    def _candidates(self, signature: Any, target: Any) -> Iterator[tuple[Path, str]]:
        machine = target.codegen().magic_tuple()
        # Code that came with the package first: it needs no compilation.
        level = [(AHEAD, (machine[0], LEVEL, ""))] if may_use_level() else []
        for places, made_for in [*level, (self._places(), machine)]:
            name, made_of = self._name(signature, made_for)
            if made_of is not None:
                yield from ((place / name, made_of) for place in places)

    def _name(self, signature: Any, machine: tuple[Any, ...]) -> tuple[str, str | None]:
        """Return the name of a file, and its expected origin; None if not allowed."""
        try:
            sources = digest_of(self._function)
        except OSError:
            return "", None
        function = f"{self._function.__module__}.{self._function.__qualname__}"
        key_text = repr((function, str(signature), machine))
        key = hashlib.blake2b(key_text.encode(), digest_size=10).hexdigest()
        short = function.replace("<", "").replace(">", "").split(".", 1)[-1]
        name = f"{short}.{SYSTEM}-{key}{self._suffix}"
        return name, f"{function} {sources} {_VERSIONS}"

    def _places(self) -> list[Path]:
        folder = Path(self._function.__code__.co_filename).parent
        if config.CACHE_DIR:
            name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
            return [Path(config.CACHE_DIR) / f"{folder.name}_{name}"]
        kept = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        own = [Path(kept) / "wfstdec"] if os.path.isabs(kept) else []
        return [folder / "__pycache__", *own]

    def _rebuild(self, target: Any, reduced: tuple[Any, ...]) -> Any:
        from numba.core.compiler import CompileResult

        codegen = target.codegen()
        before, codegen._library_class = codegen._library_class, self._library
        try:
            return CompileResult._rebuild(target, *reduced)
        finally:
            codegen._library_class = before


def compile_for_a_package() -> None:
    """Compile all kernels called in this process, and keep only whole kernels."""
    # The installed package's code is not used, or the new package would lack it.
    global AHEAD
    AHEAD = ()
    _not_kept.add(PART)


def may_use_level() -> bool:
    """Return whether this machine runs code compiled ahead, unless configured."""
    requested = config.CPU_NAME, config.CPU_FEATURES
    return requested in ((None, None), (LEVEL, "")) and has_level()


@functools.cache
def has_level() -> bool:
    """Return whether the processor supports `LEVEL`."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    features = binding.get_host_cpu_features()
    return all(features.get(name, False) for name in _LEVEL_FEATURES)


def _lock(file: Any) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() <= end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(_LOOK_S)


def _read(path: Path, made_of: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            if not (_is_safe(os.fstat(file.fileno())) and _is_safe(path.parent.stat())):
                _warn_of_others(str(path.parent))
                return None
            content = file.read()
    except OSError:
        return None
    head = _head(made_of)
    payload = content[len(head) + _DIGEST_SIZE :]
    # Loading truncated machine code would crash the process.
    return payload if content.startswith(head + _digest(payload)) else None


def _is_safe(found: os.stat_result) -> bool:
    """Return whether only the user or root can have written the file: it holds code."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & stat.S_IWOTH


@functools.cache
def _warn_of_others(folder: str) -> None:
    warnings.warn(
        f"{folder}: compiled kernels that other users can write are not loaded, "
        "expected files and a folder of yours or root's, mode 0755 or less",
        stacklevel=2,
    )


def _write(path: Path, made_of: str, payload: bytes) -> bool:
    """Write a file atomically; return whether that succeeded."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary.write_bytes(_head(made_of) + _digest(payload) + payload)
        # Another process may write the same file: the last one wins.
        temporary.replace(path)
    except OSError:
        return False
    finally:  # also after Ctrl-C
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _head(made_of: str) -> bytes:
    return f"wfstdec kernel: {made_of}\n".encode()


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_SIZE).digest()


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "compiled kernels are kept in memory only, since no folder for them can be "
        "written: each process compiles again; set NUMBA_CACHE_DIR to one that can",
        stacklevel=2,
    )
