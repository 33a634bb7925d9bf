"""Autoregressive models of Transformers for `AttentionDecoder`.

    model = HfAttentionModel(whisper, processor, prompt=[50258, 50259, 50359, 50363])
    decoder = AttentionDecoder(model, options=AttentionOptions(beam_size=8))
    hyps = decoder.decode(model.encode(**processor(audio, return_tensors="pt")))
    processor.decode(hyps[0].token_ids)

Supports Whisper, Moonshine, Speech2Text and other models with encoder and decoder,
through methods of tokenizer and model. Only the cache is imported from Transformers.
"""

import inspect
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from wfstdec.errors import AudioLengthError, OptionError, ShapeError
from wfstdec.text.lexicon import WORD_START
from wfstdec.text.tokens import (
    Ids,
    IdSpeller,
    ModelTokenizer,
    case_variants,
    ends_of,
    ids_of,
    names_of,
    neutral_of,
    tokenizer_of,
    ways_behind_space,
)


class DecoderState(NamedTuple):
    """State of the decoder after some tokens, of N rows."""

    memory: Any  # Cache of keys and values, changed in place by its owner
    frames: Tensor  # [B, T, D] of utterances, not rows
    mask: Tensor | None  # [B, T], real frames; None if the decoder takes none
    utterance: Tensor  # int64 [N], utterance of each row

    @classmethod
    def of(cls, memory: Any, frames: Tensor, lengths: Tensor) -> Self:
        """Return the state before any token, one row per utterance."""
        time = torch.arange(frames.shape[1], device=frames.device)
        utterance = torch.arange(len(frames), device=frames.device)
        return cls(memory, frames, time < lengths[:, None], utterance)


def phrase_tokenizer(tokenize: Any, ids: Any, barred: frozenset[int]) -> ModelTokenizer:
    """Return a tokenizer of phrases by `tokenize` and `ids`, without `barred` ones."""
    spell = IdSpeller(ids, barred=barred, variants=ways_behind_space)
    # Tokenizers without a space token spell nothing after one.
    other = IdSpeller(ids, barred=barred, variants=case_variants)
    cut = partial(_cut_behind_space, tokenize)
    return ModelTokenizer(cut, partial(_first_spelt, spell, other))


def _cut_behind_space(tokenize: Any, text: str) -> list[str]:
    """Cut a text after a space, which byte-level tokenizers include."""
    names = tokenize(text)
    if names and names[0].startswith(WORD_START):
        return names
    return tokenize(f" {text}")


def _first_spelt(spell: Any, other: Any, phrases: Sequence[str]) -> list[list[Ids]]:
    pairs = zip(spell(phrases), other(phrases), strict=True)
    return [ways or others for ways, others in pairs]


def dim_of(config: Any) -> int:
    """Return D of the frames of a model of Transformers."""
    return int(getattr(config, "d_model", None) or config.hidden_size)


class HfAttentionModel:
    """`AttentionModel` of a model of Transformers.

    Keys and values of cross-attention are kept for rows; they are copied when the
    number of rows of an utterance changes. The tokenizer cuts phrases, after a space.

    Args:
        model: Such as `WhisperForConditionalGeneration`, in evaluation mode.
        tokenizer: Its tokenizer, or its processor.
        prompt: First tokens of the decoder; None takes the model's
            `decoder_start_token_id`. Whisper also needs language and task.
        eos: Token that ends a text; None takes the tokenizer's.
        neutral: Marks without text; None takes the tokenizer's.
        suppress: Tokens that are never emitted; None takes `suppress_tokens` of the
            model's `generation_config`. Probabilities are normalised without them.
        max_tokens: Limit of a text; None takes the positions of the decoder.

    Raises:
        TokenTableError: Two tokens share an id, or `tokenizer` is none.
        OptionError: No end token, or no first token.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        prompt: Sequence[int] | None = None,
        eos: int | None = None,
        neutral: Collection[int] | None = None,
        suppress: Collection[int] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.model, self._decoder = model, model.get_decoder()
        self._outputs = model.get_output_embeddings()
        size = int(self._outputs.weight.shape[0])
        names = names_of(tokenizer)
        self.tokens = [names.get(i, f"<unused_{i}>") for i in range(size)]
        (self.eos,) = ends_of(eos, tokenizer)[:1]
        unnamed = set(range(size)) - names.keys()
        marks = neutral_of(tokenizer) if neutral is None else neutral
        marks = {i for i in marks if i < size}
        self.neutral = frozenset((marks | unnamed) - {self.eos})
        barred = self.neutral | {self.eos} | {i for i in names if i >= size}
        self.tokenizer = phrase_tokenizer(
            tokenizer_of(tokenizer).tokenize, ids_of(tokenizer), frozenset(barred)
        )
        first: Any = getattr(model.config, "decoder_start_token_id", None)
        if prompt is None and first is None:
            raise OptionError("no decoder_start_token_id, expected prompt=")
        self.prompt = tuple(map(int, [first] if prompt is None else prompt))
        given: Any = suppress
        if given is None:
            given = getattr(model.generation_config, "suppress_tokens", None) or ()
        self._suppress = torch.tensor(sorted(set(given) - {self.eos}), dtype=torch.long)
        named = inspect.signature(self._decoder.forward).parameters
        self._takes_mask = "encoder_attention_mask" in named
        self._max_tokens = max_tokens

    def limit(self, num_frames: int) -> int:
        """Implement `AttentionModel.limit`: the positions of the decoder."""
        config = self.model.config
        names = ("max_target_positions", "max_position_embeddings")
        room = next((getattr(config, n) for n in names if hasattr(config, n)), 448)
        room -= len(self.prompt)
        return room if self._max_tokens is None else min(room, self._max_tokens)

    @torch.inference_mode()
    def encode(self, **inputs: Any) -> list[Tensor]:
        """Return frames of the encoder, [T', D] for each utterance.

        Args:
            inputs: Output of the processor: features or samples, and their mask.

        Raises:
            AudioLengthError: Longer than Whisper's window of 30 s.
        """
        config = self.model.config
        features = next(iter(inputs.values()))
        room = getattr(config, "max_source_positions", None)
        if room and self._is_whisper and features.shape[-1] > 2 * room:
            raise AudioLengthError(
                f"T={features.shape[-1]} frames, Whisper takes {2 * room} (30 s); for "
                "long audio: model.generate with PhraseBoostLogitsProcessor"
            )
        encoder = self.model.get_encoder()
        out = encoder(**inputs)
        frames, mask = out.last_hidden_state, inputs.get("attention_mask")
        shorten = getattr(encoder, "_get_feature_vector_attention_mask", None)
        if (own := getattr(out, "attention_mask", None)) is not None:
            mask = own
        elif mask is not None and shorten is not None:
            mask = shorten(frames.shape[1], mask)
        if mask is None or self._is_whisper:
            return list(frames)
        counts = mask.long().sum(1).tolist()
        return [row[:count] for row, count in zip(frames, counts, strict=True)]

    def num_audio_frames(self, frames: Tensor) -> int:
        """Return the number of audio frames of a Whisper, from the encoder's marks."""
        marks = (
            frames[:, dim_of(self.model.config) :]
            if self._is_whisper
            else frames[:, :0]
        )
        return int(marks.sum()) if marks.shape[1] else len(frames)

    @property
    def _is_whisper(self) -> bool:
        return getattr(self.model.config, "model_type", "") == "whisper"

    @torch.inference_mode()
    def start(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor
    ) -> tuple[DecoderState, Tensor]:
        """Implement `AttentionModel.start`.

        Raises:
            ShapeError: Utterances of different lengths, and a decoder without a mask.
        """
        from transformers import DynamicCache, EncoderDecoderCache

        if not self._takes_mask and bool((lengths != frames.shape[1]).any()):
            expected = "expected one: this decoder takes no mask"
            raise ShapeError(f"{lengths.tolist()} frames, {expected}")
        frames = frames.to(self._outputs.weight.dtype)
        if self._is_whisper:
            frames = frames[
                :, :, : dim_of(self.model.config)
            ].contiguous()  # without marks
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        state = DecoderState.of(cache, frames, lengths)
        if not self._takes_mask:
            state = state._replace(mask=None)
        return self._run(prompts, state, frames)[::-1]

    @torch.inference_mode()
    def step(self, labels: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Implement `AttentionModel.step`."""
        # Their keys and values are in the cache: only the number of frames matters.
        frames = state.frames[:1].expand(len(labels), -1, -1)
        return self._run(labels[:, None], state, frames)

    def take(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """Implement `AttentionModel.take`; the cache changes in place."""
        utterance = state.utterance[rows]
        state.memory.self_attention_cache.batch_select_indices(rows)
        if not torch.equal(utterance, state.utterance):
            state.memory.cross_attention_cache.batch_select_indices(rows)
        return state._replace(utterance=utterance)

    def _run(
        self, labels: Tensor, state: DecoderState, frames: Tensor
    ) -> tuple[Tensor, DecoderState]:
        more: dict[str, Any] = {}
        if state.mask is not None:
            more["encoder_attention_mask"] = state.mask[state.utterance]
        out = self._decoder(
            input_ids=labels,
            encoder_hidden_states=frames,
            past_key_values=state.memory,
            use_cache=True,
            **more,
        )
        logits = self._outputs(out.last_hidden_state[:, -1]).float()
        logits[:, self._suppress.to(logits.device)] = -torch.inf
        memory = out.past_key_values
        return torch.log_softmax(logits, -1), state._replace(memory=memory)
