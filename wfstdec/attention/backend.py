"""The search behind the contract of all decoders: batches of whole utterances."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from wfstdec.attention.ctc import CtcPrefixes, CtcUnits
from wfstdec.attention.model import AttentionModel
from wfstdec.attention.model_decoder import ModelBackend, Weighted, phrases_of
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.search import FinishedHypothesis, Fusion, Searcher
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import InputError, OptionError, ShapeError
from wfstdec.jit import kernel
from wfstdec.search.logprobs import as_numpy, split_batch
from wfstdec.search.paths.tokens import NO_TOKENS, PathTokens
from wfstdec.text.tokens import TokenTable


def token_spans(
    logprobs: np.ndarray, columns: np.ndarray, blank: int
) -> np.ndarray | None:
    """First frames of tokens, and the frames behind their last; int32 [N, 2]."""
    # Of equally good alignments the one whose tokens end late counts.
    spans = np.zeros((len(columns), 2), np.int32)
    states = 2 * len(columns) + 1
    scores = np.full((2, states), -np.inf)
    step = np.zeros((len(logprobs), states), np.int8)
    columns = np.ascontiguousarray(columns, np.int64)
    return spans if _align(logprobs, columns, blank, scores, step, spans) else None


@kernel
def _align(logprobs, columns, blank, scores, step, spans):
    """Fill in the spans; tells whether there is an alignment."""
    # State 2 * i + 1 is token i, even ones are the blanks around them.
    num_frames, num_states = step.shape
    now, after = scores[0], scores[1]
    for t in range(num_frames):
        for state in range(num_states):
            at = columns[state // 2] if state % 2 else blank
            # Ties go to staying, then to the lesser step.
            best, by = now[state], 0
            if t == 0:
                best = 0.0 if state < 2 else -np.inf
            else:
                if state > 0 and now[state - 1] > best:
                    best, by = now[state - 1], 1
                # Past a blank, where two tokens differ.
                skips = state % 2 == 1 and state > 1
                if skips and columns[state // 2] != columns[state // 2 - 1]:
                    if now[state - 2] > best:
                        best, by = now[state - 2], 2
            after[state] = best + logprobs[t, at]
            step[t, state] = by
        for state in range(num_states):
            now[state] = after[state]
    state = num_states - 1
    # The last token, or the blank behind it.
    if num_states > 1 and now[state - 1] >= now[state]:
        state -= 1
    if num_frames == 0 or now[state] == -np.inf:
        return num_frames == 0 and len(columns) == 0
    for t in range(num_frames - 1, -1, -1):
        if state % 2:
            i = state // 2
            spans[i, 0] = t
            if spans[i, 1] == 0:
                spans[i, 1] = t + 1
        state -= step[t, state]
    return True


class AttentionPath(NamedTuple):
    """A text as readers of paths have it."""

    tokens: PathTokens  # Without marks
    text: FinishedHypothesis
    boost: float  # Nats credited, those of the end included
    end_credit: float  # The latter
    num_frames: int  # Of the utterance
    died_at_frame: int = -1

    @property
    def search_cost(self) -> float:
        """The total as the search added it up."""
        return -self.text.total + 0.0

    @property
    def reached_final(self) -> bool:
        """Whether the text came to its end."""
        return self.text.reached_final


@dataclass(frozen=True, eq=False)
class WithCtc:
    """Frames of an utterance or of several, and their CTC log-probs."""

    frames: Any  # [T, D]
    ctc: Any = None  # float32 [T, columns]; None without CTC

    def __len__(self) -> int:
        """T."""
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
        dense: bool = False,
    ) -> None:
        super().__init__(model, device, batch_size, encodes)
        self.dense = dense
        self._lms, self._frame_shift_s = lms, frame_shift_s
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
            return [WithCtc(one) for one in found]
        rows = split_batch(ctc, as_numpy)
        if len(rows) != len(found):
            raise ShapeError(
                f"CTC log-probs of {len(rows)} utterances, expected {len(found)}"
            )
        return [
            WithCtc(one, self._units.check(given, len(one), i))
            for i, (one, given) in enumerate(zip(found, rows, strict=True))
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
        """Decode whole utterances, those of like length together."""
        if prompts is None:
            prompts = [tuple(self.model.prompt)] * len(utterances)
        if len(prompts) != len(utterances):
            expected = f"expected {len(utterances)}, one each"
            raise ShapeError(f"{len(prompts)} prompts, {expected}")
        given = [tuple(int(token) for token in one) for one in prompts]
        lists = phrases_of(boosts)
        lms = [(lm, weight * options.lm_scale) for lm, weight in self._lms]
        # No frames, no words: the model is not asked.
        total = -sum(weight * lm.final(lm.start) for lm, weight in lms)
        text = FinishedHypothesis((), total, 0.0, 0.0, options.rank(total, 0), -1, True)
        silence = self._path(text, None, options, 0, None)
        found = {i: [silence] for i, one in enumerate(utterances) if not len(one)}
        for group in self._groups(utterances, given):
            some = [utterances[i].frames for i in group]
            fusion = Fusion(lms, [lists[i] for i in group], options, self._units)
            logprobs = [self._logprobs_of(utterances[i], i) for i in group]
            ctc = self._ctc(options, logprobs)
            searcher = Searcher(self.model, options, fusion, ctc=ctc, dense=self.dense)
            sizes = list(map(len, some))
            limits = [
                options.token_limit(self.model.limit(size), size * self._frame_shift_s)
                for size in sizes
            ]
            batch = (
                torch.nn.utils.rnn.pad_sequence(some, batch_first=True),
                torch.tensor(sizes, device=self.device),
                torch.tensor([given[i] for i in group], device=self.device).long(),
            )
            try:
                texts = searcher.run(*batch, limits)
            except InputError as error:
                if isinstance(error.utterance, int):
                    # The search knows positions in its group alone.
                    error.utterance = group[error.utterance]
                raise
            for i, rows, size, one in zip(group, logprobs, sizes, texts, strict=True):
                found[i] = [
                    self._path(text, lists[i], options, size, rows) for text in one
                ]
        return [found[i] for i in range(len(utterances))]

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:
        """Do nothing: boosts are laid out as they are."""

    def start(self, options: Any, boosts: Any, *, record: bool = False) -> Any:
        """Refuse: an attention decoder sees whole utterances."""
        raise OptionError("sessions of an attention decoder, expected whole utterances")

    def _logprobs_of(self, one: WithCtc, i: int) -> np.ndarray | None:
        """CTC log-probs, given or by the model's own head; None without either."""
        own = getattr(self.model, "ctc", None)
        if one.ctc is not None or own is None:
            return one.ctc
        logprobs = own(one.frames).float().cpu().numpy()
        return self._units.check(logprobs, len(one), i)

    def _ctc(
        self, options: AttentionOptions, logprobs: Sequence[np.ndarray | None]
    ) -> CtcPrefixes | None:
        """CTC of a batch, where it counts."""
        if not options.ctc_weight:
            return None
        rows = [one for one in logprobs if one is not None]
        if len(rows) < len(logprobs):
            raise OptionError(
                f"ctc_weight={options.ctc_weight!r} without CTC log-probs, expected "
                "ctc=, or a model with a method `ctc`"
            )
        # Tokens of a row that CTC scores: one and a half beams by default.
        width = options.pre_beam or math.ceil(1.5 * options.beam_size)
        return CtcPrefixes(rows, self._units, weight=options.ctc_weight, width=width)

    def _groups(
        self, utterances: Sequence[WithCtc], prompts: Sequence[Sequence[int]]
    ) -> Iterator[list[int]]:
        """Utterances decoded together: prompts of one length, frames of like length."""
        spoken = [i for i, one in enumerate(utterances) if len(one)]
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
        """A text with what it was credited, and its times by CTC."""
        silent = set(self._units.silent.tolist())
        tokens = [token for token in text.tokens if token not in silent]
        # Behind the closing of a list nothing was credited.
        kept = text.tokens[: None if text.closed_at < 0 else text.closed_at]
        boost = credit = 0.0
        if phrases is not None:
            boost = -phrases.total([token for token in kept if token not in silent])
            if options.end_rule == "compensated" and text.reached_final:
                state, ended = phrases.start, False
                paid = phrases.automaton.final_cost
                for token in tokens:
                    before = state
                    cost, state = phrases.step(before, token)
                    ended = bool(paid[before] - paid[state] - np.float32(cost) > 0)
                # The most that a token would gain, and more behind a phrase.
                credit = max(0.0, float(-phrases.row(state)[0].min()))
                credit += options.final_eos_score * ended
        columns = np.zeros((3, len(tokens)), np.int32)
        columns[0], columns[2] = tokens, num_frames
        if ctc is not None:
            spans = token_spans(ctc, self._units.column[tokens], self._units.blank)
            if spans is not None:
                columns[1:] = spans.T
        given = text, boost + credit, credit, num_frames
        return AttentionPath(PathTokens(*columns, *NO_TOKENS[3:]), *given)
