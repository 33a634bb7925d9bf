"""Samples of any type as one float32 channel, checked for common mistakes.

The checks detect input that would silently decode to wrong words: 16-bit integers kept
as floats, channels that cancel each other, silence, NaN.
"""

from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import AudioError, OptionError, ShapeError, needs

LOUDEST = 16.0  # Floats may be above 1 (MP3 by some decibels), but not by 24
SILENT = 1e-4  # Peaks below -80 dB are only noise of the last bit


class AudioNote(NamedTuple):
    """Note on a conversion or a problem of audio."""

    kind: str  # `rate`, `channels`, `streams`, `silence` or `cut`
    text: str  # A sentence without full stop


class Mixer:
    """Mixer of blocks [n] or [n, C] of any dtype into one checked float32 channel."""

    def __init__(self, channel: int | None = None) -> None:
        if channel is not None and channel < 0:
            raise OptionError(f"channel={channel!r}, expected 0 or more")
        self.channel = channel
        # Largest absolute values of the output, and of all input channels.
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
        """Note that all blocks so far are silent, or None."""
        if self.peak >= SILENT:
            return None
        if self.channel is None and self.source_peak >= 100 * SILENT:
            advice = "take one by channel= (--channel)"
            raise AudioError(f"the channels cancel each other; {advice}")
        level = "all zeros" if self.peak == 0 else f"peak {self.peak:.1e}"
        return AudioNote("silence", f"silent: {level}, nothing above -80 dB")


def checked_peak(samples: np.ndarray) -> float:
    """Return the largest absolute value of float samples."""
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
    """Return float32: integers scaled by the range of their type, floats unchanged."""
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
    """Resampler of one channel; equal rates leave the samples unchanged.

    The output of soxr is bit-identical for any blocks.

    Args:
        source_rate: Samples per second of the input.
        sample_rate: Samples per second of the output.

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
        """Resample float32 [n]; return the samples that are ready, float32 [m]."""
        return block if self._stream is None else self._stream.resample_chunk(block)

    def finish(self) -> np.ndarray:
        """Return the remaining samples, float32 [m]; no input may follow."""
        rest = np.zeros(0, np.float32)
        return rest if self._stream is None else self._stream.resample_chunk(rest, True)
