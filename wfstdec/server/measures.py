"""Measures of the server, as Prometheus reads them.

    measures = Measures()
    measures.final_after(0.18)
    body, kind = measures.text(request.headers.get("accept"))

Real-time factors are quotients of rates, which Prometheus makes itself: seconds of the
encoder and the decoder by those of audio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
_ROUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_REQUESTS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Measures:
    """Counters and histograms of one server, in a registry of its own.

    All methods may be called by any thread.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ours: dict[str, Any] = {"namespace": "wfstdec", "registry": self.registry}

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, **ours)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, **ours)

        self._streams = Gauge("streams", "Streams under way", **ours)
        self._ready = Gauge("ready", "1 where new streams are taken", **ours)
        self._sizes = histogram(
            "round_streams", "Streams that a round advanced", _SIZES
        )
        self._encoder = histogram(
            "round_encoder_seconds", "Encoder's part of a round", _ROUNDS
        )
        self._decoder = histogram(
            "round_decoder_seconds", "Search's part of a round", _ROUNDS
        )
        self._queue = histogram(
            "queue_seconds",
            "From the arrival of audio to the round that takes it",
            _LATENCIES,
        )
        self._finals = histogram(
            "final_seconds",
            "From the end of speech to the final words of an utterance",
            _LATENCIES,
        )
        self._audio = counter("audio_seconds", "Audio that came in by streams")
        self._file_audio = counter(
            "file_audio_seconds", "Audio of files that were transcribed"
        )
        self._file_work = histogram(
            "file_seconds", "From a file's turn to its answer", _REQUESTS
        )
        self._requests = Histogram(
            "request_seconds",
            "Requests, by route and status; streams as long as they last",
            ("route", "status"),
            buckets=_REQUESTS,
            **ours,
        )
        self._errors = counter("errors", "Streams and files that failed", "kind")
        self._refused = counter(
            "refused", "Requests and streams that were not taken", "reason"
        )

    def watch(self, streams: Callable[[], float], ready: Callable[[], float]) -> None:
        """Ask these for the gauges whenever somebody reads them."""
        self._streams.set_function(streams)
        self._ready.set_function(ready)

    def round_done(self, streams: int, encoder_s: float, decoder_s: float) -> None:
        """Count a round: how many streams it advanced, and where its time went."""
        self._sizes.observe(streams)
        self._encoder.observe(encoder_s)
        self._decoder.observe(decoder_s)

    def queued(self, seconds: float) -> None:
        """Note how long audio waited for its round."""
        self._queue.observe(seconds)

    def final_after(self, seconds: float) -> None:
        """Note the time from the end of speech to an utterance's final words."""
        self._finals.observe(seconds)

    def heard(self, seconds: float) -> None:
        """Add audio that came in by a stream."""
        self._audio.inc(seconds)

    def file_done(self, audio_s: float, seconds: float) -> None:
        """Note a file that was transcribed: its audio, and the time it took."""
        self._file_audio.inc(audio_s)
        self._file_work.observe(seconds)

    def request_done(self, route: str, status: int, seconds: float) -> None:
        """Note a request, or a stream when it is closed."""
        self._requests.labels(route, str(status)).observe(seconds)

    def failed(self, kind: str) -> None:
        """Count a stream or a file that failed, by kind of error."""
        self._errors.labels(kind).inc()

    def refused(self, reason: str) -> None:
        """Count a request or a stream that was not taken, by reason."""
        self._refused.labels(reason).inc()

    def text(self, accept: str | None = None) -> tuple[bytes, str]:
        """Write all measures in the format that is asked for, with its content type."""
        encode, kind = choose_encoder(accept or "")
        return encode(self.registry), kind
