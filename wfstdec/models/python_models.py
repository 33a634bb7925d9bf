"""Options of a model, encoders of Python objects, and token maps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import (
    BackendError,
    FormatError,
    ModelError,
    OptionError,
    TokenTableError,
    needs,
)
from wfstdec.models.encoder import BatchEncoder, Encoder, EncoderSpec
from wfstdec.text.files import PathLike, reading
from wfstdec.text.lexicon import load_tokens
from wfstdec.text.tokens import TokenTable, token_table

TOKEN_FILES = ("tokens.txt", "units.txt", "vocab.txt", "vocab.json")
"""Files with the tokens in a model's folder."""


@dataclass(frozen=True)
class ModelOptions:
    """Options of `load_model`; None is left to the model."""

    # The token table of the model's outputs, or its file
    tokens: PathLike | TokenTable | None = None
    blank: int | str | None = None  # CTC's blank, by name or index
    frame_shift_s: float | None = None  # Seconds from a frame to the next
    sample_rate: int | None = None  # Samples a second
    logits: bool | None = None  # Whether the outputs are still to be normalised
    threads: int = 1  # Of onnxruntime
    max_batch: int = 1  # Utterances at once

    def spec(
        self,
        place: str,
        tokens: PathLike | Sequence[str] | None,
        blank: int | str | None,
        shift: float | Callable[[int], float | None] | None,
        rate: int | None,
    ) -> EncoderSpec:
        """The caller's facts before the model's own; a missing one is an error."""
        # `shift` in seconds, or a function of the sample rate that finds it.
        blank = self.blank if self.blank is not None else blank
        given = self.tokens if self.tokens is not None else tokens
        if given is None:
            raise ModelError(
                f"{place}: found no tokens, none of {' '.join(TOKEN_FILES)} is beside "
                "it; expected tokens= (--tokens)"
            )
        if isinstance(given, str | os.PathLike | TokenTable):
            table = load_tokens(given, blank)
        else:
            table = token_table(given, blank)
        rate = self.sample_rate or rate
        if rate is None:
            raise ModelError(
                f"{place}: no sample rate, expected sample_rate= (--sample-rate)"
            )
        rate = int(rate)
        shift = self.frame_shift_s or (shift(rate) if callable(shift) else shift)
        if shift is None:
            raise ModelError(
                f"{place}: says nowhere how long a frame is, expected frame_shift_s= "
                "(--frame-shift)"
            )
        return EncoderSpec(table, float(shift), rate, self.max_batch)


def tokens_beside(folder: Path) -> Path | None:
    """The first of `TOKEN_FILES` that a folder has."""
    return next((folder / n for n in TOKEN_FILES if (folder / n).is_file()), None)


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object, or an empty one where there is no such file."""
    if not path.is_file():
        return {}
    with reading(path, "JSON object", "one"):
        found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise FormatError(f"{path}: found a {type(found).__name__}, expected an object")
    return found


HAMA = "1.7.0"
"""The version of `hama` whose insides are used here."""


class FunctionEncoder(BatchEncoder):
    """A function of one's own as an `Encoder`.

    Args:
        function: From a waveform float32 [N] to log-probs [T, V].
        tokens: Names of its V outputs.
        frame_shift_s: Seconds from a frame to the next.
        sample_rate: Samples a second of the waveform.
        logits: Whether what it returns is still to be normalised.
    """

    def __init__(
        self,
        function: Callable[[np.ndarray], Any],
        tokens: TokenTable,
        *,
        frame_shift_s: float,
        sample_rate: int,
        logits: bool = False,
    ) -> None:
        def run(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
            return [as_array(function(waveform)) for waveform in batch]

        spec = EncoderSpec(tokens, frame_shift_s, sample_rate)
        super().__init__(spec, run, logits=logits)


def as_array(rows: Any) -> np.ndarray:
    """Rows of numpy, or of torch on any device, without an axis for one utterance."""
    if hasattr(rows, "detach"):
        rows = rows.detach().float().cpu().numpy()
    rows = np.asarray(rows)
    return rows[0] if rows.ndim == 3 and len(rows) == 1 else rows


def function_encoder(
    function: Callable[..., Any], spec: EncoderSpec, *, logits: bool = False
) -> FunctionEncoder:
    """Make an encoder of a function, which takes one utterance at a time."""
    return FunctionEncoder(
        *(function, spec.tokens),
        frame_shift_s=spec.frame_shift_s,
        sample_rate=spec.sample_rate,
        logits=logits,
    )


def hama_encoder(given: ModelOptions, model: Any = None) -> FunctionEncoder:
    """Make an encoder of the phoneme model of the package `hama`, or an `ASRModel`."""
    # Its interface decodes by itself; the log-probs are taken from its session, as they
    # are before its temperature and its bias.
    if model is None:
        model = _hama().ASRModel()
    names = [model._log_probs_output_name, model._out_lengths_output_name]
    inputs = model._waveform_input_name, model._waveform_lengths_input_name

    def logprobs(waveform: np.ndarray) -> np.ndarray:
        length = np.array([len(waveform)], np.int64)
        feeds = dict(zip(inputs, (waveform[None], length), strict=True))
        rows, lengths = model.session.run(names, feeds)
        return rows[0, : int(lengths[0])]

    size, own_rate = _hama().asr.ASR_OUTPUT_FRAME_SAMPLES, model.model_sample_rate
    own = model.decoder_tokens, model.blank_id, lambda rate: size / rate, own_rate
    return function_encoder(logprobs, given.spec("hama", *own))


def _hama() -> Any:
    from importlib import metadata

    with needs("the model 'hama' needs its package", f": pip install hama=={HAMA}"):
        import hama

        version = metadata.version("hama")
    if version != HAMA:
        raise BackendError(f"hama {version}, expected {HAMA}: pip install hama=={HAMA}")
    return hama


def nemo_encoder(model: Any, given: ModelOptions) -> FunctionEncoder:
    """Make an encoder of a CTC model of NeMo, an `EncDecCTCModel`. Untested."""
    import torch

    place = type(model).__name__
    featurizer, decoder = model.preprocessor.featurizer, model.decoder
    if not hasattr(decoder, "vocabulary"):
        raise ModelError(f"{place} has no CTC decoder with a vocabulary, expected one")
    # Dither is random, and padding depends on the batch.
    featurizer.dither, featurizer.pad_to = 0.0, 0
    model.eval()
    config, factor = model.cfg.preprocessor, model.encoder.subsampling_factor

    def logprobs(waveform: np.ndarray) -> Any:
        with torch.inference_mode():
            device = next(model.parameters()).device
            signal = torch.from_numpy(waveform)[None].to(device)
            length = torch.tensor([len(waveform)], device=device)
            rows, lengths, _ = model(input_signal=signal, input_signal_length=length)
        return rows[0, : int(lengths[0])]

    names = list(decoder.vocabulary)
    own = names, len(names), config.window_stride * factor, config.sample_rate
    return function_encoder(logprobs, given.spec(place, *own))


def torchaudio_encoder(bundle: Any, given: ModelOptions) -> FunctionEncoder:
    """Make an encoder of a bundle of torchaudio, such as `WAV2VEC2_ASR_BASE_960H`."""
    # Untested with torchaudio itself.
    import torch

    model = bundle.get_model().eval()

    def logits(waveform: np.ndarray) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(waveform)[None])[0][0]

    own = list(bundle.get_labels()), 0, 0.02, bundle.sample_rate
    spec = given.spec(type(bundle).__name__, *own)
    return function_encoder(logits, spec, logits=True)


def load_transformers(path: Path, given: ModelOptions) -> BatchEncoder:
    """Load a folder with a model, its feature extractor and its tokenizer."""
    advice = ": pip install transformers torch"
    with needs(f"{path}: a model of Transformers needs it", advice):
        import transformers
    local = {"local_files_only": True}
    try:
        model = transformers.AutoModelForCTC.from_pretrained(path, **local)
        features = transformers.AutoFeatureExtractor.from_pretrained(path, **local)
        tokenizer = None
        if given.tokens is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **local)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise FormatError(f"{path}: Transformers cannot load it ({error})") from error
    return transformers_encoder(model, features, tokenizer, given)


def transformers_encoder(
    model: Any, features: Any, tokenizer: Any, given: ModelOptions
) -> BatchEncoder:
    """Make an encoder of objects; `features` may be a processor."""
    place, config = type(model).__name__, model.config
    extractor = getattr(features, "feature_extractor", features)
    tokenizer = getattr(features, "tokenizer", tokenizer)
    names, blank = None, None
    if tokenizer is not None:
        by_id = {i: token for token, i in tokenizer.get_vocab().items()}
        names = [by_id.get(i, f"<unused_{i}>") for i in range(config.vocab_size)]
        blank = config.pad_token_id
    # Samples a frame: those of a logit, or hops to one of the encoder's frames.
    size = getattr(config, "inputs_to_logits_ratio", None)
    if hasattr(extractor, "hop_length"):
        inner = getattr(config, "encoder_config", config)
        factor = getattr(inner, "subsampling_factor", None)
        size = factor and extractor.hop_length and factor * extractor.hop_length
    own_rate = getattr(extractor, "sampling_rate", None)
    spec = given.spec(
        place, names, blank, lambda rate: size / rate if size else None, own_rate
    )

    def run(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        import torch

        inputs = extractor(
            list(batch), sampling_rate=spec.sample_rate, return_tensors="pt"
        )
        first = next(model.parameters())
        with torch.inference_mode():
            logits = model(**inputs.to(first.device, first.dtype)).logits
        return [as_array(rows) for rows in logits]

    model.eval()
    return BatchEncoder(spec, run, logits=True)


_KEYS: dict[str, Any] = dict(
    model=str, tokens=str, blank=(str, int), same=dict, rest=str
)


class MappedTokens:
    """An `Encoder` whose log-probs are those of another, summed by token.

    A token of the same name stays, one in `same` counts as the one it names, all others
    as `rest`. `load_model` reads the same from a file, with paths from its folder:

        {"model": "hama", "tokens": "tokens.txt", "same": {"ɡ": "g"}, "rest": "<other>"}

    Args:
        encoder: Of V tokens.
        tokens: The table of the decoder.
        same: Tokens of the decoder by tokens of the model.
        rest: The token of the decoder for all others; None: there are none.

    Raises:
        TokenTableError: A token of the model has no place, a token of the decoder has
            no source, or the blanks are not each other's.
        OptionError: `same` names what the model does not have.
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
            raise OptionError(
                f"same= has {sorted(missing)[0]!r}, expected tokens of the model"
            )
        self.encoder = encoder
        self.spec = replace(encoder.spec, tokens=tokens)
        targets = [same.get(n, n if n in tokens.ids else rest) for n in names]
        for name, target in zip(names, targets, strict=True):
            if target is None:
                raise TokenTableError(
                    f"token {name!r} of the model has no place among the decoder's, "
                    "expected same= or rest= to say which it is"
                )
        places = np.array([tokens.index(target) for target in targets if target])
        self._sources = [np.flatnonzero(places == i) for i in range(len(tokens))]
        for name, sources in zip(tokens.names, self._sources, strict=True):
            if not len(sources):
                raise TokenTableError(
                    f"token {name!r} is no token of the model, expected one each"
                )
        if list(self._sources[tokens.blank]) != [encoder.spec.blank]:
            raise TokenTableError(
                f"the blank {tokens.names[tokens.blank]!r} is not the model's "
                f"{names[encoder.spec.blank]!r}, expected same= to say that it is"
            )

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`; rows are normalised again."""
        summed = []
        for rows in self.encoder.encode(waveforms):
            parts = [np.logaddexp.reduce(rows[:, at], axis=1) for at in self._sources]
            found = np.stack(parts, axis=1)
            summed.append(found - np.logaddexp.reduce(found, axis=1, keepdims=True))
        return summed


def read_mapped(
    path: Path, given: ModelOptions, load: Callable[[str, ModelOptions], Encoder]
) -> MappedTokens:
    """Read `model.json`: a model, and which of a decoder's tokens its own are."""
    described = read_json(path)
    for key, value in described.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise FormatError(
                f"{path}: found {key!r}: {value!r}, expected {', '.join(_KEYS)}"
            )
    if missing := [key for key in ("model", "tokens") if key not in described]:
        raise FormatError(f"{path}: found no {missing[0]!r}, expected the name of one")
    beside = path.parent / described["model"]
    name = str(beside) if beside.exists() else described["model"]
    if not beside.exists() and ":" in name:  # only the caller may name code to run
        raise FormatError(
            f"{path}: found the model {name!r}, expected a file, a folder or 'hama'"
        )
    blank = described.get("blank") if given.blank is None else given.blank
    tokens = given.tokens or path.parent / described["tokens"]
    return MappedTokens(
        load(name, replace(given, tokens=None, blank=None)),
        load_tokens(tokens, blank),
        same=described.get("same"),
        rest=described.get("rest"),
    )
