"""Reading of plain or compressed files (gzip, bzip2, xz, zstd), and atomic writing.

lines = read_lines("lexicon.txt.gz")              # UTF-8; errors name the line
with atomic_write("graph.npz") as file: ...       # whole, or not at all
"""

import bz2
import contextlib
import gzip
import hashlib
import importlib
import lzma
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from unicodedata import normalize

import numpy as np

from wfstdec.errors import FormatError, InputError, WfstdecError

PathLike = str | os.PathLike[str]
STDIN = "-"  # Name of standard input
_DIGEST_BYTES, _DIGEST_PIECE = 2**24, 2**20


@contextlib.contextmanager
def reading(
    place: PathLike, kind: str = "file", expected: str = "a whole one"
) -> Iterator[None]:
    """Name the file in errors of reading it; damage makes parsers raise anything."""
    name = os.fspath(place)
    try:
        yield
    except WfstdecError as error:
        if isinstance(error, InputError) and name not in str(error):
            error.path = name
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}".strip(": ")
        refused = FormatError(f"not a readable {kind} ({found}), expected {expected}")
        refused.path = name
        if isinstance(error, OSError) and error.strerror:
            refused = FormatError(f"cannot read: {error.strerror}")
            refused.path = str(error.filename or name)
        raise refused from error


def read_bytes(path: PathLike) -> bytes:
    """Return the bytes of a file, decompressed by its magic number; `-` is stdin."""
    with reading(path):
        if os.fspath(path) == STDIN:
            return unpack(sys.stdin.buffer.read(), "standard input")
        return unpack(Path(path).read_bytes(), str(path))


def unpack(data: bytes, place: str) -> bytes:
    """Return `data`, decompressed by its magic number; errors name `place`."""
    for begin, (kind, unpacked) in _PACKED.items():
        if data.startswith(begin):
            size = f"a whole one of more than {len(data)} bytes"
            with reading(place, f"{kind} file", size):
                return unpacked(data)
    return data


def _unpack_zstd(data: bytes) -> bytes:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        text = "packed by zstd, which needs a package: pip install zstandard"
        raise FormatError(text) from None
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


_PACKED: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ\0": ("xz", lzma.decompress),
    b"\x28\xb5\x2f\xfd": ("zstd", _unpack_zstd),
}
"""Kinds of compressed data by magic number."""


def read_lines(path: PathLike) -> list[str]:
    r"""Return the lines of a UTF-8 text file without their ends (`\n` or `\r\n`)."""
    # Only `\n` ends a line: `str.splitlines` would cut at U+2028 and U+0085 too, which
    # are tokens in some tables. A byte-order mark is dropped.
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = data[error.start : error.end]
        raise FormatError(f"{path}:{line}: found {found!r}, expected UTF-8") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def composed(words: Iterable[str]) -> tuple[str, ...]:
    """Words in Unicode's form NFC; one whose NFC is another word stays."""
    words = tuple(words)
    known = set(words)
    pairs = ((w, w if w.isascii() else normalize("NFC", w)) for w in words)
    return tuple(w if new in known else new for w, new in pairs)


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a new file that replaces `path` on success."""
    # Links are kept, and their targets replaced. Devices, FIFOs and other special files
    # such as `/dev/stdout` are written in place.
    with writing(path):
        target = replaceable(path)
        if target is None:
            with open_in_place(path, mode) as file:
                yield file
            return
        made = _unused_name(target)
        try:
            with made.open(mode.replace("w", "x"), encoding=_encoding(mode)) as file:
                yield file
            # The one visible step, which is atomic.
            made.replace(target)
        except BaseException:
            made.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def atomic_folder(path: PathLike) -> Iterator[Path]:
    """Create a folder that replaces the folder `path` on success."""
    target = Path(os.path.realpath(path))
    with writing(path):
        made = _unused_name(target)
        made.mkdir()
        try:
            yield made
            if target.exists():
                shutil.rmtree(target)
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def replaceable(path: PathLike) -> Path | None:
    """Return the regular file, existing or not, that a path resolves to."""
    # None also for a file that this process inherited open: its reader would not see a
    # new file.
    if _descriptor(path) is not None:
        return None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise FormatError(f"{path}: is a folder, expected a file to write")
    return Path(os.path.realpath(path)) if stat.S_ISREG(mode) else None


def open_in_place(path: PathLike, mode: str = "wb") -> IO:
    """Open a special file for writing; waits for a FIFO's reader."""
    number = _descriptor(path)
    # Without O_CREAT, which systems refuse for FIFOs of others in shared folders.
    handle = os.open(path, os.O_WRONLY) if number is None else os.dup(number)
    return open(handle, mode, encoding=_encoding(mode))


@contextlib.contextmanager
def writing(path: PathLike) -> Iterator[None]:
    """Name the file in errors of writing it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        names = os.path.basename(path), os.path.basename(os.path.realpath(path))
        about = error.filename
        if about is not None and not any(name in str(about) for name in names):
            raise
        raise FormatError(f"{path}: cannot write: {error.strerror}") from error


def is_stream(path: PathLike) -> bool:
    """Return whether a name is standard input, or a pipe: it can be read once."""
    name = os.fspath(path)
    if name == STDIN or name.endswith(f":{STDIN}"):
        return True
    return os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name))


def digest(path: PathLike) -> dict[str, Any]:
    """Return a few values that identify the content of a file or folder, quickly."""
    # All bytes of a file up to 16 MB; size, date, and pieces of a larger one; names,
    # sizes and dates in a folder.
    path, seen = Path(path), hashlib.blake2b(digest_size=16)
    if path.is_dir():
        for one in sorted(path.iterdir()):
            about = one.stat()
            seen.update(f"{one.name}/{about.st_size}/{about.st_mtime_ns}/".encode())
    elif path.is_file():
        size = path.stat().st_size
        with path.open("rb") as file:
            # Pieces would miss changes between them; the date shows most.
            if size > _DIGEST_BYTES:
                seen.update(f"{size}/{path.stat().st_mtime_ns}/".encode())
            step = max((size - _DIGEST_PIECE) / (_DIGEST_BYTES // _DIGEST_PIECE - 1), 1)
            for i in range(_DIGEST_BYTES // _DIGEST_PIECE):
                if size > _DIGEST_BYTES:
                    file.seek(int(i * step))
                seen.update(file.read(_DIGEST_PIECE))
    return {"path": str(path), "digest": seen.hexdigest()}


def fingerprint_of(arrays: Mapping[str, np.ndarray | Iterator[np.ndarray]]) -> str:
    """Return 32 hex digits over the names and bytes of arrays, or their parts."""
    digest = hashlib.sha256()  # has hardware support
    for name, array in sorted(arrays.items()):
        digest.update(name.encode())
        for part in [array] if isinstance(array, np.ndarray) else array:
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return digest.hexdigest()[:32]


def _descriptor(path: PathLike) -> int | None:
    place = os.path.abspath(path)
    standard = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
    folder, name = os.path.split(standard.get(place, place))
    is_open = folder in ("/dev/fd", "/proc/self/fd") and name.isdigit()
    return int(name) if is_open else None


def _encoding(mode: str) -> str | None:
    return None if "b" in mode else "utf-8"


def _unused_name(target: Path) -> Path:
    return target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
