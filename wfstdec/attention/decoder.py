"""The decoder for attention models that users hold: a model, language models, options.

decoder = AttentionDecoder(model, lm="pieces.arpa.gz",
options=AttentionOptions(beam_size=8, lm_scale=0.3))
hyps = decoder.decode(frames, lengths)             # of the encoder, [B, T, D]
details = decoder.texts(frames, lengths)           # every text with its rank
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from wfstdec.attention.backend import AttentionBackend, AttentionPath, WithCtc
from wfstdec.attention.model import AttentionModel, checked_table
from wfstdec.attention.model_decoder import (
    Input,
    ModelDecoder,
    check_input,
    weighted_lms,
)
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.search import is_looped
from wfstdec.attention.torch_model import load_attention
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.lm.loading import AnyLM
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.files import PathLike
from wfstdec.text.tokens import TokenTable


class AttentionText(NamedTuple):
    """A text of an n-best list, with all that it is ordered by."""

    token_ids: tuple[int, ...]  # All tokens, marks too, the end not
    total_cost: float  # As of `Hypothesis`: it is not divided by anything
    rank: float  # What the list is ordered by; more is better
    attention_cost: float  # What the model itself gives, the end included
    ctc_cost: float  # What CTC gives, 0 without it
    boost_cost: float  # Minus what its phrases are credited
    end_credit: float  # What `end_rule="compensated"` gave its end, nats
    looped: bool  # Whether it ends in four times the same
    reached_final: bool  # Whether it ended; False where no end was possible


class AttentionDecoder(ModelDecoder):
    """A beam search on an attention decoder; `AttentionOptions` has its objective.

    The result for an utterance depends on its frames, the model, the options and its
    boosts: not on the batch, padding, or the order of lists, as far as the model itself
    does not (a library may round products of other sizes otherwise).

    Language models and phrases are over the model's tokens, with a blank behind them
    that it does not have (`decoder.tokens`). Words have the times of the best alignment
    of CTC over the same tokens, where its log-probs are given or the model has a method
    `ctc`; else none: all begin with the utterance and end with it.

    Args:
        model: An `AttentionModel`; for `input="features"` an `EncoderModel` too.
        lm: A language model over tokens, or a sequence of pairs of such and a weight,
            which may be below 0; None for none.
        options: Of the search.
        separator: The token between words. None takes the mark U+2581 of word pieces.
        unk_cost: As of `GreedyDecoder`.
        input: What is decoded: `"frames"` of the encoder, or `"features"`.
        frame_shift_s: Seconds per frame of the encoder.
        batch_size: Utterances decoded side by side, and encoded.
        device: Where the model is.
        ctc_tokens: The tokens of CTC log-probs, with their blank; None where they are
            the model's, the blank in the place of the end.
        dense: The model always sees K rows for each utterance, needed or not.

    Attributes:
        lms: Language models and their weights.

    Raises:
        InputError: One of its subclasses, for what does not fit the model.
    """

    options: AttentionOptions
    _backend: AttentionBackend

    def __init__(
        self,
        model: AttentionModel,
        *,
        lm: AnyLM | Sequence[tuple[AnyLM, float]] | None = None,
        options: AttentionOptions | None = None,
        separator: str | None = None,
        unk_cost: float | None = None,
        input: Input = "frames",
        frame_shift_s: float = 0.02,
        batch_size: int = 24,
        device: str | torch.device = "cpu",
        ctc_tokens: TokenTable | None = None,
        dense: bool = False,
    ) -> None:
        check_input(model, input, batch_size)
        table = checked_table(model)
        lms = weighted_lms(lm, table, unk_cost, least=-math.inf)
        given = model, device, batch_size, input == "features"
        backend = AttentionBackend(*given, lms, frame_shift_s, ctc_tokens, dense)
        how = options or AttentionOptions(), table, lms, separator, frame_shift_s
        super().__init__(backend, *how)

    def decode(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        ctc: Any = None,
        **more: Any,
    ) -> list[Hypothesis]:
        """Decode whole utterances, as `Decoder.decode`; there are no confidences.

        `logprobs` are frames of the encoder, [B, T, D] or a sequence of [T, D], or its
        features. `ctc` are log-probs of CTC for every frame of the encoder, [B, T, C]
        or a sequence of [T, C], for `ctc_weight`; None asks the model's own head.

        Raises:
            InputError: As there; or CTC log-probs that do not fit.
        """
        return super().decode(WithCtc(logprobs, ctc), lengths, boosts, **more)

    def decode_nbest(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        ctc: Any = None,
    ) -> list[list[Hypothesis]]:
        """Several hypotheses of each utterance, best first; as `decode`."""
        return super().decode_nbest(WithCtc(logprobs, ctc), lengths, boosts)

    def texts(
        self,
        frames: Any,
        lengths: Any = None,
        boosts: Any = None,
        *,
        ctc: Any = None,
        prompts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[AttentionText]]:
        """The n-best list of each utterance, with ranks and all tokens; as `decode`.

        `prompts` are what the decoder is given first, for each utterance; None takes
        the model's.

        Raises:
            InputError: As of `decode`; or not one prompt for each utterance.
        """
        utterances = self._backend.inputs(WithCtc(frames, ctc), lengths)
        compiled = self._boosts.compile(
            boosts, len(utterances), self.options.boost_scale
        )
        found = self._backend.decode(
            utterances, self.options, compiled, prompts=prompts
        )
        return [list(map(_as_text, paths[: self.options.nbest])) for paths in found]

    def _boost_cost(self, path: Any, boosts: CompiledBoosts) -> float:
        """Minus what the search credited: the end had its own rule."""
        return -path.boost + 0.0


def _as_text(path: AttentionPath) -> AttentionText:
    return AttentionText(
        token_ids=path.text.tokens,
        total_cost=path.search_cost,
        rank=path.text.rank,
        attention_cost=-path.text.attention + 0.0,
        ctc_cost=-path.text.ctc + 0.0,
        boost_cost=path.end_credit - path.boost + 0.0,
        end_credit=path.end_credit,
        looped=is_looped(path.text.tokens),
        reached_final=path.reached_final,
    )


def open_decoder(model: PathLike, **more: Any) -> AttentionDecoder:
    """A decoder of features, with its encoder."""

    def load(device: torch.device) -> AttentionModel:
        return load_attention(model, device=device)

    return AttentionDecoder.of_features(load, **more)
