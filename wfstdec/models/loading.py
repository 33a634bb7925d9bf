"""Load a model of any kind: what it is follows from its files, or from its class.

Tokens, blank, frame shift and sample rate are the model's own; what its files do not
have must be given; arguments take precedence over files.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from wfstdec.errors import ModelError, OptionError, needs
from wfstdec.models.encoder import Encoder
from wfstdec.models.onnx_asr_models import (
    load_onnx_asr,
    load_waveform_onnx,
    onnx_asr_type,
    open_session,
    takes_waveforms,
)
from wfstdec.models.python_models import (
    ModelOptions,
    function_encoder,
    hama_encoder,
    load_transformers,
    nemo_encoder,
    read_json,
    read_mapped,
    torchaudio_encoder,
    transformers_encoder,
)
from wfstdec.models.streaming_onnx import load_streaming_onnx, streaming_form
from wfstdec.text.files import PathLike
from wfstdec.text.tokens import TokenTable

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class _ModelSource:
    """A model as requested; its parts are opened once, when needed."""

    def __init__(self, model: Any, given: ModelOptions) -> None:
        self.model, self.given = model, given
        is_path = isinstance(model, str | os.PathLike)
        self.path = Path(os.fspath(model)) if is_path else None

    @cached_property
    def folder(self) -> Path | None:
        return self.path if self.path is not None and self.path.is_dir() else None

    @cached_property
    def onnx(self) -> Path | None:
        """The file, or the only one in the folder; others before quantised ones."""
        if self.path is None:
            return None
        if self.path.is_file():
            return self.path if self.path.suffix == ".onnx" else None
        files = sorted(self.path.glob("*.onnx"))
        plain = [file for file in files if ".int8" not in file.name] or files
        if len(plain) > 1:
            names = ", ".join(file.name for file in plain)
            raise ModelError(f"{self.path}: found {names}, expected one; name the file")
        return plain[0] if plain else None

    @cached_property
    def session(self) -> Any:
        return self.onnx and open_session(self.onnx, self.given.threads)


class Kind(NamedTuple):
    """Kind of model."""

    name: str  # the value of `kind=`
    looks: str  # What it looks like, for errors
    # Makes the encoder, or None where the model is of another kind
    load: Callable[[_ModelSource], Encoder | None]


def load_model(
    model: Any,
    tokens: PathLike | TokenTable | None = None,
    blank: int | str | None = None,
    *,
    frame_shift_s: float | None = None,
    sample_rate: int | None = None,
    kind: str | None = None,
    logits: bool | None = None,
    threads: int = 1,
    max_batch: int = 1,
) -> Encoder:
    """Load a CTC model: audio at its sample rate to log-probs.

    Args:
        model: An ONNX file, a folder of a model, `"hama"`, `"module:function"`, or a
            .json file that maps the tokens of one of these (`MappedTokens`); or an
            object: a function, a model of Transformers with its processor as a pair, a
            model of NeMo, a bundle of torchaudio, an `Encoder`.
        tokens: The names of its outputs; None takes the table in its folder.
        blank: CTC's blank, by name or index; None leaves it to the model.
        frame_shift_s: Seconds from a frame to the next.
        sample_rate: Samples per second of its audio.
        kind: One of `KINDS`; None tries all in order.
        logits: Whether its outputs are to be normalised; None leaves it to the model.
        threads: Of onnxruntime. One worker for each core and a thread each is fastest.
        max_batch: Utterances at once: more than one gains nothing on a CPU.

    Raises:
        ModelError: It is of no kind, or lacks information; names the missing argument.
        FormatError, TokenTableError: A file of it cannot be read.
        BackendError: What it needs is not installed.
        OptionError: No such kind.
    """
    given = ModelOptions(
        tokens, blank, frame_shift_s, sample_rate, logits, threads, max_batch
    )
    if kind is not None and kind not in KINDS:
        raise OptionError(f"kind={kind!r}, expected one of {', '.join(KINDS)}")
    return _load(model, given, kind)


def _load(model: Any, given: ModelOptions, kind: str | None = None) -> Encoder:
    found = _ModelSource(model, given)
    kinds = _KINDS if kind is None else [one for one in _KINDS if one.name == kind]
    # The first that accepts it: particular kinds come before general ones.
    for one in kinds:
        encoder = one.load(found)
        if encoder is not None:
            return encoder
    if found.path is not None and not found.path.exists():
        raise ModelError(
            f"{found.path}: no such file, expected a model, 'hama' or 'module:function'"
        )
    raise ModelError(
        f"{model if found.path else type(model).__name__}: a model of no known kind; "
        + "; ".join(f"{one.name} is {one.looks}" for one in kinds)
    )


def _mapped(found: _ModelSource) -> Encoder | None:
    if found.path is None or found.path.suffix != ".json" or not found.path.is_file():
        return None
    return read_mapped(found.path, found.given, _load)


def _hama(found: _ModelSource) -> Encoder | None:
    if found.model == "hama":
        return hama_encoder(found.given)
    is_hama = type(found.model).__module__.split(".")[0] == "hama"
    return hama_encoder(found.given, found.model) if is_hama else None


def _streaming_onnx(found: _ModelSource) -> Encoder | None:
    if found.onnx is None or (form := streaming_form(found.session)) is None:
        return None
    return load_streaming_onnx(found.onnx, found.session, form, found.given)


def _onnx_asr(found: _ModelSource) -> Encoder | None:
    file, folder = (None, found.folder) if found.folder else (found.onnx, None)
    if file is not None and not takes_waveforms(found.session):
        folder = file.parent
    if folder is None:
        return None
    model_type = onnx_asr_type(folder)
    if model_type is None and found.session is not None:
        inputs = [(one.name, len(one.shape)) for one in found.session.get_inputs()]
        if inputs == [("audio_signal", 3), ("length", 1)]:
            model_type = "nemo-conformer-ctc"
    if model_type is None:
        return None
    return load_onnx_asr(folder, model_type, file, found.given)


def _onnx(found: _ModelSource) -> Encoder | None:
    if found.onnx is None or not takes_waveforms(found.session):
        return None
    return load_waveform_onnx(found.onnx, found.session, found.given)


def _transformers(found: _ModelSource) -> Encoder | None:
    if isinstance(found.model, tuple) and len(found.model) == 2:
        model, processor = found.model
        return transformers_encoder(model, processor, None, found.given)
    if found.folder is None:
        return None
    config = read_json(found.folder / "config.json")
    is_ctc = any("ForCTC" in name for name in config.get("architectures") or ())
    if is_ctc and any(any(found.folder.glob(form)) for form in _WEIGHTS):
        return load_transformers(found.folder, found.given)
    return None


def _nemo(found: _ModelSource) -> Encoder | None:
    model, path = found.model, found.path
    if path is not None and path.suffix == ".nemo":
        if not path.is_file():
            raise ModelError(f"{path}: no such file, expected a model of NeMo")
        advice = ": pip install nemo_toolkit[asr]; or export it to ONNX"
        with needs(f"{path}: a .nemo file needs NeMo", advice):
            from nemo.collections.asr.models import ASRModel
        model = ASRModel.restore_from(str(path), map_location="cpu")
    is_nemo = all(hasattr(model, name) for name in ("preprocessor", "decoder", "cfg"))
    return nemo_encoder(model, found.given) if is_nemo else None


def _torchaudio(found: _ModelSource) -> Encoder | None:
    is_bundle = all(hasattr(found.model, n) for n in ("get_model", "get_labels"))
    return torchaudio_encoder(found.model, found.given) if is_bundle else None


def _function(found: _ModelSource) -> Encoder | None:
    model = found.model
    if isinstance(model, str) and not Path(model).exists() and model.count(":") == 1:
        module, _, name = model.partition(":")
        try:
            model = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ModelError(
                f"{model!r}: cannot be imported ({error}), expected a function"
            ) from error
        if isinstance(model, Encoder):
            return model
    if not callable(model):
        return None
    place, given = getattr(model, "__name__", type(model).__name__), found.given
    spec = given.spec(place, None, None, None, None)
    return function_encoder(model, spec, logits=bool(given.logits))


_KINDS = (
    Kind(
        "encoder",
        "an object with `spec` and `encode`",
        lambda found: found.model if isinstance(found.model, Encoder) else None,
    ),
    Kind("mapped", "a .json file that names a model and what its tokens are", _mapped),
    Kind("hama", "the name of that package", _hama),
    Kind(
        "transformers",
        "a folder with config.json of a ...ForCTC and its weights, or (model, "
        "processor)",
        _transformers,
    ),
    Kind(
        "streaming-onnx",
        "an .onnx with sherpa-onnx's metadata of a streaming CTC model",
        _streaming_onnx,
    ),
    Kind(
        "onnx-asr",
        "a folder that onnx-asr reads: model.onnx, vocab.txt, config.json with a CTC "
        "model_type, or GigaAM's names",
        _onnx_asr,
    ),
    Kind("onnx", "an .onnx that takes waveforms [B, N]", _onnx),
    Kind("nemo", "a .nemo file, or a CTC model of NeMo", _nemo),
    Kind("torchaudio", "a bundle of torchaudio", _torchaudio),
    Kind("function", "a function, or 'module:function'", _function),
)
"""All kinds, the more particular first."""
KINDS = tuple(one.name for one in _KINDS)
"""Names of all kinds, for `kind=`."""
