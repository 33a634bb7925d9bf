"""Encoders: the interfaces of models that turn audio into log-probs.

    class Encoder:
        spec: EncoderSpec                  # tokens, frame shift, sample rate
        encode(waveforms) -> [logprobs]    # float32 [N] each -> float32 [T, V] each

    class StreamingEncoder(Encoder):
        start() -> state                   # of a stream
        step(states, chunks, last) -> [logprobs]    # a chunk [n] each -> [t, V] each

`BatchEncoder` selects the utterances of a batch, and validates the outputs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wfstdec.audio.reading import AudioLike, read_audio
from wfstdec.audio.samples import checked_peak
from wfstdec.errors import (
    AudioLengthError,
    FormatError,
    InputError,
    LogprobError,
    ModelError,
    OptionError,
    ShapeError,
)
from wfstdec.text.files import PathLike, reading
from wfstdec.text.lexicon import load_tokens
from wfstdec.text.tokens import TokenTable

SHORTEST_S = 0.1  # Shorter audio is padded with zeros: convolutions need a minimum
SLACK_S, SLACK = 0.65, 0.01
"""Allowed difference of frames and audio: T-one adds up to two chunks of 0.3 s."""
_ROW_SLACK = 0.05  # nats; float16 and int8 models round
_ROWS_CHECKED = 64


@dataclass(frozen=True)
class EncoderSpec:
    """Facts of a model that users of its log-probs need."""

    tokens: TokenTable  # Names of the V outputs, including the blank
    frame_shift_s: float  # Seconds between frames
    sample_rate: int  # Samples per second of its audio
    max_batch: int = 1  # Utterances in a batch; 1 is best on a CPU
    # Whether log-probs do not depend on padding. If not, only utterances of equal
    # length share a batch
    pads_exactly: bool = False
    # "ctc": rows are log-probs of the tokens. "transducer", "attention": rows are
    # frames [T, D] for the model's net
    family: str = "ctc"
    frame_dim: int = 0  # D of frames
    # Window of the encoder in seconds; shorter audio is padded with silence, and the
    # last number of a frame is 1 within the audio, else 0. 0: no padding
    window_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("frame_shift_s", "sample_rate", "max_batch"):
            if not getattr(self, name) > 0:
                value = getattr(self, name)
                raise OptionError(f"{name}={value!r}, expected a positive number")

    @property
    def blank(self) -> int:
        """CTC's blank, an index of `tokens`."""
        return self.tokens.blank

    @property
    def width(self) -> int:
        """Number of columns of `encode`'s output."""
        return self.frame_dim or len(self.tokens)


TOKEN_FILES = ("tokens.txt", "units.txt", "vocab.txt", "vocab.json")
"""Names of token tables in a model's folder."""


@dataclass(frozen=True)
class ModelOptions:
    """Options of `load_model`; None leaves them to the model."""

    # Token table of the model's outputs, or its file
    tokens: PathLike | TokenTable | None = None
    blank: int | str | None = None  # CTC's blank, by name or index
    frame_shift_s: float | None = None  # Seconds between frames
    sample_rate: int | None = None  # Samples per second
    logits: bool | None = None  # Whether the outputs need normalisation
    threads: int = 1  # Of onnxruntime
    max_batch: int = 1  # Utterances in a batch
    head: str | None = None  # "ctc" or "transducer", of a hybrid model
    language: str | None = None  # Of attention models, such as "en"

    def spec(
        self,
        place: str,
        tokens: PathLike | Sequence[str] | None,
        blank: int | str | None,
        shift: float | Callable[[int], float | None] | None,
        rate: int | None,
    ) -> EncoderSpec:
        """Return the facts of a model; the caller's override the model's own."""
        # `shift` in seconds, or a function of the sample rate.
        blank = blank if self.blank is None else self.blank
        given = tokens if self.tokens is None else self.tokens
        if given is None:
            what = f"found no tokens, none of {' '.join(TOKEN_FILES)} is in its folder"
            raise ModelError(f"{place}: {what}; expected tokens= (--tokens)")
        table = load_tokens(given, blank)
        rate = self.sample_rate or rate
        if rate is None:
            expected = "expected sample_rate= (--sample-rate)"
            raise ModelError(f"{place}: no sample rate, {expected}")
        shift = self.frame_shift_s or (shift(int(rate)) if callable(shift) else shift)
        if shift is None:
            expected = "expected frame_shift_s= (--frame-shift)"
            raise ModelError(f"{place}: no frame shift, {expected}")
        return EncoderSpec(table, float(shift), int(rate), self.max_batch)


def tokens_in(folder: Path) -> Path | None:
    """Return the first of `TOKEN_FILES` in a folder."""
    return next((folder / n for n in TOKEN_FILES if (folder / n).is_file()), None)


def read_json(path: Path) -> Mapping[str, Any]:
    """Return a JSON object, empty if the file does not exist."""
    if not path.is_file():
        return {}
    with reading(path, "JSON object", "one"):
        found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise FormatError(f"{path}: found a {type(found).__name__}, expected an object")
    return found


@runtime_checkable
class Encoder(Protocol):
    """Model that turns whole utterances into log-probs."""

    spec: EncoderSpec

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Encode utterances, independently of each other.

        Args:
            waveforms: float32 [N] each, in [-1, 1], at `spec.sample_rate`.

        Returns:
            Natural log-probs float32 [T, V] each; rows sum to one.
        """


@runtime_checkable
class StreamingEncoder(Encoder, Protocol):
    """Encoder that also processes streams chunk by chunk."""

    def start(self) -> Any:
        """Return the state of a new stream, independent of others."""

    def step(
        self, states: Sequence[Any], chunks: Sequence[np.ndarray], last: Sequence[bool]
    ) -> list[np.ndarray]:
        """Advance streams, each by a chunk of any size; states change in place.

        Args:
            states: Of the streams to advance.
            chunks: float32 [n] each; n may be 0.
            last: For each, whether its audio ends with this chunk. Its state is invalid
                afterwards.

        Returns:
            New frames, float32 [t, V] each; t may be 0. Over a whole stream they depend
            on the audio only, not on the chunks.
        """


Run = Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]


def encode_recording(
    model: Any, name: str, audio: AudioLike, span: slice = slice(None)
) -> tuple[np.ndarray, float]:
    """Return the output for a recording, and its seconds; errors name it."""
    rate = model.spec.sample_rate
    try:
        waveform = read_audio(audio, rate).waveform[span]
        [found] = model.encode([waveform])
    except InputError as error:
        error.utterance = name
        raise
    return found, len(waveform) / rate


class BatchEncoder:
    """Batching and validation: `run` maps float32 [B, N], int64 [B] to [T, V] each."""

    def __init__(self, spec: EncoderSpec, run: Run, *, logits: bool = False) -> None:
        self.spec, self._run, self._logits = spec, run, logits

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`."""
        found: list[np.ndarray] = [np.zeros(0)] * len(waveforms)
        shortest = SHORTEST_S * self.spec.sample_rate
        shift = self.spec.frame_shift_s * self.spec.sample_rate
        if longest := self.spec.window_s * self.spec.sample_rate:
            for i, one in enumerate(waveforms):
                if len(one) > longest:
                    what = f"{len(one) / self.spec.sample_rate:.2f} s of audio"
                    expected = f"expected at most {self.spec.window_s:g} s; cut it"
                    raise AudioLengthError(f"{what}, {expected}", i)
        given = [checked_waveform(waveform, int(shortest)) for waveform in waveforms]
        for group in self._batches([len(one) for one in given]):
            lengths = np.array([len(given[i]) for i in group])
            batch = np.zeros((len(group), lengths.max()), np.float32)
            for row, i in zip(batch, group, strict=True):
                row[: len(given[i])] = given[i]
            for i, rows in zip(group, self._run(batch, lengths), strict=True):
                found[i] = checked_rows(rows, self.spec, self._logits)
                size = len(waveforms[i])
                if longest:
                    within = np.arange(len(found[i])) < np.ceil(size / shift)
                    found[i] = np.column_stack([found[i], within.astype(np.float32)])
                    continue
                if size < shortest:
                    found[i] = found[i][: -int(-size // shift)]
                check_frames(len(found[i]), size, self.spec)
        return found

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        order, spec = sorted(range(len(lengths)), key=lengths.__getitem__), self.spec
        # Padding changes log-probs, except for models that declare otherwise.
        for _, same in groupby(order, lambda i: spec.pads_exactly or lengths[i]):
            while group := list(islice(same, spec.max_batch)):
                yield group


def one_by_one(function: Callable[[np.ndarray], Any]) -> Run:
    """Return the `run` of a function of one waveform."""
    return lambda batch, _: [as_array(function(waveform)) for waveform in batch]


def as_array(rows: Any) -> np.ndarray:
    """Return rows of numpy, or of torch on any device, without the utterance axis."""
    if hasattr(rows, "detach"):
        rows = rows.detach().float().cpu().numpy()
    rows = np.asarray(rows)
    return rows[0] if rows.ndim == 3 and len(rows) == 1 else rows


def checked_waveform(waveform: np.ndarray, shortest: int = 0) -> np.ndarray:
    """Return samples as float32 [N], padded with zeros to `shortest`."""
    waveform = np.asarray(waveform)
    if waveform.ndim != 1:
        advice = "expected [N]; read_audio mixes channels"
        raise ShapeError(f"a waveform of {waveform.shape}, {advice}")
    if not np.issubdtype(waveform.dtype, np.floating):
        dtype = str(waveform.dtype)
        raise ModelError(f"waveform of dtype {dtype!r}, expected floats: read_audio")
    waveform = waveform.astype(np.float32, copy=False)
    checked_peak(waveform)
    return np.pad(waveform, (0, max(0, shortest - len(waveform))))


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """Normalise logits [T, V] to natural log-probs float32."""
    if not rows.shape[-1]:
        return rows
    rows = rows - rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def checked_rows(
    rows: np.ndarray, spec: EncoderSpec, logits: bool = False
) -> np.ndarray:
    """Validate the output of a network: log-probs float32 [T, V], or frames [T, D]."""
    rows, tokens = np.asarray(rows, np.float32), spec.tokens
    if rows.ndim != 2:
        raise ShapeError(f"the model gave {rows.shape}, expected [T, V]")
    if spec.family != "ctc":
        if not np.isfinite(rows).all():
            raise ModelError("the encoder gave NaN or inf, expected numbers")
        return rows
    if rows.shape[1] != len(tokens):
        num, more = len(tokens), ""
        if rows.shape[1] == num + 1:
            more = f", and blank={num} (--blank) if the table leaves its last out"
        raise ModelError(
            f"the model gives {rows.shape[1]} outputs and there are {num} tokens, "
            f"expected as many; give its own table by tokens= (--tokens){more}"
        )
    if logits and len(rows):
        rows = log_softmax(rows)
    # A few rows distinguish logits from log-probs.
    some = rows[:: max(1, len(rows) // _ROWS_CHECKED)]
    with np.errstate(over="ignore", divide="ignore"):
        masses = np.exp(some.astype(np.float64)).sum(axis=1)
    if np.isnan(masses).any():
        raise LogprobError("the model gave NaN, expected log-probs")
    # Relative distance of the sums from 1: 0.01 is as wrong as 100.
    off = np.abs(np.log(np.maximum(masses, 1e-99)))
    if off.max(initial=0) <= _ROW_SLACK:
        return rows
    if some.min() >= 0 and np.allclose(some.sum(axis=1), 1, atol=0.05):
        raise ModelError("the model gives probabilities, expected their logarithms")
    raise ModelError(
        f"the exponentials of a row sum to {masses[off.argmax()]:.4g}, expected 1: "
        "logits? give logits=True (--logits) to have them normalised"
    )


def check_frames(num_frames: int, num_samples: int, spec: EncoderSpec) -> None:
    """Compare the number of frames with the length of the audio."""
    frames_s = num_frames * spec.frame_shift_s
    audio_s = num_samples / spec.sample_rate
    if abs(frames_s - audio_s) <= SLACK_S + SLACK * audio_s:
        return
    why = "the model covers only a part of long audio (cut the recording), or "
    raise ModelError(
        f"{num_frames} frames of {spec.frame_shift_s:g} s are {frames_s:.2f} s, "
        f"expected {audio_s:.2f} s of audio: {why * (frames_s < audio_s)}its frame "
        "shift or sample rate is another (--frame-shift, --sample-rate)"
    )


def checked_chunks(
    states: Sequence[Any], chunks: Sequence[np.ndarray], last: Sequence[bool]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield each stream's state and validated chunk; update `ended`."""
    for state, chunk, ends in zip(states, chunks, last, strict=True):
        if state.ended:
            raise OptionError("a chunk for a stream that has ended, expected none")
        samples, state.ended = checked_waveform(chunk), ends
        yield state, samples


@dataclass
class WindowState:
    """Audio of a stream that later windows need."""

    # float32 [n], from frame `first` on
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    first: int = 0  # Frame where `samples` begin
    done: int = 0  # Number of emitted frames
    # Extra frames of windows, for an encoder that returned none in time
    late: int = 0
    ended: bool = False  # Whether the last chunk has been processed


class Windowed:
    """`StreamingEncoder` by overlapping windows; times are rounded up to whole frames.

    Args:
        encoder: Encoder of whole utterances.
        chunk_s: Seconds of a step.
        left_s: Seconds of context before it.
        right_s: Seconds of context after it, which are the delay.

    Raises:
        OptionError: Times out of range, or a frame is not a whole number of samples.
    """

    def __init__(
        self, encoder: Encoder, chunk_s: float, left_s: float, right_s: float
    ) -> None:
        if not (chunk_s > 0 and left_s >= 0 and right_s >= 0):
            given = f"chunk_s={chunk_s!r}, left_s={left_s!r}, right_s={right_s!r}"
            raise OptionError(f"{given}, expected a positive chunk, no time below 0")
        self.encoder, self.spec = encoder, encoder.spec
        shift = self.spec.frame_shift_s * self.spec.sample_rate
        self._shift = round(shift)
        if abs(shift - self._shift) > 1e-6 * shift:
            raise OptionError(f"frames of {shift:g} samples, expected a whole number")
        self._chunk, self._left, self._right = (
            int(np.ceil(seconds / self.spec.frame_shift_s - 1e-6))
            for seconds in (chunk_s, left_s, right_s)
        )

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
        """Implement `StreamingEncoder.step`; one `encode` runs the windows of all."""
        for state, samples in checked_chunks(states, chunks, last):
            state.samples = np.concatenate([state.samples, samples])
        found: list[list[np.ndarray]] = [[] for _ in states]
        turn = [i for i, state in enumerate(states) if self._is_ready(state)]
        while turn:
            windows = [states[i].samples[: self._size(states[i])] for i in turn]
            for i, rows in zip(turn, self.encoder.encode(windows), strict=True):
                found[i].append(self._take(states[i], rows))
            turn = [i for i in turn if self._is_ready(states[i])]
        empty = np.zeros((0, self.spec.width), np.float32)
        return [np.concatenate([empty, *parts]) for parts in found]

    def _size(self, state: WindowState) -> int:
        end = state.done + self._chunk + self._right + state.late
        return (end - state.first) * self._shift

    def _is_ready(self, state: WindowState) -> bool:
        return len(state.samples) >= (1 if state.ended else self._size(state))

    def _take(self, state: WindowState, rows: np.ndarray) -> np.ndarray:
        """Return new frames, and drop audio that no later window needs."""
        # Frames are counted from the start of the stream. Last frames that an encoder
        # omits (its convolutions need more audio) come from the next window.
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
