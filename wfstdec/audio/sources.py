"""Decoders of audio files with one interface: soundfile, FFmpeg, and arrays.

A source raises errors of the bytes; `samples` checks the values. libsndfile reads a
truncated WAV, Ogg or MP3 as a shorter one, or as if silence followed; the headers
reveal it.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np

from wfstdec.audio.samples import AudioNote
from wfstdec.errors import AudioError, AudioFormError, BackendError, needs

AUDIO_ENDINGS = frozenset(
    ".wav .flac .ogg .oga .opus .mp3 .aif .aiff .au .w64 .caf .webm .m4a .mp4 .mkv "
    ".mov .aac .wma".split()
)
"""Endings of audio files in folders."""
SLACK_S = 0.25
"""Tolerance of a container's duration in seconds: priming of AAC, last packet."""
_SAYS_LENGTH = ("FLAC", "WAV", "WAVEX")
_UNKNOWN = 2**40  # libsndfile's number of samples for a FLAC of unknown length
_TAIL = 70_000  # an Ogg page is at most 65,307 bytes
UNKNOWN_SIZE = 0x7FFF0000
"""Sizes from here on are placeholders of programs that wrote to a pipe."""


_OF_AV = (
    (4, b"ftyp", "MP4"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
    (0, b"\xff\xf1", "AAC"),
    (0, b"\xff\xf9", "AAC"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
)
"""Formats that only FFmpeg reads: offset of the magic bytes, the bytes, the name."""


def form_of(head: bytes, forms: Iterable[tuple[int, bytes, str]]) -> str | None:
    """Return the format of a file's first bytes, or None."""
    return next((name for at, begin, name in forms if head.startswith(begin, at)), None)


def cut_short(file: IO[bytes]) -> str | None:
    """Return how a file is shorter than its header; None if it is complete."""
    place = file.tell()
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(256)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _cut_chunk(file, size, "little", b"data")
        if head[:4] == b"FORM" and head[8:11] == b"AIF":
            return _cut_chunk(file, size, "big", b"SSND")
        if head[:4] == b"OggS":
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            # The last page must be complete, with the end-of-stream flag.
            page = tail[tail.rfind(b"OggS") :] if b"OggS" in tail else b""
            lacing = page[27 : 27 + page[26]] if len(page) > 26 else b""
            is_whole = len(page) > 26 and len(page) >= 27 + page[26] + sum(lacing)
            if is_whole and page[5] & 4:
                return None
            return "no page ends the stream"
        return _cut_mp3(file, head, size)
    finally:
        file.seek(place)


def with_size(file: IO[bytes]) -> IO[bytes]:
    """Return a WAV whose header has the size of its samples instead of 0."""
    # Such a file is read into memory, as libsndfile takes 0 for no samples.
    place = file.tell()
    file.seek(0)
    head = file.read(4096)
    at = head.find(b"data\0\0\0\0") if head[:4] == b"RIFF" else -1
    rest = file.read() if at >= 0 else b""
    file.seek(place)
    samples = head[at + 8 :] + rest
    if at < 0 or not samples:
        return file
    size = len(samples).to_bytes(4, "little")
    return io.BytesIO(head[: at + 4] + size + samples)


def _cut_chunk(
    file: IO[bytes], size: int, order: Literal["little", "big"], name: bytes
) -> str | None:
    """Compare the chunk of samples in RIFF or AIFF with the file."""
    start = 12
    while True:
        file.seek(start)
        head = file.read(8)
        if len(head) < 8:
            return None
        length = int.from_bytes(head[4:], order)
        if head[:4] == name:
            break
        start += 8 + length + length % 2
    there = size - start - 8
    if length >= UNKNOWN_SIZE or length <= there:
        return None
    return f"{there} bytes of samples, the header has {length}"


def _cut_mp3(file: IO[bytes], head: bytes, size: int) -> str | None:
    """Compare the file with the size in a Xing or Info header, if any."""
    start = 0
    if head[:3] == b"ID3":  # its size has 7 bits in each byte
        start = 10 + sum(byte << 7 * (3 - i) for i, byte in enumerate(head[6:10]))
        file.seek(start)
        head = file.read(256)
    if len(head) < 64 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    at = max(head.find(b"Xing", 0, 64), head.find(b"Info", 0, 64))
    # Flag 2: the header has the number of bytes.
    if at < 0 or not head[at + 7] & 2:
        return None
    # Flag 1: the number of frames precedes it.
    field = at + 8 + (4 if head[at + 7] & 1 else 0)
    length = int.from_bytes(head[field : field + 4], "big")
    if length <= size - start:
        return None
    return f"{size - start} bytes, the header has {length}"


@dataclass
class Source:
    """Open audio file."""

    rate: int  # samples a second
    num_channels: int
    form: str  # format for users, such as "FLAC"
    duration_s: float | None = None  # by the header
    notes: list[AudioNote] = field(default_factory=list)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Yield samples [n] or [n, C] in order, at most `size` at once."""
        raise NotImplementedError


class ArraySource(Source):
    """Samples [N] or [N, C] in memory."""

    def __init__(self, samples: np.ndarray, rate: int) -> None:
        channels = samples.shape[1] if samples.ndim > 1 else 1
        super().__init__(rate, channels, "array")
        self._samples = samples

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`."""
        for start in range(0, len(self._samples), size):
            yield self._samples[start : start + size]


class SoundfileSource(Source):
    """Source for libsndfile: WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF and more."""

    def __init__(self, file: Any) -> None:
        form = f"{file.format} {file.subtype}"
        super().__init__(file.samplerate, file.channels, form)
        self._file = file
        if file.format in _SAYS_LENGTH and 0 < file.frames < _UNKNOWN:
            self.duration_s = file.frames / file.samplerate

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`."""
        soundfile = _soundfile()
        done = 0
        how = {"dtype": "float32", "always_2d": True}
        try:
            while len(block := self._file.read(size, **how)):
                done += len(block)
                yield block
        except soundfile.LibsndfileError as error:
            what = f"damaged or cut after {done / self.rate:.2f} s ({error})"
            raise AudioError(f"{what}, expected whole {self.form}") from error


class AvSource(Source):
    """Source for FFmpeg: the first audio stream of MP4, WebM, AAC and more."""

    def __init__(self, container: Any, av: Any) -> None:
        streams = container.streams.audio
        if not streams:
            raise AudioError("no audio stream in it, expected one")
        stream = streams[0]
        form = f"{container.format.name} {stream.codec_context.name}"
        super().__init__(stream.rate, stream.channels, form)
        self._container, self._stream, self._av = container, stream, av
        # For raw AAC it is an estimate from the bit rate.
        if container.duration and container.format.name != "aac":
            self.duration_s = container.duration / av.time_base
        if len(streams) > 1:
            text = f"{len(streams)} audio streams, the first one taken"
            self.notes.append(AudioNote("streams", text))

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Implement `Source.blocks`, with a block per packet."""
        resampler = self._av.AudioResampler(format="fltp", rate=self.rate)
        done = 0
        try:
            for frame in self._container.decode(self._stream):
                for piece in resampler.resample(frame):
                    done += piece.samples
                    yield piece.to_ndarray().T
        except self._av.FFmpegError as error:
            what = f"damaged after {done / self.rate:.2f} s ({error})"
            raise AudioError(f"{what}, expected whole {self.form}") from error


def open_source(file: IO[bytes]) -> AbstractContextManager[Source]:
    """Return a decoder by the first bytes of a file."""
    head = file.read(16)
    file.seek(0)
    if not head:
        raise AudioError("an empty file, expected audio")
    form = form_of(head, _OF_AV)
    return _open_soundfile(file, head) if form is None else open_av(file, form)


@contextlib.contextmanager
def _open_soundfile(file: IO[bytes], head: bytes) -> Iterator[Source]:
    soundfile = _soundfile()
    base: Any = soundfile.SoundFile

    class Forward(base):
        """Sequential reader, without soundfile's seek after every block.

        After a seek mpg123 lacks the bits that frames borrow from earlier ones, so MP3
        crackles; and a FLAC of unknown length has no end to seek to.
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
    """Open a file of a format that FFmpeg reads."""
    with needs(f"{form} needs PyAV", ": pip install av"):
        import av
    try:
        opened = av.open(file, "r", options=dict(options or {}))
    except av.FFmpegError as error:
        raise AudioError(f"damaged or cut {form} ({error}), expected audio") from error
    with opened:
        yield AvSource(opened, av)


def raw_samples(data: bytes, subtype: str) -> np.ndarray:
    """Decode samples [n] of a subtype of libsndfile, without header, to float32."""
    form = {"format": "RAW", "subtype": subtype, "samplerate": 8000, "channels": 1}
    return _soundfile().read(io.BytesIO(data), dtype="float32", **form)[0]


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: no libsndfile
        text = f"audio files need soundfile ({error}): pip install soundfile"
        raise BackendError(text) from error
    return soundfile
