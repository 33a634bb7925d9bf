"""Rows of manifests and results in Parquet for Ray, and their workers.

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

`DecodeRows` and `TranscribeRows` process batches of rows in an actor, with one model
and one decoder. A row with a fault has an `error`, and does not affect the others of
its batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from wfstdec.batch.decoding import (
    BoostLists,
    LatticeReading,
    Summary,
    decode_all,
    reading_and_keeping,
)
from wfstdec.boost.lists import Numbers
from wfstdec.errors import FormatError, WfstdecError, needs
from wfstdec.io.boost_files import boosts_of, dump_boosts
from wfstdec.io.logprobs import checked, open_logprobs, read_matrix_at, scp_entries
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeWriter
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import CONFIDENCES, Hypothesis
from wfstdec.text.files import writing
from wfstdec.transcription.encoding import Recording
from wfstdec.transcription.pieces import COSTS
from wfstdec.transcription.transcriber import Transcriber

if TYPE_CHECKING:
    import pyarrow

ENDINGS = (".parquet", ".tar")
_AT_ONCE = 4096


def are_rows(places: Sequence[str | os.PathLike[str]]) -> bool:
    """Return whether these are Parquet or shards, and not audio or log-prob files."""
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
    """Return the ending of Parquet or shards, also of a folder's; else its own."""
    path = Path(place)
    if path.is_dir():
        found = {one.suffix for one in path.iterdir()} & set(ENDINGS)
        return found.pop() if len(found) == 1 else "a folder"
    return path.suffix if path.suffix in ENDINGS else "other files"


def recording_rows(sources: Iterable[Recording]) -> Iterator[dict[str, Any]]:
    """Yield rows of recordings by `wfstdec.transcription.find_recordings`."""
    for one in sources:
        path = cast(Path, one.audio).absolute()
        row: dict[str, Any] = {"id": one.name, "audio": str(path)}
        if one.start_s or one.duration_s is not None:
            row |= {"offset": one.start_s, "duration": one.duration_s}
        if one.boosts is not None:
            row["boosts"] = dump_boosts(cast(Numbers, one.boosts))
        yield row


def logprob_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return rows of the log-probs in an `.npz`, a folder of `.npy`, or an `.scp`."""
    path = Path(path)
    if path.suffix == ".ark":
        raise FormatError(
            f"{path}: an .ark is read from its beginning, expected its .scp, .npz, a "
            "folder of .npy, or rows (.parquet, .tar)"
        )
    if path.suffix == ".scp":
        return [
            {"id": name, "logprobs": os.path.abspath(target)}
            for name, target in scp_entries(path)
        ]
    place = path.absolute()
    names = [name for name, _ in open_logprobs(path).entries()]
    if path.is_dir():
        return [{"id": one, "logprobs": str(place / f"{one}.npy")} for one in names]
    return [{"id": name, "logprobs": str(place)} for name in names]


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write a manifest as Parquet, atomically."""
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
    """Return the distinct ids of Parquet files; None for shards, which must be read."""
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
            f"{shown}: {len(twice)} ids occur twice, such as {twice[0]!r}, "
            "expected each once"
        )
    return ids


def twice_in(ids: pyarrow.Array) -> list[Any]:
    """Return duplicate ids."""
    import pyarrow as pa
    import pyarrow.compute

    counts = pa.table({"id": ids}).group_by("id").aggregate([("id", "count")])
    return counts.filter(pa.compute.field("id_count") > 1)["id"].to_pylist()


_OF_A_TEXT = ("text", "words", *COSTS, "reached_final")

Row = Mapping[str, Any]


def need_ray() -> None:
    """Raise if Ray Data cannot be imported."""
    with needs("batches on Ray need Ray Data", ": pip install 'ray[data]'"):
        import ray.data  # noqa: F401  # it needs pyarrow


def result_schema() -> pyarrow.Schema:
    """Return the columns of results, which have a row for each of the manifest's."""
    # With an `error`, the other columns are null. `confidence`, `nbest` and `lattice`
    # are null unless requested; `audio_s` is null for log-probs.
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    numbers = [(name, number) for name in ("start_s", "end_s", *CONFIDENCES)]
    word = pa.struct([("word", text), *numbers])
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
    """Return a row of hypotheses, best first, with fields of `Hypothesis.to_dict`."""
    row = {"id": name, **hypotheses[0].to_dict(), "audio_s": audio_s}
    if nbest > 1:
        found = [one.to_dict() for one in hypotheses]
        row["nbest"] = [{name: one[name] for name in _OF_A_TEXT} for one in found]
    return row


def failed_row(name: str, error: Exception) -> dict[str, Any]:
    """Return a row of an error."""
    kind = "" if isinstance(error, WfstdecError) else f"{type(error).__name__}: "
    return {"id": name, "error": f"{kind}{error}"}


def row_boosts(row: Row) -> Numbers | None:
    """Return a row's own boosts; None if it has none."""
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
    """Return the recording of a row, without its boosts."""
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
    # Without an offset, `duration` is that of the whole file.
    part = None if offset is None or duration is None else float(duration)
    return Recording(row["id"], audio, start_s=float(offset or 0.0), duration_s=part)


class RowLogprobs:
    """Reader of the log-probs of rows; keeps the last `.npz` open."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._arrays: Any = None

    def __call__(self, row: Row) -> np.ndarray:
        """Return the log-probs of a row, [T, V]."""
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
    import pyarrow.fs

    try:
        store, path = pyarrow.fs.FileSystem.from_uri(address)
        with store.open_input_stream(path) as stream:
            return stream.read()
    except (OSError, ValueError, NotImplementedError) as error:
        raise FormatError(f"{address}: cannot read: {error}") from error


Keep = Callable[[str, Lattice], Any]
_Given = Mapping[str, Any]
_Own = Mapping[str, Numbers]
_Done = Iterator[tuple[str, dict[str, Any]]]
_Todo = dict[str, tuple[int, Any, Numbers | None]]
"""Rows by id: index in the batch, content, and own boosts."""


class RowWorker(ABC):
    """Worker from rows of a manifest to rows of results: a class for `map_batches`."""

    def __init__(self, *, nbest: int = 1, keep: str | Path | None = None) -> None:
        self._nbest, self._folder = nbest, None if keep is None else Path(keep)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Process a batch of rows; results are in their order."""
        import pyarrow as pa

        rows = batch.to_pylist()
        names = [row.get("id") for row in rows]
        # Every row gets a result or an error: rows of a batch must not fail together.
        done: list[dict[str, Any] | None] = [None] * len(rows)
        todo: _Todo = {}
        for i, (name, row) in enumerate(zip(names, rows, strict=True)):
            try:
                if not isinstance(name, str) or not name:
                    raise FormatError(
                        f"found {name!r} as the row's id, expected a text"
                    )
                if isinstance(row.get("error"), str):  # it could not be read
                    raise FormatError(row["error"])
                if name in todo:
                    raise FormatError("the id occurs twice")
                todo[name] = i, self._read(row), row_boosts(row)
            except Exception as error:
                done[i] = failed_row("" if name is None else str(name), error)
        with self._kept(names) as (keep, path):
            for name, found in self._each(todo, keep):
                if "error" not in found and keep is not None:
                    found["lattice"] = path
                done[todo[name][0]] = found
        return pa.Table.from_pylist(done, result_schema())

    @abstractmethod
    def _read(self, row: Row) -> Any:
        """Read the contents of a row."""

    @abstractmethod
    def _work(self, given: _Given, own: _Own, keep: Keep | None) -> _Done:
        """Yield the result of each row, in any order; errors may be of any row."""

    def _each(self, todo: _Todo, keep: Keep | None) -> _Done:
        """Yield the result of every row; others may fail."""
        left = dict(todo)
        given = {name: read for name, (_, read, _) in todo.items()}
        own = {name: one for name, (*_, one) in todo.items() if one is not None}
        try:
            for name, found in self._work(given, own, keep):
                del left[name]
                yield name, found
        except Exception as error:
            # The error names no row: a fault of the code, the model, or the machine.
            # Retried alone, each row fails as in any batch.
            for name, one in left.items():
                if len(todo) > 1:
                    yield from self._each({name: one}, keep)
                else:
                    yield name, failed_row(name, error)

    @contextlib.contextmanager
    def _kept(self, names: Sequence[Any]) -> Iterator[tuple[Keep | None, str]]:
        """Open the lattices of a batch; a repeated batch has the same file."""
        if self._folder is None:
            yield None, ""
            return
        text = "\n".join(map(str, names))
        name = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.lat"
        written: set[str] = set()
        with LatticeWriter(path) as write:

            def keep(name: str, lattice: Lattice) -> None:
                if name not in written:  # a row that is retried alone
                    write(name, lattice)
                    written.add(name)

            yield keep, str(path)


class DecodeRows(RowWorker):
    """Worker from log-probs of rows to results, for `map_batches`.

    Args:
        decoder: A decoder, or a function that returns one, which every actor calls
            once.
        boosts: Boosts of rows without their own; or a function that returns them for
            the decoder.
        nbest: Number of hypotheses in the decoder's options.
        lattices: Function from lattices to hypotheses.
        keep: A folder for lattices; needs `lattices`.
    """

    def __init__(
        self,
        decoder: Decoder | Callable[[], Decoder],
        boosts: BoostLists | Callable[[Decoder], BoostLists] | None = None,
        *,
        nbest: int = 1,
        lattices: LatticeReading | None = None,
        keep: str | Path | None = None,
    ) -> None:
        super().__init__(nbest=nbest, keep=keep)
        self._decoder = decoder if isinstance(decoder, Decoder) else decoder()
        self._boosts = _lists(boosts, self._decoder)
        self._lattices = lattices
        self._logprobs = RowLogprobs()

    def _read(self, row: Row) -> Any:
        return self._logprobs(row)

    def _work(self, given: _Given, own: _Own, keep: Keep | None) -> _Done:
        tally = _Tally(self._decoder.input_frame_shift_s)
        for name, hypotheses in decode_all(
            self._decoder,
            given.items(),
            lambda name: self._boosts.of(name, own.get(name)),
            nbest=self._nbest > 1,
            lattices=reading_and_keeping(self._lattices, keep),
            summary=tally,
        ):
            yield name, result_row(name, hypotheses, nbest=self._nbest)
        for error in tally.failures:
            name, error.utterance = str(error.utterance), None
            yield name, failed_row(name, error)


class TranscribeRows(RowWorker):
    """Worker from audio of rows to results, for `map_batches`.

    Args:
        transcriber: A function that returns one, which every actor calls once, or a
            transcriber, if its model can be pickled; its `nbest` and `lattices` apply
            here.
        boosts: As in `DecodeRows`.
        nbest: As in `DecodeRows`.
        keep: Folder for lattices, if the transcriber reads any.
    """

    def __init__(
        self,
        transcriber: Transcriber | Callable[[], Transcriber],
        boosts: BoostLists | Callable[[Decoder], BoostLists] | None = None,
        *,
        nbest: int = 1,
        keep: str | Path | None = None,
    ) -> None:
        super().__init__(nbest=nbest, keep=keep)
        if not isinstance(transcriber, Transcriber):
            transcriber = transcriber()
        self._transcriber = transcriber
        self._boosts = _lists(boosts, self._transcriber.decoder)

    def _read(self, row: Row) -> Any:
        return row_recording(row)

    def _work(self, given: _Given, own: _Own, keep: Keep | None) -> _Done:
        self._transcriber.keep = keep
        recordings = (
            one._replace(boosts=self._boosts.of(name, own.get(name)))
            for name, one in given.items()
        )
        for found in self._transcriber.run(recordings):
            if found.error is not None:
                yield found.name, failed_row(found.name, found.error)
                continue
            name, nbest, audio_s = found.name, self._nbest, found.audio_s
            hypotheses = found.hypotheses(nbest)
            yield name, result_row(name, hypotheses, nbest=nbest, audio_s=audio_s)


class _Tally(Summary):
    """Counts of a batch in which all rows may fail: the job raises."""

    def check(self, *, at_end: bool = False) -> None:
        """Neither log nor raise."""


def _lists(
    given: BoostLists | Callable[[Decoder], BoostLists] | None, decoder: Decoder
) -> BoostLists:
    if given is None:
        return BoostLists()
    return given if isinstance(given, BoostLists) else given(decoder)
