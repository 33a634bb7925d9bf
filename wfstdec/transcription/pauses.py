"""Pauses by audio energy, to cut audio for decoders of whole utterances.

An attention decoder has no words before the end of an utterance. Loud audio replaces
them: a `PieceCutter` takes frames of energy and these sessions instead of log-probs and
a decoder's sessions, and cuts by the same rules.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wfstdec.models.encoder import (
    Encoder,
    EncoderSpec,
    StreamingEncoder,
    checked_chunks,
)
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Partial, Word, seconds
from wfstdec.search.sessions import SessionId
from wfstdec.transcription.pieces import CutOptions


def first_pass(
    model: Encoder, decoder: Decoder, cuts: CutOptions, **how: Any
) -> tuple[StreamingEncoder, Any]:
    """Return the encoder and the sessions that detect ends of utterances."""
    if not decoder.can_stream:
        return EnergyEncoder(model.spec), PauseSessions(model.spec)
    return cuts.chunked(model), decoder.sessions(**how)


_QUIET_DB = -60.0  # Below full scale: not speech
_SHARE = 1 / 3  # Position of the threshold between the levels of pauses and of speech
_SMOOTHED_S = 0.1
_LATEST_S = 30.0  # Window of the estimated levels


@dataclass
class _State:
    """Samples of a stream that do not fill a frame yet."""

    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    done: int = 0  # emitted frames
    ended: bool = False


class EnergyEncoder:
    """`StreamingEncoder` of the levels of frames, dB, float32 [T, 1]."""

    def __init__(self, spec: EncoderSpec) -> None:
        self.spec = spec
        self._shift = spec.frame_shift_s * spec.sample_rate

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`."""
        states = [self.start() for _ in waveforms]
        return self.step(states, waveforms, [True] * len(states))

    def start(self) -> _State:
        """Implement `StreamingEncoder.start`."""
        return _State()

    def step(
        self, states: Sequence[_State], chunks: Sequence[np.ndarray], last: Any
    ) -> list[np.ndarray]:
        """Implement `StreamingEncoder.step`."""
        return [self._step(*one) for one in checked_chunks(states, chunks, last)]

    def _step(self, state: _State, samples: np.ndarray) -> np.ndarray:
        samples = np.concatenate([state.samples, samples])
        first = round(state.done * self._shift)
        end = (first + len(samples)) / self._shift
        num = (math.ceil(end - 1e-6) if state.ended else int(end)) - state.done
        ends = np.rint(np.arange(state.done, state.done + num + 1) * self._shift)
        ends = np.minimum(ends.astype(np.int64) - first, len(samples))
        total = np.cumsum(np.square(np.append(0, samples), dtype=np.float64))
        power = np.diff(total[ends]) / np.maximum(np.diff(ends), 1)
        state.samples, state.done = samples[ends[-1] :], state.done + num
        return (10 * np.log10(power + 1e-12))[:, None].astype(np.float32)


class PauseSessions:
    """Replacement of `Sessions` in which loud audio counts as a word without text."""

    def __init__(self, spec: EncoderSpec) -> None:
        self._shift_s = spec.frame_shift_s
        self._levels: dict[SessionId, list[np.ndarray]] = {}
        self._num_opened = 0

    def __contains__(self, session: SessionId) -> bool:
        return session in self._levels

    def open(self, boosts: Any = None) -> SessionId:
        """Open a session."""
        self._num_opened += 1
        self._levels[self._num_opened] = []
        return self._num_opened

    def advance(self, chunks: Mapping[SessionId, np.ndarray]) -> None:
        """Advance sessions by levels, [T, 1] each."""
        for session, rows in chunks.items():
            self._levels[session].append(rows[:, 0])

    def partials(self, sessions: Sequence[SessionId]) -> list[Partial]:
        """Return `partial` of each session."""
        return [self.partial(session) for session in sessions]

    def partial(self, session: SessionId) -> Partial:
        """Return the loud parts so far."""
        levels = np.concatenate([np.zeros(0, np.float32), *self._levels[session]])
        num = len(levels)
        ends = np.flatnonzero(np.diff(self._is_loud(levels), prepend=0, append=0))
        words = tuple(
            Word("", seconds(a, self._shift_s), seconds(b, self._shift_s), a, b)
            for a, b in ends.reshape(-1, 2).tolist()
        )
        silent = num - words[-1].end_frame if words else num
        return Partial(words, 0, 0, num, silent, 0.0)

    def close(self, session: SessionId) -> None:
        """Close a session; return no hypothesis."""
        del self._levels[session]

    def end_threads(self) -> None:
        """Do nothing: there are no threads."""

    def _is_loud(self, levels: np.ndarray) -> np.ndarray:
        """Return whether each frame is louder than pauses, int8 [T]."""
        if not len(levels):
            return np.zeros(0, np.int8)
        size = max(1, round(_SMOOTHED_S / self._shift_s))
        padded = np.pad(levels, (size // 2, (size - 1) // 2), "edge")
        smooth = np.convolve(padded, np.full(size, 1 / size), "valid")
        low, high = np.percentile(smooth[-round(_LATEST_S / self._shift_s) :], [5, 95])
        return (smooth > max(low + _SHARE * (high - low), _QUIET_DB)).astype(np.int8)
