"""The file of a packed graph: arrays by name in an `.npz`, and a header.

    write_arrays(path, arrays)
    arrays, fingerprint = read_arrays(path)
    vocabulary, info = tables_from(arrays)        # the inverse of `table_arrays`

Texts are arrays of UTF-8 bytes; the header is JSON: format, version, fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, GraphError
from wfstdec.graph.info import GraphInfo
from wfstdec.text.files import atomic_write
from wfstdec.text.pronunciations import Pronunciations
from wfstdec.text.symbols import TokenTable
from wfstdec.text.vocabulary import OpenWord, Vocabulary

FORMAT_VERSION = 5
ARCS_VERSION = 4
"""Graphs that are written arc by arc have this one: older releases read it."""
OLDER_VERSIONS = (2, 3, ARCS_VERSION)
"""Read as well: 2 has no calls, 3 no open words."""
_FORMAT = "wfstdec.graph"
_OF_PRONUNCIATIONS = ("word", "splits", "tokens", "cost")
_UNREADABLE = (  # what NumPy and zipfile are known to raise on files of all kinds
    OSError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
)


def table_arrays(vocabulary: Vocabulary, info: GraphInfo) -> dict[str, np.ndarray]:
    """Pack what a graph file holds of a vocabulary and of facts, by name."""
    meta: dict[str, Any] = {
        "blank": vocabulary.tokens.blank,
        "fillers": list(vocabulary.separators),
        "separated": vocabulary.separated,
        "topology": info.topology,
        "marks_repeats": info.marks_repeats,
    }
    if vocabulary.open_word is not None:
        opened = vocabulary.open_word._asdict().items()
        meta["open_word"] = {name: x for name, x in opened if x is not None}
    if info.silence_prob is not None:
        meta["silence_prob"] = info.silence_prob
    # Graphs from elsewhere have none; a file without this array is read as such.
    known = {"word_cost": info.word_cost} if len(info.word_cost) else {}
    return known | {
        "tokens": _bytes(json.dumps(vocabulary.tokens.names)),
        "words": _bytes("\n".join(vocabulary.words)),
        **_pronunciation_arrays(vocabulary.pronunciations),
        "meta": _bytes(json.dumps(meta, sort_keys=True)),
    }


def tables_from(arrays: dict[str, np.ndarray]) -> tuple[Vocabulary, GraphInfo]:
    """Read the vocabulary and the facts of a file, not checked yet.

    Raises:
        KeyError, TypeError, ValueError: A part is missing or damaged.
    """
    meta = json.loads(arrays["meta"].tobytes())
    names = json.loads(arrays["tokens"].tobytes())
    opened = meta.get("open_word")
    vocabulary = Vocabulary(
        tokens=TokenTable(tuple(names), meta["blank"]),
        words=tuple(arrays["words"].tobytes().decode().split("\n")),
        entries=_pronunciations_from(arrays),
        separators=tuple(meta["fillers"]),
        separated=meta["separated"],
        open_word=None if opened is None else OpenWord(**opened),
    )
    info = GraphInfo(
        topology=meta["topology"],
        marks_repeats=meta["marks_repeats"],
        word_cost=arrays.get("word_cost", np.zeros(0, np.float32)),
        silence_prob=meta.get("silence_prob"),
    )
    return vocabulary, info


def oov_arrays(vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """Pack the words and pronunciations that an utterance has beside the graph's."""
    assert vocabulary.oov is not None
    own, said = vocabulary.oov
    words = _bytes("\n".join(vocabulary.words[len(own.words) :]))
    return {"words": words, **_pronunciation_arrays(said)}


def oov_from(
    arrays: dict[str, np.ndarray],
) -> tuple[tuple[str, ...], Pronunciations]:
    """Read the words and pronunciations of an utterance, not checked yet.

    Raises:
        KeyError, TypeError, ValueError: A part is missing or damaged.
    """
    text = arrays["words"].tobytes().decode()
    said = _pronunciations_from(arrays)
    if said.splits[-1] != len(said.tokens) or len(said.splits) != len(said.word) + 1:
        raise ValueError("pronunciations and their tokens differ in number")
    return tuple(text.split("\n")) if text else (), said


def _pronunciation_arrays(said: Pronunciations) -> dict[str, np.ndarray]:
    return {f"pronunciation_{name}": getattr(said, name) for name in _OF_PRONUNCIATIONS}


def _pronunciations_from(arrays: dict[str, np.ndarray]) -> Pronunciations:
    columns = (arrays[f"pronunciation_{name}"] for name in _OF_PRONUNCIATIONS)
    return Pronunciations(*columns)


def fingerprint_of(arrays: dict[str, np.ndarray]) -> str:
    """32 hex digits over the names and bytes of all arrays."""
    digest = hashlib.sha256()  # processors have instructions for it
    for name, array in sorted(arrays.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:32]


def write_arrays(
    path: str | os.PathLike[str], arrays: dict[str, np.ndarray], fingerprint: str
) -> None:
    """Write arrays and a header, whole or not at all.

    Raises:
        FormatError: The file cannot be written.
    """
    _write(path, arrays, {"version": ARCS_VERSION, "fingerprint": fingerprint})


def write_product(
    path: str | os.PathLike[str], arrays: dict[str, np.ndarray], fingerprint: str
) -> None:
    """Write rows of LG, with the fingerprint of T o LG, whole or not at all.

    Raises:
        FormatError: The file cannot be written.
    """
    digest = fingerprint_of(arrays)
    facts = {"version": FORMAT_VERSION, "fingerprint": fingerprint, "digest": digest}
    _write(path, arrays, facts)


def _write(
    path: str | os.PathLike[str], arrays: dict[str, np.ndarray], facts: dict[str, Any]
) -> None:
    header = json.dumps({"format": _FORMAT, **facts})
    parts: dict[str, Any] = {"header": _bytes(header), **arrays}
    with atomic_write(path) as file:
        np.savez(file, **parts)


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a file, and the fingerprint that its header says they have.

    Raises:
        FormatError: The file cannot be read or is no graph of wfstdec.
        GraphError: It is of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except _UNREADABLE as error:
        raise FormatError(
            f"{path}: not a readable graph file ({error}), expected what "
            "`wfstdec build` writes; build it again, or `wfstdec convert` a graph "
            "of another format"
        ) from None
    # A NumPy archive of something else gets as far as here.
    try:
        header = json.loads(arrays["header"].tobytes())
        kind, version, fingerprint = (
            header[key] for key in ("format", "version", "fingerprint")
        )
    except (KeyError, ValueError, TypeError):
        kind = None
    if kind != _FORMAT:
        raise FormatError(
            f"{path}: has no wfstdec graph header, expected what `wfstdec build` writes"
        )
    if version not in (FORMAT_VERSION, *OLDER_VERSIONS):
        raise GraphError(
            f"{path}: graph format version {version!r}, this wfstdec reads version "
            f"{FORMAT_VERSION}; build the graph again"
        )
    digest = header.get("digest")
    del arrays["header"]
    if digest is not None and fingerprint_of(arrays) != digest:
        raise GraphError(
            f"{path}: digest {fingerprint_of(arrays)!r}, the header says {digest!r}: "
            "the file is damaged; build the graph again"
        )
    return arrays, fingerprint


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
