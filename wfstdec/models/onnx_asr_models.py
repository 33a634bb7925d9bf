"""ONNX models that take a waveform, with or without features inside.

    waveform [B, N] (and lengths [B], or a mask [B, N]) -> log-probs [B, T, V] (lengths)

Examples are `hama` 1.3.13, and wav2vec2, HuBERT and WavLM exported by Optimum or torch.
Inputs and outputs are recognised by rank and type, not by name.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, ModelError, needs
from wfstdec.models.encoder import (
    BatchEncoder,
    ModelOptions,
    read_json,
    tokens_in,
)
from wfstdec.text.files import PathLike

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


_PROVIDERS = ["CPUExecutionProvider"]


def _session_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    return options


def open_session(path: PathLike, threads: int) -> Any:
    """Return an onnxruntime session on the CPU."""
    with needs("ONNX models need onnxruntime", ": pip install onnxruntime"):
        from onnxruntime import InferenceSession
    try:
        options = _session_options(threads)
        return InferenceSession(os.fspath(path), options, providers=_PROVIDERS)
    except Exception as error:  # onnxruntime has no common base of errors
        raise FormatError(f"{path}: not a readable ONNX model ({error})") from error


def metadata(session: Any) -> Mapping[str, str]:
    """Return the key-value pairs of an ONNX file."""
    return session.get_modelmeta().custom_metadata_map


def takes_waveforms(session: Any) -> bool:
    """Return whether one input is samples [B, N] and all others lengths or masks."""
    inputs = [(one.type, len(one.shape)) for one in session.get_inputs()]
    others = [one for one in inputs if one[0] not in FLOATS]
    return [rank for kind, rank in inputs if kind in FLOATS] == [2] and all(
        kind in INTEGERS and rank in (1, 2) for kind, rank in others
    )


def run_waveforms(
    session: Any, batch: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs [B, T, V] and their lengths [B], T if the model has none."""
    feeds = {}
    for one in session.get_inputs():
        if one.type in FLOATS:
            feeds[one.name] = batch.astype(FLOATS[one.type], copy=False)
        elif len(one.shape) == 1:
            feeds[one.name] = lengths.astype(INTEGERS[one.type])
        else:
            mask = np.arange(batch.shape[1]) < lengths[:, None]
            feeds[one.name] = mask.astype(INTEGERS[one.type])
    outputs = session.run(None, feeds)
    frames = next((one for one in outputs if one.ndim == 3), None)
    if frames is None:
        shapes = ", ".join(str(one.shape) for one in outputs)
        raise ModelError(f"the model gave {shapes}, expected log-probs [B, T, V]")
    for one in outputs:
        if one.ndim == 1 and np.issubdtype(one.dtype, np.integer):
            return frames, np.minimum(one, frames.shape[1])
    return frames, np.full(len(frames), frames.shape[1])


def load_waveform_onnx(path: Path, session: Any, given: ModelOptions) -> BatchEncoder:
    """Return the encoder of a file, its metadata and the files next to it."""
    # `preprocessor_config.json` of Transformers has rate and normalisation,
    # `config.json` the blank. An unknown frame shift is measured on 1 and 13 seconds of
    # silence.
    place, own = str(path), metadata(session)
    features = read_json(path.parent / "preprocessor_config.json")
    config = read_json(path.parent / "config.json")
    names = [one.name for one in session.get_inputs()]
    if "input_values" in names and "do_normalize" not in features:
        expected = "expected preprocessor_config.json: is audio normalised?"
        raise ModelError(f"{place}: takes Transformers' 'input_values', {expected}")
    # The blank by the model's files: metadata, or the padding token of Transformers.
    blank: Any = read_json(path.parent / "special_tokens_map.json").get("pad_token")
    if isinstance(blank, dict):
        blank = blank.get("content")
    blank = own.get("blank", blank or config.get("pad_token_id"))
    spec = given.spec(
        *(place, tokens_in(path.parent), blank),
        shift=float(own.get("frame_shift_s", 0))
        or partial(_measured_shift, session, place),
        rate=int(own.get("sample_rate", 0)) or features.get("sampling_rate"),
    )
    logits = given.logits
    if logits is None:
        logits = any("logit" in one.name for one in session.get_outputs())

    def run(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        if features.get("do_normalize"):
            # Mean 0, variance 1 over unpadded samples, as in Transformers.
            samples, batch = batch, np.zeros_like(batch)
            for row, out, length in zip(samples, batch, lengths, strict=True):
                real = row[:length]
                out[:length] = (real - real.mean()) / np.sqrt(real.var() + 1e-7)
        frames, counts = run_waveforms(session, batch, lengths)
        return [rows[:count] for rows, count in zip(frames, counts, strict=True)]

    return BatchEncoder(spec, run, logits=logits)


def _measured_shift(session: Any, place: str, rate: int) -> float | None:
    """Return seconds per frame, from the number of extra frames for twelve seconds."""
    # Twelve seconds are a whole number of frames of 10, 20, 25, 30, 32, 40, 60, 80 ms.
    counts = []
    for seconds in (1, 13):
        silence = np.zeros((1, seconds * rate), np.float32)
        try:
            _, [count] = run_waveforms(session, silence, np.array([silence.size]))
        except ModelError:
            raise
        except Exception as error:  # of onnxruntime
            what = f"cannot be run on {seconds} s at {rate} Hz ({error})"
            advice = "give frame_shift_s= (--frame-shift) if it takes other lengths"
            raise ModelError(f"{place}: {what}; {advice}") from error
        counts.append(int(count))
    frames = counts[1] - counts[0]
    return None if frames <= 0 or 12 * rate % frames else 12 / frames


TYPES = (
    "gigaam-v2-ctc",
    "gigaam-v3-ctc",
    "gigaam-v3-e2e-ctc",
    "gigaam-multilingual-ctc",
    "gigaam-multilingual-large-ctc",
    "nemo-conformer-ctc",
    "nemo-fastconformer-ru-ctc",
    "nemo-parakeet-ctc-0.6b",
    "t-one-ctc",
)
"""CTC models of onnx-asr."""


def onnx_asr_type(folder: Path) -> str | None:
    """Return onnx-asr's type of a folder's files; None if not CTC."""
    own = read_json(folder / "config.json").get("model_type")
    if own is not None:
        return own if own in TYPES else None
    for form, kind in (
        ("v3_e2e_ctc.onnx", "gigaam-v3-e2e-ctc"),
        ("v2_ctc*.onnx", "gigaam-v2-ctc"),
        ("v3_ctc*.onnx", "gigaam-v3-ctc"),
        ("multilingual*ctc*.onnx", "gigaam-multilingual-ctc"),
    ):
        if any(folder.glob(form)):
            return kind
    return None


def load_onnx_asr(
    folder: Path, model_type: str, file: Path | None, given: ModelOptions
) -> BatchEncoder:
    """Load a folder in the layout of `onnx-asr`."""
    advice = ": pip install onnx-asr==0.12.0 onnxruntime"
    with needs(f"{folder}: {model_type} needs onnx-asr", advice):
        from onnx_asr.loader import Manager, create_asr_resolver

        options = _session_options(given.threads)
    quantized = re.fullmatch(r".*(?:model|ctc)[._-](\w+)", file.stem if file else "")
    try:
        # not by `onnx_asr.load_model`: its eight resamplers take a second or more
        manager = Manager(options, _PROVIDERS)
        resolver = create_asr_resolver(model_type, folder)
        files = resolver.resolve_model(quantization=quantized[1] if quantized else None)
        model: Any = resolver.model_type(
            files, manager._create_preprocessor, manager.default_onnx_config
        )
    except Exception as error:  # onnxruntime has no root of errors
        what = f"onnx-asr cannot load it as {model_type} ({error})"
        raise FormatError(f"{folder}: {what}") from error
    names = [model._vocab.get(i, f"<unused_{i}>") for i in range(model._vocab_size)]
    if "decoder_params" in model.config:  # T-one: letters, and a blank without a name
        names[-1] = "<blk>"
    else:  # restore the marks of pieces from spaces, as in the model's file
        names = [name.replace(" ", "\u2581") for name in names]
    blank, rate = getattr(model, "_blank_idx", None), model._get_sample_rate()
    # T-one's factor also counts its own frames of 10 ms.
    shift = model.window_step * model._subsampling_factor
    spec = given.spec(str(folder), names, blank, shift, rate)
    return BatchEncoder(spec, partial(_run_onnx_asr, model))


def whisper_features(bins: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from samples [N] to features [1, bins, 3000] of 30 s."""
    advice = ": pip install onnx-asr==0.12.0 onnxruntime"
    with needs("features of Whisper need onnx-asr", advice):
        from onnx_asr.loader import Manager
    make = Manager(_session_options(threads), _PROVIDERS)._create_preprocessor
    preprocessor = make(f"whisper{bins}")

    def features(samples: np.ndarray) -> np.ndarray:
        return preprocessor(samples[None], np.array([len(samples)]))[0]

    return features


def _run_onnx_asr(
    model: Any, batch: np.ndarray, lengths: np.ndarray
) -> Sequence[np.ndarray]:
    features = model._preprocessor(batch, lengths.astype(np.int64))
    rows, counts = model._encode(*features)
    return [part[:count] for part, count in zip(rows, counts, strict=True)]
