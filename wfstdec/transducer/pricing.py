"""Choices of a hypothesis and their gains: the model with its fusion.

L is the sum of the weights of the language models, at least 0, boosts not counted; lp
are the joiner's log-probs, p_blank = exp(lp_blank).

    blank unscored   token: lp                       + fusion    blank: lp_blank
    blank scored     token: lp + L * ln(1 - p_blank) + fusion    blank: (1 + L) lp_blank

(equations 2 and 3 of the ALSD++/AES++ paper). ln(1 - p_blank) is the logsumexp of the
tokens' log-probs. A token's duration adds its own log-prob, unscaled, and so does that
of a blank, which has no duration of 0: the others are normalised again. For RNN-T a
token takes no frame and a blank takes one. The best K tokens are those by all of this.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.automata import TorchBackoff
from wfstdec.transducer.model import Joined, TransducerModel
from wfstdec.transducer.options import TransducerOptions

NO_ROWS = np.empty((0, 0), np.float32)
States = tuple[Tensor, ...]
"""int64 [N] for each term."""


class Term(NamedTuple):
    """A model and its weight."""

    model: TorchBackoff  # costs of labels
    weight: float  # negative to subtract a language model
    start: Tensor  # int64 [B], initial state of each utterance
    # whether it is a language model, by whose weight blanks are scored; boosts are not
    probabilistic: bool


class Fusion:
    """The terms of a batch."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        weights = [term.weight for term in terms if term.probabilistic]
        self.lm_weight = max(0.0, sum(weights))

    def start(self, width: int) -> States:
        """Return the states before B utterances, `width` rows for each: [B * width]."""
        return tuple(term.start.repeat_interleave(width) for term in self.terms)

    def rows(self, states: Any) -> Any:
        """Return gains of all labels, float32 [N, V + 1]; None without terms."""
        # For tensors or arrays, as the caller passes.
        total = None
        for term, at in zip(self.terms, states, strict=True):
            gains = _gains(term.model(at)[0], term.weight)
            total = gains if total is None else total + gains
        return total

    def step(self, states: Any, labels: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return gains of one label each, float32 [N], and the next states."""
        xp: Any = np if isinstance(labels, np.ndarray) else torch
        total, nextstates = xp.zeros_like(labels, dtype=xp.float32), []
        for term, at in zip(self.terms, states, strict=True):
            costs, there = term.model.step(at, labels)
            total = total + _gains(costs, term.weight)
            nextstates.append(there if xp is np else there.long())
        return total, tuple(nextstates)

    def final(self, states: States, num: int) -> Tensor:
        """Return gains of ending in these states, float64 [N]."""
        device = states[0].device if states else None
        total = torch.zeros(num, dtype=torch.float64, device=device)
        for term, at in zip(self.terms, states, strict=True):
            total = total + _gains(term.model.final(at).double(), term.weight)
        return total


_INF = float("inf")


def _gains(costs: Any, weight: float) -> Any:
    """Convert costs to gains; impossible ones stay -inf also with a negative weight."""
    gains = costs * -weight
    if weight >= 0:
        return gains
    xp: Any = np if isinstance(costs, np.ndarray) else torch
    return xp.where(costs == _INF, -_INF, gains)


class Priced(NamedTuple):
    """The next symbols of N hypotheses."""

    model: Tensor  # [N, V + 1], log-probs of tokens, -inf for the blank
    own: Tensor  # [N, V + 1], the same with everything except fusion
    gains: Tensor | None  # float32 [N, V + 1], of fusion; None without terms
    durations: Tensor | None  # [N, D], of tokens; None for RNN-T
    alone: Tensor  # [N], the blank's log-prob
    # [N, E], the same as scored, with each of its possible durations
    blank: Tensor
    is_good: Tensor  # bool [N], no log-prob is NaN or +inf

    @property
    def total(self) -> Tensor:
        """Total of tokens, [N, V + 1], without durations."""
        return self.own if self.gains is None else self.own + self.gains


def normalized(rows: Tensor) -> Tensor:
    """Return log-softmax of rows [N, E]; torch's own splits few rows among threads."""
    return rows - torch.logsumexp(rows, 1, keepdim=True)


class Choices(NamedTuple):
    """W symbols for each of N hypotheses; the blank's come first."""

    gain: Tensor  # float64 [N, W], -inf without a symbol
    label: Tensor  # int64 [N, W], a token, or -1 for the blank
    step: Tensor  # int64 [N, W], frames


class Pricer:
    """Prices the symbols of hypotheses, by one set of options."""

    def __init__(
        self,
        model: TransducerModel,
        options: TransducerOptions,
        fusion: Fusion,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model, self.options, self.fusion = model, options, fusion
        self.blank, self.num_labels = model.blank, len(model.tokens) + 1
        durations = tuple(model.durations)
        # A blank always leaves its frame.
        blank_durations = [d for d in durations if d > 0] or [1]
        moving = [i for i, d in enumerate(durations) if d > 0]
        self.takes_time: Any = moving
        if moving and moving[-1] - moving[0] + 1 == len(moving):  # a view is faster
            self.takes_time = slice(moving[0], moving[-1] + 1)
        self.num_durations, self.longest = len(durations), max(durations, default=1)
        self.zero = durations.index(0) if 0 in durations else None
        self.has_zero_step = not durations or 0 in durations
        self.token_steps = torch.tensor(durations or (0,), device=device)
        self.blank_steps = torch.tensor(blank_durations, device=device)
        self.shortest = blank_durations.index(min(blank_durations))
        self.number_of_blank = (self.token_steps > 0).cumsum(0) - 1
        greedy = options.strategy == "greedy"
        scored = options.blank_scored and not greedy
        self.blank_weight = fusion.lm_weight if scored else 0.0
        labels = torch.arange(self.num_labels, device=device)
        self.is_blank = labels == self.blank

    def price(self, joined: Joined, states: States) -> Priced:
        """Price the joiner's output with insertions and fusion."""
        logprobs, durations = in_floats(joined)
        blank = logprobs[:, self.blank]
        tokens = logprobs.masked_fill(self.is_blank, -_INF)
        own = tokens
        if self.blank_weight:
            spoke = torch.logsumexp(tokens, 1, keepdim=True)
            own = own + self.blank_weight * spoke
        if self.options.token_insertion:
            own = own - self.options.token_insertion
        scored = (1 + self.blank_weight) * blank[:, None]
        # NaN compares as false, so it is detected too.
        is_good = (logprobs < _INF).all(1)
        if durations is not None:
            scored = scored + normalized(durations[:, self.takes_time])
            is_good = is_good & (durations < _INF).all(1)
        return Priced(
            model=tokens,
            own=own,
            gains=self.fusion.rows(states),
            durations=durations,
            alone=blank,
            blank=scored,
            is_good=is_good,
        )

    def choices(self, priced: Priced, forced: Tensor) -> Choices:
        """Return the choices of ALSD++: the best K tokens, and always the blank."""
        return self._best(priced, forced, self.options.beam_size)

    def expansions(self, priced: Priced, forced: Tensor) -> Choices:
        """Return the choices of AES++: the best K + beta labels near the best."""
        options = self.options
        num = options.beam_size + options.expansion_beta
        choices = self._best(priced, forced, num)
        gain = choices.gain
        rank = torch.sort(gain, dim=1, descending=True, stable=True)[1].argsort(1)
        least = gain.amax(1, keepdim=True) - options.expansion_gamma
        good = (rank < num) & (gain > least) & (gain > -_INF)
        return choices._replace(gain=torch.where(good, gain, -_INF))

    def greedy(self, priced: Priced, forced: Tensor) -> Choices:
        """Return the blank, or the best fused token if the model prefers a token."""
        speaks = (priced.model.amax(1) >= priced.alone) & ~forced
        gain, label = top_labels(priced.total, 1)
        step = self.token_steps[:1].expand(len(label), 1)
        if priced.durations is not None:
            best, at = priced.durations.max(1, keepdim=True)
            gain, step = gain + best, self.token_steps[at]
        # A blank has the best duration; if that is 0, or it is forced, the next.
        at = torch.full_like(priced.alone, self.shortest, dtype=torch.long)
        if priced.durations is not None:
            best = priced.durations.max(1)[1]
            moves = (self.token_steps[best] > 0) & ~forced
            at = torch.where(moves, self.number_of_blank[best], at)
        found = priced.blank.gather(1, at[:, None]).double()
        blank = Choices(found, torch.full_like(label, -1), self.blank_steps[at, None])
        speaks = speaks[:, None] & (gain > -_INF)
        return Choices(
            gain=torch.where(speaks, gain.double(), blank.gain),
            label=torch.where(speaks, label, blank.label),
            step=torch.where(speaks, step, blank.step),
        )

    def best_blank(self, priced: Priced) -> Choices:
        """Return only the blank with its best duration, W = 1."""
        gain, at = priced.blank.max(1, keepdim=True)
        label = torch.full_like(at, -1)
        return Choices(gain.double(), label, self.blank_steps[at])

    def to_label(self, priced: Priced, labels: Tensor) -> Tensor:
        """Return gains of tokens without a frame, float64 [N, M]; -inf for label -1."""
        safe = labels.clamp(min=0)
        gain = priced.total.gather(1, safe).double()
        if priced.durations is not None:
            assert self.zero is not None
            gain = gain + priced.durations[:, self.zero, None]
        return torch.where(labels >= 0, gain, -_INF)

    def _best(self, priced: Priced, forced: Tensor, num: int) -> Choices:
        gain, label = top_labels(priced.total, min(num, self.num_labels - 1))
        gain = gain.double()
        step = self.token_steps[:1].expand_as(label)
        if priced.durations is not None:
            lasts = priced.durations.double()[:, None, :].expand(*label.shape, -1)
            both = (gain[:, :, None] + lasts).flatten(1)
            # Stable: ties go to the better token, then the lower position in the list
            # of durations.
            order = torch.sort(both, dim=1, descending=True, stable=True)[1][:, :num]
            which = order // self.num_durations
            gain, label = both.gather(1, order), label.gather(1, which)
            step = self.token_steps[order % self.num_durations]
        blank = priced.blank.double()
        of_blank = self.blank_steps.expand_as(blank)
        gain = gain.masked_fill(forced[:, None], -_INF)
        return Choices(
            gain=torch.cat([blank, gain], 1),
            label=torch.cat([torch.full_like(of_blank, -1), label], 1),
            step=torch.cat([of_blank, step], 1),
        )


def in_floats(joined: Joined) -> tuple[Tensor, Tensor | None]:
    """Return log-probs of tokens, and of durations, in float32 at least."""
    parts = joined if isinstance(joined, tuple | list) else (joined,)
    logprobs, *more = (p if p.dtype == torch.float64 else p.float() for p in parts)
    return logprobs, more[0] if more else None


def top_labels(scores: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Return each row's best labels and scores, [N, num]; ties go to the lowest."""
    if scores.dtype != torch.float32:
        order = torch.sort(scores, dim=1, descending=True, stable=True)[1][:, :num]
        return scores.gather(1, order), order
    # Floats in the order of integers, the label below them: no two are equal.
    bits = (scores + 0.0).view(torch.int32)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    size = scores.shape[1]
    below = torch.arange(size - 1, -1, -1, device=scores.device)
    keys = torch.topk((bits.long() << 32) | below, num, dim=1).values
    labels = size - 1 - (keys & 0xFFFFFFFF)
    return scores.gather(1, labels), labels
