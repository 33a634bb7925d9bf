"""Files of lattices: many by utterance id, read one at a time.

    with LatticeWriter("dev.lat") as write:
        write(utterance, lattice)
    for utterance, lattice in open_lattices("dev.lat"): ...

The file is a zip archive without compression: a header in JSON, the graph's tables
once, and `STATE` and `ARC` arrays of each utterance in NumPy's format. The archive has
a check sum of each part.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from wfstdec.errors import FormatError, LatticeError
from wfstdec.graph import packed_file
from wfstdec.graph.graph_checks import check_tables
from wfstdec.graph.tables import GraphTables
from wfstdec.lattice.arrays import Lattice, LatticeScales, check_lattice
from wfstdec.text.files import atomic_write

FORMAT_VERSION = 1
_FORMAT = "wfstdec.lattices"
_HEADER = "header.json"
_TABLES = "tables.npz"
_NUMBERS = (
    "lattice_beam",
    "search_cost",
    "reached_final",
    "num_frames",
    "died_at_frame",
    "frame_shift_s",
)
_UNREADABLE = (  # what NumPy and zipfile are known to raise on files of all kinds
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
)


class LatticeWriter:
    """Writes lattices one after the other; the file appears whole or not at all.

    Args:
        path: The file to write.

    Raises:
        FormatError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._stack = ExitStack()
        self._header: list[dict[str, Any]] = []
        self._tables: GraphTables | None = None
        self._ids: set[str] = set()

    def __enter__(self) -> Self:
        file = self._stack.enter_context(atomic_write(self._path))
        self._zip = self._stack.enter_context(zipfile.ZipFile(file, "w"))
        return self

    def __exit__(self, *error: Any) -> bool | None:
        if error[0] is None:
            header = {"format": _FORMAT, "version": FORMAT_VERSION}
            text = json.dumps(header | {"utterances": self._header})
            self._zip.writestr(_HEADER, text)
        return self._stack.__exit__(*error)

    def __call__(self, utterance: str, lattice: Lattice) -> None:
        """Write a lattice.

        Raises:
            LatticeError: A second one of an utterance, or one of another graph.
        """
        if utterance in self._ids:
            raise LatticeError("has a lattice already, expected one", utterance)
        if self._tables is None:
            self._tables = lattice.tables
            arrays: dict[str, Any] = {**packed_file.table_arrays(lattice.tables)}
            with self._zip.open(_TABLES, "w") as part:
                np.savez(part, **arrays)
        if lattice.tables is not self._tables and (
            lattice.tables.words != self._tables.words
            or lattice.tables.tokens != self._tables.tokens
        ):
            raise LatticeError("is of another graph, expected one a file", utterance)
        number = len(self._header)
        for name, array in (("states", lattice.states), ("arcs", lattice.arcs)):
            with self._zip.open(f"{number}.{name}.npy", "w") as part:
                np.lib.format.write_array(part, array, allow_pickle=False)
        numbers = {name: getattr(lattice, name) for name in _NUMBERS}
        scales = dataclasses.asdict(lattice.scales)
        self._header.append({"id": utterance, "scales": scales, **numbers})
        self._ids.add(utterance)


class LatticeFile(Mapping[str, Lattice]):
    """The lattices of a file by utterance id; each is read when it is asked for.

    Args:
        path: What `LatticeWriter` wrote.

    Raises:
        FormatError: It cannot be read, or is no file of lattices.
        LatticeError: It is of another version, or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            header = json.loads(self._zip.read(_HEADER))
            kind, version = header["format"], header["version"]
        except FileNotFoundError:
            raise FormatError(f"{path}: no such file") from None
        except _UNREADABLE as error:
            raise FormatError(
                f"{path}: not a readable file of lattices ({error}), expected what "
                "`wfstdec decode --lattices` writes"
            ) from None
        if (kind, version) != (_FORMAT, FORMAT_VERSION):
            raise LatticeError(
                f"{path}: found {kind} version {version!r}, expected {_FORMAT} version "
                f"{FORMAT_VERSION}; decode again"
            )
        try:
            self._at = {one["id"]: i for i, one in enumerate(header["utterances"])}
            self._header = header["utterances"]
            self.tables = self._read_tables() if self._header else None
        except _UNREADABLE as error:
            raise _damaged(path, error) from None

    def __len__(self) -> int:
        return len(self._header)

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __getitem__(self, utterance: str) -> Lattice:
        number = self._at[utterance]
        found = self._header[number]
        try:
            states, arcs = (self._read(number, name) for name in ("states", "arcs"))
            assert self.tables is not None
            lattice = Lattice(
                states,
                arcs,
                self.tables,
                LatticeScales(**found["scales"]),
                **{name: found[name] for name in _NUMBERS},
            )
            check_lattice(lattice)
        except LatticeError as error:
            error.utterance, error.path = utterance, str(self.path)
            raise
        except _UNREADABLE as error:
            raise _damaged(self.path, error, utterance) from None
        return lattice

    def _read(self, number: int, name: str) -> np.ndarray:
        part = io.BytesIO(self._zip.read(f"{number}.{name}.npy"))
        return np.lib.format.read_array(part, allow_pickle=False)

    def _read_tables(self) -> GraphTables:
        with np.load(io.BytesIO(self._zip.read(_TABLES)), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        tables = packed_file.tables_from(arrays)
        check_tables(tables)
        return tables


def save_lattices(
    path: str | os.PathLike[str], lattices: Mapping[str, Lattice]
) -> None:
    """Write lattices by utterance id, the file whole or not at all.

    Raises:
        FormatError: The file cannot be written.
        LatticeError: They are of several graphs.
    """
    with LatticeWriter(path) as write:
        for utterance, lattice in lattices.items():
            write(utterance, lattice)


def open_lattices(path: str | os.PathLike[str]) -> LatticeFile:
    """The lattices of a file by utterance id; errors as of `LatticeFile`."""
    return LatticeFile(path)


def _damaged(
    path: str | os.PathLike[str], error: Exception, utterance: str | None = None
) -> LatticeError:
    found = LatticeError(
        f"a part is missing or damaged ({error}), expected a whole file; decode again"
    )
    found.utterance, found.path = utterance, str(path)
    return found
