"""Change the rate of audio block by block: the samples are those of one long block.

stream = ResampleStream(44100, 16000)
blocks = [stream(block) for block in audio] + [stream.finish()]

soxr gives the same bits however the audio is cut, so nothing here depends on blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wfstdec.errors import OptionError, needs


class ResampleStream:
    """A resampler of one channel; equal rates leave the samples as they are.

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
            self._stream = soxr.ResampleStream(
                source_rate, sample_rate, 1, dtype="float32"
            )

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """Take samples float32 [n]; return those that are ready, float32 [m]."""
        return block if self._stream is None else self._stream.resample_chunk(block)

    def finish(self) -> np.ndarray:
        """Return what is left, float32 [m]; nothing may be given after it."""
        rest = np.zeros(0, np.float32)
        if self._stream is None:
            return rest
        return self._stream.resample_chunk(rest, last=True)
