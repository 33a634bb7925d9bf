"""Reader of log-probs of any size, one utterance at a time, in file order.

    reader = open_logprobs("dev.npz")         # or .ark, .scp, a folder of .npy
    for utterance, logprobs in reader: ...    # str, float [T, V]

Nothing is read ahead or kept; "-" and "ark:-" are standard input, which can be read
once. Only matrices of Kaldi files are read. kaldiio would also run commands of an scp
(`copy-feats ... |`) and unpickle content of an ark, which a data file must not cause.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from kaldiio.matio import _parse_arkpath, read_kaldi, read_token
from kaldiio.utils import MultiFileDescriptor, parse_specifier

from wfstdec.audio.sources import AUDIO_ENDINGS
from wfstdec.errors import FormatError, ShapeError
from wfstdec.text.files import STDIN, PathLike, read_lines, reading

BINARY_MARK = b"\0B"
_SPECIFIER = re.compile(r"(ark|scp|[a-z]+,(ark|scp))(,[a-z]+)*:.+")
_SLACK = 3  # frames that a range may end after its matrix, as in Kaldi

Load = Callable[[], np.ndarray]
Entries = Iterator[tuple[str, Load]]


def read_ark(path: Path) -> Entries:
    """Yield each utterance of an ark and a function that returns its matrix."""
    opened: Any = path.open("rb") if str(path) != STDIN else _stdin()
    with reading(path, "ark", "a Kaldi ark"), opened as file:
        while True:
            utterance = read_token(file)
            if utterance is None or not utterance.strip():
                return
            utterance = utterance.lstrip()
            matrix = _read_matrix(file, f"{path}: {utterance}")
            yield utterance, partial(np.asarray, matrix)


def _stdin() -> Any:
    return contextlib.nullcontext(sys.stdin.buffer)


def _read_scp(entries: list[tuple[str, str]], _: Path) -> Entries:
    for utterance, target in entries:
        yield utterance, partial(read_matrix_at, target, f"{target}: {utterance}")


def scp_entries(path: Path) -> list[tuple[str, str]]:
    """Return utterance and target of each line `utterance file[:offset][range]`."""
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
        _refuse_command(target, f"{path}:{number}")
        entries.append((utterance, target))
    return entries


def scp_files(path: Path) -> list[str]:
    """Return the files that an scp refers to."""
    return [_parse_arkpath(target)[0] for _, target in scp_entries(path)]


def _refuse_command(target: str, place: str) -> None:
    if "|" in (target[0], target[-1]):
        raise FormatError(
            f"{place}: found the command {target!r}, expected 'file[:offset][range]'; "
            "pipe its output to ark:-"
        )


def read_matrix_at(target: str, place: str = "") -> np.ndarray:
    """Read the matrix of `file[:offset][range]`, [T, V]; ranges are inclusive."""
    path, offset, ranges = _parse_arkpath(target)
    with reading(path), open(path, "rb") as file:
        file.seek(offset or 0)
        matrix = _read_matrix(file, place or target)
    for one, size in zip(ranges or (), matrix.shape, strict=False):
        if one.start is None:
            continue
        if not 0 <= one.start < min(one.stop, size) or one.stop > size + _SLACK:
            raise FormatError(
                f"{place or target}: shape {matrix.shape}, expected a range inside it"
            )
    return matrix[ranges] if ranges else matrix


def _read_matrix(file: BinaryIO, place: str) -> np.ndarray:
    head = file.read(len(BINARY_MARK))
    with reading(place, "matrix", "a whole Kaldi matrix"):
        if head.lstrip().startswith(b"["):
            return _text_matrix(head.lstrip()[1:], file)
        if head != BINARY_MARK:
            raise FormatError(
                f"{place}: found {head!r} where a matrix begins, expected a Kaldi "
                f"matrix: {BINARY_MARK!r}, or '[' of a text ark"
            )
        if file.seekable():
            file.seek(-len(head), os.SEEK_CUR)
        else:
            file = MultiFileDescriptor(BytesIO(head), file)
        return np.array(read_kaldi(file))  # kaldiio's are read-only


def _text_matrix(line: bytes, file: BinaryIO) -> np.ndarray:
    """Read a text matrix up to `]`; kaldiio parses a leading -1e-05 as an integer."""
    rows = []
    while line or (line := file.readline()):
        numbers, end, _ = line.partition(b"]")
        if row := numbers.split():
            rows.append(np.array(row, np.float32))
        if end:
            return np.stack(rows)
        line = b""
    raise ValueError("no ']' at its end")


@dataclass(frozen=True)
class LogprobReader:
    """Utterances of a file or folder; each iteration reopens it."""

    path: Path  # File or folder
    # Number of utterances; None if only reading all shows it
    num_utterances: int | None
    _read: Callable[[Path], Entries]
    _left_out: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield `(utterance, logprobs [T, V])`, lazily, each validated."""
        for utterance, load in self.entries():
            yield utterance, load()

    def entries(self) -> Entries:
        """Yield each utterance and a function that reads its validated log-probs."""
        # A fault leaves the other utterances readable, unless the file is one stream,
        # such as an ark: then each function is called before the next entry, or never.
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
        """Return a reader that skips some utterances."""
        num = self.num_utterances
        return replace(
            self,
            num_utterances=None if num is None else max(num - len(utterances), 0),
            _left_out=frozenset(utterances),
        )


def open_logprobs(path: PathLike) -> LogprobReader:
    """Open log-probs; the format follows from the name.

    Args:
        path: An `.npz` with one [T, V] array per utterance, a Kaldi `.ark` or `.scp`,
            one `.npy` or a folder of them (the utterance is the name without `.npy`),
            or Kaldi's `ark:file` or `scp:file`; `-` and special files, such as pipes,
            are an ark, binary or text.

    Raises:
        FormatError: Missing file, unknown format, or damage.
    """
    path, kind = path_and_kind(path)
    if path.is_dir():
        return LogprobReader(path, len(_npy_files(path)), _read_folder)
    if str(path) != STDIN and not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    if kind == ".npz":
        return LogprobReader(path, len(_open_npz(path).files), _read_npz)
    if kind == ".npy":
        return LogprobReader(path, 1, _read_folder)
    if kind == ".ark":
        return LogprobReader(path, None, read_ark)
    if kind == ".scp":
        entries = scp_entries(path)
        return LogprobReader(path, len(entries), partial(_read_scp, entries))
    expected = ".npz, .ark, .scp, .npy or a folder of .npy"
    if kind in AUDIO_ENDINGS:
        expected += "; `wfstdec transcribe MODEL` reads audio"
    raise FormatError(f"{path}: found {kind!r}, expected {expected}")


def path_and_kind(given: PathLike) -> tuple[Path, str]:
    """Return a path without Kaldi's `ark:`, and the ending that selects its format."""
    name = os.fspath(given)
    if _SPECIFIER.fullmatch(name):
        with reading(name, "specifier", "ark:FILE or scp:FILE"):
            files = parse_specifier(name)
        target = files["ark"] or files["scp"]
        _refuse_command(target, name)
        return Path(target), ".ark" if files["ark"] else ".scp"
    path = Path(given)
    is_stream = name == STDIN or path.is_fifo() or path.is_char_device()
    return path, ".ark" if is_stream else path.suffix.lower()


def checked(load: Load, place: str) -> np.ndarray:
    """Read log-probs, which must be floats of two axes."""
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
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    if not files:
        raise FormatError(f"{path}: no .npy file in this folder, expected at least one")
    return files


def _read_folder(path: Path) -> Entries:
    def load(file: Path) -> np.ndarray:
        with reading(file, ".npy"):
            return np.asanyarray(np.load(file, allow_pickle=False))

    yield from ((file.stem, partial(load, file)) for file in _npy_files(path))
