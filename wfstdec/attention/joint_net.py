"""An encoder with an attention head and a CTC head, in torch, and its file.

    net = JointNet(TransducerConfig(tokens=pieces, heads=()))          # to train
    net.save("model.npz")
    model = load_attention("model.npz")                # an `AttentionModel`
    frames, lengths = model.encode(features, lengths)
    logprobs = model.ctc(frames)                       # [B, T', V + 1], of the pieces

Both heads have the V pieces, and one output behind them: the end of a text for
attention, the blank for CTC. The encoder is that of `TransducerNet`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention
from wfstdec.autoregressive.tokenizers import tokenizer_beside
from wfstdec.text.files import PathLike
from wfstdec.transducer.encoder import (
    Encoder,
    TransducerConfig,
    read_net,
    save_net,
)

_FORMAT = "wfstdec.attention"
END = "</s>"
"""What the output behind the pieces is called."""


class JointNet(nn.Module):
    """An encoder with both heads.

    Args:
        config: Of the encoder; its tokens are the pieces, its heads none.
        sizes: Of the attention head; None takes those of `AttentionSizes` that fit.
        dropout: Of the attention head, while it is trained.
    """

    def __init__(
        self,
        config: TransducerConfig,
        sizes: AttentionSizes | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        size = len(config.tokens) + 1
        self.config = config
        self.encoder = Encoder(config)
        fitting = AttentionSizes(size, config.dim, config.dim)
        self.attention = AttentionNet(sizes or fitting, dropout)
        self.ctc = nn.Linear(config.dim, size)

    def save(self, path: PathLike, dtype: torch.dtype = torch.float16) -> None:
        """Write configuration and weights as `.npz`, whole or not at all.

        Raises:
            FormatError: The file cannot be written.
        """
        save_net(self, path, dtype, _FORMAT, sizes=self.attention.sizes._asdict())


class JointAttention(TorchAttention):
    """A `JointNet` as an `AttentionModel` with its encoder and its CTC head.

    Args:
        net: The net; used as it is, in `eval` mode.
        tokenizer: What cuts text into its pieces, if anything does.
    """

    def __init__(self, net: JointNet, tokenizer: Any = None) -> None:
        pieces = net.config.tokens
        super().__init__(net.eval().attention, [*pieces, END], len(pieces))
        self.joint_net = net
        self.input_dim, self.stride = net.config.input_dim, net.config.stride
        self.frame_dim = net.config.dim
        self.tokenizer = tokenizer

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `EncoderModel.encode`."""
        return self.joint_net.encoder.encode(features, lengths)

    @torch.no_grad()
    def ctc(self, frames: Tensor) -> Tensor:
        """Log-probs of the pieces by CTC, the blank behind them.

        Args:
            frames: [..., D], of the encoder.

        Returns:
            Natural log-probs, float32 [..., V + 1].
        """
        logits = self.joint_net.ctc(frames.to(self.joint_net.ctc.weight.dtype))
        return torch.log_softmax(logits, -1, dtype=torch.float32)


def load_attention(
    path: PathLike,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> JointAttention:
    """Load an encoder with an attention head and a CTC head, to decode with.

    A SentencePiece model beside the file (`bpe.model`, `tokenizer.model`) cuts
    phrases.

    Args:
        path: What `JointNet.save` wrote.
        device: Where it runs.
        dtype: float32 or bfloat16.

    Returns:
        An `AttentionModel` with `encode(features, lengths)`, for
        `AttentionDecoder(model, input="features")`, and `ctc(frames)`, log-probs
        [..., V + 1] of the same V pieces with the blank behind them.

    Raises:
        FormatError: The file cannot be read, or is no such model.
    """

    def make(config: TransducerConfig, header: dict[str, Any]) -> JointNet:
        return JointNet(config, AttentionSizes(**header["sizes"]))

    net = read_net(path, _FORMAT, make, "JointNet.save")
    return JointAttention(net.to(device, dtype), tokenizer_beside(path))
