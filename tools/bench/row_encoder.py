"""An encoder that costs nothing: a frame of audio *is* a row of log-probs.

    wfstdec serve tools.bench.row_encoder:streaming --graph graph.npz
    audio = audio_of_rows(rounded_rows(logprobs))    # [T, V] -> int16 [T * 320]

Twenty milliseconds of 16 kHz audio are 320 samples, and the first V of them are the
row's log-probs in sixteenths of a nat, as 16-bit numbers. What comes through sockets,
chunks and rounds is then known to the bit, and times are those of search and server.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec import recipes
from wfstdec.models.encoder import EncoderSpec
from wfstdec.text.tokens import TokenTable, read_tokens

SAMPLES_PER_ROW = 320
SAMPLE_RATE = 16000
STEPS_PER_NAT = 16
_FULL_SCALE = 32768


def rounded_rows(logprobs: np.ndarray) -> np.ndarray:
    """Log-probs [T, V] in sixteenths of a nat, as audio can carry them, float32."""
    return np.round(np.asarray(logprobs, np.float32) * STEPS_PER_NAT) / STEPS_PER_NAT


def audio_of_rows(rows: np.ndarray) -> np.ndarray:
    """Write rounded rows [T, V], V up to 320, as samples int16 [T * 320]."""
    samples = np.zeros((len(rows), SAMPLES_PER_ROW), np.int16)
    samples[:, : rows.shape[1]] = np.round(rows * STEPS_PER_NAT)
    return samples.ravel()


class RowEncoder:
    """Reads rows out of audio; for utterances that are whole.

    Args:
        tokens: V names.
    """

    def __init__(self, tokens: TokenTable) -> None:
        self.spec = EncoderSpec(
            tokens, SAMPLES_PER_ROW / SAMPLE_RATE, SAMPLE_RATE, 64, pads_exactly=True
        )

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Read the rows of each waveform; a part of a row at its end is left out."""
        return [self._rows(waveform) for waveform in waveforms]

    def _rows(self, waveform: np.ndarray) -> np.ndarray:
        num = len(waveform) // SAMPLES_PER_ROW
        frames = waveform[: num * SAMPLES_PER_ROW].reshape(num, SAMPLES_PER_ROW)
        steps = frames[:, : len(self.spec.tokens)] * np.float32(_FULL_SCALE)
        return np.round(steps) / np.float32(STEPS_PER_NAT)


class StreamingRowEncoder(RowEncoder):
    """Reads rows out of audio as it comes; a state is what is left of a row."""

    def start(self) -> list[np.ndarray]:
        """Make the state of a new stream."""
        return [np.empty(0, np.float32)]

    def step(
        self,
        states: Sequence[list[np.ndarray]],
        chunks: Sequence[np.ndarray],
        last: Sequence[bool],
    ) -> list[np.ndarray]:
        """Read the rows that each chunk completes."""
        found = []
        for state, chunk in zip(states, chunks, strict=True):
            waveform = np.concatenate([state[0], chunk]) if len(state[0]) else chunk
            found.append(self._rows(waveform))
            state[0] = waveform[len(found[-1]) * SAMPLES_PER_ROW :].copy()
        return found


def __getattr__(name: str) -> RowEncoder:
    """Make `streaming`, or `whole`, over the demo's tokens, which are the data's."""
    kinds = {"streaming": StreamingRowEncoder, "whole": RowEncoder}
    if name not in kinds:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return kinds[name](read_tokens(recipes.find_recipe() / "tokens.txt"))
