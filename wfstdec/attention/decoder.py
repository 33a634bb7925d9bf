"""Attention decoder: a model, language models, options.

decoder = AttentionDecoder(model, lm="pieces.arpa.gz",
options=AttentionOptions(beam_size=8, lm_scale=0.3))
hyps = decoder.decode(frames, lengths)             # of the encoder, [B, T, D]
details = decoder.texts(frames, lengths)           # every text with its rank
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from wfstdec.attention.ctc import NO_CTC, CtcPrefixes, CtcUnits, token_spans
from wfstdec.attention.model import AttentionModel, checked_table
from wfstdec.attention.model_decoder import (
    Input,
    ModelBackend,
    ModelDecoder,
    Weighted,
    check_input,
    net_of,
    phrases_of,
    weighted_lms,
)
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.search import FinishedHypothesis, Fusion, Searcher, is_looped
from wfstdec.attention.torch_model import load_attention
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import InputError, OptionError, ShapeError
from wfstdec.lm.loading import AnyLM
from wfstdec.search.decoder import by_id
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_numpy, split_batch
from wfstdec.search.paths.tokens import PathTokens, without_labels
from wfstdec.text.files import PathLike
from wfstdec.text.tokens import TokenTable


class AttentionPath(NamedTuple):
    """A text as a path for readers."""

    tokens: PathTokens  # without marks
    text: FinishedHypothesis
    boost: float  # credited nats
    num_frames: int  # of the utterance
    died_at_frame: int = -1

    @property
    def search_cost(self) -> float:
        """The total of the search."""
        return -self.text.total + 0.0

    @property
    def reached_final(self) -> bool:
        """Whether the text has ended."""
        return self.text.reached_final


@dataclass(frozen=True, eq=False)
class WithCtc:
    """Frames of one or more utterances, and their CTC log-probs."""

    frames: Any  # [T, D]
    ctc: Any = None  # float32 [T, columns]; None without CTC
    num_audio_frames: int = -1  # frames of the audio itself; silence follows

    def __len__(self) -> int:
        return len(self.frames)


class AttentionBackend(ModelBackend):
    """A model with its language models, on one device; searches on the host."""

    def __init__(
        self,
        model: AttentionModel,
        device: torch.device | str,
        batch_size: int,
        encodes: bool,
        lms: Weighted,
        frame_shift_s: float,
        ctc_tokens: TokenTable | None = None,
    ) -> None:
        super().__init__(model, device, batch_size, encodes)
        self._lms, self._shift = lms, frame_shift_s
        self._units = CtcUnits.of(model, ctc_tokens)

    def inputs(self, frames: Any, lengths: Any) -> list[WithCtc]:
        """Check frames, or encode features, as `ModelBackend.inputs`."""
        ctc: Any = None
        if isinstance(frames, WithCtc):
            frames, ctc = frames.frames, frames.ctc
        if ctc is not None and self.encodes:
            raise OptionError("ctc= with input='features', expected frames")
        found = super().inputs(frames, lengths)
        if ctc is None:
            count = getattr(self.model, "num_audio_frames", len)
            return [WithCtc(one, None, count(one)) for one in found]
        rows = split_batch(ctc, as_numpy)
        if (num := len(rows)) != len(found):
            raise ShapeError(
                f"CTC log-probs of {num} utterances, expected {len(found)}"
            )
        check = self._units.check
        pairs = enumerate(zip(found, rows, strict=True))
        return [
            WithCtc(one, check(given, len(one), i), len(one))
            for i, (one, given) in pairs
        ]

    @torch.no_grad()
    def decode(
        self,
        utterances: Sequence[WithCtc],
        options: AttentionOptions,
        boosts: Sequence[CompiledBoosts],
        *,
        prompts: Sequence[Sequence[int]] | None = None,
        **_: Any,
    ) -> list[list[AttentionPath]]:
        """Decode whole utterances, batched by similar length."""
        num = len(utterances)
        prompts = [self.model.prompt] * num if prompts is None else prompts
        if len(prompts) != num:
            raise ShapeError(f"{len(prompts)} prompts, expected {num}, one each")
        given = [[int(token) for token in one] for one in prompts]
        lists = phrases_of(boosts)
        lms = [(lm, weight * options.lm_scale) for lm, weight in self._lms]
        # Without frames there are no words, and the model is not run.
        total = -sum(weight * lm.final(lm.start) for lm, weight in lms)
        text = FinishedHypothesis((), total, 0.0, 0.0, options.rank(total, 0), -1, True)
        silence = self._path(text, None, options, 0, None)
        found = {
            i: [silence] for i, one in enumerate(utterances) if not one.num_audio_frames
        }
        for group in self._groups(utterances, given):
            some = [utterances[i].frames for i in group]
            fusion = Fusion(lms, [lists[i] for i in group], options, self._units)
            logprobs = [self._logprobs_of(utterances[i], i) for i in group]
            ctc = self._ctc(options, logprobs)
            searcher = Searcher(self.model, options, fusion, ctc=ctc)
            sizes = [utterances[i].num_audio_frames for i in group]
            limit = self.model.limit
            try:
                texts = searcher.run(
                    torch.nn.utils.rnn.pad_sequence(some, batch_first=True),
                    torch.tensor(list(map(len, some)), device=self.device),
                    torch.tensor([given[i] for i in group], device=self.device).long(),
                    [options.token_limit(limit(n), n * self._shift) for n in sizes],
                )
            except InputError as error:
                if isinstance(error.utterance, int):
                    # The search has positions within its group only.
                    error.utterance = group[error.utterance]
                raise
            for i, rows, size, one in zip(group, logprobs, sizes, texts, strict=True):
                found[i] = [
                    self._path(text, lists[i], options, size, rows) for text in one
                ]
        return [found[i] for i in range(num)]

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:
        """Do nothing: boosts need no layout."""

    def start(self, options: Any, boosts: Any, *, record: bool = False) -> Any:
        """Raise an error: an attention decoder needs whole utterances."""
        raise OptionError("sessions of an attention decoder, expected whole utterances")

    def _logprobs_of(self, one: WithCtc, i: int) -> np.ndarray | None:
        head = getattr(self.model, "ctc", None)
        if one.ctc is not None or head is None:
            return one.ctc
        return self._units.check(as_numpy(head(one.frames).float()), len(one), i)

    def _ctc(
        self, options: AttentionOptions, logprobs: Sequence[np.ndarray | None]
    ) -> CtcPrefixes | None:
        if not options.ctc_weight:
            return None
        rows = [one for one in logprobs if one is not None]
        if len(rows) < len(logprobs):
            raise OptionError(NO_CTC)
        # Tokens of a row that CTC scores: 1.5 beams by default.
        width = options.pre_beam or math.ceil(1.5 * options.beam_size)
        return CtcPrefixes(rows, self._units, weight=options.ctc_weight, width=width)

    def _groups(
        self, utterances: Sequence[WithCtc], prompts: Sequence[Sequence[int]]
    ) -> Iterator[list[int]]:
        """Yield batches: prompts of one length, frames of similar length."""
        spoken = [i for i, one in enumerate(utterances) if one.num_audio_frames]
        for size in sorted({len(prompts[i]) for i in spoken}):
            alike = [i for i in spoken if len(prompts[i]) == size]
            yield from self.groups(alike, utterances)

    def _path(
        self,
        text: FinishedHypothesis,
        phrases: Any,
        options: AttentionOptions,
        num_frames: int,
        ctc: np.ndarray | None,
    ) -> AttentionPath:
        silent = set(self._units.silent.tolist())
        tokens = [token for token in text.tokens if token not in silent]
        # After the phrases have closed nothing is credited.
        kept = text.tokens[: None if text.closed_at < 0 else text.closed_at]
        boost = 0.0
        if phrases is not None:
            boost = -phrases.total([token for token in kept if token not in silent])
        columns = np.zeros((3, len(tokens)), np.int32)
        columns[0], columns[2] = tokens, num_frames
        if ctc is not None:
            spans = token_spans(ctc, self._units.column[tokens], self._units.blank)
            if spans is not None:
                columns[1:] = spans.T
        path = without_labels(columns)
        return AttentionPath(path, text, boost, num_frames)


class AttentionText(NamedTuple):
    """A text of an n-best list, with all parts of its rank."""

    token_ids: tuple[int, ...]  # all tokens with marks, without the end
    total_cost: float  # as in `Hypothesis`, not normalised by length
    rank: float  # sort key of the list; higher is better
    attention_cost: float  # of the model itself, the end included
    ctc_cost: float  # of CTC, 0 without it
    boost_cost: float  # minus the credit of its phrases
    looped: bool  # whether it ends with four repetitions
    reached_final: bool  # whether it has ended; False if no end was possible


class AttentionDecoder(ModelDecoder):
    """Beam search on an attention decoder; `AttentionOptions` has its objective.

    The result for an utterance depends only on its frames, the model, the options and
    its boosts. It does not depend on batch, padding, or the order of lists, unless the
    model itself does: libraries may round products of other sizes differently.

    Language models and phrases are over the model's tokens, followed by a blank that
    the model lacks (`decoder.tokens`). Words have the times of the best CTC alignment
    over the same tokens, if its log-probs are given or the model has a method `ctc`.
    Otherwise all words span the whole utterance.

    Args:
        model: An `AttentionModel`; with `input="features"` also an `EncoderModel`. Or a
            `SpeechModel` of `wfstdec.load_model`, whose frames are decoded.
        lm: A language model over tokens, or a sequence of pairs of a model and its
            weight, which may be negative; None for none.
        options: Of the search.
        separator: The token between words. None is the mark U+2581 of word pieces.
        unk_cost: As in `GreedyDecoder`.
        input: Input of `decode`: `"frames"` of the encoder, or `"features"`.
        frame_shift_s: Seconds per frame of the encoder; None is the model's, or 0.02.
        batch_size: Utterances per batch, of search and encoder; None is `max_batch` of
            the model of `load_model`, or 24.
        device: Device of the model.
        ctc_tokens: The tokens of CTC log-probs, with their blank; None if they are the
            model's, the blank in place of the end.

    Attributes:
        lms: Language models and their weights.

    Raises:
        InputError: One of its subclasses, for arguments that do not fit the model.
    """

    family, can_stream = "attention", False
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
        frame_shift_s: float | None = None,
        batch_size: int | None = None,
        device: str | torch.device = "cpu",
        ctc_tokens: TokenTable | None = None,
    ) -> None:
        if batch_size is None:
            batch_size = getattr(getattr(model, "spec", None), "max_batch", 24)
        model, shift = net_of(model, frame_shift_s, 0.02)
        check_input(model, input, batch_size)
        table = checked_table(model)
        lms = weighted_lms(lm, table, unk_cost)
        given = model, device, batch_size, input == "features"
        backend = AttentionBackend(*given, lms, shift, ctc_tokens)
        how = options or AttentionOptions(), table, lms, separator, shift
        super().__init__(backend, *how)

    @by_id
    def decode(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        ctc: Any = None,
        **more: Any,
    ) -> list[Hypothesis]:
        """Decode whole utterances, as `Decoder.decode`.

        `logprobs` are frames of the encoder, [B, T, D] or a sequence of [T, D], or
        features. `ctc` are CTC log-probs for every frame of the encoder, [B, T, C] or a
        sequence of [T, C], for `ctc_weight`; None uses the model's head.

        Raises:
            InputError: As there; or CTC log-probs that do not fit.
        """
        return super().decode(WithCtc(logprobs, ctc), lengths, boosts, **more)

    @by_id
    def decode_nbest(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        ctc: Any = None,
    ) -> list[list[Hypothesis]]:
        """Return several hypotheses of each utterance, best first; as `decode`."""
        if not isinstance(logprobs, WithCtc):  # as created by `decode`
            logprobs = WithCtc(logprobs, ctc)
        return super().decode_nbest(logprobs, lengths, boosts)

    def texts(
        self,
        frames: Any,
        lengths: Any = None,
        boosts: Any = None,
        *,
        ctc: Any = None,
        prompts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[AttentionText]]:
        """Return each utterance's n-best list, with ranks and all tokens; as `decode`.

        `prompts` are the decoder's first tokens for each utterance; None uses the
        model's default.

        Raises:
            InputError: As in `decode`; or another number of prompts than utterances.
        """
        utterances = self._backend.inputs(WithCtc(frames, ctc), lengths)
        options, num = self.options, len(utterances)
        compiled = self._boosts.compile(boosts, num, options.boost_scale)
        found = self._backend.decode(utterances, options, compiled, prompts=prompts)
        return [list(map(_as_text, paths[: options.nbest])) for paths in found]

    def _boost_cost(self, path: Any, boosts: CompiledBoosts) -> float:
        """Return minus the search's credit, which includes the rule for the end."""
        return -path.boost + 0.0


def _as_text(path: AttentionPath) -> AttentionText:
    return AttentionText(
        token_ids=path.text.tokens,
        total_cost=path.search_cost,
        rank=path.text.rank,
        attention_cost=-path.text.attention + 0.0,
        ctc_cost=-path.text.ctc + 0.0,
        boost_cost=-path.boost + 0.0,
        looped=is_looped(path.text.tokens),
        reached_final=path.reached_final,
    )


def open_decoder(model: PathLike, **more: Any) -> AttentionDecoder:
    """Return a decoder of features, with its encoder."""

    def load(device: torch.device) -> AttentionModel:
        return load_attention(model, device=device)

    return AttentionDecoder.of_features(load, **more)
