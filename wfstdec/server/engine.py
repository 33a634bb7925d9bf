"""Engine: one thread that advances all streams in rounds, without a timer.

A round takes all streams with new input, and the next round gathers meanwhile: under
load rounds grow by themselves.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from wfstdec.batch.decoding import LatticeReading
from wfstdec.errors import InputError, LimitError, ModelError, OptionError
from wfstdec.models.encoder import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.sessions import SessionId
from wfstdec.server.limits import Limits
from wfstdec.server.processes import MULTIPROCESS, with_kernels
from wfstdec.server.shared import KINDS, Places, Shared
from wfstdec.server.stream import (
    EngineResources,
    Event,
    Finished,
    Stream,
    StreamSettings,
)
from wfstdec.text.vocabulary import UNK
from wfstdec.wfst.decoder import WfstDecoder

_log = logging.getLogger("wfstdec.server")

_ROUND_S = 1.0
"""Seconds of audio of a stream in a round, at most: a client that sends faster than
real time costs others no more.
"""
_WARM_S = 600.0
_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
_ROUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_REQUESTS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Engine:
    """Engine that advances streams; `EngineResources` has its options."""

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder[Any, Any],
        limits: Limits,
        metrics: Metrics,
        shared: Shared | None = None,
        **options: Any,
    ) -> None:
        self._resources = EngineResources(model, decoder, **options)
        self._spec, self._limits, self._metrics = model.spec, limits, metrics
        self._thread = threading.Thread(
            target=self._run, name="wfstdec-engine", daemon=True
        )
        self._lock = threading.Lock()
        self._streams = Places(shared or Shared(limits), "streams")
        # Streams with new input, possibly repeated; None ends the thread.
        self._touched: queue.SimpleQueue[Stream | None] = queue.SimpleQueue()
        self._is_draining = self._is_stopping = False

    def __len__(self) -> int:
        return self._streams.total

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread.ident is None:
            self._thread.start()

    def open(
        self,
        settings: StreamSettings,
        take: Callable[[Event], object],
        *,
        is_own: bool = False,
    ) -> Stream:
        """Open a stream; one of the server (`is_own`) counts towards no limit."""
        stream = Stream(
            *(settings, take, self._resources),
            buffered_s=self._limits.buffered_s,
            wake=self._touched.put,
        )
        reason = None
        with self._lock:
            if self._is_draining or self._is_stopping:
                reason = "draining"
            elif is_own:
                self._streams.add(stream)
            elif not self._streams.take(stream):
                reason = "full"
        # Refused outside of the lock: counting and errors need none.
        if reason is not None:
            self._metrics.refused.labels(reason).inc()
            text = (
                f"{self._limits.streams} streams are under way, expected fewer; "
                f"{Limits.flag('streams')} raises the limit"
            )
            if reason == "draining":
                text = "the server is about to stop and takes no streams"
                text += ", expected another one"
            raise LimitError(text)
        self._touched.put(stream)
        return stream

    def drain(self) -> None:
        """Refuse new streams and finish all: each gets its finals and `Finished`."""
        with self._lock:
            self._is_draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.finish()

    def stop(self) -> None:
        """End all streams without an event, and all threads; idempotent."""
        with self._lock:
            self._is_stopping = True
        self._touched.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._resources.close()

    def warm(self) -> None:
        """Run all code of a round once, on synthetic rows and a synthetic stream."""
        # Not measured: kernels are compiled, and no client waits.
        kept, self._metrics = self._metrics, cast(Metrics, _Unmeasured())
        try:
            shared = self._resources
            warm(shared.decoder)
            if shared.decoder.can_stream:
                session = shared.sessions.open(shared.no_boosts)
                shared.sessions.advance({session: shared.decoder.made_up_input()})
                shared.sessions.partial(session)
                _ = shared.close_session(session)[0].text
            self._run_noise()
        finally:
            self._metrics = kept

    def _run_noise(self) -> None:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        rate = self._spec.sample_rate
        settings = StreamSettings("linear16", rate, interims=True)
        # A worker may start while clients have all places of the other ones.
        stream = self.open(settings, events.put, is_own=True)
        noise = np.random.default_rng(0).normal(0, 30, rate)
        stream.send(noise.astype("<i2").tobytes())
        stream.finish()
        event: Event | None = None
        while not isinstance(event, Finished):
            try:
                event = events.get(timeout=_WARM_S)
            except queue.Empty:
                raise ModelError(
                    f"a second of noise took more than {_WARM_S:g} s, expected words"
                ) from None
        if event.error is not None:
            raise event.error

    def _run(self) -> None:
        while not self._is_stopping:
            touched = {self._touched.get(): None}
            with contextlib.suppress(queue.Empty):
                while True:
                    touched[self._touched.get_nowait()] = None
            if not self._is_stopping:
                self._round([stream for stream in touched if stream is not None])
            del touched  # it would keep finished streams alive
        for stream in list(self._streams):
            with contextlib.suppress(Exception):
                self._drop(stream)

    def _round(self, touched: Sequence[Stream]) -> None:
        """Run one round; an exception not tied to a stream fails all of its streams."""
        streams: list[Stream] = []
        try:
            for stream in touched:
                if stream.is_aborted:
                    self._drop(stream)
                elif stream in self._streams:
                    streams.append(stream)
            for stream in streams:
                if not stream.is_over:
                    self._attempt(stream, stream.take_in)
            self._work([stream for stream in streams if stream.needs_audio])
        except Exception as error:
            _log.exception("a round of %d streams failed", len(touched))
            for stream in streams:
                with contextlib.suppress(Exception):
                    stream.fail(error, at_once=True)
        self._post_events(streams)

    def _work(self, streams: Sequence[Stream]) -> None:
        if not streams:
            return
        now = time.monotonic()
        for stream in streams:
            # Before audio is taken, or nothing would be waiting.
            if (since := stream.audio.waits_since) is not None:
                self._metrics.queue.observe(now - since)
        began = time.perf_counter()
        # All streams are encoded together, then all searched: one call of the model for
        # a round.
        ended = self._encode(streams)
        encoded = time.perf_counter()
        self._search(streams)
        for stream in streams:
            if not stream.is_over:
                self._attempt(stream, stream.emit_interim)
                if stream in ended:
                    self._attempt(stream, stream.end_segment)
        searched = time.perf_counter()
        self._metrics.round_streams.observe(len(streams))
        self._metrics.round_encoder.observe(encoded - began)
        self._metrics.round_decoder.observe(searched - encoded)

    def _attempt(self, stream: Stream, act: Callable[..., object], *given: Any) -> None:
        try:
            act(*given)
        except Exception as error:
            self._fail(stream, error)

    def _fail(self, stream: Stream, error: Exception) -> None:
        if not isinstance(error, InputError):
            _log.error("a stream failed", exc_info=error)
        stream.fail(error)

    def _encode(self, streams: Sequence[Stream]) -> set[Stream]:
        workers, size = self._resources.workers, self._spec.max_batch
        num = max(1, min(workers, -(-len(streams) // size)))
        groups = [streams[i::num] for i in range(num)]
        pool = self._resources.encoding
        jobs = [pool.submit(self._encoded, group) for group in groups[1:]]
        chunks = [self._encoded(groups[0]), *(job.result() for job in jobs)]
        ended = set()
        for one in chain.from_iterable(chunks):
            stream = one.stream
            if one.error is not None:
                self._fail(stream, one.error)
                continue
            self._metrics.audio.inc(len(one.samples) / self._spec.sample_rate)
            self._attempt(stream, stream.push_audio, one.samples, one.rows)
            if one.is_last:
                ended.add(stream)
        return ended

    def _encoded(self, streams: Sequence[Stream]) -> list[_Chunk]:
        """Take the new audio of streams, with its log-probs or an exception."""
        chunks, batch = [], []
        for stream in streams:
            try:
                chunk = _Chunk(stream, *stream.next_samples(_ROUND_S))
            except Exception as error:
                chunks.append(_Chunk(stream, error=error))
                continue
            # Streams without new audio take no place in the model's batch.
            if chunk.is_last or len(chunk.samples):
                chunks.append(chunk)
                if stream.encoder_state is not None:
                    batch.append(chunk)
        size = self._spec.max_batch
        for start in range(0, len(batch), size):
            self._step(batch[start : start + size])
        return chunks

    def _step(self, batch: Sequence[_Chunk]) -> None:
        """Compute the log-probs of a batch, or set the exceptions."""
        # An error of windows is assigned by retrying them one by one. An error of a
        # streaming model fails all: the other states are undefined.
        before = [copy.copy(one.stream.encoder_state) for one in batch]
        try:
            rows = self._resources.encoder.step(
                [one.stream.encoder_state for one in batch],
                [one.samples for one in batch],
                [one.is_last for one in batch],
            )
            if len(rows) != len(batch):
                raise ModelError(
                    f"{len(rows)} log-probs of {len(batch)} chunks, expected as many"
                )
        except Exception as error:
            for one, state in zip(batch, before, strict=True):
                one.error = error
                if len(batch) > 1 and not self._resources.one_pass:
                    one.stream.encoder_state, one.error = state, None
                    self._step([one])
            return
        for one, some in zip(batch, rows, strict=True):
            one.rows = np.asarray(some)
            if one.rows.ndim != 2:
                one.error = ModelError(
                    f"the model gave {one.rows.shape}, expected [T, V]"
                )

    def _search(self, streams: Sequence[Stream]) -> None:
        # Frames after the end of an utterance are searched in another turn of this
        # loop, by a new session.
        while streams:
            groups: dict[Any, dict[SessionId, tuple[Stream, np.ndarray]]] = {}
            for stream in streams:
                cutter = stream.cutter
                if cutter is not None and len(rows := cutter.next_rows()):
                    group = groups.setdefault(stream.resources.sessions, {})
                    group[cutter.session] = stream, rows
            for sessions, group in groups.items():  # one for each vocabulary
                try:
                    sessions.advance({one: rows for one, (_, rows) in group.items()})
                    sessions.partials(list(group))  # streams then reuse them
                except Exception:  # one by one, where one of them fails
                    for session, (stream, rows) in group.items():
                        self._attempt(stream, self._advance_one, stream, session, rows)
            streams = [stream for x in groups.values() for stream, _ in x.values()]
            for stream in streams:
                if not stream.is_over:
                    self._attempt(stream, stream.advanced)

    def _advance_one(
        self, stream: Stream, session: SessionId, rows: np.ndarray
    ) -> None:
        sessions, cutter = stream.resources.sessions, stream.cutter
        assert cutter is not None
        done = sessions.partial(session).num_frames - cutter.num_frames
        try:
            sessions.advance({session: rows[done:]})
        except InputError as error:
            error.utterance = None  # the names of sessions are internal
            raise

    def _post_events(self, streams: Sequence[Stream]) -> None:
        """Emit ready events, and forget finished streams."""
        for stream in streams:
            try:
                for event, spoken in stream.events():
                    if spoken is not None:
                        self._metrics.final.observe(time.monotonic() - spoken)
                    if isinstance(event, Finished):
                        if event.error is not None:
                            kind = type(event.error).__name__
                            self._metrics.errors.labels(kind).inc()
                        self._drop(stream)
                    stream.take(event)
            # A failing stream ends alone.
            except Exception as error:
                _log.exception("the events of a stream cannot be emitted")
                self._drop(stream)
                with contextlib.suppress(Exception):
                    stream.take(Finished(stream.audio_s, error))
            if stream.has_more:
                self._touched.put(stream)

    def _drop(self, stream: Stream) -> None:
        self._streams.discard(stream)
        stream.discard()


@dataclass
class _Chunk:
    """Audio of a stream in a round, and its log-probs or exception."""

    stream: Stream
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    is_last: bool = True
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    error: Exception | None = None


def warm(decoder: Decoder[Any, Any]) -> None:
    """Run all kernels of a decoder that streams and files may need."""

    def run() -> None:
        rows, has_lattices = [decoder.made_up_input()], True
        try:
            [lattice] = decoder.decode_lattice(rows)
            _ = LatticeReading(nbest=2, confidence=True)("", lattice)[0].words
        except OptionError:  # it records none
            has_lattices = False
        decoder.warm_up(lattices=has_lattices)
        # raised for words of a vocabulary without any
        with contextlib.suppress(OptionError):
            phrases = [*decoder.vocabulary.words[1:2], UNK]
            strict = WfstDecoder.of_phrases(decoder, phrases)
            strict.warm_up(lattices=has_lattices)

    # Neither a device nor the threads of torch survive a fork.
    if decoder.family == "ctc" and not decoder.is_on_device:
        with_kernels(run)
    else:
        run()


class _Unmeasured:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *given: Any) -> Any:
        return self


class _Counts:
    """Gauges of open streams and requests, from the counts of all processes."""

    def __init__(self, shared: Shared, is_ready: Callable[[], bool]) -> None:
        self._shared, self._is_ready = shared, is_ready

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, text in (
            ("streams", "Streams under way"),
            ("uploads", "Files that are being received"),
            ("connections", "Connections"),
        ):
            total = self._shared.total(name)
            yield GaugeMetricFamily(f"wfstdec_{name}", text, total)
        text = "1 where new streams are taken"
        yield GaugeMetricFamily("wfstdec_ready", text, self._is_ready())
        text = "1 where a process serves"
        up = GaugeMetricFamily("wfstdec_process_up", text, labels=("process",))
        for process, value in enumerate(self._shared.counts[:, KINDS.index("up")]):
            up.add_metric((str(process),), value)
        yield up


class Metrics:
    """Counters and histograms of a server, for Prometheus; thread-safe."""

    # Real-time factors are quotients of rates, which Prometheus computes: seconds of
    # the encoder and the decoder by those of audio.

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ours: dict[str, Any] = {"namespace": "wfstdec", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **ours)
        histogram: Callable[..., Histogram] = partial(Histogram, **ours)
        text = "Streams that a round advanced"
        self.round_streams = histogram("round_streams", text, buckets=_SIZES)
        text, seconds = "Encoder's part of a round", "round_encoder_seconds"
        self.round_encoder = histogram(seconds, text, buckets=_ROUNDS)
        text, seconds = "Search's part of a round", "round_decoder_seconds"
        self.round_decoder = histogram(seconds, text, buckets=_ROUNDS)
        text = "From the arrival of audio to the round that takes it"
        self.queue = histogram("queue_seconds", text, buckets=_LATENCIES)
        text = "From the end of speech to the final words of an utterance"
        self.final = histogram("final_seconds", text, buckets=_LATENCIES)
        text = "Requests, by route and status; streams as long as they last"
        labels = "route", "status"
        self.requests = histogram("request_seconds", text, labels, buckets=_REQUESTS)
        text = "From a file's turn to its answer"
        self.file = histogram("file_seconds", text, buckets=_REQUESTS)
        text = "Audio of files that were transcribed"
        self.file_audio = counter("file_audio_seconds", text)
        self.audio = counter("audio_seconds", "Audio that came in by streams")
        self.errors = counter("errors", "Streams and files that failed", ("kind",))
        text = "Requests and streams that were not taken"
        self.refused = counter("refused", text, ("reason",))
        text = "From when the event loop should run to when it does, each 50 ms"
        self.gil_wait = histogram("gil_wait_seconds", text, buckets=_ROUNDS)
        text = "Collections of garbage, which stop all streams"
        self.gc = histogram("gc_seconds", text, buckets=_ROUNDS)
        self._shown = self.registry
        if MULTIPROCESS in os.environ:  # each process has files there: show their sums
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown)

    def show_counts(self, shared: Shared, is_ready: Callable[[], bool]) -> None:
        """Add gauges of the streams and requests of all processes."""
        self._shown.register(_Counts(shared, is_ready))

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the requested format, with its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._shown), kind
