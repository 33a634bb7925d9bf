"""Files of lattices: many by utterance id, read one at a time.

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
"""Read as well: 1 has no words of utterances."""
_FORMAT = "wfstdec.lattices"
_HEADER = "header.json"
_TABLES = "tables.npz"
_ADDED = "words.npz"
_WORD_END, _TOKENS = "trie", "tokens"
"""In the place of a topology: labels stand at word ends; words are tokens as well."""
_NUMBERS = (
    *("lattice_beam", "search_cost", "reached_final"),
    *("num_frames", "died_at_frame", "frame_shift_s"),
)
_MEMBER = struct.Struct("<4s5H3L2H")
"""The head of a file in a zip archive: checksum and sizes among others."""
_FOR_OWNER = 0o600 << 16
_READABLE = "file of lattices", "what `wfstdec decode --lattices` writes"


class GrowingFile(ABC):
    """Writes utterances one after the other; the file appears whole or not at all.

    With `begin` and `finish` in place of `with` a file is continued of which a part was
    kept.

    Args:
        path: The file to write.

    Raises:
        FormatError: The file cannot be written.
    """

    note: Any  # What `begin` must know of the utterance that was written last, as JSON

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
        """Write behind what a file holds, to whose end it is open for reading too."""
        # `notes`: `note` after each of the utterances that it holds.

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the file; its owner closes it."""

    def give_up(self) -> None:  # noqa: B027
        """Let go of the file, which will be closed."""


class LatticeWriter(GrowingFile):
    """Writes lattices; a `GrowingFile`."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(path)
        self._header: list[dict[str, Any]] = []
        self._tables: Vocabulary | None = None
        self._ids: set[str] = set()

    def begin(self, file: IO[bytes], notes: Sequence[Any] = ()) -> None:
        """Write behind what a file holds; see `GrowingFile`."""
        members = list(_members(file)) if notes else []
        self._zip = zipfile.ZipFile(file, "w")
        self._zip.filelist += members
        self._zip.NameToInfo.update((member.filename, member) for member in members)
        self._header = list(notes)
        self._ids = {one["id"] for one in notes}

    @property
    def note(self) -> Any:
        """Note on the lattice that was written last."""
        return self._header[-1]

    def finish(self) -> None:
        """Write the header; see `GrowingFile`."""
        header = {"format": _FORMAT, "version": FORMAT_VERSION}
        text = json.dumps(header | {"utterances": self._header})
        with self._zip.open(_HEADER, "w") as part:
            part.write(text.encode())
        self._zip.close()

    def give_up(self) -> None:
        """Let go of the file, which may be continued later."""
        with suppress(OSError, ValueError):  # or the destructor of the archive tries to
            self._zip.close()

    def __call__(self, utterance: str, lattice: Lattice) -> None:
        """Write a lattice."""
        if utterance in self._ids:
            raise LatticeError("has a lattice already, expected one", utterance)
        own = lattice.vocabulary.own
        if self._tables is None:
            self._tables = own
            # Tables once a file: all lattices share them.
            if not self._header:
                info = lattice.info
                if lattice.labels_at_word_end:
                    kind = _TOKENS if lattice.words_are_tokens else _WORD_END
                    info = dataclasses.replace(info, topology=kind)
                self._write_arrays(_TABLES, packed_file.table_arrays(own, info))
        # By identity first, which nearly always tells.
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
    """The lattices of a file by utterance id; each is read when it is asked for.

    Args:
        path: What `LatticeWriter` wrote.

    Raises:
        FormatError: It cannot be read, or is no file of lattices.
        LatticeError: It is of another version, or damaged.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = path
        with reading(path, *_READABLE):
            self._zip = zipfile.ZipFile(path)
            header = json.loads(self._zip.read(_HEADER))
            kind, version = header["format"], header["version"]
            # The version first: of another one all the rest may look damaged.
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
        """The vocabulary, and the fields of each lattice that tell of the search."""
        vocabulary, info = packed_file.tables_from(self._read_arrays(_TABLES))
        check_vocabulary(vocabulary)
        # Lattices without a topology say in its place what their labels are.
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
    """Write lattices by utterance id, the file whole or not at all.

    Raises:
        FormatError: The file cannot be written.
        LatticeError: They are of several graphs.
    """
    with LatticeWriter(path) as write:
        for utterance, lattice in lattices.items():
            write(utterance, lattice)


def open_lattices(path: PathLike) -> LatticeFile:
    """The lattices of a file by utterance id; errors as of `LatticeFile`."""
    return LatticeFile(path)


def _members(file: IO[bytes]) -> Iterator[zipfile.ZipInfo]:
    """Members of an archive up to where it is open, as its writer knew it.

    Its directory, which readers go by, is written at the very end.
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
