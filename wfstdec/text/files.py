"""Files read whole, plain or gzip, and written whole or not at all.

lines = read_lines("lexicon.txt.gz")              # UTF-8; errors name the line
with atomic_write("graph.npz") as file: ...       # an error leaves the old file
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from wfstdec.errors import FormatError

GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file, unpacked when they begin as gzip does.

    Raises:
        FormatError: The file cannot be read, or its gzip stream is damaged.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error
    return unpack(data, str(path))


def unpack(data: bytes, place: str) -> bytes:
    """`data`, unpacked when it begins as gzip does; `place` is named in errors.

    Raises:
        FormatError: The gzip stream is truncated or damaged.
    """
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise FormatError(
            f"{place}: damaged or truncated gzip file ({error}), "
            f"expected a whole one of more than {len(data)} bytes"
        ) from error


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    r"""The lines of a UTF-8 text file without their ends (`\n` or `\r\n`).

    Only `\n` ends a line: `str.splitlines` would cut at U+2028 and U+0085 too,
    which are tokens in some tables. A byte-order mark is dropped.

    Raises:
        FormatError: The file cannot be read or is not UTF-8; the line is named.
    """
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


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside `path`; rename it to `path` when all went well.

    On any error the temporary file is removed and an older `path` is untouched.

    Args:
        path: The file to write.
        mode: `"wb"`, or `"w"` for UTF-8 text.

    Raises:
        FormatError: The folder does not exist or cannot be written.
    """
    path = Path(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FormatError(f"{path}: cannot write: {error.strerror}") from error
    try:
        with open(handle, mode, encoding=encoding) as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
