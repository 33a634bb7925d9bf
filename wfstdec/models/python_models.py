"""Encoders of what is a Python object already: functions, packages, toolkits.

    FunctionEncoder(my_function, token_table(names), frame_shift_s=0.04,
                    sample_rate=16000)

A function takes a waveform float32 [N] and returns [T, V]; numpy arrays and torch's
tensors will do. Toolkits are such functions, with tokens and times of their own.

    load_model("facebook/wav2vec2-base-960h")          # a folder of that name, here
    load_model((model, processor))                     # objects; any class will do

Models of Transformers have a processor, which makes the inputs as it is told by the
model's files; the model's answer is normalised. Padding changes what these models give
(they normalise over all they see), so only utterances of one length share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import BackendError, FormatError, ModelError, needs
from wfstdec.models.encoder import BatchEncoder, EncoderSpec
from wfstdec.models.given import Given
from wfstdec.text.symbols import TokenTable

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
        super().__init__(EncoderSpec(tokens, frame_shift_s, sample_rate), logits=logits)
        self._function = function

    def _run(self, batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        return [as_array(self._function(waveform)) for waveform in batch]


def as_array(rows: Any) -> np.ndarray:
    """Rows of numpy, or of torch on any device, without an axis for one utterance."""
    if hasattr(rows, "detach"):
        rows = rows.detach().float().cpu().numpy()
    rows = np.asarray(rows)
    return rows[0] if rows.ndim == 3 and len(rows) == 1 else rows


def function_encoder(function: Callable[..., Any], given: Given) -> FunctionEncoder:
    """Make an encoder of a function; all there is to know must be given.

    Raises:
        ModelError: Tokens, rate or frame shift are missing; names the flag.
    """
    place = getattr(function, "__name__", type(function).__name__)
    return FunctionEncoder(
        function,
        given.table(None, place),
        frame_shift_s=given.shift(None, place),
        sample_rate=given.rate(None, place),
        logits=bool(given.logits),
    )


def hama_encoder(given: Given, model: Any = None) -> FunctionEncoder:
    """Make an encoder of the phoneme model in the package `hama`, or of an `ASRModel`.

    Its interface decodes by itself; the log-probs are taken from its session, as they
    are before its temperature and its bias.

    Raises:
        BackendError: `hama` is not installed, or is another version.
    """
    if model is None:
        model = _hama().ASRModel()
    names = [model._log_probs_output_name, model._out_lengths_output_name]
    inputs = model._waveform_input_name, model._waveform_lengths_input_name

    def logprobs(waveform: np.ndarray) -> np.ndarray:
        length = np.array([len(waveform)], np.int64)
        feeds = dict(zip(inputs, (waveform[None], length), strict=True))
        rows, lengths = model.session.run(names, feeds)
        return rows[0, : int(lengths[0])]

    rate = given.rate(model.model_sample_rate, "hama")
    return FunctionEncoder(
        logprobs,
        given.table(model.decoder_tokens, "hama", model.blank_id),
        frame_shift_s=given.shift(_hama().asr.ASR_OUTPUT_FRAME_SAMPLES / rate, "hama"),
        sample_rate=rate,
    )


def _hama() -> Any:
    from importlib import metadata

    with needs("the model 'hama' needs its package", f": pip install hama=={HAMA}"):
        import hama

        version = metadata.version("hama")
    if version != HAMA:
        raise BackendError(f"hama {version}, expected {HAMA}: pip install hama=={HAMA}")
    return hama


def nemo_encoder(model: Any, given: Given) -> FunctionEncoder:
    """Make an encoder of a CTC model of NeMo, an `EncDecCTCModel`. Untested.

    Dither and padding are switched off: with them the same audio gives other log-probs.

    Raises:
        ModelError: It is no CTC model, or says too little.
    """
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
    return FunctionEncoder(
        logprobs,
        given.table(names, place, len(names)),
        frame_shift_s=given.shift(config.window_stride * factor, place),
        sample_rate=given.rate(config.sample_rate, place),
    )


def torchaudio_encoder(bundle: Any, given: Given) -> FunctionEncoder:
    """Make an encoder of a bundle of torchaudio, such as `WAV2VEC2_ASR_BASE_960H`.

    Untested with torchaudio itself.

    Raises:
        ModelError: It says too little.
    """
    import torch

    place = type(bundle).__name__
    model = bundle.get_model().eval()

    def logits(waveform: np.ndarray) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(waveform)[None])[0][0]

    return FunctionEncoder(
        logits,
        given.table(list(bundle.get_labels()), place, 0),
        frame_shift_s=given.shift(0.02, place),
        sample_rate=given.rate(bundle.sample_rate, place),
        logits=True,
    )


class TransformersEncoder(BatchEncoder):
    """A model of Transformers as an `Encoder`; it stays on its device.

    Args:
        model: Called with what `features` makes; answers with `.logits` [B, T, V].
        features: A feature extractor, or a processor.
        spec: Of the model.
    """

    def __init__(self, model: Any, features: Any, spec: EncoderSpec) -> None:
        super().__init__(spec, logits=True)
        self._model, self._features = model, features

    def _run(self, batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
        import torch

        inputs = self._features(
            list(batch), sampling_rate=self.spec.sample_rate, return_tensors="pt"
        )
        first = next(self._model.parameters())
        with torch.inference_mode():
            moved = {
                name: value.to(
                    first.device,
                    first.dtype if value.is_floating_point() else value.dtype,
                )
                for name, value in inputs.items()
            }
            logits = self._model(**moved).logits
        return [as_array(rows) for rows in logits]


def load_transformers(path: Path, given: Given) -> TransformersEncoder:
    """Load a folder with a model, its feature extractor and its tokenizer.

    Raises:
        BackendError: Transformers is not installed.
        FormatError: It cannot load the folder.
        ModelError: As of `transformers_encoder`.
    """
    with needs(
        f"{path}: a model of Transformers needs it", ": pip install transformers torch"
    ):
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
    model: Any, features: Any, tokenizer: Any, given: Given
) -> TransformersEncoder:
    """Make an encoder of objects; `features` may be a processor, which has the others.

    Raises:
        ModelError: Something is said nowhere; names the flag.
    """
    place = type(model).__name__
    extractor = getattr(features, "feature_extractor", features)
    tokenizer = getattr(features, "tokenizer", tokenizer)
    rate = given.rate(getattr(extractor, "sampling_rate", None), place)
    names, blank = None, None
    if tokenizer is not None:
        names = _names(tokenizer, model.config.vocab_size)
        blank = model.config.pad_token_id
    table = given.table(names, place, blank)
    shift = given.shift(_shift(model.config, extractor, rate), place)
    return TransformersEncoder(model.eval(), extractor, given.spec(table, shift, rate))


def _names(tokenizer: Any, size: int) -> list[str]:
    """Tokens by id, unique names for ids without one; those behind `size` are out."""
    by_id = {i: token for token, i in tokenizer.get_vocab().items()}
    return [by_id.get(i, f"<unused_{i}>") for i in range(size)]


def _shift(config: Any, extractor: Any, rate: int) -> float | None:
    """Seconds a frame: samples to a logit, or hops to one of the encoder's frames."""
    samples = getattr(config, "inputs_to_logits_ratio", None)
    if samples and not hasattr(extractor, "hop_length"):
        return samples / rate
    inner = getattr(config, "encoder_config", config)
    factor = getattr(inner, "subsampling_factor", None)
    hop = getattr(extractor, "hop_length", None)
    return factor * hop / rate if factor and hop else None
