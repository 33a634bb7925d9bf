"""File format of packed graphs: arrays by name in an `.npz`, and a header.

    write_arrays(path, arrays)
    arrays, fingerprint = read_arrays(path)
    vocabulary, info = tables_from(arrays)        # the inverse of `table_arrays`

Texts are arrays of UTF-8 bytes; the header is JSON: format, version, fingerprint.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, GraphError
from wfstdec.graph.arcs import GraphInfo, OovExits
from wfstdec.text.files import PathLike, atomic_write, fingerprint_of, reading
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import OpenWord, Pronunciations, Vocabulary

FORMAT_VERSION = 5
ARCS_VERSION = 4  # Of graphs stored arc by arc
_FORMAT = "wfstdec.graph"
_OF_PRONUNCIATIONS = ("word", "splits", "tokens", "cost")
READABLE = (
    "graph file",
    "what `wfstdec build` writes; build it again, or `wfstdec convert` a graph of "
    "another format",
)
_META = {
    "blank": int,
    "fillers": list,
    "separated": bool,
    "topology": str,
    "marks_repeats": bool,
}


def table_arrays(vocabulary: Vocabulary, info: GraphInfo) -> dict[str, np.ndarray]:
    """Return the arrays of a graph file for a vocabulary and facts, by name."""
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
    # Graphs from elsewhere lack these; so does a file without this array.
    known = {"word_cost": info.word_cost} if len(info.word_cost) else {}
    return known | {
        "tokens": _bytes(json.dumps(vocabulary.tokens.names)),
        **_word_arrays(vocabulary.words, vocabulary.pronunciations),
        "meta": _bytes(json.dumps(meta, sort_keys=True)),
    }


def tables_from(arrays: dict[str, np.ndarray]) -> tuple[Vocabulary, GraphInfo]:
    """Read the vocabulary and the facts of a file; only types are checked."""
    meta = json.loads(arrays["meta"].tobytes())
    names = json.loads(arrays["tokens"].tobytes())
    for name, kind in _META.items():
        if type(meta[name]) is not kind:
            raise GraphError(f"{name} is {meta[name]!r}, expected {kind.__name__}")
    if {*map(type, meta["fillers"])} > {int} or {*map(type, names)} != {str}:
        raise GraphError("fillers or tokens of other types, expected integers, names")
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
    """Return the arrays of an utterance's OOV words."""
    assert vocabulary.oov is not None
    own, prons = vocabulary.oov
    return _word_arrays(vocabulary.words[len(own.words) :], prons)


def oov_from(arrays: dict[str, np.ndarray]) -> tuple[tuple[str, ...], Pronunciations]:
    """Read words and pronunciations of `oov_arrays`, unchecked."""
    text, prons = arrays["words"].tobytes().decode(), _pronunciations_from(arrays)
    lengths = len(prons.splits) - 1, prons.splits[-1]
    if lengths != (len(prons.word), len(prons.tokens)):
        raise ValueError("pronunciations and their tokens differ in number")
    return tuple(text.split("\n")) if text else (), prons


def _word_arrays(words: Sequence[str], prons: Pronunciations) -> dict[str, np.ndarray]:
    columns = {f"pronunciation_{x}": getattr(prons, x) for x in _OF_PRONUNCIATIONS}
    return {"words": _bytes("\n".join(words)), **columns}


def _pronunciations_from(arrays: dict[str, np.ndarray]) -> Pronunciations:
    columns = (arrays[f"pronunciation_{name}"] for name in _OF_PRONUNCIATIONS)
    return Pronunciations(*columns)


_OF_EXITS = {f"call_{name}": name for name in ("state", "last", "cost")}
_OF_EXITS["call_returns"] = "return_state"
"""Fields of `OovExits` by their names in files."""


def exit_arrays(exits: OovExits | None) -> dict[str, np.ndarray]:
    """Return arrays of the OOV exits by name; none without exits."""
    if exits is None:
        return {}
    arrays = {name: getattr(exits, of) for name, of in _OF_EXITS.items()}
    return arrays | {"call_word_cost": np.array([exits.word_cost])}


def exits_from(arrays: dict[str, np.ndarray]) -> OovExits | None:
    """Read the OOV exits of a file, unchecked; None without any."""
    if "call_state" not in arrays:
        return None
    columns = {of: arrays[name] for name, of in _OF_EXITS.items()}
    return OovExits(**columns, word_cost=float(arrays["call_word_cost"][0]))


def write_arrays(
    path: PathLike, arrays: dict[str, np.ndarray], fingerprint: str
) -> None:
    """Write arrays and a header atomically."""
    header: dict[str, Any] = {"format": _FORMAT, "version": ARCS_VERSION}
    header |= {"fingerprint": fingerprint}
    if "lg_arcs" in arrays:  # the fingerprint is that of T o LG
        header |= {"version": FORMAT_VERSION, "digest": fingerprint_of(arrays)}
    parts: dict[str, Any] = {"header": _bytes(json.dumps(header)), **arrays}
    with atomic_write(path) as file:
        np.savez(file, **parts)


def read_arrays(path: PathLike) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays of a file, and the fingerprint in its header."""
    with reading(path, *READABLE), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
        # Reached by NumPy archives of other kinds.
        header = json.loads(arrays.pop("header").tobytes())
        version, fingerprint = header["version"], header["fingerprint"]
        if header["format"] != _FORMAT:
            raise FormatError(
                "has no wfstdec graph header, expected what `wfstdec build` writes"
            )
    if version not in (FORMAT_VERSION, ARCS_VERSION):
        raise GraphError(
            f"{path}: graph format version {version!r}, this wfstdec reads version "
            f"{FORMAT_VERSION}; build the graph again"
        )
    digest = header.get("digest")
    if digest is not None and fingerprint_of(arrays) != digest:
        raise GraphError(f"{path}: the file is damaged; build the graph again")
    return arrays, fingerprint


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
