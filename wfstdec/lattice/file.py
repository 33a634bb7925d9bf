"""Lattice files: many lattices by utterance id, read one at a time.

    with LatticeWriter("dev.lat") as write:
        write(utterance, lattice)
    for utterance, lattice in open_lattices("dev.lat"): ...

The file is a zip archive without compression: a header in JSON, the graph's tables
once, and `STATE` and `ARC` arrays of each utterance in NumPy's format, with its OOV
words and their pronunciations.
"""

import dataclasses
import io
import json
import os
import struct
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any, Self

import numpy as np

from wfstdec.errors import LatticeError, naming
from wfstdec.graph import file as packed_file
from wfstdec.graph.checks import check_info, check_vocabulary
from wfstdec.lattice.arrays import Lattice, LatticeScales, check_lattice
from wfstdec.text.files import PathLike, atomic_write, reading
from wfstdec.text.vocabulary import Vocabulary

FORMAT_VERSION = 2
OLDER_VERSIONS = (1,)
"""Readable older versions: 1 has no words of utterances."""
_FORMAT = "wfstdec.lattices"
_HEADER = "header.json"
_TABLES = "tables.npz"
_ADDED = "words.npz"
_WORD_END, _TOKENS = "trie", "tokens"
"""In place of a topology: labels are at word ends; words are also tokens."""
_NUMBERS = (
    *("lattice_beam", "search_cost", "reached_final"),
    *("num_frames", "died_at_frame", "frame_shift_s"),
)
_MEMBER = struct.Struct("<4s5H3L2H")
"""Header of a file in a zip archive: includes checksum and sizes."""
_FOR_OWNER = 0o600 << 16
_READABLE = "file of lattices", "what `wfstdec decode --lattices` writes"


class GrowingFile(ABC):
    """Writes utterances one by one; the file appears atomically.

    Instead of `with`, `begin` and `finish` continue a partially written file.

    Args:
        path: The file to write.

    Raises:
        FormatError: The file cannot be written.
    """

    note: Any  # JSON state after the last written utterance, for `begin`

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.begin(self._stack.enter_context(atomic_write(self.path)))
        self._stack.push(lambda *error: self.give_up() if error[0] else self.finish())
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    @abstractmethod
    def begin(self, file: IO[bytes], notes: Sequence[Any] = ()) -> None:
        """Write after a file's content; it is open at its end, also for reading."""
        # `notes`: `note` after each utterance in the file.

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the file; its owner closes it."""

    def give_up(self) -> None:  # noqa: B027
        """Release the file, which will be closed."""


class LatticeWriter(GrowingFile):
    """Writes lattices; a `GrowingFile`."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._header: list[dict[str, Any]] = []
        self._tables: Vocabulary | None = None
        self._ids: set[str] = set()

    def begin(self, file: IO[bytes], notes: Sequence[Any] = ()) -> None:
        """Write after a file's content; see `GrowingFile`."""
        members = list(_members(file)) if notes else []
        self._zip = zipfile.ZipFile(file, "w")
        self._zip.filelist += members
        self._zip.NameToInfo.update((member.filename, member) for member in members)
        self._header = list(notes)
        self._ids = {one["id"] for one in notes}

    @property
    def note(self) -> Any:
        """Note on the last lattice written."""
        return self._header[-1]

    def finish(self) -> None:
        """Write the header; see `GrowingFile`."""
        header = {"format": _FORMAT, "version": FORMAT_VERSION}
        text = json.dumps(header | {"utterances": self._header})
        with self._zip.open(_HEADER, "w") as part:
            part.write(text.encode())
        self._zip.close()

    def give_up(self) -> None:
        """Release the file, which may be continued later."""
        with suppress(OSError, ValueError):  # or the archive's destructor would write
            self._zip.close()

    def __call__(self, utterance: str, lattice: Lattice) -> None:
        """Write a lattice."""
        if utterance in self._ids:
            raise LatticeError("has a lattice already, expected one", utterance)
        own = lattice.vocabulary.own
        if self._tables is None:
            self._tables = own
            # Tables once per file: all lattices share them.
            if not self._header:
                info = lattice.info
                if lattice.labels_at_word_end:
                    kind = _TOKENS if lattice.words_are_tokens else _WORD_END
                    info = dataclasses.replace(info, topology=kind)
                self._write_arrays(_TABLES, packed_file.table_arrays(own, info))
        # By identity first, which nearly always suffices.
        if own is not self._tables and (
            own.words != self._tables.words or own.tokens != self._tables.tokens
        ):
            raise LatticeError("is of another graph, expected one a file", utterance)
        number = len(self._header)
        for name, array in (("states", lattice.states), ("arcs", lattice.arcs)):
            with self._zip.open(f"{number}.{name}.npy", "w") as part:
                np.lib.format.write_array(part, array, allow_pickle=False)
        has_oov = lattice.vocabulary.oov is not None
        if has_oov:
            oov = packed_file.oov_arrays(lattice.vocabulary)
            self._write_arrays(f"{number}.{_ADDED}", oov)
        numbers = {name: getattr(lattice, name) for name in _NUMBERS}
        scales = dataclasses.asdict(lattice.scales)
        known = {"id": utterance, "scales": scales, "has_words": has_oov}
        self._header.append(known | numbers)
        self._ids.add(utterance)

    def _write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        named: dict[str, Any] = {**arrays}
        with self._zip.open(name, "w") as part:
            np.savez(part, **named)


class LatticeFile(Mapping[str, Lattice]):
    """Lattices of a file by utterance id; each is read on access.

    Args:
        path: A file written by `LatticeWriter`.

    Raises:
        FormatError: It cannot be read, or is not a lattice file.
        LatticeError: It has another version, or is damaged.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = path
        with reading(path, *_READABLE):
            self._zip = zipfile.ZipFile(path)
            header = json.loads(self._zip.read(_HEADER))
            kind, version = header["format"], header["version"]
            # The version first: the rest of another version may look damaged.
            if kind != _FORMAT or version not in (FORMAT_VERSION, *OLDER_VERSIONS):
                raise LatticeError(
                    f"found {kind} version {version!r}, expected {_FORMAT} version "
                    f"{FORMAT_VERSION}; decode again"
                )
            self._at = {one["id"]: i for i, one in enumerate(header["utterances"])}
            self._header = header["utterances"]
            self.vocabulary: Vocabulary | None = None
            if self._header:
                self.vocabulary, self._facts = self._read_tables()

    def __len__(self) -> int:
        return len(self._header)

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __getitem__(self, utterance: str) -> Lattice:
        number = self._at[utterance]
        found, vocabulary = self._header[number], self.vocabulary
        assert vocabulary is not None
        with naming(utterance), reading(self.path, *_READABLE):
            if found.get("has_words"):
                arrays = self._read_arrays(f"{number}.{_ADDED}")
                vocabulary = vocabulary.extended(*packed_file.oov_from(arrays))
                check_vocabulary(vocabulary)
            states, arcs = (self._read(number, name) for name in ("states", "arcs"))
            lattice = Lattice(
                states,
                arcs,
                vocabulary,
                LatticeScales(**found["scales"]),
                **{name: found[name] for name in _NUMBERS},
                **self._facts,
            )
            check_lattice(lattice)
        return lattice

    def _read(self, number: int, name: str) -> np.ndarray:
        part = io.BytesIO(self._zip.read(f"{number}.{name}.npy"))
        return np.lib.format.read_array(part, allow_pickle=False)

    def _read_tables(self) -> tuple[Vocabulary, dict[str, Any]]:
        vocabulary, info = packed_file.tables_from(self._read_arrays(_TABLES))
        check_vocabulary(vocabulary)
        # Without a topology its place has the position of the labels.
        kind = info.topology
        if kind in (_WORD_END, _TOKENS):
            info = dataclasses.replace(info, topology="")
        check_info(info, vocabulary)
        return vocabulary, {
            "info": info,
            "labels_at_word_end": kind in (_WORD_END, _TOKENS),
            "words_are_tokens": kind == _TOKENS,
        }

    def _read_arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(io.BytesIO(self._zip.read(name)), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def save_lattices(path: PathLike, lattices: Mapping[str, Lattice]) -> None:
    """Write lattices by utterance id, atomically.

    Raises:
        FormatError: The file cannot be written.
        LatticeError: They belong to several graphs.
    """
    with LatticeWriter(path) as write:
        for utterance, lattice in lattices.items():
            write(utterance, lattice)


def open_lattices(path: PathLike) -> LatticeFile:
    """Open a file's lattices by utterance id; errors as in `LatticeFile`."""
    return LatticeFile(path)


def _members(file: IO[bytes]) -> Iterator[zipfile.ZipInfo]:
    """Yield members of an archive before its directory is written.

    The directory, which readers use, is written at the end.
    """
    end = file.tell()
    file.seek(0)
    while (at := file.tell()) < end:
        head = _MEMBER.unpack(file.read(_MEMBER.size))
        crc, packed, size, name, extra = head[6:]
        member = zipfile.ZipInfo(file.read(name).decode())
        member.header_offset, member.CRC = at, crc
        member.compress_size, member.file_size = packed, size
        member.external_attr = _FOR_OWNER
        file.seek(extra + packed, os.SEEK_CUR)
        yield member
