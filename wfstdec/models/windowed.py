"""Windows over the audio, which make a streaming encoder of any encoder.

    encoder = Windowed(model, chunk_s=0.4, left_s=4.0, right_s=0.4)

Each chunk is encoded with `left_s` of what came before it and `right_s` of what comes
after; the frames of the chunk itself are kept. So a frame is heard `right_s` late, and
differs from what the whole utterance would give: good for partial results and for
finding pauses. `encode` is that of the encoder: the final words need no windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.models.encoder import Encoder, checked_waveform


@dataclass
class WindowState:
    """Audio of a stream that windows still need.

    Attributes:
        samples: float32 [n], from frame `first` on.
        first: The frame where `samples` begin.
        done: Frames that have gone out.
        late: Frames that windows are longer, for an encoder that gave none in time.
        ended: Whether the last chunk has been given.
    """

    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    first: int = 0
    done: int = 0
    late: int = 0
    ended: bool = False


class Windowed:
    """A `StreamingEncoder` of an `Encoder`; times are rounded up to whole frames.

    Args:
        encoder: Of whole utterances.
        chunk_s: Seconds that come out at once.
        left_s: Seconds before them that the encoder hears too.
        right_s: Seconds behind them; the delay.

    Raises:
        OptionError: Times out of range, or frames that are no whole number of samples.
    """

    def __init__(
        self, encoder: Encoder, chunk_s: float, left_s: float, right_s: float
    ) -> None:
        if not (chunk_s > 0 and left_s >= 0 and right_s >= 0):
            raise OptionError(
                f"chunk_s={chunk_s!r}, left_s={left_s!r}, right_s={right_s!r}, "
                "expected a positive chunk and no negative time"
            )
        self.encoder, self.spec = encoder, encoder.spec
        shift = self.spec.frame_shift_s * self.spec.sample_rate
        self._shift = round(shift)
        if abs(shift - self._shift) > 1e-6 * shift:
            raise OptionError(
                f"frames of {shift:g} samples, expected a whole number for windows"
            )
        frames = [
            int(np.ceil(seconds / self.spec.frame_shift_s - 1e-6))
            for seconds in (chunk_s, left_s, right_s)
        ]
        self._chunk, self._left, self._right = frames

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`, without windows."""
        return self.encoder.encode(waveforms)

    def start(self) -> WindowState:
        """Implement `StreamingEncoder.start`."""
        return WindowState()

    def step(
        self,
        states: Sequence[WindowState],
        chunks: Sequence[np.ndarray],
        last: Sequence[bool],
    ) -> list[np.ndarray]:
        """Implement `StreamingEncoder.step`; windows of streams go by one `encode`."""
        for state, chunk, ends in zip(states, chunks, last, strict=True):
            if state.ended:
                raise OptionError("a chunk for a stream that has ended, expected none")
            state.samples = np.concatenate([state.samples, checked_waveform(chunk)])
            state.ended = ends
        found: list[list[np.ndarray]] = [[] for _ in states]
        turn = [i for i, state in enumerate(states) if self._is_ready(state)]
        while turn:
            windows = self.encoder.encode(
                [states[i].samples[: self._size(states[i])] for i in turn]
            )
            for i, rows in zip(turn, windows, strict=True):
                found[i].append(self._take(states[i], rows))
            turn = [i for i in turn if self._is_ready(states[i])]
        empty = np.zeros((0, len(self.spec.tokens)), np.float32)
        return [np.concatenate([empty, *parts]) for parts in found]

    def _size(self, state: WindowState) -> int:
        """Samples of the next window."""
        end = state.done + self._chunk + self._right + state.late
        return (end - state.first) * self._shift

    def _is_ready(self, state: WindowState) -> bool:
        return len(state.samples) >= (1 if state.ended else self._size(state))

    def _take(self, state: WindowState, rows: np.ndarray) -> np.ndarray:
        """The frames that are due; audio that no window needs any more is dropped.

        Frames are counted from the start of the stream. An encoder whose last frames
        are missing (its convolutions need more audio) gives them in the next window.
        """
        skip = state.done - state.first
        is_rest = state.ended and len(state.samples) <= self._size(state)
        due = rows[skip:] if is_rest else rows[skip : skip + self._chunk]
        state.done += len(due)
        state.late += not len(due)
        if is_rest:
            state.samples = state.samples[:0]
            return due
        first = max(state.first, state.done - self._left)
        state.samples = state.samples[(first - state.first) * self._shift :]
        state.first = first
        return due
