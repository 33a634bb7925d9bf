"""Decode many utterances, batch by batch: from pairs, or from a file to a file."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
from numba.core.event import Event, Listener, register
from tqdm import tqdm

from wfstdec.batch.summary import Summary
from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.lists import Boosts, BoostsLike, Numbers
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError, BoostWarning, InputError, OptionError
from wfstdec.io.boost_files import BoostFile
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis

BATCH_UTTERANCES = 64
BATCH_BYTES = 2**26
_NAMED_AT_MOST = 5
_WARMING = 8

Batch = list[tuple[str, np.ndarray]]


class BoostLists:
    """The boosts of many utterances: a list for all, or lists of their own.

        lists = BoostLists(read_boosts("words.txt"))
        lists = BoostLists({"bartley": 4.0}, read_phrase_weights("names.jsonl"),
                           decoder.phrase_compiler())
        decoder.decode([logprobs], boosts=[lists.of("utt1")])

    Args:
        words: Word (or phrase of words) to bonus, nats: of all utterances, or as
            `wfstdec.io.read_boosts` reads them.
        phrases: Phrase to weight: likewise, or as `read_phrase_weights` reads them.
        compiler: For these phrases, from `Decoder.phrase_compiler`.

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
        """The utterances with lists of their own that `of` was never asked for."""
        return sorted({*self._words.own, *self._phrases.own} - self._asked)

    def of(self, utterance: str) -> BoostsLike:
        """The boosts of an utterance, for `Decoder.decode`; None where it has none."""
        self._asked.add(utterance)
        words, phrases = self._words.of(utterance), self._phrases.of(utterance)
        if phrases is None:
            return words
        assert self._compiler is not None
        if id(phrases) not in self._compiled:  # the lists live as long as this
            self._compiled[id(phrases)] = self._compiler.compile(phrases)
        return Boosts(words or {}, self._compiled[id(phrases)])


def decode_file(
    decoder: Decoder,
    logprobs: str | os.PathLike[str] | LogprobReader,
    output: str | os.PathLike[str] | None = None,
    *,
    boosts: BoostLists | BoostsLike = None,
    format: str | None = None,
    nbest: int = 1,
    subtitles: SubtitleOptions | None = None,
    lattices: Callable[[str, Lattice], list[Hypothesis]] | None = None,
    progress: bool = False,
) -> Summary:
    """Decode all utterances of a file, and write what was found in its order.

    Args:
        decoder: Any of our decoders.
        logprobs: An `.npz`, `.ark`, `.scp`, or a folder of `.npy`, as
            `wfstdec.io.open_logprobs` takes them; or what that gives.
        output: The file to write, whole or not at all, or the folder, see
            `wfstdec.io.open_results`; None is standard output.
        boosts: By utterance, or the same for all, as `Decoder.decode` takes them.
        format: One of `wfstdec.io.FORMATS`; None goes by the ending of `output`.
        nbest: How many hypotheses the decoder's options ask for; more than 1 needs a
            decoder with n-best lists, and `"jsonl"`.
        subtitles: How words are cut into subtitles.
        lattices: Makes hypotheses of the lattice of each utterance, such as a
            `LatticeReading`; None asks for no lattices.
        progress: Show a progress bar, where standard error is a terminal.

    Raises:
        OptionError: No such format, or several hypotheses where that cannot be.
        FormatError: A file cannot be read or written.
        ShapeError, LogprobError, BoostError: Log-probs or boosts do not fit; the
            error has the `utterance`.

    Warns:
        BoostWarning: Boosts of utterances that the file does not have.
    """
    format = format_named(format, output)
    write = result_writer(format, nbest=nbest, subtitles=subtitles)
    if not isinstance(logprobs, LogprobReader):
        logprobs = open_logprobs(logprobs)
    summary = Summary(decoder.input_frame_shift_s)
    with open_results(output, format, write, logprobs.num_utterances) as results:
        found = decode_all(
            decoder,
            logprobs,
            boosts,
            nbest=nbest > 1,
            lattices=lattices,
            summary=summary,
            progress=progress and not results.on_terminal,
        )
        for utterance, hypotheses in found:
            results.put(utterance, hypotheses)
    if isinstance(boosts, BoostLists) and boosts.unused:
        _warn_of_unused(boosts.unused, logprobs)
    return summary


def decode_all(
    decoder: Decoder,
    logprobs: Iterable[tuple[str, np.ndarray]],
    boosts: BoostLists | BoostsLike = None,
    *,
    nbest: bool = False,
    lattices: Callable[[str, Lattice], list[Hypothesis]] | None = None,
    summary: Summary | None = None,
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
        summary: Counts what is decoded.
        progress: Show a progress bar, where standard error is a terminal.

    Yields:
        Each utterance and its hypotheses, best first.

    Raises:
        OptionError: `nbest` of a decoder that has no n-best lists.
        ShapeError, LogprobError, BoostError: Log-probs or boosts do not fit; the
            error has the `utterance`, and the `path` of log-probs that have one.
    """
    total = getattr(logprobs, "num_utterances", None)
    with tqdm(
        total=total, disable=None if progress else True, unit=" utterances"
    ) as bar:
        for number, batch in enumerate(batches(logprobs)):
            if number == 0:
                _warm_up(decoder, batch, boosts, nbest, lattices is not None)
            utterances = [utterance for utterance, _ in batch]
            compiled, began = _compiling.seconds, time.perf_counter()
            with _named(utterances, getattr(logprobs, "path", None)):
                hypotheses = _decode(decoder, batch, boosts, nbest, lattices)
            if summary is not None:
                seconds = time.perf_counter() - began
                compiled = _compiling.seconds - compiled
                summary.add(batch, hypotheses, max(0.0, seconds - compiled))
            yield from zip(utterances, hypotheses, strict=True)
            bar.update(len(batch))


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


_compiling = _Compiling()


def _warm_up(
    decoder: Decoder,
    batch: Batch,
    boosts: BoostLists | BoostsLike,
    nbest: bool,
    lattices: bool,
) -> None:
    """Load or compile the kernels of a run: a frame of a few of its utterances.

    What is wrong with them is said when they are decoded.
    """
    frames = [(utterance, array[:1]) for utterance, array in batch[:_WARMING]]
    with warnings.catch_warnings(), suppress(InputError):
        warnings.simplefilter("ignore")
        _decode(decoder, frames, boosts, nbest, _unread if lattices else None)


def _unread(utterance: str, lattice: Lattice) -> list[Hypothesis]:
    return []


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


def _decode(
    decoder: Decoder,
    batch: Batch,
    boosts: BoostLists | BoostsLike,
    nbest: bool,
    lattices: Callable[[str, Lattice], list[Hypothesis]] | None,
) -> list[list[Hypothesis]]:
    logprobs = [array for _, array in batch]
    given: BoostsLike | Sequence[BoostsLike]
    if isinstance(boosts, BoostLists):
        given = [boosts.of(utterance) for utterance, _ in batch]
    else:
        given = boosts
    if lattices is not None:
        found = decoder.decode_lattice(logprobs, boosts=given)
        named = zip(batch, found, strict=True)
        return [lattices(utterance, lattice) for (utterance, _), lattice in named]
    if nbest:
        return decoder.decode_nbest(logprobs, boosts=given)
    return [[best] for best in decoder.decode(logprobs, boosts=given)]


@contextmanager
def _named(utterances: list[str], path: object) -> Iterator[None]:
    """Give errors about an utterance of the batch its id, and the file it is from."""
    try:
        yield
    except InputError as error:
        if isinstance(error.utterance, int):
            error.utterance = utterances[error.utterance]
            if path is not None and not isinstance(error, BoostError):
                error.path = str(path)
        raise


def _warn_of_unused(utterances: list[str], reader: LogprobReader) -> None:
    """Lists for utterances that are not there: most often ids of another form."""
    named = ", ".join(map(repr, utterances[:_NAMED_AT_MOST]))
    more = ", ..." if len(utterances) > _NAMED_AT_MOST else ""
    warnings.warn(
        f"{len(utterances)} boost lists are for utterances that {reader.path} does not "
        f"have: {named}{more}",
        BoostWarning,
        stacklevel=3,
    )
