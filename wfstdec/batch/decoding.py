"""Decoding of many utterances in batches, from pairs or from a file to a file.

keep = LatticeWriter("dev.lat")
decode_file(decoder, "dev.npz", "dev.hyp", lattices=LatticeReading(), keep=keep)
rescore_file("dev.lat", "dev.hyp", lm="large.arpa.gz", lm_scale=0.8)
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.core.event import install_timer
from tqdm import tqdm

from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.lists import Boosts, BoostsLike, Numbers
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import (
    BoostError,
    BoostWarning,
    FormatError,
    InputError,
    OptionError,
    levels_inside,
)
from wfstdec.io.boost_files import BoostFile
from wfstdec.io.journal import Restart
from wfstdec.io.lattices import KaldiLatticeWriter
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import Results, open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import LatticeFile, LatticeWriter, open_lattices
from wfstdec.lattice.mbr import minimum_bayes_risk
from wfstdec.lattice.nbest import NbestPaths
from wfstdec.lattice.rescoring import rescored, weighed
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_rows
from wfstdec.search.nearness import with_acoustic_confidences
from wfstdec.search.paths.lattice import confidences_of, hypotheses_of, nbest_texts
from wfstdec.text.display import examples
from wfstdec.text.display import named as named
from wfstdec.text.files import PathLike, digest


class BoostLists:
    """Boosts of many utterances: a common list, or lists by utterance.

        lists = BoostLists({"bartley": 4.0}, read_phrase_weights("names.jsonl"),
                           decoder.phrase_compiler())
        decoder.decode([logprobs], boosts=[lists.of("utt1")])

    Args:
        words: Word (or phrase of words) to bonus, nats; or the result of `read_boosts`.
        phrases: Phrase to weight; or the result of `read_phrase_weights`.
        compiler: Compiler of the phrases, from `Decoder.phrase_compiler`.

    Raises:
        OptionError: Phrases without a compiler.
    """

    def __init__(
        self,
        words: BoostFile | Numbers | None = None,
        phrases: BoostFile | Numbers | None = None,
        compiler: PhraseCompiler | None = None,
    ) -> None:
        self._words, self._phrases = (
            lists if isinstance(lists, BoostFile) else BoostFile(lists or {})
            for lists in (words, phrases)
        )
        if phrases is not None and compiler is None:
            raise OptionError(
                "phrases without a compiler, expected one of the decoder's "
                "phrase_compiler()"
            )
        self._compiler = compiler
        self._compiled: dict[int, PhraseBoosts] = {}
        self._asked: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """Return utterances with their own list that `of` was never called for."""
        return sorted({*self._words.own, *self._phrases.own} - self._asked)

    def __repr__(self) -> str:
        return repr((self._words, self._phrases))

    def of(self, utterance: str, own: Numbers | None = None) -> BoostsLike:
        """Return the boosts of an utterance; `own` are words that replace its list."""
        self._asked.add(utterance)
        words = self._words.of(utterance) if own is None else own or None
        phrases = self._phrases.of(utterance)
        if phrases is None:
            return words
        assert self._compiler is not None
        if id(phrases) not in self._compiled:  # the lists live as long as this
            self._compiled[id(phrases)] = self._compiler.compile(phrases)
        return Boosts(words or {}, self._compiled[id(phrases)])


if TYPE_CHECKING:
    from wfstdec.readable import Formatter

BATCH_UTTERANCES = 64
BATCH_BYTES = 2**26
_WARMING = 8

Batch = list[tuple[str, np.ndarray]]
Fail = Callable[[InputError], None]
ReadLattice = Callable[[str, Lattice], list[Hypothesis]]


def decode_file(
    decoder: Decoder,
    logprobs: PathLike | LogprobReader,
    output: PathLike | None = None,
    *,
    boosts: BoostLists | BoostsLike = None,
    format: str | None = None,
    nbest: int = 1,
    subtitles: SubtitleOptions | None = None,
    formatter: Formatter | None = None,
    lattices: ReadLattice | None = None,
    keep: LatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> Summary:
    """Decode all utterances of a file, and write the results in order.

    An utterance with a fault is skipped, and named in the log and the summary. Results
    before an error, or Ctrl-C, are kept next to the file, and a later run with
    `Restart(resume=True)` continues there.

    Args:
        decoder: Any of our decoders.
        logprobs: An `.npz`, `.ark`, `.scp`, or a folder of `.npy`, see
            `wfstdec.io.open_logprobs`; or its result.
        output: The file to write, or the folder, see `wfstdec.io.open_results`; None
            is standard output.
        boosts: By utterance, or the same for all; see `Decoder.decode`.
        format: One of `wfstdec.io.FORMATS`; None uses the ending of `output`.
        nbest: Number of hypotheses; more than 1 needs a decoder with n-best lists, and
            `"jsonl"`.
        subtitles: Options of subtitles.
        formatter: Formatter of texts and subtitles; JSON lines have both forms.
        lattices: Function from a lattice to hypotheses, such as a `LatticeReading`.
        keep: Writer of lattices; needs `lattices`.
        strict: Raise at the first utterance with a fault.
        restart: Treatment of the results of an interrupted run.
        progress: Show a progress bar if standard error is a terminal.

    Raises:
        OptionError: Unknown format, or one without several hypotheses; or results of an
            earlier run exist, see `wfstdec.io.Restart`.
        FormatError: A file cannot be read or written.
        ShapeError, LogprobError, BoostError: Invalid log-probs or boosts, with `strict`
            or for all utterances; the error has the `utterance`.

    Warns:
        BoostWarning: Boosts of utterances that the file does not have.
    """
    format = format_named(format, output)
    how: Any = {"subtitles": subtitles, "formatter": formatter}
    write = result_writer(format, nbest=nbest, **how)
    if not isinstance(logprobs, LogprobReader):
        logprobs = open_logprobs(logprobs)
    summary = Summary(decoder.input_frame_shift_s)
    settings = {
        "logprobs": digest(logprobs.path),
        "decoder": type(decoder).__name__,
        **fields_of(decoder.options),
        **fields_of(subtitles),
        **fields_of(lattices),
        **{"format": format, "nbest": nbest, "readable": formatter is not None},
    }
    # else the settings name the source of boosts
    if restart is None or not restart.settings:
        boosts_hash = hashlib.blake2b(repr(boosts).encode(), digest_size=16)
        settings["boosts"] = boosts_hash.hexdigest()
    with open_results(
        *(output, format, write, logprobs.num_utterances),
        beside=keep,
        restart=restart,
        settings=settings,
    ) as results:
        known = summary.resume(results)
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
    unused = boosts.unused if isinstance(boosts, BoostLists) else []
    if unused := [repr(one) for one in unused if one not in known]:
        # Usually ids in another form.
        warnings.warn(
            f"{len(unused)} boost lists are for utterances that {logprobs.path} does "
            f"not have: {examples(unused)}",
            BoostWarning,
            stacklevel=levels_inside(),
        )
    return summary


def decode_all(
    decoder: Decoder,
    logprobs: Iterable[tuple[str, np.ndarray]],
    boosts: BoostLists | BoostsLike | Callable[[str], BoostsLike] = None,
    *,
    nbest: bool = False,
    lattices: ReadLattice | None = None,
    summary: Summary | None = None,
    strict: bool = False,
    progress: bool = False,
) -> Iterator[tuple[str, list[Hypothesis]]]:
    """Decode utterances as they are read, a batch at a time."""
    total = getattr(logprobs, "num_utterances", None)
    path = getattr(logprobs, "path", None)
    summary = summary or Summary(decoder.input_frame_shift_s)
    given = boosts.of if isinstance(boosts, BoostLists) else boosts
    search = _Search(decoder, given, nbest, lattices is not None)

    def fail(error: InputError) -> None:
        if path is not None and not isinstance(error, BoostError):
            error.path = str(path)
        summary.fail(error, strict=strict)

    with progress_bar(progress, total=total, unit=" utterances") as bar:
        pairs = decoder.checked(readable(logprobs, fail))
        for number, batch in enumerate(batches(pairs)):
            if number == 0:
                search.warm_up(batch)
            size = len(batch)
            with _timed(summary):
                found = search.leaving_out(batch, fail)
            # One at a time: the reader of a lattice may also write it.
            for (utterance, array), hypotheses in zip(batch, found, strict=True):
                if lattices is not None:
                    with _timed(summary):
                        try:
                            rows = as_rows([array], None, len(decoder.tokens))[0]
                            read = rating(lattices, rows, decoder.tokens.blank)
                            hypotheses = read(utterance, hypotheses)
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


def progress_bar(shown: bool, *items: Any, **how: Any) -> tqdm:
    """Return a bar, hidden unless standard error is a terminal."""
    return tqdm(*items, disable=None if shown else True, **how)


def readable(
    logprobs: Iterable[tuple[str, np.ndarray]], fail: Fail
) -> Iterator[tuple[str, np.ndarray]]:
    """Read log-probs; skip unreadable ones."""
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
    """Return the fields of a dataclass by name; empty for other objects."""
    names = [one.name for one in fields(options)] if is_dataclass(options) else []
    return {name: getattr(options, name) for name in names}


@contextmanager
def _timed(summary: Summary) -> Iterator[None]:
    """Add the elapsed seconds, less compilation, to the decoder's time."""

    def leave_out(seconds: float) -> None:
        summary.decode_s -= seconds

    began = time.perf_counter()
    try:
        with install_timer("numba:compile", leave_out):
            yield
    finally:
        summary.decode_s += time.perf_counter() - began


class _Search(NamedTuple):
    decoder: Decoder
    boosts: BoostsLike | Callable[[str], BoostsLike]
    nbest: bool
    record: bool

    def __call__(self, batch: Batch) -> list[Any]:
        given: Any = self.boosts
        if callable(given):
            given = [given(utterance) for utterance, _ in batch]
        logprobs = [array for _, array in batch]
        return search_all(self.decoder, logprobs, given, self.nbest, self.record)

    def warm_up(self, batch: Batch) -> None:
        """Load or compile the kernels of a run, on a frame of a few utterances."""
        # Faults of utterances are reported when they are decoded, those of phrases when
        # their lists are compiled, which happens once.
        frames = [(utterance, array[:1]) for utterance, array in batch[:_WARMING]]
        if callable(self.boosts):
            for utterance, _ in frames:
                self.boosts(utterance)
        with warnings.catch_warnings(), suppress(InputError):
            warnings.simplefilter("ignore")
            self(frames)

    def leaving_out(self, batch: Batch, fail: Fail) -> list[Any]:
        """Search a batch; remove utterances that cannot be searched."""
        while batch:
            try:
                return self(batch)
            except InputError as error:
                at = error.utterance
                if not isinstance(at, int):
                    raise  # not caused by one utterance
                error.utterance = batch.pop(at)[0]
                fail(error)
        return []


def search_all(
    decoder: Decoder, logprobs: Sequence[Any], boosts: Any, nbest: bool, record: bool
) -> list[Any]:
    """Decode utterances; return hypotheses, best first, or lattices."""
    # `logprobs`: [T, V] of each.
    if record and decoder.records_lattices:
        return decoder.decode_lattice(logprobs, boosts=boosts)
    if nbest or record:
        return decoder.decode_nbest(logprobs, boosts=boosts)
    return [[best] for best in decoder.decode(logprobs, boosts=boosts)]


def batches(
    logprobs: Iterable[tuple[str, np.ndarray]],
    *,
    max_utterances: int = BATCH_UTTERANCES,
    max_bytes: int = BATCH_BYTES,
) -> Iterator[Batch]:
    """Group utterances into batches of limited memory."""
    # A batch ends with the utterance that reaches one of the limits.
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


NO_LATTICE = "of a decoder that records none, expected a WfstDecoder or a TrieDecoder"


@dataclass(frozen=True)
class LatticeReading:
    """Reader of lattices: hypotheses, confidences, minimum Bayes risk.

    For decoders without lattices it reads confidences from n-best lists.
    """

    nbest: int = 1  # Number of different texts
    confidence: bool = False  # Whether the best hypothesis has word confidences
    mbr: bool = False  # Whether to return only the text of least expected error
    posterior_scale: float = 1.0  # Factor of all costs, for both

    def __call__(
        self, utterance: str, lattice: Lattice | list[Hypothesis]
    ) -> list[Hypothesis]:
        """Return the hypotheses of a lattice, best first."""
        if not isinstance(lattice, Lattice):
            if self.mbr:
                raise OptionError(f"mbr=True {NO_LATTICE}")
            some, best = lattice[: self.nbest], lattice[0]
            if self.confidence:
                some[0] = best.with_posteriors(lattice, self.posterior_scale)
            return some
        if self.mbr:
            least = minimum_bayes_risk(lattice, self.posterior_scale)
            found = NbestPaths([least.arcs], [least.excess], True)
        else:
            found = nbest_texts(lattice, self.nbest)
        hypotheses = hypotheses_of(lattice, found)
        if self.confidence:
            sure = confidences_of(lattice, found.arcs[0], self.posterior_scale)
            hypotheses[0] = hypotheses[0].with_confidences(sure)
        return hypotheses


def rating(read: ReadLattice, logprobs: np.ndarray, blank: int) -> ReadLattice:
    """Return a reader of lattices that rates the best words by log-probs."""

    def read_and_rate(utterance: str, lattice: Any) -> list[Hypothesis]:
        found = read(utterance, lattice)
        words = found[0].words if found and isinstance(lattice, Lattice) else ()
        if words and words[0].confidence is not None:
            found[0] = with_acoustic_confidences(found[0], logprobs, blank)
        return found

    return read_and_rate


def reading_and_keeping(
    lattices: ReadLattice | None, keep: Callable[[str, Lattice], Any] | None
) -> ReadLattice | None:
    """Return a reader of lattices that also keeps them after success."""
    if keep is None or lattices is None:
        return lattices

    def read(utterance: str, lattice: Lattice) -> list[Hypothesis]:
        if not isinstance(lattice, Lattice):
            raise OptionError(f"lattices to keep {NO_LATTICE}")
        found = lattices(utterance, lattice)
        keep(utterance, lattice)
        return found

    return read


_TRIED_AT_MOST = 64
_log = logging.getLogger("wfstdec.batch")


@dataclass(kw_only=True)
class Tally:
    """Counts of a run in which utterances may be skipped."""

    num_utterances: int = 0  # Finished in this run
    num_kept: int = 0  # Finished in an earlier one
    # Errors of skipped utterances: each has the `utterance`, and the `path` if it was
    # read from a file
    failures: list[InputError] = field(default_factory=list)
    _named: int = 0

    def resume(self, results: Results) -> set[str]:
        """Return the utterances of an earlier run; count its failures."""
        self.num_kept, self.failures = len(results.done), results.failures
        self._named = len(self.failures)
        return {*results.done, *(str(one.utterance) for one in self.failures)}

    def fail(self, error: InputError, *, strict: bool = False) -> None:
        """Skip an utterance."""
        if strict or isinstance(error, OptionError):
            raise error
        self.failures.append(error)

    def check(self, *, at_end: bool = False) -> None:
        """Log the failures since the last call, one line each."""
        if self.num_utterances + self.num_kept:
            for error in self.failures[self._named :]:
                _log.error("left out: %s", error)
            self._named = len(self.failures)
        elif self.failures and (at_end or len(self.failures) >= _TRIED_AT_MOST):
            raise self.failures[0]

    def check_all_done(self) -> None:
        """Raise unless all utterances succeeded."""
        if self.failures:
            found = [str(error.utterance) for error in self.failures]
            total = self.num_utterances + self.num_kept + len(found)
            raise InputError(f"left out {len(found)} of {total}: {named(found)}")

    def extras(self) -> str:
        """Return counts of kept and failed utterances for a message; often empty."""
        kept = f"; {self.num_kept} kept from an earlier run" if self.num_kept else ""
        return kept + (f"; {len(self.failures)} left out" if self.failures else "")


@dataclass
class Summary(Tally):
    """Counts of a run; `str()` is a line for users. Others as in `Tally`."""

    frame_shift_s: float  # Seconds per decoded frame
    num_frames: int = 0  # Number of frames
    # Wall seconds in the decoder, without reading, writing and compilation
    decode_s: float = 0.0
    # Utterances without a final state
    unfinished: list[str] = field(default_factory=list)

    def add(
        self, utterance: str, num_frames: int, hypotheses: Sequence[Hypothesis]
    ) -> None:
        """Count a decoded utterance with its hypotheses, best first."""
        self.num_utterances += 1
        self.num_frames += num_frames
        if not hypotheses[0].reached_final:
            self.unfinished.append(utterance)

    @property
    def audio_s(self) -> float:
        """Seconds of audio."""
        return self.num_frames * self.frame_shift_s

    @property
    def speed(self) -> float:
        """Seconds of audio per wall second; 0 if nothing was decoded."""
        # RTFx in tables is per second of processor time, of one thread.
        return self.audio_s / self.decode_s if self.decode_s else 0.0

    def __str__(self) -> str:
        text = (
            f"decoded {self.num_utterances} utterances, {self.audio_s:.1f} s of audio "
            f"in {self.decode_s:.2f} s of the clock (speed {self.speed:.0f})"
        )
        if not self.unfinished:
            return text + "; all reached a final state" + self.extras()
        found = f"{len(self.unfinished)} did not reach a final state"
        return f"{text}; {found}: {named(self.unfinished)}{self.extras()}"


@dataclass
class RescoringSummary(Tally):
    """Counts of a run; `str()` is a line for users. Others as in `Tally`."""

    seconds: float = 0.0  # Wall seconds, reading and writing included

    def __str__(self) -> str:
        return f"{self.num_utterances} lattices in {self.seconds:.1f} s{self.extras()}"


def rescore_file(
    lattices: PathLike | LatticeFile,
    output: PathLike | None = None,
    *,
    lm: AnyLM | None = None,
    unk_cost: float | None = None,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    reading: LatticeReading | None = None,
    format: str | None = None,
    kaldi: KaldiLatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> RescoringSummary:
    """Rescore lattices of a file, and write the best hypotheses."""
    # A lattice with a fault is skipped, and named in the log and the summary. Results
    # before an error, or Ctrl-C, are kept next to the file, and a later run with
    # `Restart(resume=True)` continues there.
    began = time.perf_counter()
    file = lattices if isinstance(lattices, LatticeFile) else open_lattices(lattices)
    reading = reading or LatticeReading()
    format = format_named(format, output)
    write = result_writer(format, nbest=reading.nbest)
    if file.vocabulary is None:
        raise FormatError(f"{file.path}: no utterance in it, expected at least one")
    words = file.vocabulary.words
    model = None if lm is None else lm_over(read_lm(lm), words, unk_cost)
    if kaldi is not None:
        kaldi.number(file.vocabulary.own.words)
    scales: dict[str, Any] = {"lm_scale": lm_scale, "word_insertion": word_insertion}
    settings = {
        "lattices": digest(file.path),
        **scales,
        **fields_of(reading),
        **{"format": format, "unk_cost": unk_cost},
        "lm": digest(lm) if isinstance(lm, str | os.PathLike) else None,
    }
    summary = RescoringSummary()
    with open_results(
        *(output, format, write, len(file)),
        beside=kaldi,
        restart=restart,
        settings=settings,
    ) as results:
        known = summary.resume(results)
        left = [utterance for utterance in file if utterance not in known]
        for utterance in progress_bar(progress and not results.on_terminal, left):
            try:
                lattice = file[utterance]
                if model is not None:
                    lattice = rescored(lattice, model, **scales)
                elif any(one is not None for one in scales.values()):
                    lattice = weighed(lattice, **scales)
                found = reading(utterance, lattice)
                if kaldi is not None:
                    kaldi(utterance, lattice)
            except InputError as error:
                error.utterance, error.path = utterance, str(file.path)
                summary.fail(error, strict=strict)
                summary.check()
                continue
            summary.num_utterances += 1
            summary.check()
            results.put(utterance, found)
        summary.check(at_end=True)
    summary.seconds = time.perf_counter() - began
    return summary
