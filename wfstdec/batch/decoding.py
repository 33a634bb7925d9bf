"""Decode many utterances, batch by batch: from pairs, or from a file to a file."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
from numba.core.event import Event, Listener, register
from tqdm import tqdm

from wfstdec.batch.boost_lists import BoostLists, told_apart, warn_of_unused
from wfstdec.batch.summary import Summary
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import BoostError, InputError
from wfstdec.io.journal import Restart
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeWriter
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.files import digest

BATCH_UTTERANCES = 64
BATCH_BYTES = 2**26
_WARMING = 8

Batch = list[tuple[str, np.ndarray]]
Fail = Callable[[InputError], None]
ReadLattice = Callable[[str, Lattice], list[Hypothesis]]


def decode_file(
    decoder: Decoder,
    logprobs: str | os.PathLike[str] | LogprobReader,
    output: str | os.PathLike[str] | None = None,
    *,
    boosts: BoostLists | BoostsLike = None,
    format: str | None = None,
    nbest: int = 1,
    subtitles: SubtitleOptions | None = None,
    lattices: ReadLattice | None = None,
    keep: LatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> Summary:
    """Decode all utterances of a file, and write what was found in its order.

    An utterance with a fault is left out of the results and named in the log and in the
    summary. What is done before an error, or Ctrl-C, stays beside the file, where a
    later run goes on from there with `Restart(resume=True)`.

    Args:
        decoder: Any of our decoders.
        logprobs: An `.npz`, `.ark`, `.scp`, or a folder of `.npy`, as
            `wfstdec.io.open_logprobs` takes them; or what that gives.
        output: The file to write, or the folder, see `wfstdec.io.open_results`; None
            is standard output.
        boosts: By utterance, or the same for all, as `Decoder.decode` takes them.
        format: One of `wfstdec.io.FORMATS`; None goes by the ending of `output`.
        nbest: How many hypotheses the decoder's options ask for; more than 1 needs a
            decoder with n-best lists, and `"jsonl"`.
        subtitles: How words are cut into subtitles.
        lattices: Makes hypotheses of the lattice of each utterance, such as a
            `LatticeReading`; None asks for no lattices.
        keep: Keeps the lattice of each utterance; needs `lattices`.
        strict: The first utterance with a fault ends the run.
        restart: What becomes of the work of an earlier run that was stopped.
        progress: Show a progress bar, where standard error is a terminal.

    Raises:
        OptionError: No such format, or several hypotheses where that cannot be; there
            is work of an earlier run, see `wfstdec.io.Restart`.
        FormatError: A file cannot be read or written.
        ShapeError, LogprobError, BoostError: Log-probs or boosts do not fit, and
            `strict`, or so with all utterances; the error has the `utterance`.

    Warns:
        BoostWarning: Boosts of utterances that the file does not have.
    """
    format = format_named(format, output)
    write = result_writer(format, nbest=nbest, subtitles=subtitles)
    if not isinstance(logprobs, LogprobReader):
        logprobs = open_logprobs(logprobs)
    summary = Summary(decoder.input_frame_shift_s)
    settings = {
        "logprobs": digest(logprobs.path),
        "decoder": type(decoder).__name__,
        **fields_of(decoder.options),
        **fields_of(subtitles),
        **fields_of(lattices),
        **{"format": format, "nbest": nbest},
    }
    if restart is None or not restart.settings:  # or it says where boosts are from
        settings["boosts"] = told_apart(boosts)
    with open_results(
        *(output, format, write, logprobs.num_utterances),
        beside=keep,
        restart=restart,
        settings=settings,
    ) as results:
        known = summary.go_on(results)
        found = decode_all(
            decoder,
            logprobs.without(known),
            boosts,
            nbest=nbest > 1,
            lattices=reading_and_keeping(lattices, keep),
            summary=summary,
            strict=strict,
            progress=progress and not results.on_terminal,
        )
        for utterance, hypotheses in found:
            results.put(utterance, hypotheses)
    if isinstance(boosts, BoostLists):
        warn_of_unused([u for u in boosts.unused if u not in known], logprobs)
    return summary


def decode_all(
    decoder: Decoder,
    logprobs: Iterable[tuple[str, np.ndarray]],
    boosts: BoostLists | BoostsLike = None,
    *,
    nbest: bool = False,
    lattices: ReadLattice | None = None,
    summary: Summary | None = None,
    strict: bool = False,
    progress: bool = False,
) -> Iterator[tuple[str, list[Hypothesis]]]:
    """Decode utterances as they are read, a batch at a time.

    Args:
        decoder: Any of our decoders.
        logprobs: Pairs of an utterance id and its log-probs, [T, V], such as
            `wfstdec.io.open_logprobs` gives.
        boosts: By utterance, or the same for all, as `Decoder.decode` takes them.
        nbest: As many hypotheses as the decoder's options ask for, instead of the best.
        lattices: As in `decode_file`.
        summary: Counts what is decoded; its `failures` are the errors of utterances
            that are left out, which the log names.
        strict: Such an error is raised.
        progress: Show a progress bar, where standard error is a terminal.

    Yields:
        Each utterance and its hypotheses, best first.

    Raises:
        OptionError: `nbest` of a decoder that has no n-best lists.
        ShapeError, LogprobError, BoostError: Log-probs or boosts do not fit, and
            `strict`, or so with all utterances; the error has the `utterance`, and the
            `path` of log-probs that have one.
    """
    total = getattr(logprobs, "num_utterances", None)
    path = getattr(logprobs, "path", None)
    summary = summary or Summary(decoder.input_frame_shift_s)
    search = _Search(decoder, boosts, nbest, lattices is not None)

    def fail(error: InputError) -> None:
        if path is not None and not isinstance(error, BoostError):
            error.path = str(path)
        summary.fail(error, strict=strict)

    with tqdm(
        total=total, disable=None if progress else True, unit=" utterances"
    ) as bar:
        pairs = decoder.looked_at(readable(logprobs, fail))
        for number, batch in enumerate(batches(pairs)):
            if number == 0:
                search.warm_up(batch)
            size = len(batch)
            with _compiling.left_out(summary):
                found = search.leaving_out(batch, fail)
            # One at a time: what reads a lattice may keep it beside the results.
            for (utterance, array), hypotheses in zip(batch, found, strict=True):
                if lattices is not None:
                    with _compiling.left_out(summary):
                        try:
                            hypotheses = lattices(utterance, hypotheses)
                        except InputError as error:
                            error.utterance = utterance
                            fail(error)
                            continue
                if hypotheses:
                    summary.add(utterance, len(array), hypotheses)
                    summary.check()
                    yield utterance, hypotheses
            summary.check()
            bar.update(size)
    summary.check(at_end=True)


def readable(
    logprobs: Iterable[tuple[str, np.ndarray]], fail: Fail
) -> Iterator[tuple[str, np.ndarray]]:
    """Read log-probs; those that cannot be read are left out.

    Args:
        logprobs: Pairs of an utterance id and its log-probs, or a `LogprobReader`.
        fail: Is told what is wrong with an utterance.
    """
    if not isinstance(logprobs, LogprobReader):
        yield from logprobs
        return
    for utterance, load in logprobs.entries():
        try:
            array = load()
        except InputError as error:
            error.utterance = utterance
            fail(error)
        else:
            yield utterance, array


def fields_of(options: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; of anything else nothing."""
    if not is_dataclass(options):
        return {}
    return {one.name: getattr(options, one.name) for one in fields(options)}


class _Compiling(Listener):
    """Seconds that numba has compiled, one kernel with its parts at a time."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0
        register("numba:compile", self)

    def on_start(self, event: Event) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter()

    def on_end(self, event: Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began

    @contextmanager
    def left_out(self, summary: Summary) -> Iterator[None]:
        """Count the seconds of the decoder in what is done meanwhile."""
        compiled, began = self.seconds, time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began - (self.seconds - compiled)
            summary.decode_s += max(0.0, seconds)


_compiling = _Compiling()


class _Search(NamedTuple):
    """A decoder, and what is asked of it: hypotheses of each utterance, or lattices."""

    decoder: Decoder
    boosts: BoostLists | BoostsLike
    nbest: bool
    record: bool

    def __call__(self, batch: Batch) -> list[Any]:
        given: Any = self.boosts
        if isinstance(given, BoostLists):
            given = [given.of(utterance) for utterance, _ in batch]
        logprobs = [array for _, array in batch]
        return search_all(self.decoder, logprobs, given, self.nbest, self.record)

    def warm_up(self, batch: Batch) -> None:
        """Load or compile the kernels of a run: a frame of a few of its utterances.

        What is wrong with them is said when they are decoded; what is wrong with
        phrases, when their lists are compiled, which happens once.
        """
        frames = [(utterance, array[:1]) for utterance, array in batch[:_WARMING]]
        if isinstance(self.boosts, BoostLists):
            for utterance, _ in frames:
                self.boosts.of(utterance)
        with warnings.catch_warnings(), suppress(InputError):
            warnings.simplefilter("ignore")
            self(frames)

    def leaving_out(self, batch: Batch, fail: Fail) -> list[Any]:
        """Search a batch; utterances that cannot be searched are taken out of it."""
        while batch:
            try:
                return self(batch)
            except InputError as error:
                at = error.utterance
                if not isinstance(at, int):
                    raise  # it is no fault of one of them
                error.utterance = batch.pop(at)[0]
                fail(error)
        return []


def search_all(
    decoder: Decoder, logprobs: Sequence[Any], boosts: Any, nbest: bool, record: bool
) -> list[Any]:
    """Decode utterances: hypotheses of each, best first, or lattices.

    Args:
        decoder: Any of our decoders.
        logprobs: [T, V] of each.
        boosts: Of each, or of all.
        nbest: Whether each has a list, and not only the best.
        record: Whether lattices are wanted.
    """
    if record:
        return decoder.decode_lattice(logprobs, boosts=boosts)
    if nbest:
        return decoder.decode_nbest(logprobs, boosts=boosts)
    return [[best] for best in decoder.decode(logprobs, boosts=boosts)]


def batches(
    logprobs: Iterable[tuple[str, np.ndarray]],
    *,
    max_utterances: int = BATCH_UTTERANCES,
    max_bytes: int = BATCH_BYTES,
) -> Iterator[Batch]:
    """Group utterances so that a batch is never large in memory.

    A batch ends with the utterance that reaches one of the limits.
    """
    batch: Batch = []
    size = 0
    for utterance, array in logprobs:
        batch.append((utterance, array))
        size += array.nbytes
        if len(batch) == max_utterances or size >= max_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def reading_and_keeping(
    lattices: ReadLattice | None, keep: Callable[[str, Lattice], Any] | None
) -> ReadLattice | None:
    """Read a lattice, and then keep it; only lattices that can be read are kept."""
    if keep is None or lattices is None:
        return lattices

    def read(utterance: str, lattice: Lattice) -> list[Hypothesis]:
        found = lattices(utterance, lattice)
        keep(utterance, lattice)
        return found

    return read
