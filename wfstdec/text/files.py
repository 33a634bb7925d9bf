"""Read text files whole: plain or gzip, UTF-8, with errors that name the line."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

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
