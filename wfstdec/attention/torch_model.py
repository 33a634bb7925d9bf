"""A decoder with attention in torch, for training and for the search.

    net = AttentionNet(AttentionSizes(tokens=257, dim=192, frames=192))
    logits = net(frames, lengths, labels)               # teacher forcing, [B, U, V]
    model = TorchAttention(net, names, eos=256)         # an `AttentionModel`

Keys and values of cross-attention are made once for each utterance. All rows of an
utterance ask them together, as positions of one query: nothing is copied for a row, and
nothing when rows are reordered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class AttentionSizes(NamedTuple):
    """Sizes of an `AttentionNet`.

    Attributes:
        tokens: V.
        dim: Of its layers.
        frames: Numbers in a frame of the encoder.
        heads: Of every attention.
        layers: How many.
        inner: Of the layers between attentions; 0 is four times `dim`.
        positions: Tokens that a text may have, the prompt included.
    """

    tokens: int
    dim: int
    frames: int
    heads: int = 4
    layers: int = 3
    inner: int = 0
    positions: int = 448


class AttentionNet(nn.Module):
    """Layers of self-attention, cross-attention and a network between, norms first.

    Args:
        sizes: Of it.
        dropout: While it is trained.
    """

    def __init__(self, sizes: AttentionSizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed = nn.Embedding(sizes.tokens, sizes.dim)
        nn.init.normal_(self.embed.weight, std=sizes.dim**-0.5)  # logits are by it too
        self.position = nn.Parameter(0.02 * torch.randn(sizes.positions, sizes.dim))
        self.enter = nn.Linear(sizes.frames, sizes.dim)
        self.layers: Any = nn.ModuleList(_Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Logits of the token behind each, [B, U, V].

        Args:
            frames: [B, T, D].
            lengths: int64 [B].
            labels: int64 [B, U], the prompt and the text.
        """
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
        """Frames with their positions, [B, T, dim], and which are real [B, 1, 1, T]."""
        time = torch.arange(frames.shape[1], device=frames.device)
        mask = time < lengths[:, None]
        dim = self.sizes.dim
        rate = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000.0) / dim))
        angle = torch.arange(frames.shape[1])[:, None] * rate
        position = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
        frames = self.enter(frames) + position.to(frames)
        return torch.where(mask[:, :, None], frames, 0.0), mask[:, None, None]

    def logits(self, x: Tensor) -> Tensor:
        """Logits by the embedding of the tokens."""
        return self.norm(x) @ self.embed.weight.T


class _Layer(nn.Module):
    """Layer whose steps stand apart: the search takes them otherwise than training."""

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
        """Heads apart: [B, U, dim] to [B, H, U, dim / H]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention."""
        query, key, value = self.into(self.norms[0](x)).chunk(3, -1)
        return self.split(query), self.split(key), self.split(value)

    def query(self, x: Tensor) -> Tensor:
        """Queries of cross-attention."""
        return self.split(self.ask(self.norms[1](x)))

    def memory(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of cross-attention."""
        key, value = self.tell(frames).chunk(2, -1)
        return self.split(key), self.split(value)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attention, heads together again: [B, U, dim]."""
        found = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask
        )
        return found.transpose(1, 2).flatten(2)

    def between(self, x: Tensor) -> Tensor:
        """The network behind both attentions."""
        return self.down(nn.functional.gelu(self.up(self.norms[2](x))))


class State(NamedTuple):
    """The net after some tokens, of N rows.

    Attributes:
        keys, values: [N, H, U, dim / H] of each layer's self-attention.
        memory: Keys and values [B, H, T, dim / H] of each layer's cross-attention: of
            utterances, not rows.
        mask: bool [B, 1, 1, T], real frames.
        utterance: int64 [N], whose rows they are, in order.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    memory: tuple[tuple[Tensor, Tensor], ...]
    mask: Tensor
    utterance: Tensor


class TorchAttention:
    """An `AttentionNet` as the search asks for it; see `AttentionModel`.

    Args:
        net: The net.
        tokens: The names of its outputs.
        eos: The output that ends a text.
        prompt: What it is given first; None gives it `eos`.
        neutral: Outputs that say nothing.
        tokens_per_frame: A text has no more tokens than this, times the frames.
    """

    def __init__(
        self,
        net: AttentionNet,
        tokens: Sequence[str],
        eos: int,
        *,
        prompt: Sequence[int] | None = None,
        neutral: Sequence[int] = (),
        tokens_per_frame: float = 1.0,
    ) -> None:
        self.net, self.eos = net.eval(), eos
        self.tokens: Sequence[str] = tuple(tokens)
        self.prompt = (eos,) if prompt is None else tuple(prompt)
        self.neutral = frozenset(neutral)
        self._tokens_per_frame = tokens_per_frame

    def limit(self, num_frames: int) -> int:
        """Bound the tokens of a text by its frames and by the net's positions."""
        room = self.net.sizes.positions - len(self.prompt)
        return min(room, math.ceil(num_frames * self._tokens_per_frame))

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
        # One by one: what `step` keeps is then the same as for tokens of a text.
        for place in range(prompts.shape[1]):
            logprobs, state = self.step(prompts[:, place], state)
        return state, logprobs

    @torch.inference_mode()
    def step(self, labels: Tensor, state: State) -> tuple[Tensor, State]:
        """Implement `AttentionModel.step`."""
        net = self.net
        place = state.keys[0].shape[2]
        x = net.embed(labels)[:, None] + net.position[place]
        grid = _Grid(state.utterance, len(state.mask))
        keys, values = [], []
        for i, layer in enumerate(net.layers):
            query, key, value = layer.project(x)
            keys.append(torch.cat([state.keys[i], key], 2))
            values.append(torch.cat([state.values[i], value], 2))
            x = x + layer.leave(layer.attend(query, keys[-1], values[-1], None))
            query = grid.spread(layer.query(x))
            told = layer.attend(query, *state.memory[i], state.mask)
            x = x + layer.back(grid.gathered(told))
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
        """Log-probs of each label behind those before it, [N, U]: teacher forcing.

        Args:
            frames: [N, T, D], of each text's utterance.
            lengths: int64 [N].
            prompts: int64 [N, P].
            labels: int64 [N, U]: each text, and `eos` behind it.
            sizes: int64 [N], tokens of each text; what comes later does not count.
        """
        given = torch.cat([prompts, labels], 1)[:, :-1]
        logits = self.net(frames.to(self.net.enter.weight.dtype), lengths, given)
        logprobs = logits[:, prompts.shape[1] - 1 :].float().log_softmax(-1)
        return logprobs.gather(2, labels[:, :, None])[:, :, 0]

    def take(self, state: State, rows: Tensor) -> State:
        """Implement `AttentionModel.take`: self-attention alone is reordered."""
        return state._replace(
            keys=tuple(one[rows] for one in state.keys),
            values=tuple(one[rows] for one in state.values),
            utterance=state.utterance[rows],
        )


class _Grid:
    """Rows of utterances, as many as there happen to be, as [B, most] positions."""

    def __init__(self, utterance: Tensor, num: int) -> None:
        order = torch.argsort(utterance, stable=True)
        counts = torch.bincount(utterance, minlength=num)
        first = torch.cumsum(counts, 0) - counts
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        self._row, self._num = utterance, num
        self._place = place - first[utterance]
        self._most = int(counts.max())

    def spread(self, query: Tensor) -> Tensor:
        """[N, H, 1, d] to [B, H, most, d]."""
        heads, size = query.shape[1], query.shape[3]
        found = query.new_zeros(self._num, self._most, heads, size)
        found[self._row, self._place] = query[:, :, 0]
        return found.transpose(1, 2)

    def gathered(self, told: Tensor) -> Tensor:
        """[B, most, dim] to [N, 1, dim]."""
        return told[self._row, self._place][:, None]
