"""Rows of a manifest and of results, as Parquet that Ray reads.

    {"id": "call-1", "audio": "calls/1.mp3", "boosts": '{"bartley": 4.0}'}     in
    {"id": "call-1", "text": "...", "words": [...], ..., "error": None}       out

    rows = recording_rows(find_recordings(["calls/"]))    # or logprob_rows("x.npz")
    write_rows(rows, "manifest.parquet")
    ids = ids_of(["manifest.parquet"])                    # each once, or an error

`id` names a row, once in a manifest. `audio` is a path, an address such as
`s3://bucket/1.mp3`, the bytes of a file, or `{"bytes": ..., "path": ...}` as in
datasets of Hugging Face; `offset` and `duration` select a part. `logprobs` is a `.npy`,
an `.npz` with the row's id, an `ark:offset`, bytes of a `.npy`, or an array [T, V].
`boosts` are words, or word to bonus: JSON, a list, or a map.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from wfstdec.boost.lists import Numbers
from wfstdec.errors import FormatError, WfstdecError, needs
from wfstdec.io.boost_files import boosts_of, dump_boosts
from wfstdec.io.logprobs import checked, open_logprobs, read_matrix_at, scp_entries
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.files import writing
from wfstdec.transcription.encoding import Recording
from wfstdec.transcription.pieces import COSTS

if TYPE_CHECKING:
    import pyarrow

ENDINGS = (".parquet", ".tar")
_AT_ONCE = 4096


def are_rows(places: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether these are Parquet or shards, and no audio or log-prob files."""
    kinds = {kind_of(place) for place in places}
    if not kinds & set(ENDINGS):
        return False
    if len(kinds) > 1:
        raise FormatError(
            f"found {' and '.join(sorted(kinds))} together, expected .parquet alone, "
            ".tar alone, or neither"
        )
    return True


def kind_of(place: str | os.PathLike[str]) -> str:
    """The ending of Parquet or shards, also of those in a folder; else what it is."""
    path = Path(place)
    if path.is_dir():
        found = {one.suffix for one in path.iterdir()} & set(ENDINGS)
        return found.pop() if len(found) == 1 else "a folder"
    return path.suffix if path.suffix in ENDINGS else "other files"


def recording_rows(sources: Iterable[Recording]) -> Iterator[dict[str, Any]]:
    """Rows of recordings, as `wfstdec.transcription.find_recordings` finds them."""
    for one in sources:
        path = cast(Path, one.audio).absolute()
        row: dict[str, Any] = {"id": one.name, "audio": str(path)}
        if one.start_s or one.duration_s is not None:
            row |= {"offset": one.start_s, "duration": one.duration_s}
        if one.boosts is not None:
            row["boosts"] = dump_boosts(cast(Numbers, one.boosts))
        yield row


def logprob_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Rows that name the log-probs of an `.npz`, a folder of `.npy`, or an `.scp`."""
    path = Path(path)
    if path.suffix == ".ark":
        raise FormatError(
            f"{path}: an .ark is read from its beginning, expected its .scp, .npz, a "
            "folder of .npy, or rows (.parquet, .tar)"
        )
    if path.suffix == ".scp":
        return [
            {"id": name, "logprobs": f"{ark.absolute()}:{offset}"}
            for name, ark, offset in scp_entries(path)
        ]
    place = path.absolute()
    names = [name for name, _ in open_logprobs(path).entries()]
    if path.is_dir():
        return [{"id": one, "logprobs": str(place / f"{one}.npy")} for one in names]
    return [{"id": name, "logprobs": str(place)} for name in names]


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write a manifest as Parquet; it appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet

    texts = [(name, pa.string()) for name in ("id", "audio", "logprobs", "boosts")]
    seconds = [(name, pa.float64()) for name in ("offset", "duration")]
    schema = pa.schema([*texts, *seconds])
    left, made = iter(rows), path.with_name(path.name + ".partial")
    with writing(path):
        with pa.parquet.ParquetWriter(made, schema) as writer:
            while some := list(islice(left, _AT_ONCE)):
                writer.write_table(pa.Table.from_pylist(some, schema))
        os.replace(made, path)


def ids_of(places: Sequence[str | os.PathLike[str]]) -> pyarrow.Array | None:
    """The ids of Parquet files, each once; None for shards: only reading would tell."""
    import pyarrow as pa
    import pyarrow.dataset

    if kind_of(places[0]) != ".parquet":
        return None
    shown = ", ".join(map(str, places[:3]))
    try:
        sets = [pa.dataset.dataset(str(one), format="parquet") for one in places]
        for one in sets:
            if "id" not in one.schema.names:
                columns = ", ".join(one.schema.names)
                raise FormatError(f"{shown}: columns {columns}, expected one named id")
        tables = [one.to_table(columns=["id"]) for one in sets]
        ids = pa.concat_tables(tables)["id"].combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"{shown}: not readable as Parquet ({error})") from error
    twice = twice_in(ids)
    if twice:
        raise FormatError(
            f"{shown}: {len(twice)} ids stand there twice, such as {twice[0]!r}, "
            "expected each once"
        )
    return ids


def twice_in(ids: pyarrow.Array) -> list[Any]:
    """The ids that are there more than once."""
    import pyarrow as pa
    import pyarrow.compute

    counts = pa.table({"id": ids}).group_by("id").aggregate([("id", "count")])
    return counts.filter(pa.compute.field("id_count") > 1)["id"].to_pylist()


_OF_A_TEXT = ("text", "words", *COSTS, "reached_final")

Row = Mapping[str, Any]


def need_ray() -> None:
    """Raise where Ray Data cannot be imported."""
    with needs("batches on Ray need Ray Data", ": pip install 'ray[data]'"):
        import ray.data  # noqa: F401  # it needs pyarrow


def result_schema() -> pyarrow.Schema:
    """Columns of results, one row for each of the manifest's."""
    # Where there is an `error`, the others are null. `confidence`, `nbest` and
    # `lattice` are null unless asked for; `audio_s` is null where log-probs were given.
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    word = pa.struct(
        [("word", text), ("start_s", number), ("end_s", number), ("confidence", number)]
    )
    hypothesis: list[tuple[str, Any]] = [("text", text), ("words", pa.list_(word))]
    hypothesis += [(name, number) for name in COSTS]
    hypothesis += [("reached_final", pa.bool_())]
    nbest = pa.list_(pa.struct(hypothesis))
    counts = [(name, pa.int64()) for name in ("num_frames", "died_at_frame")]
    others = [("audio_s", number), ("nbest", nbest), ("lattice", text), ("error", text)]
    return pa.schema([("id", text), *hypothesis, *counts, *others])


def result_row(
    name: str,
    hypotheses: Sequence[Hypothesis],
    *,
    nbest: int = 1,
    audio_s: float | None = None,
) -> dict[str, Any]:
    """Make a row of hypotheses, best first; fields as `Hypothesis.to_dict` has them."""
    row = {"id": name, **hypotheses[0].to_dict(), "audio_s": audio_s}
    if nbest > 1:
        found = [one.to_dict() for one in hypotheses]
        row["nbest"] = [{name: one[name] for name in _OF_A_TEXT} for one in found]
    return row


def failed_row(name: str, error: Exception) -> dict[str, Any]:
    """Make a row of what went wrong."""
    kind = "" if isinstance(error, WfstdecError) else f"{type(error).__name__}: "
    return {"id": name, "error": f"{kind}{error}"}


def row_boosts(row: Row) -> Numbers | None:
    """Read a row's own boosts; None where it has none."""
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
    """Make a recording of a row, without its boosts."""
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
        """The log-probs of a row, [T, V]."""
        return checked(partial(self._read, row), "logprobs")

    def _read(self, row: Row) -> np.ndarray:
        given = row.get("logprobs")
        if isinstance(given, str) and "://" in given and given.endswith(".npy"):
            given = _fetched(given)
        try:
            if isinstance(given, list | np.ndarray):
                return np.array(given, np.float32)
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
