"""NeMo's beam search for attention decoders, on our `AttentionNet`, on the CPU.

    pip install --no-deps nemo-toolkit==3.0.0               # and torch
    peer = NemoAttention(load_attention("model.npz"), beam_size=8)
    texts = peer.decode(frames, lengths)                    # [B, T, D], [B]

Our layers are dressed in what `BeamSearchSequenceGenerator` calls: an embedding, a
decoder with memories (what went into each layer so far), a classifier. Memories are
theirs to repeat and to reorder, which is where the first defect is: from two utterances
on `decoder_mems.repeat(K, 1, 1)` gives a hypothesis the prompt of another utterance.
Keys and values of cross-attention are made once a batch, which their own decoder makes
anew at each step: their speed here is better than with it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tools.peers.nemo_ctc import _INSTALL, _PARTS, _placeholders
from tools.peers.nemo_transducer import Unused, register_all
from wfstdec.attention.torch_model import TorchAttention
from wfstdec.compare.peers import import_peer

_MODULES = "nemo.collections.asr.modules"


class NemoAttention:
    """`BeamSearchSequenceGenerator` of NeMo on a net of ours.

    Args:
        model: On the CPU; its prompt is one token, the same for all.
        beam_size: K.
        len_pen: Their length penalty.

    Raises:
        BackendError: NeMo or torch is not installed.
    """

    def __init__(
        self, model: TorchAttention, beam_size: int, len_pen: float = 0.0
    ) -> None:
        self._torch = import_peer("torch", _INSTALL)
        generator = _load(self._torch)
        self._model, eos = model, model.eos
        (bos,) = model.prompt
        self._generator = generator(
            _Embedding(model.net, eos),
            _decoder(self._torch, model.net),
            _Classifier(self._torch, model.net),
            beam_size=beam_size,
            len_pen=len_pen,
            pad=len(model.tokens),
            bos=bos,
            eos=eos,
            max_sequence_length=model.net.sizes.positions,
            max_delta_length=1,
        )

    def decode(self, frames: Any, lengths: Any) -> list[tuple[int, ...]]:
        """Positions in `model.tokens` of the best text of each utterance.

        Args:
            frames: Tensor [B, T, D], of the encoder; D is the net's `dim`, which
                theirs takes for granted.
            lengths: int64 [B].
        """
        mask = (self._torch.arange(frames.shape[1]) < lengths[:, None]).float()
        with self._torch.inference_mode():
            best = self._generator(None, frames, mask)
        end = self._model.eos
        return [tuple(t for t in row[1:] if t < end) for row in best.tolist()]


class _Embedding:
    """Tokens and their places; what finished texts are filled up with is an end."""

    def __init__(self, net: Any, eos: int) -> None:
        self._net, self._eos = net, eos

    def forward(self, ids: Any, start_pos: int = 0) -> Any:
        places = self._net.position[start_pos : start_pos + ids.shape[1]]
        return self._net.embed(ids.clamp(max=self._eos)) + places


class _Classifier:
    """Log-probs of what leaves the last layer; as much of theirs as is asked for."""

    def __init__(self, torch: Any, net: Any) -> None:
        self._torch, self._net = torch, net
        width = SimpleNamespace(out_features=net.sizes.tokens)
        self.mlp = SimpleNamespace(layers=1, layer0=width)

    @contextmanager
    def with_log_softmax_enabled(self, wanted: bool) -> Iterator[Any]:
        yield self

    def forward(self, hidden_states: Any) -> Any:
        logits = self._net.logits(hidden_states).float()
        return self._torch.log_softmax(logits, -1)


def _decoder(torch: Any, net: Any) -> Any:
    """Our layers in the clothes of their decoder."""

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self._frames, self._pairs = None, ()

        def forward(
            self,
            x: Any,
            mask: Any,
            frames: Any,
            frames_mask: Any,
            memories: Any = None,
            return_mems: bool = False,
        ) -> tuple[list[Any], None]:
            if frames is not self._frames:  # once a batch, and once for its K rows
                lengths = frames_mask.sum(1).long()
                memory, self._mask = net.memory(frames, lengths)
                self._pairs = tuple(layer.memory(memory) for layer in net.layers)
                self._frames = frames
            before = memories or [x[:, :0]] * (len(net.layers) + 1)
            found = [torch.cat([before[0], x], 1)]
            for i, layer in enumerate(net.layers):
                query, _, _ = layer.project(x)
                _, key, value = layer.project(found[-1])
                x = x + layer.leave(layer.attend(query, key, value, None))
                told = layer.attend(layer.query(x), *self._pairs[i], self._mask)
                x = x + layer.back(told)
                x = x + layer.between(x)
                found.append(torch.cat([before[i + 1], x], 1))
            return found, None

    return Decoder()


@functools.cache
def _load(torch: Any) -> Any:
    """NeMo's class."""
    places = _placeholders(torch) | {
        "nemo.collections.common.parts": {
            "NEG_INF": -10000.0,
            "mask_padded_tokens": lambda tokens, pad: tokens != pad,
        },
        f"{_PARTS}.submodules.token_classifier": {"TokenClassifier": Unused},
    }
    register_all((_MODULES, f"{_MODULES}.transformer"), places)
    module = f"{_MODULES}.transformer.transformer_generators"
    return import_peer(module, _INSTALL).BeamSearchSequenceGenerator
