"""Loading of models of any kind, recognised from their files or class.

Tokens, blank, frame shift and sample rate come from the model's files. Missing ones
must be given; arguments take precedence over files.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import (
    BackendError,
    FormatError,
    ModelError,
    OptionError,
    TokenTableError,
    needs,
)
from wfstdec.models.encoder import (
    BatchEncoder,
    Encoder,
    ModelOptions,
    as_array,
    one_by_one,
    read_json,
)
from wfstdec.models.onnx_asr_models import (
    load_onnx_asr,
    load_waveform_onnx,
    onnx_asr_type,
    open_session,
    takes_waveforms,
)
from wfstdec.models.speech import (
    NEMO_ATTENTION,
    family_of_files,
    is_seq2seq,
    load_transducer,
    parts_of,
)
from wfstdec.models.streaming_onnx import load_streaming_onnx, streaming_form
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import load_tokens
from wfstdec.text.tokens import TokenTable

HAMA = "1.7.0"  # Version of `hama` whose internals are used
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class _ModelSource:
    """Requested model; its parts are opened once, when needed."""

    def __init__(self, model: Any, given: ModelOptions) -> None:
        self.model, self.given = model, given
        is_path = isinstance(model, str | os.PathLike)
        self.path = path = Path(os.fspath(model)) if is_path else None
        self.folder = path if path and path.is_dir() else None

    @cached_property
    def onnx(self) -> Path | None:
        """Return the file, or the only one in the folder; unquantised ones first."""
        if self.path is None:
            return None
        if self.path.is_file():
            return self.path if self.path.suffix == ".onnx" else None
        files = sorted(self.path.glob("*.onnx"))
        if len(parts := parts_of(self.path)) > 1:  # the other head of a hybrid model
            files = [file for file in files if file not in parts.values()]
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

    name: str  # value of `kind=`
    looks: str  # description, for errors
    # Returns the encoder, or None for a model of another kind
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
    head: str | None = None,
    language: str | None = None,
) -> Encoder:
    """Load a model that turns audio into log-probs, or into an encoder's frames.

    A CTC model returns log-probs, for `WfstDecoder` and others. A transducer or an
    attention model is a `SpeechModel`, for `TransducerDecoder` or `AttentionDecoder`,
    according to its `spec.family`.

    Args:
        model: An ONNX file, a folder of a model, `"hama"`, `"module:function"`, or a
            .json file that maps the tokens of one of these (`MappedTokens`); or an
            object: a function, a model of Transformers with its processor as a pair, an
            `Encoder`.
        tokens: Names of its outputs; None takes the table in its folder.
        blank: CTC's blank, by name or index; None leaves it to the model.
        frame_shift_s: Seconds between frames.
        sample_rate: Samples per second of its audio.
        kind: One of `KINDS`; None tries all in order.
        logits: Whether its outputs need normalisation; None leaves it to the model.
        threads: Threads of onnxruntime. One worker per core with one thread each is
            fastest.
        max_batch: Utterances in a batch: more than one is not faster on a CPU.
        head: `"ctc"` or `"transducer"`, of a folder that has both; None takes the
            transducer.
        language: Of an attention model, such as `"de"`; None is English.

    Raises:
        ModelError: Unknown kind, or missing information; names the argument.
        FormatError, TokenTableError: A file cannot be read.
        BackendError: A required package is not installed.
        OptionError: Unknown `kind`.
    """
    given = ModelOptions(
        *(tokens, blank, frame_shift_s, sample_rate, logits, threads, max_batch, head),
        language,
    )
    if head not in (None, *HEADS):
        raise OptionError(f"head={head!r}, expected one of {', '.join(HEADS)}")
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
        expected = "expected a model, 'hama' or 'module:function'"
        raise ModelError(f"{found.path}: no such file, {expected}")
    known = "; ".join(f"{one.name} is {one.looks}" for one in kinds)
    what = model if found.path else type(model).__name__
    raise ModelError(f"{what}: unknown kind of model; {known}")


def family_of(model: Any, head: str | None = None) -> str:
    """Return the `EncoderSpec.family` of a model, from the names of its files."""
    if isinstance(model, str | os.PathLike) and head != "ctc":
        path = Path(os.fspath(model))
        known = "attention" if is_seq2seq(read_json(path / "config.json")) else "ctc"
        return family_of_files(path) or known
    return "attention" if _is_attention_pair(model) else "ctc"


def _is_attention_pair(model: Any) -> bool:
    is_pair = isinstance(model, tuple) and len(model) == 2
    config = getattr(model[0], "config", None) if is_pair else None
    return bool(getattr(config, "is_encoder_decoder", False))


def _mapped(found: _ModelSource) -> Encoder | None:
    """Load `model.json`: a model, and the mapping of its tokens to a decoder's."""
    path, given = found.path, found.given
    if path is None or path.suffix != ".json" or not path.is_file():
        return None
    described = read_json(path)
    for key, value in described.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            expected = ", ".join(_KEYS)
            raise FormatError(f"{path}: found {key!r}: {value!r}, expected {expected}")
    if missing := [key for key in ("model", "tokens") if key not in described]:
        raise FormatError(f"{path}: found no {missing[0]!r}, expected the name of one")
    beside = path.parent / described["model"]
    name = str(beside) if beside.exists() else described["model"]
    if not beside.exists() and ":" in name:  # only the caller may name code to run
        expected = "expected a file, a folder or 'hama'"
        raise FormatError(f"{path}: found the model {name!r}, {expected}")
    blank = described.get("blank") if given.blank is None else given.blank
    tokens = given.tokens or path.parent / described["tokens"]
    return MappedTokens(
        _load(name, replace(given, tokens=None, blank=None)),
        load_tokens(tokens, blank),
        same=described.get("same"),
        rest=described.get("rest"),
    )


def _hama(found: _ModelSource) -> Encoder | None:
    if isinstance(found.model, str) and found.model == "hama":
        return hama_encoder(found.given)
    is_hama = type(found.model).__module__.split(".")[0] == "hama"
    return hama_encoder(found.given, found.model) if is_hama else None


def hama_encoder(given: ModelOptions, model: Any = None) -> BatchEncoder:
    """Return the encoder of the phoneme model in `hama`, or of an `ASRModel`."""
    # Its interface decodes; log-probs are taken from its session, before its
    # temperature and bias.
    with needs("the model 'hama' needs its package", f": pip install hama=={HAMA}"):
        import hama

        version = metadata.version("hama")
    if version != HAMA:
        raise BackendError(f"hama {version}, expected {HAMA}: pip install hama=={HAMA}")
    model = hama.ASRModel() if model is None else model
    names = [model._log_probs_output_name, model._out_lengths_output_name]
    inputs = model._waveform_input_name, model._waveform_lengths_input_name

    def logprobs(waveform: np.ndarray) -> np.ndarray:
        length = np.array([len(waveform)], np.int64)
        feeds = dict(zip(inputs, (waveform[None], length), strict=True))
        rows, lengths = model.session.run(names, feeds)
        return rows[0, : int(lengths[0])]

    size, own_rate = hama.asr.ASR_OUTPUT_FRAME_SAMPLES, model.model_sample_rate
    own = model.decoder_tokens, model.blank_id, lambda rate: size / rate, own_rate
    return BatchEncoder(given.spec("hama", *own), one_by_one(logprobs))


def _transducer(found: _ModelSource) -> Encoder | None:
    if found.path is None or found.given.head == "ctc":
        return None
    model = load_transducer(found.path, found.given)
    if model is None and found.given.head is not None:
        raise ModelError(f"{found.path}: found no files of a transducer, expected some")
    return model


def _attention(found: _ModelSource) -> Encoder | None:
    if found.path is None or found.given.head is not None:
        return None
    if family_of_files(found.path) != "attention":
        return None
    with needs(f"{found.path}: attention models need torch", ": pip install torch"):
        from wfstdec.models.attention_folders import load_attention
    return load_attention(found.path, found.given)


def _nemo_attention(found: _ModelSource) -> Encoder | None:
    config = read_json(found.folder / "config.json") if found.folder else {}
    return _attention(found) if config.get("model_type") == NEMO_ATTENTION else None


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


def _has_weights(path: Path | None) -> bool:
    return path is not None and any(any(path.glob(form)) for form in _WEIGHTS)


def _transformers_attention(found: _ModelSource) -> Encoder | None:
    model, path = found.model, found.folder
    if not _is_attention_pair(model):
        if path is None or not _has_weights(path):
            return None
        if not is_seq2seq(read_json(path / "config.json")):
            return None
        model = _pretrained(path, "AutoModelForSpeechSeq2Seq", "AutoProcessor")
    from wfstdec.models.attention_folders import load_hf_attention

    network, processor = model
    return load_hf_attention(network, processor, found.given)


def _pretrained(path: Path, *classes: str) -> list[Any]:
    advice = ": pip install transformers torch"
    with needs(f"{path}: a model of Transformers needs it", advice):
        import transformers
    try:
        return [
            getattr(transformers, name).from_pretrained(path, local_files_only=True)
            for name in classes
        ]
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise FormatError(f"{path}: Transformers cannot load it ({error})") from error


def _transformers(found: _ModelSource) -> Encoder | None:
    given, path = found.given, found.folder
    if isinstance(found.model, tuple) and len(found.model) == 2:
        return _transformers_encoder(*found.model, None, given)
    if path is None:
        return None
    config = read_json(path / "config.json")
    is_ctc = any("ForCTC" in name for name in config.get("architectures") or ())
    if not is_ctc or not _has_weights(path):
        return None
    classes = ["AutoModelForCTC", "AutoFeatureExtractor"]
    if given.tokens is None:
        classes.append("AutoTokenizer")
    parts = [*_pretrained(path, *classes), None]
    return _transformers_encoder(parts[0], parts[1], parts[2], given)


def _transformers_encoder(
    model: Any, features: Any, tokenizer: Any, given: ModelOptions
) -> BatchEncoder:
    """Return an encoder of objects; `features` may be a processor."""
    place = type(model).__name__
    if not hasattr(model, "config"):
        raise ModelError(f"{place} without config, expected a model of Transformers")
    config = model.config
    extractor = getattr(features, "feature_extractor", features)
    tokenizer = getattr(features, "tokenizer", tokenizer)
    names, blank = None, None
    if tokenizer is not None:
        by_id = {i: token for token, i in tokenizer.get_vocab().items()}
        names = [by_id.get(i, f"<unused_{i}>") for i in range(config.vocab_size)]
        blank = config.pad_token_id
    # Samples per frame: of a logit, or of an encoder's frame by hops.
    size = getattr(config, "inputs_to_logits_ratio", None)
    if hasattr(extractor, "hop_length"):
        inner = getattr(config, "encoder_config", config)
        factor = getattr(inner, "subsampling_factor", None)
        size = factor and extractor.hop_length and factor * extractor.hop_length
    own_rate = getattr(extractor, "sampling_rate", None)
    own = names, blank, lambda rate: size / rate if size else None, own_rate
    spec = given.spec(place, *own)

    def run(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        import torch

        how = {"sampling_rate": spec.sample_rate, "return_tensors": "pt"}
        inputs, first = extractor(list(batch), **how), next(model.parameters())
        with torch.inference_mode():
            logits = model(**inputs.to(first.device, first.dtype)).logits
        return [as_array(rows) for rows in logits]

    model.eval()
    return BatchEncoder(spec, run, logits=True)


def _function(found: _ModelSource) -> Encoder | None:
    model = found.model
    if isinstance(model, str) and not Path(model).exists() and model.count(":") == 1:
        module, _, name = model.partition(":")
        try:
            model = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            what = f"cannot be imported ({error}), expected a function"
            raise ModelError(f"{model!r}: {what}") from error
        if isinstance(model, Encoder):
            return model
    if not callable(model):
        return None
    place, given = getattr(model, "__name__", type(model).__name__), found.given
    spec = given.spec(place, None, None, None, None)
    return BatchEncoder(spec, one_by_one(model), logits=bool(given.logits))


_KEYS = {"model": str, "tokens": str, "blank": str | int, "same": dict, "rest": str}


class MappedTokens:
    """`Encoder` that maps the tokens of another, summing probabilities.

    A token of the same name is kept, one in `same` maps to the token that it names, and
    all others map to `rest`. `load_model` reads the same from a file, with paths
    relative to its folder:

        {"model": "hama", "tokens": "tokens.txt", "same": {"ɡ": "g"}, "rest": "<other>"}

    Args:
        encoder: Encoder of V tokens.
        tokens: Token table of the decoder.
        same: Tokens of the decoder by tokens of the model.
        rest: Token of the decoder for all others; None if there are none.

    Raises:
        TokenTableError: A token of the model has no target, a token of the decoder has
            no source, or the blanks do not correspond.
        OptionError: `same` names a token that the model lacks.
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: TokenTable,
        *,
        same: Mapping[str, str] | None = None,
        rest: str | None = None,
    ) -> None:
        names, same = encoder.spec.tokens.names, dict(same or {})
        if missing := same.keys() - set(names):
            raise OptionError(f"same= has {min(missing)!r}, expected model's tokens")
        self.encoder = encoder
        self.spec = replace(encoder.spec, tokens=tokens)
        targets = [same.get(n, n if n in tokens.ids else rest) for n in names]
        for name, target in zip(names, targets, strict=True):
            if target is None:
                what = f"token {name!r} of the model has no place among the decoder's"
                raise TokenTableError(f"{what}, expected it in same= or rest=")
        places = np.array([tokens.index(target) for target in targets if target])
        self._sources = [np.flatnonzero(places == i) for i in range(len(tokens))]
        for name, sources in zip(tokens.names, self._sources, strict=True):
            if not len(sources):
                what = f"token {name!r} is no token of the model"
                raise TokenTableError(f"{what}, expected one each")
        if list(self._sources[tokens.blank]) != [encoder.spec.blank]:
            ours, theirs = tokens.names[tokens.blank], names[encoder.spec.blank]
            what = f"the blank {ours!r} is not the model's {theirs!r}"
            raise TokenTableError(f"{what}, expected same= to map it")

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`; rows are normalised again."""
        summed = []
        for rows in self.encoder.encode(waveforms):
            parts = [np.logaddexp.reduce(rows[:, at], axis=1) for at in self._sources]
            found = np.stack(parts, axis=1)
            summed.append(found - np.logaddexp.reduce(found, axis=1, keepdims=True))
        return summed


_KINDS = (
    Kind(
        "encoder",
        "an object with `spec` and `encode`",
        lambda found: found.model if isinstance(found.model, Encoder) else None,
    ),
    Kind("mapped", "a .json file that names a model and what its tokens are", _mapped),
    Kind("hama", "the name of that package", _hama),
    Kind(
        "transformers-attention",
        "a folder with config.json of a ...ForConditionalGeneration and its weights, "
        "or (model, processor)",
        _transformers_attention,
    ),
    Kind(
        "transformers",
        "a folder with config.json of a ...ForCTC and its weights, or (model, "
        "processor)",
        _transformers,
    ),
    Kind(
        "onnx-transducer",
        "a folder with ONNX files of encoder, decoder and joiner, or decoder_joint",
        _transducer,
    ),
    Kind(
        "nemo-attention",
        "a folder with encoder-model.onnx, decoder-model.onnx, and config.json of "
        f"{NEMO_ATTENTION}",
        _nemo_attention,
    ),
    Kind(
        "onnx-attention",
        "a folder with ONNX files of encoder and decoder, as Optimum or sherpa-onnx "
        "export Whisper, Moonshine and Canary",
        _attention,
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
    Kind("function", "a function, or 'module:function'", _function),
)
"""All kinds, particular ones first."""
HEADS = "ctc", "transducer"
KINDS = tuple(one.name for one in _KINDS)
"""Names of all kinds, for `kind=`."""
