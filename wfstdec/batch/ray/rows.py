"""Rows of a job: what those of a manifest say, and what results are as Parquet.

    {"id": "call-1", "audio": "calls/1.mp3", "boosts": '{"bartley": 4.0}'}     in
    {"id": "call-1", "text": "...", "words": [...], ..., "error": None}       out

`id` names a row, once in a manifest. `audio` is a path, an address such as
`s3://bucket/1.mp3`, the bytes of a file, or `{"bytes": ..., "path": ...}` as datasets
of Hugging Face have it; with `offset` and `duration` it is a part of that. `logprobs`
is a `.npy`, an `.npz` with the row's id, an `ark:offset`, bytes of a `.npy`, or an
array [T, V]. `boosts` are words, or word to bonus: JSON, a list, or a map.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wfstdec.boost.lists import Numbers
from wfstdec.errors import FormatError, WfstdecError, needs
from wfstdec.io.boost_files import boosts_of
from wfstdec.io.kaldi import read_matrix_at
from wfstdec.io.logprobs import checked
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.transcription.encoding import Recording
from wfstdec.transcription.joining import COSTS

if TYPE_CHECKING:
    import pyarrow

_OF_A_TEXT = ("text", "words", *COSTS, "reached_final")

Row = Mapping[str, Any]


def need_ray() -> None:
    """Raise where Ray Data cannot be imported.

    Raises:
        BackendError: It is not installed.
    """
    with needs("batches on Ray need Ray Data", ": pip install 'ray[data]'"):
        import ray.data  # noqa: F401  # it needs pyarrow


def result_schema() -> pyarrow.Schema:
    """Columns of results, one row for each of the manifest's.

    Where there is an `error`, the others are null. `confidence`, `nbest` and `lattice`
    are null unless asked for; `audio_s` is null where log-probs were given.
    """
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    word = pa.struct(
        [("word", text), ("start_s", number), ("end_s", number), ("confidence", number)]
    )
    said: list[tuple[str, Any]] = [("text", text), ("words", pa.list_(word))]
    said += [(name, number) for name in COSTS]
    said += [("reached_final", pa.bool_())]
    return pa.schema(
        [
            ("id", text),
            *said,
            ("num_frames", pa.int64()),
            ("died_at_frame", pa.int64()),
            ("audio_s", number),
            ("nbest", pa.list_(pa.struct(said))),
            ("lattice", text),
            ("error", text),
        ]
    )


def result_row(
    name: str,
    hypotheses: Sequence[Hypothesis],
    *,
    nbest: int = 1,
    lattice: str | None = None,
    audio_s: float | None = None,
) -> dict[str, Any]:
    """Make a row of hypotheses, best first; fields as `Hypothesis.to_dict` has them.

    Args:
        name: The id.
        hypotheses: One or more.
        nbest: How many were asked for; the list of more than one is `nbest`.
        lattice: The file where the lattice is.
        audio_s: Seconds of audio.
    """
    row = {"id": name, **hypotheses[0].to_dict()}
    row |= {"lattice": lattice, "audio_s": audio_s}
    if nbest > 1:
        found = [one.to_dict() for one in hypotheses]
        row["nbest"] = [{name: one[name] for name in _OF_A_TEXT} for one in found]
    return row


def failed_row(name: str, error: Exception | str) -> dict[str, Any]:
    """Make a row of what went wrong."""
    if isinstance(error, WfstdecError):
        return {"id": name, "error": str(error)}
    kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
    return {"id": name, "error": f"{kind}{error}"}


def row_boosts(row: Row) -> Numbers | None:
    """Read a row's own boosts; None where it has none.

    Raises:
        BoostError: They are malformed.
    """
    given = row.get("boosts")
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise FormatError(f"boosts {given!r}, expected JSON ({error})") from None
    elif isinstance(given, dict):  # columns of a struct: other rows' words are None
        given = {word: one for word, one in given.items() if one is not None}
    elif given and all(isinstance(one, tuple) for one in given):  # a map
        given = dict(given)
    return boosts_of(given)


def row_recording(row: Row) -> Recording:
    """Make a recording of a row, without its boosts.

    Raises:
        FormatError: The row has no audio, or what it names cannot be read.
    """
    audio = row.get("audio")
    if audio is None:
        audio = row.get("audio_filepath")
    if isinstance(audio, dict):
        held = audio.get("bytes")
        audio = held if held is not None else audio.get("path")
    if not isinstance(audio, str | bytes):
        raise FormatError(
            f"found {type(audio).__name__} as the row's audio, expected a path or bytes"
        )
    if isinstance(audio, str) and "://" in audio:
        audio = _fetched(audio)
    offset, duration = row.get("offset"), row.get("duration")
    # Without an offset, `duration` is that of the file: what is there counts.
    part = None if offset is None or duration is None else float(duration)
    return Recording(row["id"], audio, start_s=float(offset or 0.0), duration_s=part)


class RowLogprobs:
    """Reads the log-probs of rows; keeps the last `.npz` open."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._arrays: Any = None

    def __call__(self, row: Row) -> np.ndarray:
        """The log-probs of a row, [T, V].

        Raises:
            FormatError: It has none, or they cannot be read.
            ShapeError: They have not two axes.
        """
        return checked(partial(self._read, row), "logprobs")

    def _read(self, row: Row) -> np.ndarray:
        given = row.get("logprobs")
        if isinstance(given, str) and "://" in given and given.endswith(".npy"):
            given = _fetched(given)
        try:
            if isinstance(given, bytes):
                return np.load(io.BytesIO(given), allow_pickle=False)
            if isinstance(given, str) and given.endswith(".npy"):
                return np.load(given, allow_pickle=False)
            if isinstance(given, str) and given.endswith(".npz"):
                if given != self._path:
                    self._arrays = np.load(given, allow_pickle=False)
                    self._path = given
                return self._arrays[row["id"]]
            if isinstance(given, str):
                return read_matrix_at(given)
            if isinstance(given, list | np.ndarray):
                return np.array(given, np.float32)
        except (OSError, ValueError, EOFError, KeyError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"log-probs cannot be read: {error}") from error
        raise FormatError(
            f"found {type(given).__name__} as the row's logprobs, expected a path, "
            "bytes or an array"
        )


def _fetched(address: str) -> bytes:
    """Read the bytes behind an address of a store, as pyarrow knows them."""
    import pyarrow.fs

    try:
        store, path = pyarrow.fs.FileSystem.from_uri(address)
        with store.open_input_stream(path) as stream:
            return stream.read()
    except (OSError, ValueError, NotImplementedError) as error:
        raise FormatError(f"{address}: cannot read: {error}") from error
