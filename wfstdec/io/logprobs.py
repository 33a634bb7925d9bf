"""Read log-probs of any size, one utterance at a time, in the order of the file.

    reader = open_logprobs("dev.npz")         # or .ark, .scp, a folder of .npy
    for utterance, logprobs in reader: ...    # str, float [T, V]

Nothing is read ahead, and nothing is kept. Of Kaldi files only matrices are read:
kaldiio would also run the commands of an scp (`copy-feats ... |`) and unpickle what an
ark holds, which a data file must not be able to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from kaldiio.matio import read_kaldi, read_token

from wfstdec.errors import FormatError, ShapeError
from wfstdec.text.files import PathLike, read_lines, reading

BINARY_MARK = b"\0B"
_OFFSET = re.compile(r"(.+):(\d+)")

Load = Callable[[], np.ndarray]
Entries = Iterator[tuple[str, Load]]


def read_ark(path: Path) -> Entries:
    """Yield each utterance of a binary ark and a function that gives its matrix."""
    with reading(path, "ark", "a Kaldi ark"), path.open("rb") as file:
        while True:
            utterance = read_token(file)
            if utterance is None or not utterance.strip():
                return
            utterance = utterance.lstrip()
            matrix = _read_matrix(file, f"{path}: {utterance}")
            yield utterance, partial(np.asarray, matrix)


def read_scp(path: Path) -> Entries:
    """Yield each utterance of an scp and a function that reads its matrix, in order."""
    for utterance, ark, offset in scp_entries(path):
        place = f"{ark}:{offset}: {utterance}"
        yield utterance, partial(_read_at, ark, offset, place)


def scp_entries(path: Path) -> list[tuple[str, Path, int]]:
    """The utterance, file and offset of each line `utterance file[:offset]`."""
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
        with reading(f"{path}:{number}", "line", "'utterance file[:offset]'"):
            entries.append((utterance, *_file_and_offset(target)))
    return entries


def read_matrix_at(target: str) -> np.ndarray:
    """Read the matrix of `file[:offset]`, [T, V]."""
    return _read_at(*_file_and_offset(target), target)


def _read_at(path: Path, offset: int, place: str) -> np.ndarray:
    with reading(path), path.open("rb") as file:
        file.seek(offset)
        return _read_matrix(file, place)


def _file_and_offset(target: str) -> tuple[Path, int]:
    match = _OFFSET.fullmatch(target)
    return (Path(match[1]), int(match[2])) if match else (Path(target), 0)


def _read_matrix(file: BinaryIO, place: str) -> np.ndarray:
    """The matrix that stands at the file's position."""
    head = file.read(len(BINARY_MARK))
    if head != BINARY_MARK:
        raise FormatError(
            f"{place}: found {head!r} where a matrix begins, expected a binary Kaldi "
            f"matrix ({BINARY_MARK!r}); copy-matrix makes one of a text ark"
        )
    file.seek(-len(head), os.SEEK_CUR)
    with reading(place, "matrix", "a whole Kaldi matrix"):
        matrix = read_kaldi(file)
    return np.array(matrix)  # kaldiio's are read-only


@dataclass(frozen=True)
class LogprobReader:
    """The utterances of a file or folder; each iteration opens it again."""

    path: Path  # What is read
    # How many there are; None where only reading it all would tell
    num_utterances: int | None
    _read: Callable[[Path], Entries]
    _left_out: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield `(utterance, logprobs [T, V])`, lazily, each checked."""
        for utterance, load in self.entries():
            yield utterance, load()

    def entries(self) -> Entries:
        """Yield each utterance and a function that reads its log-probs, checked."""
        # A fault in one leaves the others readable, unless the file is one stream, such
        # as an ark: the function is called before the next entry is read, or never.
        seen: set[str] = set()
        for utterance, load in self._read(self.path):
            place = f"{self.path}: utterance {utterance!r}"
            if utterance in seen:
                raise FormatError(f"{place} twice, expected once")
            # One word, or the result files could not be read back.
            if utterance.split() != [utterance]:
                raise FormatError(f"{place}, expected an id without white space")
            seen.add(utterance)
            if utterance not in self._left_out:
                yield utterance, partial(checked, load, f"{self.path}: {utterance}")
        if not seen:
            raise FormatError(f"{self.path}: no utterance in it, expected at least one")

    def without(self, utterances: Collection[str]) -> LogprobReader:
        """Leave out some utterances, whose log-probs are then not read."""
        num = self.num_utterances
        return replace(
            self,
            num_utterances=None if num is None else max(num - len(utterances), 0),
            _left_out=frozenset(utterances),
        )


def open_logprobs(path: PathLike) -> LogprobReader:
    """Open log-probs; the form follows from the name.

    Args:
        path: An `.npz` with one [T, V] array per utterance, a Kaldi `.ark` or `.scp`,
            or a folder of `.npy` files (the utterance is the name without `.npy`).

    Raises:
        FormatError: No such file, not one of these, or damaged.
    """
    path = Path(path)
    if path.is_dir():
        return LogprobReader(path, len(_npy_files(path)), _read_folder)
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if path.suffix == ".npz":
        return LogprobReader(path, len(_open_npz(path).files), _read_npz)
    if path.suffix == ".ark":
        return LogprobReader(path, None, read_ark)
    if path.suffix == ".scp":
        return LogprobReader(path, len(scp_entries(path)), read_scp)
    raise FormatError(
        f"{path}: found {path.suffix!r}, expected .npz, .ark, .scp or a folder of .npy"
    )


def checked(load: Load, place: str) -> np.ndarray:
    """Read log-probs; they must be floats of two axes."""
    logprobs = load()
    if not np.issubdtype(logprobs.dtype, np.floating):
        raise FormatError(f"{place}: dtype {str(logprobs.dtype)!r}, expected floats")
    if logprobs.ndim != 2:
        raise ShapeError(f"{place}: shape {logprobs.shape}, expected [T, V]")
    return logprobs


def _open_npz(path: Path) -> np.lib.npyio.NpzFile:
    with reading(path, ".npz", "arrays by utterance"):
        file = np.load(path, allow_pickle=False)
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise FormatError(f"{path}: found a single array, expected an .npz of arrays")
    return file


def _read_npz(path: Path) -> Entries:
    def load(utterance: str) -> np.ndarray:
        with reading(f"{path}: {utterance}", "array"):
            return np.asanyarray(file[utterance])

    with _open_npz(path) as file:
        yield from ((name, partial(load, name)) for name in file.files)


def _npy_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.npy"))
    if not files:
        raise FormatError(f"{path}: no .npy file in this folder, expected at least one")
    return files


def _read_folder(path: Path) -> Entries:
    def load(file: Path) -> np.ndarray:
        with reading(file, ".npy"):
            return np.asanyarray(np.load(file, allow_pickle=False))

    yield from ((file.stem, partial(load, file)) for file in _npy_files(path))
