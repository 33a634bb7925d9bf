"""Machine code of kernels on disk: made ahead, or kept once it was compiled.

    jit/compiled/<Python>        travels with the package: for every machine of a level,
                                x86-64-v3; read only; also of the installed package
    NUMBA_CACHE_DIR, or         what this machine compiled, for itself; the first of
    __pycache__ of the source,  these that can be written
    or ~/.cache/wfstdec
    memory                      where none of these can: said once

A file holds one kernel for one combination of types, and says what it was made of: the
sources' digest, versions, processor. Anything else, or a file that is damaged, counts
as not there. Times of files mean nothing, so that packages may be copied and unpacked.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import pickle
import platform
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
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from wfstdec.jit.sources import digest_of

SYSTEM = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
COMPILED = Path(__file__).parent / "compiled" / SYSTEM
"""Where this package has code that was made ahead."""
_INSTALLED = [
    Path(sysconfig.get_path(name)) / COMPILED.relative_to(Path(__file__).parents[2])
    for name in ("platlib", "purelib")
]
AHEAD = tuple(dict.fromkeys([COMPILED, *_INSTALLED]))
"""Where code made ahead may be: here, and in the installed package, whose place the
sources of a checkout take where Python starts in its root."""
LEVEL = "x86-64-v3"
"""The processors it is for: Intel since Haswell (2013), AMD since Excavator (2015)."""
_LEVEL_FEATURES = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt"),
    *("sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
)
ENTRY, PART = ".kernel", ".part"
"""How files end: machine code, and code that only compiling kernels takes."""
_VERSIONS = f"{numba.__version__} {llvmlite.__version__}"
_DIGEST_SIZE = 16
_PATIENCE_S, _LOOK_S = 60.0, 0.02
"""Seconds that a process waits for another that compiles, and between two looks."""
_not_kept: set[str] = set()
"""Endings of cache files that are not written."""


class KernelCache(NullCache):
    """The machine code of one kernel, as numba's dispatchers ask for it.

    Args:
        function: The kernel.
        library: What reads its code: `unserialize(codegen, state)`.
        suffix: Of its files.
    """

    def __init__(
        self, function: Callable[..., Any], library: Any, suffix: str = ENTRY
    ) -> None:
        self._function, self._library, self._suffix = function, library, suffix

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the kernel's source while it is compiled; True if another one had it.

        What the other process has made is then on disk. Two that compile the same take
        as long as one after the other, on as many cores.
        """
        with contextlib.ExitStack() as held:
            try:
                file = held.enter_context(open(self._function.__code__.co_filename))
                waited = _lock(file)
            except OSError:  # typed into a notebook; a file system without locks
                waited = False
            else:
                # A process forked meanwhile has the lock too, unless it is given back.
                held.callback(fcntl.flock, file, fcntl.LOCK_UN)
            yield waited

    @property
    def cache_path(self) -> str | None:
        """The folder in which what is compiled is kept."""
        places = self._places()
        return str(places[0]) if places else None

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """Load what was compiled for these types; None if there is nothing."""
        target.refresh()
        for path, made_of in self._candidates(signature, target):
            payload = _read(path, made_of)
            if payload is not None:
                try:
                    stored, parts = pickle.loads(payload)
                    # Names are digests of texts: two signatures may look alike.
                    if stored == signature:
                        return self._rebuild(target, parts)
                except Exception:  # written by what looks the same and is not
                    continue
        return None

    def save_overload(self, signature: Any, result: CompileResult) -> None:
        """Keep what was compiled, for other processes; in memory if it must be."""
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
        # Code that came with the package first: it needs no compiling at all.
        if may_use_level():
            name, made_of = self._name(signature, (machine[0], LEVEL, ""))
            if made_of is not None:
                for place in AHEAD:
                    yield place / name, made_of
        name, made_of = self._name(signature, machine)
        if made_of is not None:
            for place in self._places():
                yield place / name, made_of

    def _name(self, signature: Any, machine: tuple[Any, ...]) -> tuple[str, str | None]:
        """The name of a file, and what it is to be made of; None where none may be."""
        try:
            sources = digest_of(self._function)
        except OSError:
            return "", None
        function = f"{self._function.__module__}.{self._function.__qualname__}"
        said = repr((function, str(signature), machine))
        key = hashlib.blake2b(said.encode(), digest_size=10).hexdigest()
        short = function.replace("<", "").replace(">", "").split(".", 1)[-1]
        return (
            f"{short}.{SYSTEM}-{key}{self._suffix}",
            f"{function} {sources} {_VERSIONS}",
        )

    def _places(self) -> list[Path]:
        """Folders in which this machine may keep what it compiles, the best first."""
        return places_of(Path(self._function.__code__.co_filename).parent)

    def _rebuild(self, target: Any, reduced: tuple[Any, ...]) -> CompileResult:
        """Implement `CompileResult._rebuild`, for libraries of our own."""
        state, fndesc, env, signature, objectmode, lifted, note, init, envs = reduced
        # Numba's modules register what the code needs, as when it was compiled.
        for run in init:
            run()
        library = self._library.unserialize(target.codegen(), state)
        result = CompileResult(
            target_context=target,
            typing_context=target.typing_context,
            library=library,
            environment=env,
            entry_point=target.get_executable(library, fndesc, env),
            fndesc=fndesc,
            type_annotation=note,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            typing_error=None,
            call_helper=None,
            metadata=None,
            reload_init=init,
            referenced_envs=envs,
        )
        for one in envs:
            library.codegen.set_env(one.env_name, one)
        return result


def compile_for_a_package() -> None:
    """Compile all that is called in this process, and keep whole kernels alone.

    What an installed package has is not used, or the next one would lack it. Parts of
    kernels stay in memory: no other process wants them.
    """
    global AHEAD
    AHEAD = ()
    _not_kept.add(PART)


def may_use_level() -> bool:
    """Tell whether this machine runs code made ahead, and nobody asked for another."""
    asked = config.CPU_NAME, config.CPU_FEATURES
    return asked in ((None, None), (LEVEL, "")) and has_level()


@functools.cache
def has_level() -> bool:
    """Tell whether the processor is of `LEVEL` or above."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    features = binding.get_host_cpu_features()
    return all(features.get(name, False) for name in _LEVEL_FEATURES)


def places_of(folder: Path) -> list[Path]:
    """Folders for what is compiled of the sources in one folder, the best first."""
    if config.CACHE_DIR:
        name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
        return [Path(config.CACHE_DIR) / f"{folder.name}_{name}"]
    kept = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = [folder / "__pycache__"]
    if os.path.isabs(kept):
        places.append(Path(kept) / "wfstdec")
    return places


def _lock(file: Any) -> bool:
    """Lock a file, after a while without success go on; whether another one had it."""
    end, waited = time.monotonic() + _PATIENCE_S, False
    while time.monotonic() <= end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            waited = True
            time.sleep(_LOOK_S)
    return waited


def _read(path: Path, made_of: str) -> bytes | None:
    """The content of a file that is whole and made of this."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = _head(made_of)
    begin = len(head) + _DIGEST_SIZE
    if not content.startswith(head):
        return None
    payload = content[begin:]
    # Loading machine code that was cut off would crash the process.
    return payload if content[len(head) : begin] == _digest(payload) else None


def _write(path: Path, made_of: str, payload: bytes) -> bool:
    """Write a file, all of it or nothing; whether that went well."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(_head(made_of) + _digest(payload) + payload)
        # Another process may write the same: the last one wins; no one reads a half.
        temporary.replace(path)
    except OSError:
        return False
    finally:  # also where someone pressed Ctrl-C
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _head(made_of: str) -> bytes:
    return f"wfstdec kernel: {made_of}\n".encode()


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_SIZE).digest()


@functools.cache
def _warn_once() -> None:
    """Say that nothing can be kept."""
    warnings.warn(
        "compiled kernels are kept in memory only, since no folder for them can be "
        "written: each process compiles anew; set NUMBA_CACHE_DIR to one that can",
        stacklevel=2,
    )
