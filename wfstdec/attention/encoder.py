"""Encoder of the package's nets, their configuration, and their file.

    features [B, T, F]  -> exp (log-probs) -> two convolutions, stride 2 each
                        -> bidirectional GRU, or convolution blocks -> [B, T', D]

Transducers and attention decoders share it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wfstdec.text.files import PathLike, atomic_write, reading

FORMAT_VERSION = 1
_Net = TypeVar("_Net", bound=nn.Module)


@dataclass(frozen=True)
class HeadConfig:
    """A predictor and a joiner."""

    name: str = "rnnt"  # identifies the head
    # `"lstm"`, or `"stateless"`: the last two tokens
    predictor: Literal["lstm", "stateless"] = "stateless"
    # for TDT, frames per output of the duration head; empty for RNN-T
    durations: tuple[int, ...] = ()


@dataclass(frozen=True)
class TransducerConfig:
    """Configuration of a net."""

    tokens: tuple[str, ...]  # the V output tokens, without the blank
    heads: tuple[HeadConfig, ...] = (HeadConfig(),)  # predictors and joiners
    input_dim: int = 43  # numbers per frame of features
    input_is_log: bool = True  # features are log-probs: the encoder takes their exp
    # `"gru"`, bidirectional, or `"conv"`, residual blocks
    encoder: Literal["gru", "conv"] = "gru"
    width: int = 192  # channels in the encoder
    layers: int = 2  # GRU layers or blocks
    kernel: int = 9  # receptive field of a block, frames
    dim: int = 256  # D, of frames, g and embeddings
    dropout: float = 0.1  # in training

    @property
    def stride(self) -> int:
        """Frames of features per frame of the encoder."""
        return 4


class ConvBlock(nn.Module):
    """Two residual steps: a depthwise convolution with a gate, a feed-forward layer."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding="same", groups=width)
        self.mix = nn.Linear(width, width)
        self.feed = nn.Sequential(
            *(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU()),
            *(nn.Dropout(dropout), nn.Linear(2 * width, width), nn.Dropout(dropout)),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map activations [B, T, width] to that shape; the mask is bool [B, T, 1]."""
        inner = F.glu(self.gate(self.norm(x)), dim=-1) * mask
        inner = self.depthwise(inner.transpose(1, 2)).transpose(1, 2)
        x = x + self.mix(F.silu(inner))
        return x + self.feed(x)


class Encoder(nn.Module):
    """Maps features to frames; padding does not affect them."""

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.convs = nn.ModuleList(
            nn.Conv1d(size, width, 3, stride=2, padding=1)
            for size in (config.input_dim, width)
        )
        self.dropout = nn.Dropout(config.dropout)
        if config.encoder == "gru":
            self.gru = nn.GRU(
                *(width, width, config.layers),
                batch_first=True,
                bidirectional=True,
                dropout=config.dropout if config.layers > 1 else 0.0,
            )
            self.project = nn.Linear(2 * width, config.dim)
        else:
            self.blocks = nn.ModuleList(
                ConvBlock(width, config.kernel, config.dropout)
                for _ in range(config.layers)
            )
            self.norm = nn.LayerNorm(width)
            self.project = nn.Linear(width, config.dim)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Map features [B, T, F], int64 [B] to frames [B, ceil(T / 4), D] and [B]."""
        x = torch.exp(features) if self.config.input_is_log else features
        if x.shape[1] == 0 or x.shape[0] == 0:
            none = x.new_zeros(x.shape[0], 0, self.config.dim)
            return none, torch.zeros_like(lengths)
        # `where`, not a product: padding may be NaN, and 0 times NaN is NaN.
        x = torch.where(_mask(lengths, x.shape[1]), x, torch.zeros_like(x))
        for conv in self.convs:
            x = F.silu(conv(x.transpose(1, 2)).transpose(1, 2))
            lengths = (lengths + 1) // 2
            x = torch.where(_mask(lengths, x.shape[1]), x, torch.zeros_like(x))
        x = self.dropout(x)
        if self.config.encoder == "gru":
            # Packed, since the backward half would otherwise begin in the padding.
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
            )
            x, _ = nn.utils.rnn.pad_packed_sequence(
                self.gru(packed)[0], batch_first=True, total_length=x.shape[1]
            )
            return self.project(x), lengths
        mask = _mask(lengths, x.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return self.project(self.norm(x)), lengths

    @torch.no_grad()
    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `EncoderModel.encode`, for features on any device."""
        weight = self.project.weight
        features = features.to(weight.device, weight.dtype)
        return self(features, lengths.to(weight.device))


def _mask(lengths: Tensor, num_frames: int) -> Tensor:
    frames = torch.arange(num_frames, device=lengths.device)
    return (frames < lengths[:, None])[..., None]


def save_net(
    net: Any, path: PathLike, dtype: torch.dtype, format: str, **more: Any
) -> None:
    """Write a net's weights and configuration as `.npz`, atomically."""
    header = {"format": format, "version": FORMAT_VERSION}
    header |= {"config": asdict(net.config), **more}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    state = net.state_dict()
    arrays = {n: tensor.to("cpu", dtype).numpy() for n, tensor in state.items()}
    with atomic_write(path) as file:
        np.savez_compressed(file, header=text, **arrays)


def read_net(
    path: PathLike,
    format: str,
    make: Callable[[TransducerConfig, dict[str, Any]], _Net],
    writer: str,
) -> _Net:
    """Read a file of `save_net`; weights in float32."""
    kind = format.rpartition(".")[2]
    with reading(path, f"{kind} model", f"what `{writer}` writes"):
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        if (header["format"], header["version"]) != (format, FORMAT_VERSION):
            raise ValueError(f"format {header['format']}, version {header['version']}")
        fields = header["config"]
        for head in fields["heads"]:
            head["durations"] = tuple(head["durations"])
        fields["heads"] = tuple(HeadConfig(**head) for head in fields["heads"])
        fields["tokens"] = tuple(fields["tokens"])
        net = make(TransducerConfig(**fields), header)
        weights = {name: torch.from_numpy(a).float() for name, a in arrays.items()}
        net.load_state_dict(weights)
    return net.eval()
