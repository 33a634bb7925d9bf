"""Models other than CTC: an encoder of frames, and the net of the search.

    model = load_model("parakeet-tdt-0.6b")            # a SpeechModel
    decoder = TransducerDecoder(model, lm="pieces.arpa")
    print(Transcriber(model, decoder)("talk.mp3").text)

Files of a folder are recognised by name, layouts by inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import ModelError, needs
from wfstdec.models.encoder import (
    BatchEncoder,
    EncoderSpec,
    ModelOptions,
    read_json,
    tokens_in,
)
from wfstdec.models.onnx_asr_models import metadata, open_session
from wfstdec.models.streaming_onnx import (
    RATE,
    KaldiFbank,
    NemoFbank,
    StreamingOnnx,
    streaming_form,
)
from wfstdec.text.lexicon import tokenizer_beside
from wfstdec.text.tokens import BLANK_NAME, token_table

_PART = re.compile(
    "decoder_joint|decoder_model_merged|decoder_with_past|uncached_decode|"
    "cached_decode|encoder|decoder|joiner|preprocess|encode"
)
_PRECISION = re.compile(r"[._](int8|uint8|fp16|q4f16|q4|bnb4|quantized)$")
_FEATURES_S = 0.01
_NEMO_STRIDE, _ICEFALL_STRIDE = 8, 4


class SpeechModel:
    """Transducer or attention model with its encoder.

    Args:
        encoder: Audio to frames of the encoder, float32 [T, D]; it may stream.
        net: A `TransducerModel` or an `AttentionModel`.

    Attributes:
        spec: Tokens of the net, and frame shift, sample rate and family of the model.
    """

    def __init__(self, encoder: Any, net: Any) -> None:
        self.encoder, self.net = encoder, net
        self.spec: EncoderSpec = encoder.spec

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return encoder frames, float32 [T, D] each, of waveforms float32 [N]."""
        return self.encoder.encode(waveforms)


class StreamingSpeechModel(SpeechModel):
    """`SpeechModel` whose encoder streams; see `StreamingEncoder`."""

    def start(self) -> Any:
        """Return the state of a new stream."""
        return self.encoder.start()

    def step(
        self, states: Sequence[Any], chunks: Sequence[np.ndarray], last: Sequence[bool]
    ) -> list[np.ndarray]:
        """Advance streams, each by a chunk of any size."""
        return self.encoder.step(states, chunks, last)


def parts_of(path: Path | None) -> dict[str, Path]:
    """Return the ONNX files of a model in parts, by part; empty for other models.

    `path` is their folder, or one of them, which fixes the precision of the others.
    """
    if path is None or (path.is_file() and path.suffix != ".onnx"):
        return {}
    folder = path.parent if path.is_file() else path
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.glob("*.onnx")) or sorted(folder.glob("onnx/*.onnx")):
        if named := _PART.findall(file.name):
            part = {"encode": "encoder"}.get(named[-1], named[-1])
            found.setdefault(part, []).append(file)
    if path.is_file() and not any(path in files for files in found.values()):
        return {}

    def precision(file: Path) -> str:
        named = _PRECISION.search(file.stem)
        return named[1] if named and file.suffix == ".onnx" else ""

    parts = {}
    for part, files in found.items():
        some = [path] if path in files else files
        alike = [one for one in some if precision(one) == precision(path)] or some
        if len(alike) > 1:
            names = ", ".join(one.name for one in alike)
            raise ModelError(f"{folder}: found {names}, expected one {part}")
        parts[part] = alike[0]
    return parts


DECODERS = {"decoder", "decoder_model_merged", "decoder_with_past"}
DECODERS |= {"uncached_decode", "cached_decode"}


def family_of_files(path: Path) -> str | None:
    """Return the family of an export in parts, from its file names; else None."""
    parts = parts_of(path)
    if {"joiner", "decoder_joint"} & parts.keys():
        return "transducer"
    folder = path.parent if path.is_file() else path
    files = [path] if path.is_file() else folder.glob("*beamsearch*.onnx")
    if DECODERS & parts.keys() or any("beamsearch" in file.name for file in files):
        return "attention"
    is_attention = parts and is_seq2seq(read_json(folder / "config.json"))
    return "attention" if is_attention else None


def is_seq2seq(config: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` describes an attention model."""
    names = config.get("architectures") or ()
    is_nemo = config.get("model_type") == NEMO_ATTENTION
    return is_nemo or any("ForConditionalGeneration" in name for name in names)


NEMO_ATTENTION = "nemo-conformer-aed"
"""`model_type` of Canary in onnx-asr's `config.json`."""


def folder_of(parts: dict[str, Path], needed: Sequence[str]) -> Path:
    """Return the folder of a model's files; raise if one of `needed` is missing."""
    folder = next(iter(parts.values())).parent
    if missing := [part for part in needed if part not in parts]:
        names = ", ".join(parts[part].name for part in needed if part in parts)
        raise ModelError(f"{folder}: found {names}, expected a file of {missing[0]}")
    return folder


def load_transducer(path: Path, given: ModelOptions) -> SpeechModel | None:
    """Load a folder of a transducer, in a layout of `models.transducers`.

    Returns None without a file of the joiner.
    """
    parts = parts_of(path)
    if "decoder_joint" in parts:
        needed = ["encoder", "decoder_joint"]
    elif "joiner" in parts:
        needed = ["encoder", "decoder", "joiner"]
    else:
        return None
    folder = folder_of(parts, needed)
    with needs(f"{folder}: transducers need torch", ": pip install torch"):
        from wfstdec.models.transducers import OnnxTransducer

    encoder, *others = (open_session(parts[one], given.threads) for one in needed)
    config, own = read_json(folder / "config.json"), metadata(encoder)
    form = streaming_form(encoder)
    is_nemo = encoder.get_inputs()[0].name == "audio_signal"
    usual = own.get("subsampling_factor", _NEMO_STRIDE if is_nemo else _ICEFALL_STRIDE)
    stride = int(config.get("subsampling_factor", usual))
    shift = _FEATURES_S * stride if form is None else form.frame_shift_s
    spec = given.spec(str(folder), tokens_in(folder), None, shift, RATE)
    net = OnnxTransducer(
        encoder if form is None else None,
        others[0],
        others[1] if len(others) > 1 else None,
        spec.tokens,
        stride=stride,
        tokenizer=tokenizer_beside(folder / "tokens.txt"),
        max_symbols=config.get("max_tokens_per_step"),
    )
    pieces, blank = tuple(net.tokens), net.blank
    spec = replace(
        spec,
        tokens=token_table((*pieces[:blank], BLANK_NAME, *pieces[blank:]), blank),
        family="transducer",
        frame_dim=net.frame_dim or 0,
    )
    if form is not None:
        return StreamingSpeechModel(StreamingOnnx(encoder, form, spec), net)
    features = nemo_features(own, net.input_dim) if is_nemo else _kaldi
    return SpeechModel(BatchEncoder(spec, _frames_of(net, features)), net)


def _kaldi(samples: np.ndarray) -> np.ndarray:
    return KaldiFbank(1, -400).whole(samples)


def nemo_features(own: Any, bins: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from samples to NeMo's features, by the metadata."""

    def features(samples: np.ndarray) -> np.ndarray:
        some = NemoFbank(bins, 0).whole(samples)
        if own.get("normalize_type", "per_feature") != "per_feature":
            return some
        # Over the utterance, as in NeMo.
        return (some - some.mean(0)) / (some.std(0, ddof=1) + 1e-5)

    return features


def _frames_of(net: Any, features: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the `run` of a `BatchEncoder`: features, then the encoder."""
    import torch

    def run(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        pairs = zip(batch, lengths, strict=True)
        rows = [torch.from_numpy(features(samples[:size])) for samples, size in pairs]
        sizes = torch.tensor([len(some) for some in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        frames, counts = net.encode(padded, sizes)
        found = zip(frames.numpy(), counts.tolist(), strict=True)
        return [some[:count] for some, count in found]

    return run
