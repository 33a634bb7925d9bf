"""Metrics of the server, as Prometheus reads them.

Real-time factors are quotients of rates, which Prometheus makes itself: seconds of the
encoder and the decoder by those of audio.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
        ours: dict[str, Any] = {"namespace": "wfstdec", "registry": self.registry}
        gauge: Callable[..., Gauge] = partial(Gauge, **ours)
        counter: Callable[..., Counter] = partial(Counter, **ours)
        histogram: Callable[..., Histogram] = partial(Histogram, **ours)
        self.streams = gauge("streams", "Streams under way")
        self.ready = gauge("ready", "1 where new streams are taken")
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

    def text(self, accept: str) -> tuple[bytes, str]:
        """Write all metrics in the format that is asked for, with its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind
