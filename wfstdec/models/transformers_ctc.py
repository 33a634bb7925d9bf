"""CTC models of Hugging Face's Transformers: a folder, or a model and its processor.

    load_model("facebook/wav2vec2-base-960h")          # a folder of that name, here
    load_model((model, processor))                     # objects; any class will do

The processor makes the inputs as it is told by the model's files; the model's answer is
normalised. Padding changes what these models give (they normalise over all they see),
so only utterances of one length share a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, needs
from wfstdec.models.encoder import BatchEncoder, EncoderSpec
from wfstdec.models.given import Given
from wfstdec.models.python_models import as_array


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
