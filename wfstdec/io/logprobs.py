"""Read log-probs of any size, one utterance at a time, in the order of the file.

    reader = open_logprobs("dev.npz")         # or .ark, .scp, a folder of .npy
    for utterance, logprobs in reader: ...    # str, float [T, V]

Nothing is read ahead, and nothing is kept.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from wfstdec.errors import FormatError, ShapeError
from wfstdec.io import kaldi
from wfstdec.text.files import PathLike

Utterances = Iterator[tuple[str, np.ndarray]]
Load = Callable[[], np.ndarray]
Entries = Iterator[tuple[str, Load]]


@dataclass(frozen=True)
class LogprobReader:
    """The utterances of a file or folder; iterating opens it anew each time.

    Attributes:
        path: What is read.
        num_utterances: How many there are; None where only reading it all would tell.
    """

    path: Path
    num_utterances: int | None
    _read: Callable[[Path], Entries]
    _left_out: frozenset[str] = frozenset()

    def __iter__(self) -> Utterances:
        """Yield `(utterance, logprobs [T, V])`, lazily, each checked.

        Raises:
            FormatError: Damaged, a repeated or unwritable utterance id, no floats.
            ShapeError: An array has not two axes.
        """
        for utterance, load in self.entries():
            yield utterance, load()

    def entries(self) -> Entries:
        """Yield each utterance and a function that reads its log-probs, checked.

        A fault in one leaves the others readable, unless the file is one stream, such
        as an ark. The function is called before the next entry is asked for, or never.

        Raises:
            FormatError: Damaged, or a repeated or unwritable utterance id. The
                functions: damaged, or no floats.
            ShapeError: The functions: an array has not two axes.
        """
        seen: set[str] = set()
        for utterance, load in self._read(self.path):
            if utterance in seen:
                raise FormatError(
                    f"{self.path}: utterance {utterance!r} twice, expected once"
                )
            # One word, or the result files could not be read back.
            if utterance.split() != [utterance]:
                raise FormatError(
                    f"{self.path}: utterance id {utterance!r}, expected one without "
                    "white space"
                )
            seen.add(utterance)
            if utterance not in self._left_out:
                yield utterance, partial(checked, load, f"{self.path}: {utterance}")

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
        return LogprobReader(path, None, kaldi.read_ark)
    if path.suffix == ".scp":
        return LogprobReader(path, len(kaldi.scp_entries(path)), kaldi.read_scp)
    raise FormatError(
        f"{path}: found {path.suffix!r}, expected .npz, .ark, .scp or a folder of .npy"
    )


def checked(load: Load, place: str) -> np.ndarray:
    """Read log-probs; they must be floats of two axes.

    Raises:
        FormatError: No floats, or as `load` raises it.
        ShapeError: Not [T, V].
    """
    logprobs = load()
    if not np.issubdtype(logprobs.dtype, np.floating):
        raise FormatError(f"{place}: dtype {str(logprobs.dtype)!r}, expected floats")
    if logprobs.ndim != 2:
        raise ShapeError(f"{place}: shape {logprobs.shape}, expected [T, V]")
    return logprobs


def _open_npz(path: Path) -> np.lib.npyio.NpzFile:
    try:
        file = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: not a readable .npz ({error})") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise FormatError(f"{path}: found a single array, expected an .npz of arrays")
    return file


def _read_npz(path: Path) -> Entries:
    with _open_npz(path) as file:

        def load(utterance: str) -> np.ndarray:
            try:
                return file[utterance]
            except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
                raise FormatError(f"{path}: {utterance}: damaged: {error}") from error

        for utterance in file.files:
            yield utterance, partial(load, utterance)


def _npy_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.npy"))
    if not files:
        raise FormatError(f"{path}: no .npy file in this folder, expected at least one")
    return files


def _read_folder(path: Path) -> Entries:
    def load(file: Path) -> np.ndarray:
        try:
            return np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(f"{file}: not a readable .npy ({error})") from error

    for file in _npy_files(path):
        yield file.stem, partial(load, file)
