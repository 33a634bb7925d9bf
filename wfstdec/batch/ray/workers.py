"""Work of an actor on the rows of a batch: one model, one decoder, made once.

A row with a fault gets an `error`, and the others of its batch are what they are
without it.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wfstdec.batch.decoding import BoostLists, Summary, decode_all, reading_and_keeping
from wfstdec.batch.lattices import LatticeReading
from wfstdec.batch.ray.rows import (
    Row,
    RowLogprobs,
    failed_row,
    result_row,
    result_schema,
    row_boosts,
    row_recording,
)
from wfstdec.boost.lists import Numbers
from wfstdec.errors import FormatError
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeWriter
from wfstdec.search.decoder import Decoder
from wfstdec.transcription.transcriber import Transcriber

if TYPE_CHECKING:
    import pyarrow

Keep = Callable[[str, Lattice], Any]
_Given = Mapping[str, Any]
_Own = Mapping[str, Numbers]
_Done = Iterator[tuple[str, dict[str, Any]]]
_Todo = dict[str, tuple[int, Any, Numbers | None]]
"""Rows by id: the place in the batch, what was read, and boosts of its own."""


class RowWorker(ABC):
    """Rows of a manifest to rows of results: a class for `map_batches`."""

    def __init__(self, *, nbest: int = 1, keep: str | Path | None = None) -> None:
        self._nbest, self._folder = nbest, None if keep is None else Path(keep)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Work on a batch of rows; its results are in their order."""
        import pyarrow as pa

        rows = batch.to_pylist()
        names = [row.get("id") for row in rows]
        # Every row gets an answer, if only an error: rows of a batch must not fail
        # together.
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
                    raise FormatError("the id stands there twice")
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
            # Not one that names its row: a fault of ours, of a model, of the machine.
            # Each row is asked alone; it fails as it would in any company.
            for name, one in left.items():
                if len(todo) > 1:
                    yield from self._each({name: one}, keep)
                else:
                    yield name, failed_row(name, error)

    @contextlib.contextmanager
    def _kept(self, names: Sequence[Any]) -> Iterator[tuple[Keep | None, str]]:
        """Open the lattices of a batch; the same batch once more has the same file."""
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
                if name not in written:  # a row that is asked once more, alone
                    write(name, lattice)
                    written.add(name)

            yield keep, str(path)


class DecodeRows(RowWorker):
    """Log-probs of rows to results; a class for `map_batches`.

    Args:
        decoder: A decoder, or a function that makes one, which every actor calls once.
        boosts: For rows without their own; or a function that makes them for the
            decoder.
        nbest: How many hypotheses the decoder's options ask for.
        lattices: Makes hypotheses of lattices, such as confidences.
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
    """Audio of rows to results; a class for `map_batches`.

    Args:
        transcriber: A function that makes one, which every actor calls once, or a
            transcriber, if its model can be pickled; with `nbest` and `lattices` as
            they are wanted here.
        boosts: As of `DecodeRows`, as is `nbest`.
        nbest: How many hypotheses the decoder's options ask for.
        keep: A folder for lattices, if the transcriber reads any.
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
    """Counts of a batch in which all rows may fail: the job decides then."""

    def check(self, *, at_end: bool = False) -> None:
        """Log nothing, and raise nothing."""


def _lists(
    given: BoostLists | Callable[[Decoder], BoostLists] | None, decoder: Decoder
) -> BoostLists:
    if given is None:
        return BoostLists()
    return given if isinstance(given, BoostLists) else given(decoder)
