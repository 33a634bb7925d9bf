"""Transducer decoder: a model, language models, options.

    model = load_transducer("model.npz")               # or any `TransducerModel`
    decoder = TransducerDecoder(model, lm="pieces.arpa.gz",
                                options=TransducerOptions(lm_scale=0.3))
    hyps = decoder.decode(frames, lengths)             # of the encoder, [B, T, D]

With `input="features"` the model's encoder runs first. `decoder.sessions()` decodes
encoder frames as they arrive. From model files:

    model = open_model("zipformer")        # encoder.onnx, decoder.onnx, joiner.onnx
    decoder = open_decoder("model.npz", lm="pieces.arpa", head="tdt")    # of features
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from wfstdec.attention.model_decoder import (
    Input,
    ModelDecoder,
    check_input,
    net_of,
    weighted_lms,
)
from wfstdec.errors import OptionError
from wfstdec.lm.loading import AnyLM
from wfstdec.models.onnx_asr_models import metadata, open_session
from wfstdec.models.transducers import OnnxTransducer
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import load_tokens, tokenizer_beside
from wfstdec.transducer.automata import TorchNgramLM
from wfstdec.transducer.backend import TransducerBackend
from wfstdec.transducer.model import TransducerModel, check_model
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.torch_model import load_transducer


class TransducerDecoder(ModelDecoder):
    """Search on an RNN-T or TDT model; `TransducerOptions` has its objective.

    The result for an utterance depends only on its frames, the model, the options and
    its boosts. It does not depend on batch, padding, chunks, or the order of lists,
    unless the model itself does: libraries may round products of other sizes
    differently.

    Tokens are the joiner's outputs, the blank in its place. Language models and phrases
    are over this table, as for a CTC model with these outputs.

    Args:
        model: A `TransducerModel`; with `input="features"` also an `EncoderModel`. Or a
            `SpeechModel` of `wfstdec.load_model`, whose frames are decoded.
        lm: A language model over tokens, as for `GreedyDecoder`, or a sequence of pairs
            of a model and its weight, which may be negative; None for none.
        options: Of the search; None uses the model's `max_symbols`, if any.
        separator: The token between words. None is the mark U+2581 of word pieces.
        unk_cost: As in `GreedyDecoder`.
        input: Input of `decode`: `"frames"` of the encoder, or `"features"`.
        frame_shift_s: Seconds per frame of the encoder; None is the model's, or 0.08.
        batch_size: Utterances per batch, of search and encoder.
        device: Device of the model.

    Attributes:
        lms: Language models and their weights.

    Raises:
        InputError: One of its subclasses, for arguments that do not fit the model.
    """

    family = "transducer"
    options: TransducerOptions
    _backend: TransducerBackend

    def __init__(
        self,
        model: TransducerModel,
        *,
        lm: AnyLM | Sequence[tuple[AnyLM, float]] | None = None,
        options: TransducerOptions | None = None,
        separator: str | None = None,
        unk_cost: float | None = None,
        input: Input = "frames",
        frame_shift_s: float | None = None,
        batch_size: int = 32,
        device: str | torch.device = "cpu",
    ) -> None:
        model, shift = net_of(model, frame_shift_s, 0.08)
        check_input(model, input, batch_size)
        table = check_model(model)
        if options is None:
            most = getattr(model, "max_symbols", TransducerOptions.max_symbols)
            options = TransducerOptions(max_symbols=most)
        lms = weighted_lms(lm, table, unk_cost)
        given = model, device, batch_size, input == "features"
        in_torch = [(TorchNgramLM(one), weight) for one, weight in lms]
        backend = TransducerBackend(*given, in_torch)
        super().__init__(backend, options, table, lms, separator, shift)


def open_model(
    path: PathLike, head: str | None = None, *, device: str | torch.device = "cpu"
) -> TransducerModel:
    """Load a model with its encoder; `head` is one of several in a net."""
    folder = Path(path)
    if not folder.is_dir():
        return load_transducer(path, head, device=device)
    if head is not None:
        raise OptionError(f"head {head!r} of an ONNX export, expected None: it has one")
    names, tokens = ("encoder", "decoder", "joiner"), folder / "tokens.txt"
    encoder, *others = (open_session(folder / f"{name}.onnx", 1) for name in names)
    return OnnxTransducer(
        *(encoder, *others, load_tokens(tokens, None)),
        stride=int(metadata(encoder).get("subsampling_factor", 4)),
        tokenizer=tokenizer_beside(tokens),
    )


def open_decoder(
    model: PathLike, *, head: str | None = None, **more: Any
) -> TransducerDecoder:
    """Return a decoder of features, with its encoder."""

    def load(device: torch.device) -> TransducerModel:
        return open_model(model, head, device=device)

    return TransducerDecoder.of_features(load, **more)
