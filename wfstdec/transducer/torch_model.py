"""Small transducer of the standard architecture, in torch, and its file.

    net = TransducerNet(TransducerConfig(tokens=names, heads=(rnnt, tdt)))
    net.save("model.npz")
    model = load_transducer("model.npz", head="tdt")      # a `TransducerModel`

    features [B, T, F]  -> exp (log-probs) -> two convolutions, stride 2 each
                        -> bidirectional GRU, or convolution blocks -> [B, T', D]
    predictor           embedding and one LSTM, or the last two tokens -> [N, D]
    joiner              log_softmax(W tanh(frames + g)); TDT: another W of durations

All heads (a predictor and a joiner each) share the encoder. The blank is the last
output of every joiner. Projections to D are part of encoder and predictor, so that a
search step only adds, and multiplies by W.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wfstdec.attention.encoder import (
    Encoder,
    HeadConfig,
    TransducerConfig,
    read_net,
    save_net,
)
from wfstdec.errors import OptionError
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import tokenizer_beside

_FORMAT = "wfstdec.transducer"
_CONTEXT = 2
"""Context size of a stateless predictor."""


class Predictor(nn.Module):
    """Maps tokens to g; before the first token, state and g are those of the mark V."""

    def __init__(self, num_tokens: int, dim: int, kind: str) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.stateless = kind == "stateless"
        self.embedding = nn.Embedding(num_tokens + 1, dim)
        if self.stateless:
            self.mix = nn.Linear(_CONTEXT * dim, dim)
        else:
            self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.project = nn.Linear(dim, dim)

    def start(self, num: int) -> tuple[Any, Tensor]:
        """Implement `TransducerModel.start`."""
        weight = self.embedding.weight
        marks = torch.full((num,), self.num_tokens, device=weight.device)
        if self.stateless:
            context = marks[:, None].expand(num, _CONTEXT).contiguous()
            return context, self._of_context(context)
        zeros = weight.new_zeros(num, weight.shape[1])
        return self.predict(marks, (zeros, zeros))[::-1]

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `TransducerModel.predict`."""
        if self.stateless:
            context = torch.cat([state[:, 1:], labels[:, None]], 1)
            return self._of_context(context), context
        # One step of `nn.LSTM`, which is built for sequences, takes two thirds longer.
        lstm: Any = self.lstm
        weights = lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0
        hidden, cell = torch.lstm_cell(self.embedding(labels), state, *weights)
        return self.project(hidden), (hidden, cell)

    def _of_context(self, context: Tensor) -> Tensor:
        return self.project(F.silu(self.mix(self.embedding(context).flatten(-2))))


class Joiner(nn.Module):
    """Maps frames and g to log-probs; broadcasts over leading axes."""

    def __init__(self, dim: int, num_tokens: int, num_durations: int) -> None:
        super().__init__()
        self.tokens = nn.Linear(dim, num_tokens + 1)
        self.durations = nn.Linear(dim, num_durations) if num_durations else None

    def forward(self, frames: Tensor, g: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Implement `TransducerModel.join`; the softmax is computed in float32."""
        inner = torch.tanh(frames + g)
        logprobs = F.log_softmax(self.tokens(inner), -1, dtype=torch.float32)
        if self.durations is None:
            return logprobs
        return logprobs, F.log_softmax(self.durations(inner), -1, dtype=torch.float32)


class Head(nn.Module):
    """A predictor and a joiner."""

    def __init__(self, config: TransducerConfig, head: HeadConfig) -> None:
        super().__init__()
        self.config = head
        num, dim = len(config.tokens), config.dim
        self.predictor = Predictor(num, dim, head.predictor)
        self.joiner = Joiner(dim, num, len(head.durations))


class TransducerNet(nn.Module):
    """An encoder and its heads."""

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        names = [head.name for head in config.heads]
        if not names or len(set(names)) != len(names):
            raise OptionError(f"heads {names!r}, expected one or more, named apart")
        self.config = config
        self.encoder = Encoder(config)
        self.heads = nn.ModuleDict({h.name: Head(config, h) for h in config.heads})

    def save(self, path: PathLike, dtype: torch.dtype = torch.float16) -> None:
        """Write configuration and weights as `.npz`, atomically."""
        save_net(self, path, dtype, _FORMAT)


class TorchTransducer:
    """Head of a net, None for the first, as a `TransducerModel` without gradients."""

    def __init__(
        self, net: TransducerNet, head: str | None = None, tokenizer: Any = None
    ) -> None:
        names = list(net.heads)
        head = names[0] if head is None else head
        if head not in names:
            known = ", ".join(map(repr, names))
            raise OptionError(f"head {head!r}, expected one of the model's: {known}")
        self.net = net.eval()
        part: Any = net.heads[head]
        self._predictor, self._joiner = part.predictor, part.joiner
        self.tokens: Sequence[str] = net.config.tokens
        self.blank = len(self.tokens)
        self.durations: tuple[int, ...] = tuple(part.config.durations)
        self.input_dim, self.stride = net.config.input_dim, net.config.stride
        self.frame_dim = net.config.dim
        self.tokenizer = tokenizer

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `EncoderModel.encode`."""
        return self.net.encoder.encode(features, lengths)

    @torch.no_grad()
    def start(self, num: int) -> tuple[Any, Tensor]:
        """Implement `TransducerModel.start`."""
        return self._predictor.start(num)

    @torch.no_grad()
    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Implement `TransducerModel.predict`."""
        return self._predictor.predict(labels, state)

    @torch.no_grad()
    def join(self, frames: Tensor, g: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Implement `TransducerModel.join`."""
        return self._joiner(frames, g)


def load_transducer(
    path: PathLike,
    head: str | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> TorchTransducer:
    """Load one head of a saved net for decoding; `tokenizer_beside` is its tokenizer.

    Args:
        path: A file written by `TransducerNet.save`.
        head: Name of the head; None for the first.
        device: Device to run on.
        dtype: float32 or bfloat16.

    Raises:
        InputError: The file cannot be read, or has no such head.
    """
    make, saved_by = lambda config, _: TransducerNet(config), "TransducerNet.save"
    net = read_net(path, _FORMAT, make, saved_by).to(device, dtype)
    return TorchTransducer(net, head, tokenizer_beside(path))
