"""NeMo's attention decoders (Canary) for `AttentionDecoder`.

    model = NemoAttentionModel.of(asr_model, prompt=[7, 4, 62])
    decoder = AttentionDecoder(model, options=AttentionOptions(beam_size=8))
    hyps = decoder.decode(frames, lengths)       # of its encoder, [B, T, D]

NeMo's own beam search gives utterances of a batch the memories of others; here rows of
the memories go with their texts. Nothing of NeMo is imported: an embedding, a decoder
and a classifier are called as its generators call them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor


class NemoState(NamedTuple):
    """The decoder after some tokens, of N rows.

    Attributes:
        memories: [N, U, H] before each layer, and behind the last.
        frames: [B, T, H] of utterances, not rows.
        mask: [B, T], 1 for real frames.
        utterance: int64 [N], whose rows they are.
    """

    memories: tuple[Tensor, ...]
    frames: Tensor
    mask: Tensor
    utterance: Tensor


class NemoAttentionModel:
    """A decoder of NeMo as the search asks for it; see `AttentionModel`.

    Its layers make keys and values of cross-attention anew at each step, so they get
    the frames of every row: memory for K times the frames of a batch.

    Args:
        embedding: Of tokens and positions, called with ids and `start_pos`.
        decoder: A `TransformerDecoder`, with memories.
        classifier: From hidden states to log-probs.
        tokens: The names of the outputs.
        eos: The output that ends a text.
        prompt: What the decoder is given first.
        neutral: Outputs that say nothing: those of prompts, timestamps.
        max_tokens: Of a text, the prompt not counted.
        more_than_frames: A text has no more tokens than frames, and so many.
    """

    def __init__(
        self,
        embedding: Any,
        decoder: Any,
        classifier: Any,
        tokens: Sequence[str],
        *,
        eos: int,
        prompt: Sequence[int],
        neutral: Collection[int] = (),
        max_tokens: int = 512,
        more_than_frames: int = 20,
    ) -> None:
        self._embedding, self._decoder = embedding, decoder
        self._classifier = classifier
        self.tokens, self.eos = tuple(tokens), eos
        self.prompt, self.neutral = tuple(prompt), frozenset(neutral)
        self._max_tokens, self._more = max_tokens, more_than_frames

    @classmethod
    def of(cls, model: Any, *, prompt: Sequence[int], **more: Any) -> Self:
        """Take the parts of an `EncDecMultiTaskModel`; never tried on a real one.

        Args:
            model: In evaluation mode.
            prompt: What the decoder is given first.
            more: `neutral`, `max_tokens` and the rest of the arguments above.
        """
        tokenizer, decoder = model.tokenizer, model.transf_decoder
        names = tokenizer.ids_to_tokens(list(range(tokenizer.vocab_size)))
        counted: dict[str, int] = {}
        for i, name in enumerate(names):  # pieces of several languages may be alike
            counted[name] = counted.get(name, 0) + 1
            if counted[name] > 1:
                names[i] = f"{name}<{i}>"
        parts = decoder.embedding, decoder.decoder, model.log_softmax
        return cls(*parts, names, eos=tokenizer.eos_id, prompt=prompt, **more)

    def limit(self, num_frames: int) -> int:
        """Implement `AttentionModel.limit`."""
        return min(self._max_tokens, num_frames + self._more)

    @torch.inference_mode()
    def start(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor
    ) -> tuple[NemoState, Tensor]:
        """Implement `AttentionModel.start`."""
        time = torch.arange(frames.shape[1], device=frames.device)
        mask = (time < lengths[:, None]).to(frames.dtype)
        utterance = torch.arange(len(frames), device=frames.device)
        state = NemoState((), frames, mask, utterance)
        logprobs, state = self._run(prompts, state)
        return state, logprobs

    @torch.inference_mode()
    def step(self, labels: Tensor, state: NemoState) -> tuple[Tensor, NemoState]:
        """Implement `AttentionModel.step`."""
        return self._run(labels[:, None], state)

    def take(self, state: NemoState, rows: Tensor) -> NemoState:
        """Implement `AttentionModel.take`: memories of rows, frames of utterances."""
        memories = tuple(one[rows] for one in state.memories)
        return state._replace(memories=memories, utterance=state.utterance[rows])

    def _run(self, labels: Tensor, state: NemoState) -> tuple[Tensor, NemoState]:
        place = state.memories[0].shape[1] if state.memories else 0
        hidden = self._embedding(labels, start_pos=place)
        memories, _ = self._decoder(
            hidden,
            torch.ones(labels.shape, dtype=hidden.dtype, device=labels.device),
            state.frames[state.utterance],
            state.mask[state.utterance],
            list(state.memories) if state.memories else None,
            return_mems=True,
        )
        logprobs = self._classifier(hidden_states=memories[-1][:, -1:])
        return logprobs[:, 0].float(), state._replace(memories=tuple(memories))
