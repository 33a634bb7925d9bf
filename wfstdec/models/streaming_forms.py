"""Forms of streaming exports by toolkit: windows, states, inputs, from metadata.

Each model takes a window of features and its states, and gives the frames of the window
and the next states, in the order of the inputs. The window is longer than its shift:
the rest is what convolutions look ahead to (Zipformer2, WeNet), or back to (NeMo).
Names, shapes and order are those that sherpa-onnx reads; NeMo's first window begins
with frames of zeros, as NeMo's own buffer for exported models has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.errors import ModelError
from wfstdec.models.features import RATE, Features, KaldiFbank, NemoFbank, RawFrames
from wfstdec.models.waveform_onnx import metadata

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Form:
    """Form of a streaming export.

    Attributes:
        name: As sherpa-onnx calls it.
        window: Frames of features that a step sees.
        shift: Frames that it is further than the last.
        num_out: Frames that it gives.
        first_states: Of a new stream.
        axes: Of each state, the axis of the batch; None where it allows no batch.
        features: Makes those of a new stream.
        inputs: Inputs in order, of features [B, window, F] and states.
        blank: Where the blank is: 0, or -1 for the last.
        rate: Samples a second.
        num_skipped: Outputs between the log-probs and the states.
        next_states: Makes the next states of the last ones and of those that came out.
    """

    name: str
    window: int
    shift: int
    num_out: int
    first_states: Callable[[], Arrays]
    axes: Sequence[int] | None
    features: Callable[[], Features]
    inputs: Callable[[np.ndarray, Arrays], Arrays]
    blank: int = 0
    rate: int = RATE
    num_skipped: int = 0
    next_states: Callable[[Arrays, Arrays], Arrays] = lambda old, new: new


def streaming_form(session: Any) -> Form | None:
    """The form of a session, by its metadata; None where it is none of these.

    Raises:
        ModelError: Of a form, but with features or numbers that are not supported.
    """
    own = metadata(session)
    # Exports have no field that names their form; each has one that no other has.
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
                raise ModelError(
                    f"metadata of the ONNX file: {error!r}, expected what "
                    f"sherpa-onnx reads beside {key!r}"
                ) from error
    return None


def _zipformer2(own: Mapping[str, str], session: Any) -> Form:
    """Six states a layer, of which the batch is on axis 1 or 0, and two more."""
    if own.get("feature") == "whisper":
        raise ModelError("features of Whisper in the metadata, expected Kaldi's fbank")
    names = "encoder_dims query_head_dims value_head_dims num_heads num_encoder_layers"
    dims, query, value, heads, layers, kernels, left = (
        [int(number) for number in own[name].split(",")]
        for name in (*names.split(), "cnn_module_kernels", "left_context_len")
    )
    shapes: list[tuple[int, ...]] = []
    for i, num in enumerate(layers):
        key, val = query[i] * heads[i], value[i] * heads[i]
        convolution = (1, dims[i], kernels[i] // 2)
        shapes += num * [
            (left[i], 1, key),
            (1, 1, left[i], 3 * dims[i] // 4),
            (left[i], 1, val),
            (left[i], 1, val),
            convolution,
            convolution,
        ]
    embedding = (128, 3, 19)
    if all(isinstance(size, int) for size in session.get_inputs()[-2].shape[1:]):
        embedding = tuple(session.get_inputs()[-2].shape[1:])

    def first_states() -> Arrays:
        return [
            *(np.zeros(shape, np.float32) for shape in shapes),
            np.zeros((1, *embedding), np.float32),
            np.zeros(1, np.int64),
        ]

    shift = int(own["decode_chunk_len"])
    return Form(
        "zipformer2",
        int(own["T"]),
        shift,
        shift // 4,
        first_states,
        [*[1, 1, 1, 1, 0, 0] * sum(layers), 0, 0],
        lambda: KaldiFbank(1, -400),
        lambda x, states: [x, *states],
    )


def _nemo(own: Mapping[str, str], session: Any) -> Form:
    """Three caches; frames of zeros before the first, as NeMo's own buffer has them."""
    if own.get("normalize_type", "") not in ("", "NA", "None"):
        raise ModelError(
            f"normalize_type {own['normalize_type']!r} in the metadata, expected none: "
            "features of a stream cannot be normalised over an utterance"
        )
    window, shift = int(own["window_size"]), int(own["chunk_shift"])
    shapes = [
        (1, *(int(own[f"cache_last_{name}_dim{i}"]) for i in (1, 2, 3)))
        for name in ("channel", "time")
    ]
    bins = session.get_inputs()[0].shape[1]

    def first_states() -> Arrays:
        caches = [np.zeros(shape, np.float32) for shape in shapes]
        return [*caches, np.zeros(1, np.int64)]

    def inputs(x: np.ndarray, states: Arrays) -> Arrays:
        lengths = np.full(len(x), window, np.int64)
        return [np.ascontiguousarray(x.transpose(0, 2, 1)), lengths, *states]

    return Form(
        "nemo_ctc",
        window,
        shift,
        shift // int(own["subsampling_factor"]),
        first_states,
        [0, 0, 0],
        lambda: NemoFbank(bins if isinstance(bins, int) else 80, window - shift),
        inputs,
        blank=-1,
        num_skipped=1,
    )


def _wenet(own: Mapping[str, str], session: Any) -> Form:
    """Caches of attention and convolution, an offset, a mask of what is there yet."""
    chunk, factor = int(own["chunk_size"]), int(own["subsampling_factor"])
    heads, blocks, dim = (int(own[n]) for n in ("head", "num_blocks", "output_size"))
    size = chunk * int(own["left_chunks"])
    kernel = int(own["cnn_module_kernel"])

    def first_states() -> Arrays:
        return [
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

    return Form(
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


def _tone(own: Mapping[str, str], session: Any) -> Form:
    """Samples as integers of 16 bits, and one state of float16."""
    rate = int(own["sample_rate"])
    size = int(own["frame_length_ms"]) * rate // 1000
    dim = int(own["state_dim"])

    def inputs(x: np.ndarray, states: Arrays) -> Arrays:
        samples = (np.clip(x, -1, 1) * 32767).astype(np.int32)
        return [samples.reshape(len(x), size, 1), *states]

    num_out = session.get_outputs()[0].shape[1]
    return Form(
        "t_one_ctc",
        1,
        1,
        num_out if isinstance(num_out, int) else 10,
        lambda: [np.zeros((1, dim), np.float16)],
        [0],
        lambda: RawFrames(size),
        inputs,
        blank=-1,
        rate=rate,
    )
