"""Samples of any form as one float32 channel, with the usual mistakes found and named.

The checks are for what decodes to wrong words without an error: values of 16-bit
integers kept as floats, channels that cancel each other, silence, NaN.
"""

from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import AudioError, OptionError, ShapeError, needs

LOUDEST = 16.0
"""Floats may be above 1 (MP3 by some decibels), but never by 24."""
SILENT = 1e-4
"""Peaks below -80 dB are nothing but noise of the last bit."""


class AudioNote(NamedTuple):
    """Note of what was done to audio, or is odd about it."""

    kind: str  # `rate`, `channels`, `streams`, `silence` or `cut`
    text: str  # A sentence without its end


class Mixer:
    """Blocks [n] or [n, C] of any dtype as one checked channel float32 [n]."""

    def __init__(self, channel: int | None = None) -> None:
        if channel is not None and channel < 0:
            raise OptionError(f"channel={channel!r}, expected 0 or more")
        self.channel = channel
        # Largest absolute values that have gone out, and of all channels that came in.
        self.peak = self.source_peak = 0.0

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """Scale, check and mix a block."""
        samples = scaled(block)
        if samples.ndim == 1:
            samples = samples[:, None]
        if samples.ndim != 2:
            raise ShapeError(f"audio of shape {samples.shape}, expected [n] or [n, C]")
        self.source_peak = max(self.source_peak, checked_peak(samples))
        num_channels = samples.shape[1]
        if self.channel is None:
            mono = samples[:, 0] if num_channels == 1 else samples.mean(axis=1)
        elif self.channel < num_channels:
            mono = samples[:, self.channel]
        else:
            expected = f"expected 0 to {num_channels - 1}"
            raise AudioError(f"channel {self.channel} of {num_channels}, {expected}")
        self.peak = max(self.peak, float(np.abs(mono).max(initial=0)))
        return np.ascontiguousarray(mono)

    def silence(self) -> AudioNote | None:
        """Note that all blocks so far are silent; None where they are not."""
        if self.peak >= SILENT:
            return None
        if self.channel is None and self.source_peak >= 100 * SILENT:
            advice = "take one by channel= (--channel)"
            raise AudioError(f"the channels cancel each other; {advice}")
        level = "all zeros" if self.peak == 0 else f"peak {self.peak:.1e}"
        return AudioNote("silence", f"silent: {level}, nothing above -80 dB")


def checked_peak(samples: np.ndarray) -> float:
    """Largest absolute value of float samples."""
    peak = float(np.abs(samples).max(initial=0))
    if not np.isfinite(peak):
        raise AudioError("a sample is NaN or inf, expected numbers from -1 to 1")
    if peak > LOUDEST:
        raise AudioError(
            f"a float sample of {peak:.6g}, expected -1 to 1: these look like "
            "integers kept as floats; divide by 32768 (16 bits), or give integers"
        )
    return peak


def scaled(block: np.ndarray) -> np.ndarray:
    """Scale integers by the range of their type, floats as they are; float32."""
    block = np.asarray(block)
    if block.dtype == np.uint8:
        return (block.astype(np.float32) - 128) / 128
    if np.issubdtype(block.dtype, np.signedinteger):
        full = -float(np.iinfo(block.dtype).min)
        return (block / np.float64(full)).astype(np.float32)
    if not np.issubdtype(block.dtype, np.floating):
        dtype, expected = str(block.dtype), "expected floats or signed integers"
        raise AudioError(f"audio of dtype {dtype!r}, {expected}")
    return block.astype(np.float32, copy=False)


class ResampleStream:
    """A resampler of one channel; equal rates leave the samples as they are.

    soxr gives the same bits however the audio is cut into blocks.

    Args:
        source_rate: Samples a second that come in.
        sample_rate: Samples a second that go out.

    Raises:
        OptionError: A rate is not positive.
        BackendError: soxr is not installed, and the rates differ.
    """

    def __init__(self, source_rate: int, sample_rate: int) -> None:
        for rate in (source_rate, sample_rate):
            if rate <= 0:
                raise OptionError(f"a sample rate of {rate!r}, expected a positive one")
        self._stream: Any = None
        if source_rate != sample_rate:
            with needs("another sample rate needs soxr", ": pip install soxr"):
                import soxr
            given = source_rate, sample_rate, 1
            self._stream = soxr.ResampleStream(*given, dtype="float32")

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """Take samples float32 [n]; return those that are ready, float32 [m]."""
        return block if self._stream is None else self._stream.resample_chunk(block)

    def finish(self) -> np.ndarray:
        """Return what is left, float32 [m]; nothing may be given after it."""
        rest = np.zeros(0, np.float32)
        return rest if self._stream is None else self._stream.resample_chunk(rest, True)
