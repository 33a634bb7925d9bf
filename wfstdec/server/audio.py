"""Decoding of a stream's bytes to samples: encodings, WAV, containers by FFmpeg.

    audio = open_bytes("mulaw", 8000, 1, model_rate, most_s=10.0, wake=wake)
    audio = audio.give(data, arrived)            # does not block
    samples, arrived = audio.take(1.0)           # decoded so far
    audio.close()                                # no thread is left

FFmpeg reads a pipe, in a thread for each container. The thread waits until decoded
samples are taken, so a small file of many hours does not fill memory. FFmpeg lags: by
0.1 s of WebM, by a page of Ogg (usually a second), by ten frames of FLAC (2.4 s at 16
kHz). Audio that is not decoded at a flush belongs to the next utterance.
"""

from __future__ import annotations

import functools
import math
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, cast

import numpy as np

from wfstdec.audio.reading import AudioReader
from wfstdec.audio.samples import ResampleStream, checked_peak, scaled
from wfstdec.audio.sources import UNKNOWN_SIZE, form_of, open_av, raw_samples
from wfstdec.errors import AudioError, WfstdecError

BYTES_PER_S = 16_000  # Assumed rate of containers before they are decoded
_SOON = {"probesize": "4096", "analyzeduration": "0"}
"""Options of FFmpeg: begin with the first packets. `nobuffer` would drop the packets
used for detection: up to 0.9 s of MP3.
"""
NOTHING = np.zeros(0, np.float32)

Taken = tuple[np.ndarray, float]  # Samples, and when the last of their bytes arrived


class AudioBytes:
    """Bytes of a stream, decoded to samples; this class waits for a file's head."""

    bytes_per_s: float = BYTES_PER_S  # of bytes that are not decoded yet
    _head = b""
    _error: WfstdecError | None = None

    def __init__(
        self, model_rate: int, most_s: float, wake: Callable[[], object]
    ) -> None:
        self._model_rate, self._most_s, self._wake = model_rate, most_s, wake

    @property
    def waiting_s(self) -> float:
        """Estimated seconds of audio that wait."""
        return 0.0

    @property
    def waits_since(self) -> float | None:
        """Arrival time of the oldest waiting bytes; None if unknown."""
        return None

    @property
    def is_ready(self) -> bool:
        """Whether samples, or an error to raise, are ready."""
        return self._error is not None

    @property
    def is_through(self) -> bool:
        """Whether all bytes are consumed, except a part of a sample."""
        return True

    def give(self, data: bytes, arrived: float) -> AudioBytes:
        """Add bytes, cut anywhere; return the object for the next bytes."""
        self._head += data
        head, start = self._head, 0
        if len(head) < _HEAD or self._error is not None:
            return self
        inner: AudioBytes
        try:
            if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
                found = _wav_header(head)
                if found is None:
                    return self
                form, start, size = found
                inner = _RawBytes(*form, self._model_rate, size)
            else:
                name = _container_form(head)
                inner = _Piped(name, self._model_rate, self._most_s, self._wake)
        except AudioError as error:
            self._error = error
            return self
        return inner.give(head[start:], arrived)

    def end(self) -> None:
        """End the input."""
        if self._head and self._error is None:
            self._error = AudioError(
                f"{len(self._head)} bytes that begin with {self._head[:_HEAD]!r}, "
                "expected the head of an audio file and what follows it"
            )

    def take(self, seconds: float) -> Taken:
        """Return at most `seconds` of samples, and when their last bytes arrived."""
        if self._error is not None:
            raise self._error
        return NOTHING, 0.0

    def rest(self) -> np.ndarray:
        """Return the samples that a resampler holds back, and reset it."""
        return NOTHING

    def close(self) -> None:
        """Stop decoding; threads end."""


class _Closed(Exception):
    """The stream was closed during decoding."""


class _Piped(AudioBytes):
    """Container decoded by FFmpeg in a thread, and resampled."""

    def __init__(
        self, form: str, model_rate: int, most_s: float, wake: Callable[[], object]
    ) -> None:
        self._form, self._rate, self._wake = form, model_rate, wake
        self._most = int(most_s * model_rate)
        self._changed = threading.Condition()
        self._data = bytearray()  # not yet read by FFmpeg
        self._has_ended = self._starves = False  # whether FFmpeg waits for bytes
        self._samples = NOTHING  # not yet taken
        self._arrived = 0.0
        self._is_closed = self._is_done = self._has_begun = False
        threading.Thread(
            target=self._run, name="wfstdec-container", daemon=True
        ).start()

    @property
    def waiting_s(self) -> float:
        return len(self._samples) / self._rate + len(self._data) / BYTES_PER_S

    @property
    def is_ready(self) -> bool:
        return len(self._samples) > 0 or self._error is not None

    @property
    def is_through(self) -> bool:
        return not len(self._samples) and (self._is_done or self._starves)

    def give(self, data: bytes, arrived: float) -> AudioBytes:
        self._arrived = arrived
        with self._changed:
            if data and not self._is_done:
                self._data += data
                self._starves = False
                self._changed.notify_all()
        return self

    def end(self) -> None:
        with self._changed:
            self._has_ended, self._starves = True, False
            self._changed.notify_all()

    def close(self) -> None:
        self._is_closed = True
        self.end()

    def read(self, size: int = -1) -> bytes:
        """Return available bytes, at least one; none at the end."""
        with self._changed:
            if not self._data and not self._has_ended:
                self._starves = True
                self._wake()
            while not self._data and not self._has_ended:
                self._changed.wait()
            if self._is_closed:
                raise _Closed
            found = bytes(self._data if size < 0 else self._data[:size])
            del self._data[: len(found)]
            return found

    def take(self, seconds: float) -> Taken:
        most = max(1, math.ceil(seconds * self._rate))
        with self._changed:
            found, self._samples = self._samples[:most], self._samples[most:]
            if self._error is not None and not len(found):
                raise self._error
            self._changed.notify_all()
        return found, self._arrived

    def _run(self) -> None:
        try:
            with open_av(cast(IO[bytes], self), self._form, options=_SOON) as source:
                for block in AudioReader(
                    source, self._rate, None, max_seconds=math.inf, allow_cut=True
                ):
                    with self._changed:
                        while len(self._samples) >= self._most and not self._is_closed:
                            self._changed.wait()
                        if self._is_closed:
                            raise _Closed
                        self._has_begun = True
                        self._samples = np.concatenate([self._samples, block])
                    self._wake()
        except _Closed:
            pass
        except Exception as error:  # fails only this stream
            self._error = self._explained(error)
            if self._error is not error:
                self._error.__cause__ = error
        finally:
            self._is_done = True
            self.end()
            self._wake()

    def _explained(self, error: Exception) -> WfstdecError:
        if not isinstance(error, WfstdecError):
            return AudioError(f"cannot read {self._form} ({error!r}), expected audio")
        if self._form == "MP4" and not self._has_begun:  # it may not be streamable
            return AudioError(
                f"an MP4 that cannot be read as it comes ({error}), expected one in "
                "fragments; one with its index at the end goes by a request with a file"
            )
        return error


WavForm = tuple[str, int, int]  # Subtype of libsndfile, sample rate, channels
ENCODINGS = {
    "linear16": "PCM_16",
    "linear32": "PCM_32",
    "mulaw": "ULAW",
    "alaw": "ALAW",
}
_WAV_SUBTYPES = {
    (1, 8): "PCM_U8",
    (1, 16): "PCM_16",
    (1, 24): "PCM_24",
    (1, 32): "PCM_32",
    (3, 32): "FLOAT",
    (3, 64): "DOUBLE",
    (6, 8): "ALAW",
    (7, 8): "ULAW",
}
"""Subtype by format and bits of a sample in WAV headers."""
_WIDTHS = {subtype: bits // 8 for (_, bits), subtype in _WAV_SUBTYPES.items()}
_HEAD = 12  # bytes that identify a container
_MAX_CHUNK = 1 << 20  # bytes of a chunk before the samples of a WAV file, at most


def _decoded(data: bytes, subtype: str) -> np.ndarray:
    """Return float32 samples [n] of bytes of a libsndfile subtype."""
    # Telephone and microphone formats are decoded without opening a file each round.
    if _WIDTHS[subtype] == 1:
        return _table(subtype)[np.frombuffer(data, np.uint8)]
    if subtype == "PCM_16":
        return scaled(np.frombuffer(data, "<i2"))
    samples = raw_samples(data, subtype)
    checked_peak(samples)
    return samples


@functools.cache
def _table(subtype: str) -> np.ndarray:
    return raw_samples(bytes(range(256)), subtype)


class _RawBytes(AudioBytes):
    def __init__(
        self,
        subtype: str,
        rate: int,
        channels: int,
        model_rate: int,
        most: float = math.inf,
    ) -> None:
        self._subtype, self._channels = subtype, channels
        self._size, self._rates = _WIDTHS[subtype] * channels, (rate, model_rate)
        self.bytes_per_s = self._size * rate
        self._resample = ResampleStream(*self._rates)
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._num_bytes, self._left = 0, most
        self._arrived = 0.0

    @property
    def waiting_s(self) -> float:
        return self._num_bytes / self.bytes_per_s

    @property
    def waits_since(self) -> float | None:
        return self._waiting[0][1] if self._waiting else None

    @property
    def is_ready(self) -> bool:
        return not self.is_through

    @property
    def is_through(self) -> bool:
        return self._num_bytes < self._size

    def give(self, data: bytes, arrived: float) -> AudioBytes:
        data = data[: int(min(self._left, len(data)))]
        self._left -= len(data)
        self._waiting.append((data, arrived))
        self._num_bytes += len(data)
        return self

    def take(self, seconds: float) -> Taken:
        most = max(1, math.ceil(seconds * self._rates[0])) * self._size
        left = min(most, self._num_bytes // self._size * self._size)
        if not left:
            return NOTHING, self._arrived
        self._num_bytes -= left
        parts: list[bytes] = []
        while left:
            data, self._arrived = self._waiting.popleft()
            if len(data) > left:
                self._waiting.appendleft((data[left:], self._arrived))
                data = data[:left]
            parts.append(data)
            left -= len(data)
        samples = _decoded(b"".join(parts), self._subtype)
        if self._channels > 1:
            samples = samples.reshape(-1, self._channels).mean(axis=1)
        return self._resample(samples), self._arrived

    def rest(self) -> np.ndarray:
        found = self._resample.finish()
        self._resample = ResampleStream(*self._rates)
        return found

    def close(self) -> None:
        self._waiting.clear()
        self._num_bytes = 0


_FORMS = (
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
    (0, b"ID3", "MP3"),
    (0, b"FORM", "AIFF"),
    (0, b"RF64", "WAV"),
    (0, b"#!AMR", "AMR"),
    (4, b"ftyp", "MP4"),
)


def _container_form(head: bytes) -> str:
    if (name := form_of(head, _FORMS)) is not None:
        return name
    if head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "MP3 or AAC"
    raise AudioError(
        f"audio that begins with {head[:_HEAD]!r}, expected WAV, FLAC, Ogg, WebM, MP3, "
        "AAC, MP4 or AIFF; samples alone need their encoding"
    )


def _wav_header(head: bytes) -> tuple[WavForm, int, float] | None:
    """Parse a WAV header: format, offset and size of samples; None if incomplete."""
    at, found = 12, None
    while len(head) >= at + 8:
        name, size = struct.unpack_from("<4sI", head, at)
        at += 8
        if name == b"data":
            if found is None:
                raise AudioError("WAV samples before their form, expected a fmt chunk")
            is_known = 0 < size < UNKNOWN_SIZE  # headers of pipes have 0, or all ones
            return found, at, size if is_known else math.inf
        if size > _MAX_CHUNK:
            raise AudioError(
                f"{size} bytes of {name!r} before the samples of a WAV file, expected "
                f"at most {_MAX_CHUNK}"
            )
        if name == b"fmt ":
            # Incomplete: the header is parsed again from its start.
            if len(head) < at + size:
                return None
            found = _wav_form(head[at : at + size])
        # Chunks are padded to an even size, which their sizes do not count.
        at += size + size % 2
    return None


def _wav_form(chunk: bytes) -> WavForm:
    if len(chunk) < 16:
        raise AudioError(f"a fmt chunk of {len(chunk)} bytes, expected 16 or more")
    kind, channels, rate, bits = struct.unpack("<HHI6xH", chunk[:16])
    if kind == 0xFFFE and len(chunk) >= 26:  # extensible
        kind = int.from_bytes(chunk[24:26], "little")
    subtype = _WAV_SUBTYPES.get((kind, bits))
    if subtype is None or not 1 <= channels <= 64 or not 1000 <= rate <= 1_000_000:
        raise AudioError(
            f"WAV of kind {kind} with {bits} bits, {channels} channels, {rate} Hz, "
            "expected PCM, float, A-law or mu-law, 1 to 64 channels, 1000 to 1000000 Hz"
        )
    return subtype, rate, channels


def open_bytes(
    encoding: str | None,
    rate: int,
    channels: int,
    model_rate: int,
    most_s: float,
    wake: Callable[[], object],
) -> AudioBytes:
    """Return a decoder of an encoding, or of a container if that is None."""
    if encoding is None:
        return AudioBytes(model_rate, most_s, wake)
    return _RawBytes(ENCODINGS[encoding], rate, channels, model_rate)
