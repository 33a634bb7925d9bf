"""Reader of audio as model input: one channel, float32, at the model's rate.

for kind, text in audio.notes: ...         # ("rate", "44100 Hz resampled to 16000 Hz")

Other rates and several channels are converted, with a note. Audio that would give wrong
words is an error with a remedy.
"""

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from wfstdec.audio.samples import AudioNote, Mixer, ResampleStream
from wfstdec.audio.sources import SLACK_S, ArraySource, Source, cut_short, open_source
from wfstdec.errors import AudioError, AudioLengthError, InputError, OptionError

MAX_SECONDS = 4 * 3600.0
_BLOCK_S = 1.0
_MAX_BLOCK = 2**22  # numbers in a block, so that no header can exhaust memory
_RATES = 1000, 1_000_000

AudioLike = str | os.PathLike[str] | bytes | IO[bytes] | np.ndarray
"""Path, bytes of a file, open file, or samples [N] or [N, C]."""


@dataclass(frozen=True)
class Audio:
    """Recording as model input."""

    waveform: np.ndarray  # Samples float32 [N], mostly in [-1, 1]
    sample_rate: int  # Samples per second
    notes: tuple[AudioNote, ...]  # Conversions and problems, each kind once
    source_rate: int  # Samples per second of the file
    num_channels: int  # Channels of the file
    form: str  # Format of the file, such as "FLAC PCM_16"

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return len(self.waveform) / self.sample_rate


class AudioReader:
    """Blocks of an open recording from `open_audio`, to be read once.

    Attributes:
        sample_rate: Samples per second of the blocks.
        source: The file's decoder: rate, channels, form.
        notes: Notes so far; `silence` and `cut` come at the end.
    """

    def __init__(
        self,
        source: Source,
        sample_rate: int,
        channel: int | None,
        *,
        max_seconds: float,
        block_s: float = _BLOCK_S,
        allow_cut: bool = False,
    ) -> None:
        low, high = _RATES
        if not low <= (rate := source.rate) <= high:
            raise AudioError(f"a sample rate of {rate} Hz, expected {low} to {high} Hz")
        self.source, self.sample_rate = source, sample_rate
        self.notes = list(source.notes)
        self._mixer = Mixer(channel)
        self._resample = ResampleStream(source.rate, sample_rate)
        self._max_seconds, self._block_s = max_seconds, block_s
        self._allow_cut = allow_cut
        if source.rate != sample_rate:
            text = f"{source.rate} Hz resampled to {sample_rate} Hz"
            self.notes.append(AudioNote("rate", text))
        if source.num_channels > 1:
            what = "mixed to one" if channel is None else f"channel {channel} taken"
            text = f"{source.num_channels} channels, {what}"
            self.notes.append(AudioNote("channels", text))

    def __iter__(self) -> Iterator[np.ndarray]:
        rate, num_samples = self.source.rate, 0
        header_s = self.source.duration_s
        advice = "raise max_seconds (--max-audio-seconds)"
        too_long = AudioLengthError(f"longer than {self._max_seconds:g} s; {advice}")
        # Before decoding hours; a truncated file may be shorter.
        if not self._allow_cut and (header_s or 0) > self._max_seconds + SLACK_S:
            raise too_long
        for block in self._blocks():
            num_samples += len(block)
            # Counted while decoding too: some headers have no length.
            if num_samples > self._max_seconds * rate:
                raise too_long
            ready = self._resample(self._mixer(block))
            if len(ready):
                yield ready
        if num_samples == 0:
            raise AudioError("no samples in it, expected audio")
        # Before the last samples, so that no damaged file is taken as complete.
        decoded_s = num_samples / rate
        if header_s is not None and decoded_s < header_s - SLACK_S:
            text = f"its header has {header_s:.2f} s, {decoded_s:.2f} s are there"
            if not self._allow_cut:
                raise AudioError(f"cut short: {text}; allow_cut=True reads them")
            self._note_cut(f"cut short: {text}")
        rest = self._resample.finish()
        if len(rest):
            yield rest
        if (silence := self._mixer.silence()) is not None:
            self.notes.append(silence)

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield blocks of the source, up to damage if that is allowed."""
        any_yet = False
        try:
            size = int(self._block_s * self.source.rate)
            size = min(size, _MAX_BLOCK // max(1, self.source.num_channels))
            for block in self.source.blocks(max(1, size)):
                any_yet = True
                yield block
        except AudioError as error:
            if not (self._allow_cut and any_yet):
                raise
            self._note_cut(error.message)

    def _note_cut(self, text: str) -> None:
        if all(note.kind != "cut" for note in self.notes):
            self.notes.append(AudioNote("cut", text))


@contextlib.contextmanager
def open_audio(
    source: AudioLike,
    sample_rate: int,
    *,
    source_rate: int | None = None,
    channel: int | None = None,
    max_seconds: float = MAX_SECONDS,
    block_s: float = _BLOCK_S,
    allow_cut: bool = False,
) -> Iterator[AudioReader]:
    """Open a recording of any length, to be read in blocks in bounded memory.

    Args:
        source: See `AudioLike`. File objects that cannot seek are read at once.
        sample_rate: Samples per second of the blocks.
        source_rate: Rate of an array; None if it has `sample_rate`.
        channel: Channel to read; None mixes all.
        max_seconds: Longest audio accepted: 25 MB of Opus are nine hours.
        block_s: Approximate seconds of a block.
        allow_cut: Accept the intact part of a truncated file, with a note.

    Raises:
        AudioError: No such file, not audio, empty, cut short; those of `AudioReader`.
        BackendError: A required library is not installed.
        OptionError: A number is out of its range.
    """
    if not (sample_rate > 0 and max_seconds > 0 and block_s > 0):
        given = f"{sample_rate=}, {max_seconds=}, {block_s=}"
        raise OptionError(f"{given}, expected positive numbers")
    with _naming(source), contextlib.ExitStack() as stack:
        found: Source
        if isinstance(source, np.ndarray):
            found = ArraySource(source, source_rate or sample_rate)
        else:
            file = stack.enter_context(_opened(source))
            cut = cut_short(file)
            if cut is not None and not allow_cut:
                raise AudioError(f"cut short: {cut}; allow_cut=True reads it")
            found = stack.enter_context(open_source(file))
            if cut is not None:
                found.notes.append(AudioNote("cut", f"cut short: {cut}"))
        how: Any = {"max_seconds": max_seconds, "block_s": block_s}
        yield AudioReader(found, sample_rate, channel, **how, allow_cut=allow_cut)


def read_audio(source: AudioLike, sample_rate: int, **options: Any) -> Audio:
    """Read a whole recording; arguments, options and errors as in `open_audio`."""
    with open_audio(source, sample_rate, **options) as reader:
        waveform = np.concatenate(list(reader))
        notes, of = tuple(reader.notes), reader.source
        return Audio(waveform, sample_rate, notes, of.rate, of.num_channels, of.form)


@contextlib.contextmanager
def _naming(source: AudioLike) -> Iterator[None]:
    """Prefix errors with the path, if there is one."""
    try:
        yield
    except InputError as error:
        name = getattr(source, "name", source)
        if error.path is None and isinstance(name, str | os.PathLike):
            error.path = os.fspath(name)
        raise


@contextlib.contextmanager
def _opened(source: str | os.PathLike[str] | bytes | IO[bytes]) -> Iterator[IO[bytes]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, str | os.PathLike):
        try:
            file = open(source, "rb")
        except OSError as error:
            raise AudioError(f"cannot read: {error.strerror}") from error
        with file:
            yield file if file.seekable() else io.BytesIO(file.read())
    else:
        yield source if source.seekable() else io.BytesIO(source.read())
