"""NeMo, GigaAM and T-one as ONNX through `onnx-asr`, which knows their features.

    load_model("parakeet-ctc-0.6b-onnx/")       # model.onnx, vocab.txt, config.json

`onnx-asr` gives text; the log-probs are taken before its search, by names that are
private there, so its version is pinned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, needs
from wfstdec.models.encoder import BatchEncoder, EncoderSpec
from wfstdec.models.given import Given, read_json

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
"""The CTC models of onnx-asr."""


class OnnxAsrEncoder(BatchEncoder):
    """A CTC model of `onnx-asr` as an `Encoder`."""

    def __init__(self, model: Any, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self._model = model

    def _run(self, batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        features = self._model._preprocessor(batch, lengths.astype(np.int64))
        rows, counts = self._model._encode(*features)
        return [part[:count] for part, count in zip(rows, counts, strict=True)]


def onnx_asr_type(folder: Path) -> str | None:
    """The type of onnx-asr that a folder's files are of; None for none of CTC."""
    said = read_json(folder / "config.json").get("model_type")
    if said is not None:
        return said if said in TYPES else None
    names = {path.name for path in folder.glob("*.onnx")}
    if "v3_e2e_ctc.onnx" in names:
        return "gigaam-v3-e2e-ctc"
    for start, kind in (
        ("v2_ctc", "gigaam-v2-ctc"),
        ("v3_ctc", "gigaam-v3-ctc"),
        ("multilingual", "gigaam-multilingual-ctc"),
    ):
        if any(name.startswith(start) and "ctc" in name for name in names):
            return kind
    return None


def load_onnx_asr(
    folder: Path, model_type: str, file: Path | None, given: Given
) -> OnnxAsrEncoder:
    """Load a folder as `onnx-asr` wants it.

    Args:
        folder: With the model and its tokens.
        model_type: One of `TYPES`.
        file: The model, if it was named: `model.int8.onnx` is one of 8 bits.
        given: What the caller says.

    Raises:
        BackendError: `onnx-asr` is not installed.
        FormatError: It cannot load the folder; says what it lacks.
        ModelError: No tokens.
    """
    advice = ": pip install onnx-asr==0.12.0 onnxruntime"
    with needs(f"{folder}: {model_type} needs onnx-asr", advice):
        import onnxruntime
        from onnx_asr.loader import Manager, create_asr_resolver
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = given.threads
    quantized = re.fullmatch(r".*(?:model|ctc)[._-](\w+)", file.stem if file else "")
    try:
        # not by `onnx_asr.load_model`: its eight resamplers take a second or more
        manager = Manager(options, ["CPUExecutionProvider"])
        resolver = create_asr_resolver(model_type, folder)
        files = resolver.resolve_model(quantization=quantized[1] if quantized else None)
        model: Any = resolver.model_type(
            files, manager._create_preprocessor, manager.default_onnx_config
        )
    except Exception as error:  # onnxruntime has no root of errors
        raise FormatError(
            f"{folder}: onnx-asr cannot load it as {model_type} ({error})"
        ) from error
    place, rate = str(folder), model._get_sample_rate()
    # T-one's factor counts its own frames of 10 ms too.
    shift = given.shift(model.window_step * model._subsampling_factor, place)
    table = given.table(_names(model), place, getattr(model, "_blank_idx", None))
    return OnnxAsrEncoder(model, given.spec(table, shift, given.rate(rate, place)))


def _names(model: Any) -> list[str]:
    """Tokens by id; spaces are the marks of pieces again, as in the model's file."""
    names = [model._vocab.get(i, f"<unused_{i}>") for i in range(model._vocab_size)]
    if "decoder_params" in model.config:  # T-one: letters, and a blank without a name
        return [*names[:-1], "<blk>"]
    return [name.replace(" ", "\u2581") for name in names]
