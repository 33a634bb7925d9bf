"""Metrics of the server, as Prometheus reads them.

    metrics = Metrics()
    metrics.final.observe(0.18)
    body, content_type = metrics.text(request.headers.get("accept", ""))

Real-time factors are quotients of rates, which Prometheus makes itself: seconds of the
encoder and the decoder by those of audio.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
_ROUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_REQUESTS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Counters and histograms of one server; any thread may use them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter, histogram = (
            partial(kind, namespace="wfstdec", registry=self.registry)
            for kind in (Gauge, Counter, Histogram)
        )
        self.streams = gauge("streams", "Streams under way")
        self.ready = gauge("ready", "1 where new streams are taken")
        self.round_streams = histogram(
            "round_streams", "Streams that a round advanced", buckets=_SIZES
        )
        self.round_encoder = histogram(
            "round_encoder_seconds", "Encoder's part of a round", buckets=_ROUNDS
        )
        self.round_decoder = histogram(
            "round_decoder_seconds", "Search's part of a round", buckets=_ROUNDS
        )
        self.queue = histogram(
            "queue_seconds",
            "From the arrival of audio to the round that takes it",
            buckets=_LATENCIES,
        )
        self.final = histogram(
            "final_seconds",
            "From the end of speech to the final words of an utterance",
            buckets=_LATENCIES,
        )
        self.audio = counter("audio_seconds", "Audio that came in by streams")
        self.file_audio = counter(
            "file_audio_seconds", "Audio of files that were transcribed"
        )
        self.file = histogram(
            "file_seconds", "From a file's turn to its answer", buckets=_REQUESTS
        )
        self.requests = histogram(
            "request_seconds",
            "Requests, by route and status; streams as long as they last",
            ("route", "status"),
            buckets=_REQUESTS,
        )
        self.errors = counter("errors", "Streams and files that failed", ("kind",))
        self.refused = counter(
            "refused", "Requests and streams that were not taken", ("reason",)
        )

    def text(self, accept: str) -> tuple[bytes, str]:
        """Write all metrics in the format that is asked for, with its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind
