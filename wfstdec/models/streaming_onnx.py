"""Streaming ONNX exports as sherpa-onnx has them: Zipformer2, NeMo, WeNet, T-one.

    model = load_model("ctc-epoch-30-avg-3-chunk-16-left-128.onnx")
    state = model.start()
    logprobs, = model.step([state], [chunk], [False])

What differs between them is in `streaming_forms`. At the end of a stream zeros follow
the audio until all of its frames have come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import ModelError, OptionError
from wfstdec.models.encoder import (
    EncoderSpec,
    check_frames,
    checked_rows,
    checked_waveform,
)
from wfstdec.models.features import Features
from wfstdec.models.given import Given, tokens_beside
from wfstdec.models.streaming_forms import Arrays, Form
from wfstdec.models.waveform_onnx import metadata


@dataclass
class StreamState:
    """Features and states of one stream.

    Attributes:
        features: What has been heard.
        states: Of the network.
        heard: Samples of audio so far.
        position: The frame of features where the next window begins.
        num_out: Frames that have come out.
        ended: Whether the last chunk has been given.
    """

    features: Features
    states: Arrays
    heard: int = 0
    position: int = 0
    num_out: int = 0
    ended: bool = False
    found: Arrays = field(default_factory=list)


class StreamingOnnx:
    """A `StreamingEncoder` of a session and its form.

    Args:
        session: An `onnxruntime.InferenceSession`.
        form: How it was exported.
        spec: Of the model; `max_batch` streams share a call.
    """

    def __init__(self, session: Any, form: Form, spec: EncoderSpec) -> None:
        self._session, self._form, self.spec = session, form, spec
        self._names = [one.name for one in session.get_inputs()]
        self._max_batch = 1 if form.axes is None else spec.max_batch

    def encode(self, waveforms: Sequence[np.ndarray]) -> Arrays:
        """Implement `Encoder.encode`: a stream each, given whole."""
        states = [self.start() for _ in waveforms]
        found = self.step(states, waveforms, [True] * len(states))
        for logprobs, waveform in zip(found, waveforms, strict=True):
            check_frames(len(logprobs), len(waveform), self.spec)
        return found

    def start(self) -> StreamState:
        """Implement `StreamingEncoder.start`."""
        return StreamState(self._form.features(), self._form.first_states())

    def step(
        self,
        states: Sequence[StreamState],
        chunks: Sequence[np.ndarray],
        last: Sequence[bool],
    ) -> Arrays:
        """Implement `StreamingEncoder.step`; up to `max_batch` streams by one call."""
        for state, chunk, ends in zip(states, chunks, last, strict=True):
            if state.ended:
                raise OptionError("a chunk for a stream that has ended, expected none")
            samples = checked_waveform(chunk)
            state.heard += len(samples)
            state.ended = ends
            if len(samples):
                state.features.accept(samples)
            self._fill(state)
        while ready := [s for s in states if self._is_ready(s)]:
            for start in range(0, len(ready), self._max_batch):
                self._advance(ready[start : start + self._max_batch])
            for state in ready:
                self._fill(state)
        return [self._collected(state) for state in states]

    def _due(self, state: StreamState) -> int:
        """Frames that come out in all, of audio that has ended."""
        shift = self.spec.frame_shift_s * self.spec.sample_rate
        return int(np.ceil(state.heard / shift - 1e-6))

    def _is_ready(self, state: StreamState) -> bool:
        if state.ended and state.num_out >= self._due(state):
            return False
        return state.features.num_ready >= state.position + self._form.window

    def _fill(self, state: StreamState) -> None:
        """After the end of the audio: zeros, until there is a window."""
        if not state.ended or state.num_out >= self._due(state):
            return
        silence = np.zeros(self._form.shift * state.features.num_samples, np.float32)
        while not self._is_ready(state):
            state.features.accept(silence)

    def _advance(self, states: Sequence[StreamState]) -> None:
        """Give some streams their next window."""
        form = self._form
        windows = [s.features.frames(s.position, form.window) for s in states]
        given = _stacked([s.states for s in states], form.axes)
        inputs = form.inputs(np.stack(windows), given)
        outputs = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        rows, new = outputs[0], outputs[1 + form.num_skipped :]
        if rows.shape[1] != form.num_out:
            raise ModelError(
                f"the model gave {rows.shape[1]} frames for a step of {form.shift}, "
                f"expected {form.num_out}"
            )
        parts = _unstacked(new, form.axes, len(states))
        for state, row, part in zip(states, rows, parts, strict=True):
            state.states = form.next_states(state.states, part)
            state.position += form.shift
            state.num_out += len(row)
            state.found.append(row)

    def _collected(self, state: StreamState) -> np.ndarray:
        """Frames that came out in this step, without those of the zeros behind it."""
        empty = np.zeros((0, len(self.spec.tokens)), np.float32)
        rows, state.found = np.concatenate([empty, *state.found]), []
        if state.ended and state.num_out > self._due(state):
            rows = rows[: len(rows) - (state.num_out - self._due(state))]
        return checked_rows(rows, self.spec.tokens)


def _stacked(states: Sequence[Arrays], axes: Sequence[int] | None) -> Arrays:
    if axes is None or len(states) == 1:
        return states[0]
    return [
        np.concatenate(parts, axis=axis)
        for parts, axis in zip(zip(*states, strict=True), axes, strict=True)
    ]


def _unstacked(new: Arrays, axes: Sequence[int] | None, num: int) -> list[Arrays]:
    if axes is None or num == 1:
        return [new]
    split = [
        np.split(array, num, axis=axis) for array, axis in zip(new, axes, strict=True)
    ]
    return [list(parts) for parts in zip(*split, strict=True)]


def load_streaming_onnx(
    path: Path, session: Any, form: Form, given: Given
) -> StreamingOnnx:
    """Make a streaming encoder of a file and the tokens beside it.

    Raises:
        ModelError: No tokens.
    """
    place = str(path)
    size = session.get_outputs()[0].shape[-1]
    blank = form.blank
    if blank < 0:
        if not isinstance(size, int):
            size = int(metadata(session)["vocab_size"]) + 1
        blank += size
    table = given.table(tokens_beside(path.parent), place, blank)
    step_s = form.shift * form.features().num_samples / form.rate
    shift = given.shift(step_s / form.num_out, place)
    return StreamingOnnx(
        session, form, given.spec(table, shift, given.rate(form.rate, place))
    )
