"""Features of streaming models, frame by frame, as the models were trained.

    features = KaldiFbank(scale=1, high_hz=-400)
    features.accept(samples)                  # any number, float32 [n]
    features.num_ready                        # frames that can no longer change
    features.frames(first, num)               # float32 [num, F]; none before it again

Measured on speech against NeMo's own features: `NemoFbank` differs by at most 1e-4;
a Kaldi fbank with Hann windows and librosa's mel filters, which is what sherpa-onnx
gives its NeMo models, correlates 0.98.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from wfstdec.errors import needs

RATE = 16000
HOP = 160


class Features(Protocol):
    """Features of one stream."""

    num_samples: int
    """Samples to a frame."""

    @property
    def num_ready(self) -> int:
        """Frames that no further audio changes."""

    def accept(self, samples: np.ndarray) -> None:
        """Take more audio, float32 [n]."""

    def frames(self, first: int, num: int) -> np.ndarray:
        """Frames float32 [num, F]; those before `first` are dropped for good."""


class KaldiFbank:
    """80 mel energies by Kaldi's recipe, without dither, with frames at the edges."""

    num_samples = HOP

    def __init__(self, scale: float, high_hz: float) -> None:
        knf = _knf()
        options = knf.FbankOptions()
        options.frame_opts.dither = 0
        options.frame_opts.snip_edges = False
        options.mel_opts.num_bins = 80
        options.mel_opts.high_freq = high_hz
        self._fbank, self._scale, self._dropped = knf.OnlineFbank(options), scale, 0

    @property
    def num_ready(self) -> int:
        """Count the frames that are ready; see `Features`."""
        return self._fbank.num_frames_ready

    def accept(self, samples: np.ndarray) -> None:
        """Take samples; see `Features`."""
        self._fbank.accept_waveform(RATE, samples * np.float32(self._scale))

    def frames(self, first: int, num: int) -> np.ndarray:
        """Compute frames from a position on; see `Features`."""
        self._fbank.pop(first - self._dropped)
        self._dropped = first
        return np.stack([self._fbank.get_frame(first + i) for i in range(num)])


class NemoFbank:
    """NeMo's log-mel energies, not normalised; preceded by frames of zeros."""

    num_samples = HOP
    _EDGE = 2
    """Frames next to the ends of what the library is asked for see zeros there."""

    def __init__(self, num_bins: int, num_zeros: int) -> None:
        knf = _knf()
        options = knf.NemoFbankOptions(num_mel_bins=num_bins)
        self._fbank: Any = knf.OnlineNemoFbank(options)
        self._num_bins, self._num_zeros = num_bins, num_zeros

    @property
    def num_ready(self) -> int:
        """Count the frames that are ready; see `Features`."""
        ready = self._fbank.num_frames_ready - self._EDGE
        return self._num_zeros + ready if ready > 0 else 0

    def accept(self, samples: np.ndarray) -> None:
        """Take samples; see `Features`."""
        self._fbank.accept_waveform(RATE, samples)

    def frames(self, first: int, num: int) -> np.ndarray:
        """Compute frames from a position on; see `Features`."""
        start, stop = first - self._num_zeros, first - self._num_zeros + num
        zeros = np.zeros((min(num, max(0, -start)), self._num_bins), np.float32)
        start = max(start, 0)
        before = min(self._EDGE, start)
        asked = before + stop - start + self._EDGE
        found, _ = self._fbank.get_frames(start - before, asked, False)
        rows = np.asarray(found, np.float32).reshape(asked, self._num_bins)
        return np.concatenate([zeros, rows[before : before + stop - start]])


class RawFrames:
    """Samples themselves, `size` to a frame: T-one has its features inside."""

    def __init__(self, size: int) -> None:
        self.num_samples = size
        self._rest = np.zeros(0, np.float32)
        self._dropped = 0

    @property
    def num_ready(self) -> int:
        """Count the frames that are ready; see `Features`."""
        return self._dropped + len(self._rest) // self.num_samples

    def accept(self, samples: np.ndarray) -> None:
        """Take samples; see `Features`."""
        self._rest = np.concatenate([self._rest, samples])

    def frames(self, first: int, num: int) -> np.ndarray:
        """Compute frames from a position on; see `Features`."""
        self._rest = self._rest[(first - self._dropped) * self.num_samples :]
        self._dropped = first
        return self._rest[: num * self.num_samples].reshape(num, self.num_samples)


def _knf() -> Any:
    who = "features of streaming models need kaldi-native-fbank"
    with needs(who, ": pip install kaldi-native-fbank"):
        import kaldi_native_fbank
    return kaldi_native_fbank
