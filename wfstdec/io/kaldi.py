"""Read matrices from Kaldi's ark and scp files, and nothing else from them.

kaldiio would also run the commands of an scp (`copy-feats ... |`) and unpickle what an
ark holds: a data file must not be able to do either, so both are refused here.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from kaldiio.matio import read_kaldi, read_token

from wfstdec.errors import FormatError
from wfstdec.text.files import read_lines

BINARY_MARK = b"\0B"
_DAMAGE = (
    ValueError,
    AssertionError,
    IndexError,
    MemoryError,
    OverflowError,
    struct.error,
)
_OFFSET = re.compile(r"(?P<file>.+):(?P<offset>\d+)")


def read_ark(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Yield each utterance of a binary ark and a function that gives its matrix.

    The matrices [T, V] are read one after the other: an ark is a stream.

    Raises:
        FormatError: The file cannot be read, is truncated, or holds no matrices.
    """
    with _open(path) as file:
        while True:
            offset = file.tell()
            try:
                utterance = read_token(file)
            except UnicodeDecodeError:
                raise FormatError(
                    f"{path}: found no utterance id at byte {offset}, "
                    "expected a Kaldi ark"
                ) from None
            if utterance is None or not utterance.strip():
                return
            utterance = utterance.lstrip()
            matrix = _read_matrix(file, f"{path}: {utterance}")
            yield utterance, partial(np.asarray, matrix)


def read_scp(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Yield each utterance of an scp and a function that reads its matrix, in order.

    Raises:
        FormatError: A malformed line. The functions: what it points to cannot be read.
    """
    opened: Path | None = None
    with ExitStack() as stack:
        file: BinaryIO

        def load(utterance: str, ark: Path, offset: int) -> np.ndarray:
            nonlocal file, opened
            if ark != opened:  # most often many lines point into one ark
                stack.close()
                opened = None
                file, opened = stack.enter_context(_open(ark)), ark
            file.seek(offset)
            return _read_matrix(file, f"{ark}:{offset}: {utterance}")

        for utterance, ark, offset in scp_entries(path):
            yield utterance, partial(load, utterance, ark, offset)


def scp_entries(path: Path) -> list[tuple[str, Path, int]]:
    """The utterance, file and offset of each line `utterance file[:offset]`.

    As in Kaldi, a relative file is relative to the current folder.

    Raises:
        FormatError: A line is malformed, a command, or a range of rows.
    """
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(maxsplit=1)
        if not fields:
            continue
        if len(fields) != 2:
            raise FormatError(
                f"{path}:{number}: found {line!r}, expected 'utterance file[:offset]'"
            )
        utterance, target = fields[0], fields[1].strip()
        if "|" in (target[0], target[-1]) or target[-1] == "]":
            raise FormatError(
                f"{path}:{number}: found the command or range {target!r}, expected "
                "'file[:offset]'; write what it gives to an ark first"
            )
        entries.append((utterance, *_file_and_offset(target)))
    return entries


def read_matrix_at(target: str) -> np.ndarray:
    """Read the matrix of `file[:offset]`, [T, V].

    Raises:
        FormatError: It cannot be read, is truncated, or no matrix.
    """
    path, offset = _file_and_offset(target)
    with _open(path) as file:
        file.seek(offset)
        return _read_matrix(file, target)


def _file_and_offset(target: str) -> tuple[Path, int]:
    match = _OFFSET.fullmatch(target)
    if match:
        return Path(match["file"]), int(match["offset"])
    return Path(target), 0


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error


def _read_matrix(file: BinaryIO, place: str) -> np.ndarray:
    """The matrix that stands at the file's position."""
    head = file.read(len(BINARY_MARK))
    if head != BINARY_MARK:
        raise FormatError(
            f"{place}: found {head!r} where a matrix begins, expected a binary Kaldi "
            f"matrix ({BINARY_MARK!r}); copy-matrix makes one of a text ark"
        )
    file.seek(-len(head), os.SEEK_CUR)
    try:
        matrix = read_kaldi(file)
    except _DAMAGE as error:
        raise FormatError(
            f"{place}: damaged or truncated, expected a whole Kaldi matrix ({error})"
        ) from error
    return np.array(matrix)  # kaldiio's are read-only
