"""Streaming ONNX exports by toolkit: windows, states and inputs, from metadata.

Each model takes a window of features and its states, and returns the frames of the
window and the next states, in the order of the inputs. The window is longer than its
shift by the look-ahead (Zipformer2, WeNet) or the history (NeMo) of convolutions.
Names, shapes and order are those of sherpa-onnx.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import ModelError, needs
from wfstdec.models.encoder import (
    EncoderSpec,
    ModelOptions,
    check_frames,
    checked_chunks,
    checked_rows,
    tokens_in,
)
from wfstdec.models.onnx_asr_models import metadata

Arrays = list[np.ndarray]

RATE = 16000
HOP = 160


class KaldiFbank:
    """Kaldi's 80 log-mel energies, without dither, with frames at the edges."""

    num_samples = HOP

    def __init__(self, scale: float, high_hz: float) -> None:
        knf = _knf()
        options = knf.FbankOptions()
        options.frame_opts.dither = 0
        options.frame_opts.snip_edges = False
        options.mel_opts.num_bins = 80
        options.mel_opts.high_freq = high_hz
        self._fbank, self._scale, self._dropped = knf.OnlineFbank(options), scale, 0

    def whole(self, samples: np.ndarray) -> np.ndarray:
        """Return all frames of an utterance, float32 [T, F]."""
        self.accept(samples)
        self._fbank.input_finished()
        return self.frames(0, self.num_ready)

    @property
    def num_ready(self) -> int:
        """Return the number of frames that further audio does not change."""
        return self._fbank.num_frames_ready

    def accept(self, samples: np.ndarray) -> None:
        """Add audio, float32 [n]."""
        self._fbank.accept_waveform(RATE, samples * np.float32(self._scale))

    def frames(self, first: int, num: int) -> np.ndarray:
        """Return frames float32 [num, F]; those before `first` are dropped."""
        self._fbank.pop(first - self._dropped)
        self._dropped = first
        return np.stack([self._fbank.get_frame(first + i) for i in range(num)])


class NemoFbank:
    """NeMo's log-mel energies, not normalised, after frames of zeros."""

    num_samples = HOP
    _EDGE = 2
    """Frames next to the ends of a call's audio that zeros distort."""

    def __init__(self, num_bins: int, num_zeros: int) -> None:
        knf = _knf()
        options = knf.NemoFbankOptions(num_mel_bins=num_bins)
        self._fbank: Any = knf.OnlineNemoFbank(options)
        self._num_bins, self._num_zeros = num_bins, num_zeros

    def whole(self, samples: np.ndarray) -> np.ndarray:
        """Return all frames, as in `KaldiFbank`."""
        self.accept(samples)
        self._fbank.input_finished()
        found, _ = self._fbank.get_frames(0, self._fbank.num_frames_ready, True)
        return np.asarray(found, np.float32).reshape(-1, self._num_bins)

    @property
    def num_ready(self) -> int:
        """Return the number of final frames."""
        ready = self._fbank.num_frames_ready - self._EDGE
        return self._num_zeros + ready if ready > 0 else 0

    def accept(self, samples: np.ndarray) -> None:
        """Add audio, float32 [n]."""
        self._fbank.accept_waveform(RATE, samples)

    def frames(self, first: int, num: int) -> np.ndarray:
        """Return frames float32 [num, F], as in `KaldiFbank`."""
        start, stop = first - self._num_zeros, first - self._num_zeros + num
        zeros = np.zeros((min(num, max(0, -start)), self._num_bins), np.float32)
        start = max(start, 0)
        before = min(self._EDGE, start)
        asked = before + stop - start + self._EDGE
        found, _ = self._fbank.get_frames(start - before, asked, False)
        rows = np.asarray(found, np.float32).reshape(asked, self._num_bins)
        return np.concatenate([zeros, rows[before : before + stop - start]])


class _RawFrames:
    """Raw samples, `size` to a frame: T-one has its features inside."""

    def __init__(self, size: int) -> None:
        self.num_samples = size
        self._rest = np.zeros(0, np.float32)
        self._dropped = 0

    @property
    def num_ready(self) -> int:
        return self._dropped + len(self._rest) // self.num_samples

    def accept(self, samples: np.ndarray) -> None:
        self._rest = np.concatenate([self._rest, samples])

    def frames(self, first: int, num: int) -> np.ndarray:
        self._rest = self._rest[(first - self._dropped) * self.num_samples :]
        self._dropped = first
        return self._rest[: num * self.num_samples].reshape(num, self.num_samples)


def _knf() -> Any:
    who = "features of streaming models need kaldi-native-fbank"
    with needs(who, ": pip install kaldi-native-fbank"):
        import kaldi_native_fbank
    return kaldi_native_fbank


Features = KaldiFbank | NemoFbank | _RawFrames


@dataclass(frozen=True)
class StreamingExport:
    """Form of a streaming export."""

    name: str  # Name in sherpa-onnx
    window: int  # Frames of features in a window
    shift: int  # Frames between windows
    num_out: int  # Frames of a step's output
    first_states: Arrays  # Of a new stream
    # Batch axis of each state; None if batches are not supported
    axes: Sequence[int] | None
    features: Callable[[], Features]  # Returns those of a new stream
    # Returns inputs in order, of features [B, window, F] and states
    inputs: Callable[[np.ndarray, Arrays], Arrays]
    blank: int = 0  # Index of the blank: 0, or -1 for the last
    rate: int = RATE  # Samples per second
    num_skipped: int = 0  # Outputs between the log-probs and the states
    frames_last: bool = False  # Whether outputs are [B, D, t], frames of an encoder
    # Returns the next states from the last ones and the outputs
    next_states: Callable[[Arrays, Arrays], Arrays] = lambda old, new: new

    @property
    def frame_shift_s(self) -> float:
        """Seconds between output frames."""
        return self.shift * self.features().num_samples / self.rate / self.num_out


def streaming_form(session: Any) -> StreamingExport | None:
    """Return the form of a session, by its metadata; None if unknown."""
    own = metadata(session)
    # Exports have no field that names their form; each has a unique one.
    for key, make in (
        ("decode_chunk_len", _zipformer2),
        ("cache_last_channel_dim1", _nemo),
        ("left_chunks", _wenet),
        ("state_dim", _tone),
    ):
        if key in own:
            try:
                return make(own, session)
            except (KeyError, ValueError) as error:
                expected = f"expected what sherpa-onnx reads with {key!r}"
                raise ModelError(f"metadata: {error!r}, {expected}") from error
    return None


def _zipformer2(own: Mapping[str, str], session: Any) -> StreamingExport:
    """Zipformer2: six states a layer (batch axis 1 or 0), and two more."""
    if own.get("feature") == "whisper":
        raise ModelError("features of Whisper, expected Kaldi's fbank")
    names = "encoder_dims query_head_dims value_head_dims num_heads num_encoder_layers"
    dims, query, value, heads, layers, kernels, left = (
        [int(number) for number in own[name].split(",")]
        for name in (*names.split(), "cnn_module_kernels", "left_context_len")
    )
    shapes: list[tuple[int, ...]] = []
    for i, num in enumerate(layers):
        key, val = (left[i], 1, query[i] * heads[i]), (left[i], 1, value[i] * heads[i])
        nonlinear = (1, 1, left[i], 3 * dims[i] // 4)
        convolution = (1, dims[i], kernels[i] // 2)
        shapes += num * [key, nonlinear, val, val, convolution, convolution]
    embedding = tuple(session.get_inputs()[-2].shape[1:])
    if not all(isinstance(size, int) for size in embedding):
        embedding = (128, 3, 19)
    shapes.append((1, *embedding))
    first_states: Arrays = [np.zeros(shape, np.float32) for shape in shapes]
    first_states.append(np.zeros(1, np.int64))
    shift = int(own["decode_chunk_len"])
    return StreamingExport(
        "zipformer2",
        int(own["T"]),
        shift,
        shift // 4,
        first_states,
        [*[1, 1, 1, 1, 0, 0] * sum(layers), 0, 0],
        lambda: KaldiFbank(1, -400),
        lambda x, states: [x, *states],
    )


def _nemo(own: Mapping[str, str], session: Any) -> StreamingExport:
    """NeMo: three caches, and zeros before the first frame."""
    if (kind := own.get("normalize_type", "")) not in ("", "NA", "None"):
        why = "features of a stream cannot be normalised over an utterance"
        raise ModelError(f"normalize_type {kind!r}, expected none: {why}")
    window, shift = int(own["window_size"]), int(own["chunk_shift"])
    shapes = [
        (1, *(int(own[f"cache_last_{name}_dim{i}"]) for i in (1, 2, 3)))
        for name in ("channel", "time")
    ]
    caches: Arrays = [np.zeros(shape, np.float32) for shape in shapes]
    bins = session.get_inputs()[0].shape[1]

    def inputs(x: np.ndarray, states: Arrays) -> Arrays:
        lengths = np.full(len(x), window, np.int64)
        return [np.ascontiguousarray(x.transpose(0, 2, 1)), lengths, *states]

    return StreamingExport(
        "nemo_ctc",
        window,
        shift,
        shift // int(own["subsampling_factor"]),
        [*caches, np.zeros(1, np.int64)],
        [0, 0, 0],
        lambda: NemoFbank(bins if isinstance(bins, int) else 80, window - shift),
        inputs,
        blank=-1,
        num_skipped=1,
        frames_last=session.get_outputs()[0].name == "outputs",
    )


def _wenet(own: Mapping[str, str], session: Any) -> StreamingExport:
    """WeNet: caches, an offset, and a mask of valid positions."""
    chunk, factor = int(own["chunk_size"]), int(own["subsampling_factor"])
    heads, blocks, dim = (int(own[n]) for n in ("head", "num_blocks", "output_size"))
    size = chunk * int(own["left_chunks"])
    kernel = int(own["cnn_module_kernel"])
    first_states: Arrays = [
        np.zeros((blocks, heads, size, dim // heads * 2), np.float32),
        np.zeros((blocks, 1, dim, kernel - 1), np.float32),
        np.full(1, size, np.int64),
    ]

    def inputs(x: np.ndarray, states: Arrays) -> Arrays:
        attention, convolution, offset = states
        there = min(int(offset[0]) - size, size)  # frames of the past
        mask = np.arange(size + chunk)[None, None] >= size - there
        past = np.full(1, size, np.int64)
        return [x, offset, past, attention, convolution, mask]

    return StreamingExport(
        "wenet_ctc",
        (chunk - 1) * factor + int(own["right_context"]) + 1,
        chunk * factor,
        chunk,
        first_states,
        None,
        lambda: KaldiFbank(32768, 0),
        inputs,
        next_states=lambda old, new: [*new, old[2] + chunk],
    )


def _tone(own: Mapping[str, str], session: Any) -> StreamingExport:
    """T-one: int16 samples, and one state of float16."""
    rate = int(own["sample_rate"])
    size = int(own["frame_length_ms"]) * rate // 1000
    dim = int(own["state_dim"])

    def inputs(x: np.ndarray, states: Arrays) -> Arrays:
        samples = (np.clip(x, -1, 1) * 32767).astype(np.int32)
        return [samples.reshape(len(x), size, 1), *states]

    num_out = session.get_outputs()[0].shape[1]
    return StreamingExport(
        "t_one_ctc",
        1,
        1,
        num_out if isinstance(num_out, int) else 10,
        [np.zeros((1, dim), np.float16)],
        [0],
        lambda: _RawFrames(size),
        inputs,
        blank=-1,
        rate=rate,
    )


@dataclass
class StreamState:
    """Features and states of one stream."""

    features: Features
    states: Arrays  # Of the network
    num_samples: int = 0  # Samples of audio so far
    position: int = 0  # Frame of features where the next window begins
    num_out: int = 0  # Number of output frames
    ended: bool = False  # Whether the last chunk has been processed
    found: Arrays = field(default_factory=list)


class StreamingOnnx:
    """`StreamingEncoder` of a session and its form."""

    def __init__(self, session: Any, form: StreamingExport, spec: EncoderSpec) -> None:
        self._session, self._form, self.spec = session, form, spec
        self._names = [one.name for one in session.get_inputs()]
        self._max_batch = 1 if form.axes is None else spec.max_batch

    def encode(self, waveforms: Sequence[np.ndarray]) -> Arrays:
        """Implement `Encoder.encode`: each utterance as a stream."""
        states = [self.start() for _ in waveforms]
        found = self.step(states, waveforms, [True] * len(states))
        for logprobs, waveform in zip(found, waveforms, strict=True):
            check_frames(len(logprobs), len(waveform), self.spec)
        return found

    def start(self) -> StreamState:
        """Implement `StreamingEncoder.start`."""
        return StreamState(self._form.features(), self._form.first_states)

    def step(
        self,
        states: Sequence[StreamState],
        chunks: Sequence[np.ndarray],
        last: Sequence[bool],
    ) -> Arrays:
        """Implement `StreamingEncoder.step`; up to `max_batch` streams in a call."""
        for state, samples in checked_chunks(states, chunks, last):
            state.num_samples += len(samples)
            if len(samples):
                state.features.accept(samples)
            self._fill(state)
        while ready := [s for s in states if self._is_ready(s)]:
            for start in range(0, len(ready), self._max_batch):
                self._advance(ready[start : start + self._max_batch])
            for state in ready:
                self._fill(state)
        return [self._collected(state) for state in states]

    def _missing(self, state: StreamState) -> float:
        """Return frames still to come; negative for padding, inf before the end."""
        if not state.ended:
            return np.inf
        shift = self.spec.frame_shift_s * self.spec.sample_rate
        return int(np.ceil(state.num_samples / shift - 1e-6)) - state.num_out

    def _is_ready(self, state: StreamState) -> bool:
        has_window = state.features.num_ready >= state.position + self._form.window
        return has_window and self._missing(state) > 0

    def _fill(self, state: StreamState) -> None:
        """Append zeros after the end of the audio, up to a window."""
        silence = np.zeros(self._form.shift * state.features.num_samples, np.float32)
        if state.ended and self._missing(state) > 0:
            while not self._is_ready(state):
                state.features.accept(silence)

    def _advance(self, states: Sequence[StreamState]) -> None:
        form = self._form
        windows = [s.features.frames(s.position, form.window) for s in states]
        given = states[0].states
        if form.axes is not None and len(states) > 1:
            by_state = zip(*(s.states for s in states), form.axes, strict=True)
            given = [np.concatenate(same, axis) for *same, axis in by_state]
        inputs = form.inputs(np.stack(windows), given)
        outputs = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        rows, new = outputs[0], outputs[1 + form.num_skipped :]
        if form.frames_last:
            rows = np.ascontiguousarray(rows.transpose(0, 2, 1))
        if (num := rows.shape[1]) != form.num_out:
            what = f"the model gave {num} frames for a step of {form.shift}"
            raise ModelError(f"{what}, expected {form.num_out}")
        parts = [new]
        if form.axes is not None and len(states) > 1:
            split = map(np.split, new, itertools.repeat(len(states)), form.axes)
            parts = [list(part) for part in zip(*split, strict=True)]
        for state, row, part in zip(states, rows, parts, strict=True):
            state.states = form.next_states(state.states, part)
            state.position += form.shift
            state.num_out += len(row)
            state.found.append(row)

    def _collected(self, state: StreamState) -> np.ndarray:
        empty = np.zeros((0, self.spec.width), np.float32)
        rows, state.found = np.concatenate([empty, *state.found]), []
        if (missing := self._missing(state)) < 0:
            rows = rows[: int(missing)]
        return checked_rows(rows, self.spec)


def load_streaming_onnx(
    path: Path, session: Any, form: StreamingExport, given: ModelOptions
) -> StreamingOnnx:
    """Return the streaming encoder of a file and the tokens in its folder."""
    blank = form.blank
    if blank < 0:
        size = session.get_outputs()[0].shape[-1]
        if not isinstance(size, int):
            size = int(metadata(session)["vocab_size"]) + 1
        blank += size
    own = tokens_in(path.parent), blank, form.frame_shift_s, form.rate
    return StreamingOnnx(session, form, given.spec(str(path), *own))
