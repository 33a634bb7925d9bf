"""Decoders of audio files behind one form: soundfile's, FFmpeg's, and an array.

A source raises what is wrong with the bytes; what is wrong with the samples is for
`samples`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from wfstdec.audio.headers import needs_av, with_size
from wfstdec.audio.samples import AudioNote
from wfstdec.errors import AudioError, AudioFormError, BackendError, needs

SLACK_S = 0.25
"""Seconds that a container's duration may be off: priming of AAC, last packet."""
_UNKNOWN = 2**40  # samples that libsndfile says a FLAC has that does not say it


@dataclass
class Source:
    """Open audio file."""

    rate: int  # samples a second
    num_channels: int
    form: str  # as users know it, such as "FLAC"
    duration_s: float | None = None  # as the file has it
    notes: list[AudioNote] = field(default_factory=list)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Yield samples [n] or [n, C] in order, `size` at once or fewer."""
        raise NotImplementedError


class ArraySource(Source):
    """Samples [N] or [N, C] that are there already."""

    def __init__(self, samples: np.ndarray, rate: int) -> None:
        channels = samples.shape[1] if samples.ndim > 1 else 1
        super().__init__(rate, channels, "array")
        self._samples = samples

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`."""
        for start in range(0, len(self._samples), size):
            yield self._samples[start : start + size]


class SoundfileSource(Source):
    """WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF and more, by libsndfile."""

    def __init__(self, file: Any) -> None:
        form = f"{file.format} {file.subtype}"
        super().__init__(file.samplerate, file.channels, form)
        self._file = file
        if file.format == "FLAC" and 0 < file.frames < _UNKNOWN:
            self.duration_s = file.frames / file.samplerate

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`."""
        soundfile = _soundfile()
        done = 0
        while True:
            try:
                block = self._file.read(size, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                raise AudioError(
                    f"damaged or cut after {done / self.rate:.2f} s ({error}), "
                    f"expected whole {self.form}"
                ) from error
            if not len(block):
                return
            done += len(block)
            yield block


class AvSource(Source):
    """The first audio stream of what FFmpeg reads: MP4, WebM, AAC and more."""

    def __init__(self, container: Any, av: Any) -> None:
        streams = container.streams.audio
        if not streams:
            raise AudioError("no audio stream in it, expected one")
        stream = streams[0]
        form = f"{container.format.name} {stream.codec_context.name}"
        super().__init__(stream.rate, stream.channels, form)
        self._container, self._stream, self._av = container, stream, av
        if container.duration:
            self.duration_s = container.duration / av.time_base
        if len(streams) > 1:
            text = f"{len(streams)} audio streams, the first one taken"
            self.notes.append(AudioNote("streams", text))

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`: the packets, each as long as it is."""
        resampler = self._av.AudioResampler(format="fltp", rate=self.rate)
        done = 0
        try:
            for frame in self._container.decode(self._stream):
                for piece in resampler.resample(frame):
                    done += piece.samples
                    yield piece.to_ndarray().T
        except self._av.FFmpegError as error:
            raise AudioError(
                f"damaged after {done / self.rate:.2f} s ({error}), "
                f"expected whole {self.form}"
            ) from error


def open_source(file: IO[bytes]) -> AbstractContextManager[Source]:
    """Choose a decoder by the first bytes of a file."""
    head = file.read(16)
    file.seek(0)
    if not head:
        raise AudioError("an empty file, expected audio")
    form = needs_av(head)
    return _open_soundfile(file, head) if form is None else open_av(file, form)


@contextlib.contextmanager
def _open_soundfile(file: IO[bytes], head: bytes) -> Iterator[Source]:
    soundfile = _soundfile()
    base: Any = soundfile.SoundFile

    class Forward(base):
        """Read on without a seek after every block: soundfile's own make MP3 crackle.

        mpg123 begins again after each, without the bits that frames borrow from those
        before them; and a FLAC of unknown length has no end to seek to.
        """

        def seekable(self) -> bool:
            return False

    try:
        opened = Forward(with_size(file))
    except soundfile.LibsndfileError as error:
        raise AudioFormError(
            f"not audio, or damaged ({error.error_string}): it begins with "
            f"{head!r}, expected WAV, FLAC, Ogg, Opus, MP3, AIFF, MP4, WebM or AAC"
        ) from error
    with opened:
        yield SoundfileSource(opened)


@contextlib.contextmanager
def open_av(
    file: IO[bytes], form: str, options: Mapping[str, str] | None = None
) -> Iterator[Source]:
    """Open what FFmpeg reads."""
    with needs(f"{form} needs PyAV", ": pip install av"):
        import av
    try:
        opened = av.open(file, "r", options=dict(options or {}))
    except av.FFmpegError as error:
        raise AudioError(f"damaged or cut {form} ({error}), expected audio") from error
    with opened:
        yield AvSource(opened, av)


def raw_samples(data: bytes, subtype: str) -> np.ndarray:
    """Decode samples [n] without a header, of a subtype of libsndfile, to float32."""
    form = {"format": "RAW", "subtype": subtype, "samplerate": 8000, "channels": 1}
    return _soundfile().read(io.BytesIO(data), dtype="float32", **form)[0]


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: no libsndfile
        raise BackendError(
            f"audio files need soundfile ({error}): pip install soundfile"
        ) from error
    return soundfile
