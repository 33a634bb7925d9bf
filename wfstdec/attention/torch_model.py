"""Attention decoder in torch, alone or with an encoder and a CTC head.

    net = AttentionNet(AttentionSizes(tokens=257, dim=192, frames=192))
    logits = net(frames, lengths, labels)               # teacher forcing, [B, U, V]
    model = TorchAttention(net, names, eos=256)         # an `AttentionModel`

    net = JointNet(TransducerConfig(tokens=pieces, heads=()))          # to train
    net.save("model.npz")
    model = load_attention("model.npz")                # an `AttentionModel`
    frames, lengths = model.encode(features, lengths)
    logprobs = model.ctc(frames)                       # [B, T', V + 1], of the pieces

Keys and values of cross-attention are computed once per utterance; all its rows are
positions of one query. Both heads have the V pieces, and one more output: the end of a
text for attention, the blank for CTC.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wfstdec.attention.encoder import Encoder, TransducerConfig, read_net, save_net
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import tokenizer_beside


class AttentionSizes(NamedTuple):
    """Sizes of an `AttentionNet`."""

    tokens: int  # V
    dim: int  # of its layers
    frames: int  # numbers per frame of the encoder
    heads: int = 4  # of every attention
    layers: int = 3  # number of layers
    inner: int = 0  # of the feed-forward layers; 0 is four times `dim`
    positions: int = 448  # most tokens of a text, prompt included


class AttentionNet(nn.Module):
    """Layers of self-attention, cross-attention and feed-forward, pre-norm."""

    def __init__(self, sizes: AttentionSizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed = nn.Embedding(sizes.tokens, sizes.dim)
        nn.init.normal_(self.embed.weight, std=sizes.dim**-0.5)  # shared with logits
        self.position = nn.Parameter(0.02 * torch.randn(sizes.positions, sizes.dim))
        self.enter = nn.Linear(sizes.frames, sizes.dim)
        self.layers: Any = nn.ModuleList(_Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Return logits of the token after each label, [B, U, V]."""
        memory, mask = self.memory(frames, lengths)
        size = labels.shape[1]
        x = self.dropout(self.embed(labels) + self.position[:size])
        causal = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
        for layer in self.layers:
            heads = layer.project(x)
            x = x + self.dropout(layer.leave(layer.attend(*heads, causal)))
            query = layer.query(x)
            key, value = layer.memory(memory)
            x = x + self.dropout(layer.back(layer.attend(query, key, value, mask)))
            x = x + self.dropout(layer.between(x))
        return self.logits(x)

    def memory(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return frames with positions, [B, T, dim], and their mask [B, 1, 1, T]."""
        time = torch.arange(frames.shape[1], device=frames.device)
        mask = time < lengths[:, None]
        dim = self.sizes.dim
        rate = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim))
        angle = torch.arange(frames.shape[1])[:, None] * rate
        position = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
        frames = self.enter(frames) + position.to(frames)
        return torch.where(mask[:, :, None], frames, 0.0), mask[:, None, None]

    def logits(self, x: Tensor) -> Tensor:
        """Return logits by the embedding of the tokens."""
        return self.norm(x) @ self.embed.weight.T


class _Layer(nn.Module):
    def __init__(self, sizes: AttentionSizes) -> None:
        super().__init__()
        dim, inner = sizes.dim, sizes.inner or 4 * sizes.dim
        self.heads = sizes.heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.into = nn.Linear(dim, 3 * dim)
        self.leave, self.back = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.ask, self.tell = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.up, self.down = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.into(self.norms[0](x)).chunk(3, -1)
        return self.split(query), self.split(key), self.split(value)

    def query(self, x: Tensor) -> Tensor:
        return self.split(self.ask(self.norms[1](x)))

    def memory(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self.tell(frames).chunk(2, -1)
        return self.split(key), self.split(value)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the attention with joined heads: [B, U, dim]."""
        found = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask
        )
        return found.transpose(1, 2).flatten(2)

    def between(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(self.norms[2](x))))


class State(NamedTuple):
    """State of the net, of N rows."""

    keys: tuple[Tensor, ...]  # [N, H, U, dim / H] of each layer's self-attention
    values: tuple[Tensor, ...]  # [N, H, U, dim / H] of each layer's self-attention
    # Keys and values [B, H, T, dim / H] of each layer's cross-attention: of utterances,
    # not rows
    memory: tuple[tuple[Tensor, Tensor], ...]
    mask: Tensor  # bool [B, 1, 1, T], real frames
    utterance: Tensor  # int64 [N], utterance of each row, in order


class TorchAttention:
    """An `AttentionNet` as an `AttentionModel`."""

    neutral: frozenset[int] = frozenset()

    def __init__(
        self,
        net: AttentionNet,
        tokens: Sequence[str],
        eos: int,
    ) -> None:
        self.net, self.eos = net.eval(), eos
        self.tokens: Sequence[str] = tuple(tokens)
        self.prompt: tuple[int, ...] = (eos,)

    def limit(self, num_frames: int) -> int:
        """Return the most tokens of a text, by its frames and the net's positions."""
        return min(self.net.sizes.positions - len(self.prompt), num_frames)

    @torch.inference_mode()
    def start(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor
    ) -> tuple[State, Tensor]:
        """Implement `AttentionModel.start`."""
        net = self.net
        frames = frames.to(net.enter.weight.dtype)
        memory, mask = net.memory(frames, lengths)
        pairs = tuple(layer.memory(memory) for layer in net.layers)
        num = len(frames)
        heads, layers = net.sizes.heads, net.sizes.layers
        none = (frames.new_zeros(num, heads, 0, net.sizes.dim // heads),) * layers
        utterance = torch.arange(num, device=frames.device)
        state = State(none, none, pairs, mask, utterance)
        logprobs = frames.new_zeros(0)
        # One by one, so that cached keys equal those of `step`.
        for place in range(prompts.shape[1]):
            logprobs, state = self.step(prompts[:, place], state)
        return state, logprobs

    @torch.inference_mode()
    def step(self, labels: Tensor, state: State) -> tuple[Tensor, State]:
        """Implement `AttentionModel.step`."""
        net = self.net
        place = state.keys[0].shape[2]
        x = net.embed(labels)[:, None] + net.position[place]
        # All rows of an utterance are positions of one query.
        same = state.utterance[:, None] == state.utterance
        grid = state.utterance, same.tril(-1).sum(1)
        most = int(grid[1].max()) + 1
        keys, values = [], []
        for i, layer in enumerate(net.layers):
            query, key, value = layer.project(x)
            keys.append(torch.cat([state.keys[i], key], 2))
            values.append(torch.cat([state.values[i], value], 2))
            x = x + layer.leave(layer.attend(query, keys[-1], values[-1], None))
            query = layer.query(x)[:, :, 0]
            spread = query.new_zeros(len(state.mask), most, *query.shape[1:])
            spread[grid] = query
            given = spread.transpose(1, 2), *state.memory[i], state.mask
            x = x + layer.back(layer.attend(*given)[grid][:, None])
            x = x + layer.between(x)
        logprobs = torch.log_softmax(net.logits(x)[:, 0].float(), -1)
        return logprobs, state._replace(keys=tuple(keys), values=tuple(values))

    @torch.inference_mode()
    def score(
        self,
        frames: Tensor,
        lengths: Tensor,
        prompts: Tensor,
        labels: Tensor,
        sizes: Tensor,
    ) -> Tensor:
        """Return log-probs of each label after its prefix, [N, U] (teacher forcing)."""
        given = torch.cat([prompts, labels], 1)[:, :-1]
        logits = self.net(frames.to(self.net.enter.weight.dtype), lengths, given)
        logprobs = logits[:, prompts.shape[1] - 1 :].float().log_softmax(-1)
        return logprobs.gather(2, labels[:, :, None])[:, :, 0]

    def take(self, state: State, rows: Tensor) -> State:
        """Implement `AttentionModel.take`: only self-attention is reordered."""
        return state._replace(
            keys=tuple(one[rows] for one in state.keys),
            values=tuple(one[rows] for one in state.values),
            utterance=state.utterance[rows],
        )


_FORMAT = "wfstdec.attention"
END = "</s>"
"""Name of the output after the pieces."""


class JointNet(nn.Module):
    """An encoder with both heads; `sizes` are those of the attention head."""

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
        """Write configuration and weights as `.npz`, atomically."""
        save_net(self, path, dtype, _FORMAT, sizes=self.attention.sizes._asdict())


class JointAttention(TorchAttention):
    """A `JointNet` as an `AttentionModel` with its encoder and its CTC head."""

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
        """Return log-probs of the pieces by CTC, the blank last."""
        logits = self.joint_net.ctc(frames.to(self.joint_net.ctc.weight.dtype))
        return torch.log_softmax(logits, -1, dtype=torch.float32)


def load_attention(
    path: PathLike,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> JointAttention:
    """Load an encoder with an attention head and a CTC head for decoding.

    A SentencePiece model in the file's folder (`bpe.model`, `tokenizer.model`)
    tokenises phrases.

    Args:
        path: A file written by `JointNet.save`.
        device: Device to run on.
        dtype: float32 or bfloat16.

    Returns:
        An `AttentionModel` with `encode(features, lengths)`, for
        `AttentionDecoder(model, input="features")`, and `ctc(frames)`, log-probs
        [..., V + 1] of the same V pieces, the blank last.

    Raises:
        FormatError: The file cannot be read, or is not such a model.
    """

    def make(config: TransducerConfig, header: dict[str, Any]) -> JointNet:
        return JointNet(config, AttentionSizes(**header["sizes"]))

    net = read_net(path, _FORMAT, make, "JointNet.save")
    return JointAttention(net.to(device, dtype), tokenizer_beside(path))
