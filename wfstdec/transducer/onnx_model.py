"""A transducer as icefall and sherpa-onnx export it: encoder, decoder, joiner.

    model = load_onnx_transducer("encoder.onnx", "decoder.onnx", "joiner.onnx",
                                 tokens="tokens.txt")
    hyps = TransducerDecoder(model, input="features").decode(fbanks)

    encoder   x float [N, T, F], x_lens int64 [N] -> encoder_out [N, T', D], lengths
    decoder   y int64 [N, context] -> decoder_out [N, D]
    joiner    encoder_out [N, D], decoder_out [N, D] -> logit [N, V + 1 (+ durations)]

Their decoder is stateless: it sees the last `context_size` tokens. Before the first
token these are (-1, ..., -1, blank), where -1 has no embedding, as icefall trains it.
Zipformer and Conformer exports of icefall are of this form; the streaming ones, whose
encoder has states, are not: decode their frames instead (`input="frames"`).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.model_decoder import tokenizer_beside
from wfstdec.errors import FormatError, OptionError, ShapeError, needs
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import load_tokens
from wfstdec.text.tokens import TokenTable


class OnnxTransducer:
    """Three sessions of onnxruntime on the CPU; no encoder where frames are decoded."""

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        joiner: Any,
        tokens: TokenTable,
        *,
        durations: Sequence[int] = (),
        stride: int = 4,
        tokenizer: Any = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._encoder, self._decoder, self._joiner = encoder, decoder, joiner
        names, self.blank = tokens.names, tokens.blank
        self.tokens: Sequence[str] = names[: self.blank] + names[self.blank + 1 :]
        self.durations: tuple[int, ...] = tuple(int(d) for d in durations)
        self.stride = stride
        self._context = _check_inputs(decoder, "decoder", 1)[0][1]
        # Axes of free size have names: then the metadata tell.
        if not isinstance(self._context, int):
            self._context = int(_metadata(decoder).get("context_size", 2))
        size = _check_inputs(joiner, "joiner", 2)[0][-1]
        self.frame_dim = size if isinstance(size, int) else None
        self.input_dim = 0
        if encoder is not None:
            width = _check_inputs(encoder, "encoder", 2)[0][-1]
            self.input_dim = int(width) if isinstance(width, int) else 80
        # Outputs of the joiner, where the file has their number.
        found = self._joiner.get_outputs()[0].shape[-1]
        expected = len(self.tokens) + 1 + len(self.durations)
        if isinstance(found, int) and found != expected:
            raise ShapeError(
                f"the joiner gives {found} outputs, expected {expected}: "
                f"V={len(self.tokens)} tokens and the blank"
                + (f", {len(self.durations)} durations" if self.durations else "")
            )

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `EncoderModel.encode`."""
        if self._encoder is None:
            raise OptionError("no encoder, expected input='frames'")
        longest = int(lengths.max()) if len(lengths) else 0
        if longest == 0:
            return torch.zeros(len(lengths), 0, 1), torch.zeros_like(lengths)
        given = [features[:, :longest].float().numpy(), lengths.clamp(min=1).numpy()]
        frames, counts = _run(self._encoder, given)
        found = torch.from_numpy(np.asarray(counts).astype(np.int64))
        return torch.from_numpy(frames), torch.where(lengths > 0, found, 0)

    def start(self, num: int) -> tuple[Tensor, Tensor]:
        """Implement `TransducerModel.start`."""
        context = torch.full((num, self._context), -1, dtype=torch.int64)
        context[:, -1] = self.blank
        return context, self._predicted(context)

    def predict(self, labels: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `TransducerModel.predict`."""
        columns = labels + (labels >= self.blank)
        context = torch.cat([state[:, 1:], columns[:, None]], 1)
        return self._predicted(context), context

    def join(self, frames: Tensor, g: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Implement `TransducerModel.join`."""
        (logits,) = _run(self._joiner, [frames.float().numpy(), g.numpy()])
        found = torch.from_numpy(logits).flatten(1)
        if not self.durations:
            return torch.log_softmax(found, 1)
        tokens, durations = found.tensor_split([len(self.tokens) + 1], 1)
        return torch.log_softmax(tokens, 1), torch.log_softmax(durations, 1)

    def _predicted(self, context: Tensor) -> Tensor:
        (found,) = _run(self._decoder, [context.contiguous().numpy()])
        return torch.from_numpy(found).flatten(1)


def load_onnx_transducer(
    encoder: PathLike | None,
    decoder: PathLike,
    joiner: PathLike,
    tokens: PathLike | TokenTable,
    *,
    blank: int | str | None = None,
    durations: Sequence[int] = (),
    stride: int | None = None,
    threads: int = 1,
) -> OnnxTransducer:
    """Load the three files of an export.

    A SentencePiece model in the folder of the tokens (`bpe.model`,
    `tokenizer.model`) is the model's tokenizer.

    Args:
        encoder: `.onnx`; None decodes frames.
        decoder: `.onnx`.
        joiner: `.onnx`.
        tokens: The token table, the blank among them.
        blank: The blank by name or index; None to recognise it.
        durations: For TDT, the values of the durations behind the tokens.
        stride: Frames of features to one of the encoder; None takes the encoder's
            `subsampling_factor`, or 4.
        threads: Of onnxruntime.

    Raises:
        BackendError: onnxruntime is not installed.
        FormatError: A file cannot be read.
        ShapeError: As of `OnnxTransducer`.
    """
    with needs("onnxruntime cannot be imported", "; pip install onnxruntime"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads

    def session(path: PathLike) -> Any:
        if not Path(path).is_file():
            raise FormatError(f"{path}: no such file")
        try:
            return onnxruntime.InferenceSession(
                os.fspath(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has no common base of errors
            raise FormatError(f"{path}: not a readable ONNX model ({error})") from error

    first = None if encoder is None else session(encoder)
    if stride is None:
        known = {} if first is None else _metadata(first)
        stride = int(known.get("subsampling_factor", 4))
    table = load_tokens(tokens, blank)
    parts = first, session(decoder), session(joiner)
    beside = None if isinstance(tokens, TokenTable) else tokenizer_beside(tokens)
    return OnnxTransducer(
        *(*parts, table), durations=durations, stride=stride, tokenizer=beside
    )


def _check_inputs(session: Any, name: str, count: int) -> list[list[Any]]:
    """The shapes of a session's inputs."""
    shapes = [one.shape for one in session.get_inputs()]
    if len(shapes) != count:
        raise ShapeError(
            f"the {name} takes {len(shapes)} inputs, expected {count}"
            + ("; streaming encoders have states" if name == "encoder" else "")
        )
    return shapes


def _metadata(session: Any) -> Mapping[str, str]:
    return session.get_modelmeta().custom_metadata_map


def _run(session: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    names = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(names, given, strict=True)))
