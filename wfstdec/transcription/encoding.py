"""Encoding of recordings, ahead of the decoder in threads.

    encoding = Encoding(model, decoder, CutOptions(), AudioOptions(), workers=2)
    for part in encoding.run([Recording("talk", "talk.mp3"), Recording("x", waveform)]):
        ...                                    # Encoded pieces in order, and Ended

A short recording is one piece. A long one is cut by the words of windows, and each
piece is then encoded as a whole; only current windows and pieces are in memory.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wfstdec.audio.reading import MAX_SECONDS, AudioLike, AudioReader, open_audio
from wfstdec.audio.samples import AudioNote
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import AudioError, InputError
from wfstdec.models.encoder import Encoder, StreamingEncoder
from wfstdec.search.decoder import Decoder
from wfstdec.transcription.pauses import first_pass
from wfstdec.transcription.pieces import CutOptions, Piece, PieceCutter

_AHEAD = 2  # pieces that may wait for the decoder, for each worker

_STOP_S = 1.0  # Timeout for a blocked reader: a file such as a FIFO may never return

_Item = TypeVar("_Item")


class Recording(NamedTuple):
    """Audio with a name."""

    name: str  # For results and errors
    audio: AudioLike  # Arrays have the model's rate
    boosts: BoostsLike = None  # Boosts of the utterance, as in `Decoder.decode`
    start_s: float = 0.0  # Start of the part, seconds
    duration_s: float | None = None  # Length of the part; None is to the end


class Encoded(NamedTuple):
    """Log-probs of a piece of a recording, float32 [T, V]."""

    recording: Recording
    piece: Piece
    logprobs: np.ndarray | None


class Ended(NamedTuple):
    """End of a recording, after its last piece."""

    recording: Recording
    audio_s: float = 0.0
    notes: tuple[AudioNote, ...] = ()
    error: InputError | None = None  # error of reading or encoding


Part = Encoded | Ended


@dataclass(frozen=True)
class AudioOptions:
    """Options of reading recordings; see `open_audio`."""

    channel: int | None = None
    max_seconds: float = MAX_SECONDS
    allow_cut: bool = False


class Encoding:
    """Reader, cutter and encoder of recordings, ahead of their use, in threads."""

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder,
        cuts: CutOptions,
        audio: AudioOptions,
        *,
        workers: int | None = None,
        rows: bool = False,
    ) -> None:
        self._model, self._cuts, self._audio = model, cuts, audio
        self._wants_rows = rows
        self._streams = isinstance(model, StreamingEncoder)
        self._first_pass: Any = model if self._streams else None
        if decoder.can_stream:
            self._sessions: Any = decoder.sessions()
        else:
            self._first_pass, self._sessions = first_pass(model, decoder, cuts)
        self._workers = workers or len(os.sched_getaffinity(0))
        # Seconds summed over all workers, including windows.
        self._lock, self.encode_s = threading.Lock(), 0.0

    def run(self, recordings: Iterable[Recording]) -> Generator[Part, None, None]:
        """Encode recordings, in order."""
        pool = ThreadPoolExecutor(self._workers, "wfstdec-encoder")
        parts = _ahead(self._parts(recordings, pool), _AHEAD * self._workers)
        failed = -1
        try:
            for number, recording, part in parts:
                if number == failed:
                    continue
                try:
                    yield part() if callable(part) else part
                except InputError as error:
                    failed = number
                    yield Ended(recording, error=error)
        finally:
            parts.close()
            pool.shutdown(cancel_futures=True)

    def _parts(
        self, recordings: Iterable[Recording], pool: Executor
    ) -> Iterator[tuple[int, Recording, Part | Callable[[], Part]]]:
        """Yield each recording's parts; pending ones as functions that wait."""
        for number, recording in enumerate(recordings):
            try:
                rate = self._model.spec.sample_rate
                with open_audio(recording.audio, rate, **vars(self._audio)) as reader:
                    audio = _Blocks(reader, recording)
                    for piece in self._pieces(audio, recording, pool):
                        yield number, recording, self._submit(recording, piece, pool)
                    audio_s = audio.num_samples / reader.sample_rate
                    # After the last piece, which comes with notes on the file's end.
                    ended = Ended(recording, audio_s, tuple(reader.notes))
                    yield number, recording, ended
            except InputError as error:
                yield number, recording, Ended(recording, error=error)

    def _submit(
        self, recording: Recording, piece: Piece, pool: Executor
    ) -> Callable[[], Part]:
        if piece.first_pass is not None:
            rows = piece.rows if self._wants_rows else None
            return lambda: Encoded(recording, piece, rows)
        future = pool.submit(self._encode, piece.waveform)
        return lambda: Encoded(recording, piece, future.result())

    def _pieces(
        self, audio: _Blocks, recording: Recording, pool: Executor
    ) -> Iterator[Piece]:
        blocks, spec = iter(audio), self._model.spec
        if not self._streams:
            head = []
            for block in blocks:
                head.append(block)
                if audio.num_samples > self._cuts.whole_s * spec.sample_rate:
                    break
            else:  # short ones are encoded as a whole, as the model would
                yield Piece(0, 0, np.concatenate(head))
                return
            blocks = itertools.chain(head, blocks)
        how: Any = {"boosts": recording.boosts, "one_pass": self._streams}
        cutter = PieceCutter(self._sessions, self._cuts, spec, **how)
        blocks = map(cutter.push_audio, blocks)
        rows = self._stream(blocks) if self._first_pass else self._windows(blocks, pool)
        with contextlib.closing(cutter):
            for some in rows:
                cutter.push_rows(some)
                yield from cutter.search()
            if (piece := cutter.end()) is not None:
                yield piece

    def _stream(self, blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield log-probs of a streaming encoder, or levels of the audio."""
        model: Any = self._first_pass
        state = model.start()
        for block in blocks:
            yield model.step([state], [block], [False])[0]
        yield model.step([state], [np.empty(0, np.float32)], [True])[0]

    def _windows(
        self, blocks: Iterable[np.ndarray], pool: Executor
    ) -> Iterator[np.ndarray]:
        under_way: deque[tuple[Future, slice]] = deque()
        for window, due in self._cuts.windows(blocks, self._model.spec):
            under_way.append((pool.submit(self._encode, window), due))
            if len(under_way) > self._workers:
                future, due = under_way.popleft()
                yield future.result()[due]
        for future, due in under_way:
            yield future.result()[due]

    def _encode(self, waveform: np.ndarray) -> np.ndarray:
        began = time.perf_counter()
        [logprobs] = self._model.encode([waveform])
        with self._lock:
            self.encode_s += time.perf_counter() - began
        return logprobs


class _Blocks:
    def __init__(self, reader: AudioReader, recording: Recording) -> None:
        rate, self._reader, self.num_samples = reader.sample_rate, reader, 0
        self._first, self._end = round(recording.start_s * rate), sys.maxsize
        if recording.duration_s is not None:
            self._end = self._first + round(recording.duration_s * rate)

    def __iter__(self) -> Iterator[np.ndarray]:
        at = 0
        for block in self._reader:
            some = block[max(0, self._first - at) : max(0, self._end - at)]
            at += len(block)
            self.num_samples += len(some)
            if len(some):
                yield some
            if at >= self._end:
                break
        if not self.num_samples:
            first_s, end_s = (n / self._reader.sample_rate for n in (self._first, at))
            raise AudioError(f"no audio from {first_s:g} s on, {end_s:g} s are there")


def _ahead(items: Iterable[_Item], size: int) -> Generator[_Item, None, None]:
    """Produce items in a thread, at most `size` ahead of their use."""
    made: queue.Queue[Any] = queue.Queue(size)
    stopped = threading.Event()

    def make() -> None:
        try:
            for item in items:
                # Blocks while the queue is full.
                made.put((item, None))
                if stopped.is_set():
                    return
            made.put(None)
        except BaseException as error:  # re-raised by the consumer
            made.put((None, error))

    thread = threading.Thread(target=make, name="wfstdec-audio", daemon=True)
    thread.start()
    try:
        for item, error in iter(made.get, None):
            if error is not None:
                raise error
            yield item
    finally:
        stopped.set()
        give_up = time.monotonic() + _STOP_S
        # An early stop must not leave a thread that holds a file open.
        while thread.is_alive() and time.monotonic() < give_up:  # it may wait for room
            with contextlib.suppress(queue.Empty):
                made.get_nowait()
            thread.join(0.05)
