"""Machine and files that figures were taken on (nothing about who owns it)."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import wfstdec
from wfstdec.errors import FormatError
from wfstdec.text.files import PathLike

PACKAGES = ("numpy", "numba", "llvmlite", "kaldifst", "kaldi_decoder")


def describe_machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory, Python and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "wfstdec": wfstdec.__version__,
        **{name: _version(name) for name in PACKAGES},
    }


def fingerprint(path: PathLike) -> str:
    """32 hex digits of what a file holds, or the files of a folder with their names.

    Raises:
        FormatError: It cannot be read.
    """
    whole = Path(path)
    try:
        if not whole.is_dir():
            return _digest(whole)
        files = sorted(file for file in whole.iterdir() if file.is_file())
        listed = "".join(f"{file.name}\t{_digest(file)}\n" for file in files)
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error
    return hashlib.blake2b(listed.encode(), digest_size=16).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return digest.hexdigest()


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    fields = dict(line.partition(":")[::2] for line in reversed(lines))
    names = {key.strip(): value.strip() for key, value in fields.items()}
    keys = ("model name", "cpu family", "model", "cache size")
    found = [f"{key} {names[key]}" for key in keys[1:] if key in names]
    return ", ".join([names.get("model name", platform.processor()), *found])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
