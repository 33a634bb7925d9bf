"""Arrays of the CPU searches, rows of the predictor, and the joiner.

A text is a node of a tree, identified by its parent and its last token: two hypotheses
are the same text if and only if their nodes are one. A trace is a node of another tree:
a token, its frame and the frame after. A text with several alignments has several.
Both begin with a root for each utterance, the empty text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.transducer.model import TransducerModel, leaves, tree_map
from wfstdec.transducer.pricing import NO_ROWS, Fusion, Pricer

NONE = -1
"""No node, no slot, no token: the blank."""


class BeamArrays(NamedTuple):
    """K hypotheses of each of B utterances; a dead one has the score -inf."""

    score: np.ndarray  # float64 [B, K], nats, higher is better
    frame: np.ndarray  # int64 [B, K], t: the next frame
    run: np.ndarray  # int64 [B, K], tokens since the frame last moved
    text: np.ndarray  # int64 [B, K], a node of the tree of texts
    trace: np.ndarray  # int64 [B, K], a node of the tree of traces


class Tree(NamedTuple):
    """Texts and traces; parents precede their children."""

    parent: np.ndarray  # int64 [N], -1 of a root
    token: np.ndarray  # int64 [N], the last token of a text
    depth: np.ndarray  # int64 [N], how many tokens it has
    # int64 [N], where the predictor's output for it is kept, -1 if it is not
    slot: np.ndarray
    # int64 [M], hash table of nodes by parent and token, -1 where free
    table: np.ndarray
    trace_parent: np.ndarray  # int64 [N]
    trace_row: np.ndarray  # int32 [N, 3], token, frame, frame after
    used: np.ndarray  # int64 [2], nodes and traces so far


class FrameSpan(NamedTuple):
    """How far frames have come."""

    first: np.ndarray  # int64 [B], the number of the first frame at hand
    come: np.ndarray  # int64 [B], how many there were
    is_ended: np.ndarray  # bool [B], no more will come
    at: np.ndarray  # int64 [B], of AES++: the frame that is expanded


class JoinerLogprobs(NamedTuple):
    """Log-probs of the joiner for N rows; absent parts have no rows; dtype T."""

    logprobs: np.ndarray  # T [N, V + 1]
    spoke: np.ndarray  # T [N], logsumexp of the tokens, where blanks are scored
    gains: np.ndarray  # float32 [N, V + 1], of late fusion
    lasts: np.ndarray  # T [N, D], of durations
    # T [N, E], of those that a blank may have, normalised again
    blank_lasts: np.ndarray
    weights: np.ndarray  # T [5], L of scored blanks, token insertion, 1 + L, 1, -inf


class Steps(NamedTuple):
    """Symbols that may be taken, and how far they go."""

    blank: np.ndarray  # int64 [1], the blank's column
    of_token: np.ndarray  # int64 [D], frames by the position of a duration
    of_blank: np.ndarray  # int64 [E]


class Choices(NamedTuple):
    """W symbols for each of N hypotheses; those of the blank come first."""

    gain: np.ndarray  # float64 [N, W], -inf where there is none
    label: np.ndarray  # int64 [N, W], a token, or -1 for the blank
    step: np.ndarray  # int64 [N, W], frames
    value: np.ndarray  # float64 [W], scratch
    order: np.ndarray  # int64 [W, 2], scratch


class Scratch(NamedTuple):
    """Room for the candidates of an utterance, K x W, and for its new hypotheses."""

    score: np.ndarray  # float64 [K * W]
    merged: np.ndarray  # float64 [K * W]
    total: np.ndarray  # float64 [K * W]
    label: np.ndarray  # int64 [K * W]
    frame: np.ndarray  # int64 [K * W]
    text: np.ndarray  # int64 [K * W], a node, or below -1 a text that is new
    head: np.ndarray  # int64 [K * W], the first candidate that is the same
    best: np.ndarray  # int64 [K * W], of a head: the best of those
    table: np.ndarray  # int64 [2^n], of heads
    lane: BeamArrays  # as `BeamArrays`, of one utterance, B = 1


def scratch_of(width: int, wide: int) -> Scratch:
    """Room for W candidates of each of K hypotheses."""
    num = width * wide
    # A power of two, as `_merge` of the kernels takes it.
    size = 1 << max((2 * num - 1).bit_length(), 2)
    none = np.full((1, width), -np.inf)
    lane = BeamArrays(none, *(np.zeros((1, width), np.int64) for _ in range(4)))
    score, merged, total = np.empty((3, num))
    label, frame, text, head, best = np.empty((5, num), np.int64)
    return Scratch(
        *(score, merged, total, label, frame, text, head, best),
        *(np.full(size, NONE), lane),
    )


def empty_tree(size: int) -> Tree:
    """A tree with room for `size` nodes, a power of two."""
    parent, token, slot, trace_parent = np.full((4, size), NONE, np.int64)
    return Tree(
        *(parent, token, np.zeros(size, np.int64), slot),
        table=np.full(4 * size, NONE, np.int64),
        trace_parent=trace_parent,
        trace_row=np.zeros((size, 3), np.int32),
        used=np.zeros(2, np.int64),
    )


def as_array(part: Tensor) -> np.ndarray:
    """A tensor's numbers in the layout that kernels are compiled for."""
    return np.ascontiguousarray(part.numpy())


_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Rows:
    """Rows of a predictor, with room for more."""

    def __init__(self, g: Tensor, state: Any, size: int | None = None) -> None:
        size = len(g) if size is None else size
        self._g = _wide(g, size)
        self._state = tree_map(lambda part: _wide(part, size), state)
        self._parts = [self._g, *leaves(self._state)]
        self._numbers = [_numbers(part) for part in self._parts]

    def g_at(self, at: np.ndarray) -> Tensor:
        """The rows at int64 [M]."""
        return self._taken(0, at)

    def state_at(self, at: np.ndarray) -> Any:
        """Likewise of the state."""
        place = iter(range(1, len(self._parts)))
        return tree_map(lambda _: self._taken(next(place), at), self._state)

    def put(self, at: np.ndarray | slice, g: Tensor, state: Any, num: int) -> None:
        """Copy the first rows into the arrays of the target, in its dtypes."""
        for to, kept, part in zip(
            self._numbers, self._parts, [g, *leaves(state)], strict=True
        ):
            to[at] = _numbers(part.to(kept.dtype))[:num]

    def widened(self, at: np.ndarray, size: int) -> Rows:
        """Copy selected rows into arrays with room for more."""
        return Rows(self.g_at(at), self.state_at(at), size)

    def _taken(self, place: int, at: np.ndarray) -> Tensor:
        found = torch.from_numpy(self._numbers[place].take(at, 0))
        return found.view(self._parts[place].dtype)


def _wide(part: Tensor, size: int) -> Tensor:
    """A copy with free rows behind."""
    wide = part.new_zeros(size, *part.shape[1:])
    wide[: len(part)] = part
    return wide


def _numbers(part: Tensor) -> np.ndarray:
    """View memory as integers."""
    return part.contiguous().view(_SAME_SIZE[part.element_size()]).numpy()


class Joiner:
    """The model, language models and boosts of a batch."""

    def __init__(self, model: TransducerModel, fusion: Fusion, pricer: Pricer) -> None:
        self._model, self.fusion, self._pricer = model, fusion, pricer
        # Of each type no rows, and `JoinerLogprobs.weights`.
        self._of_type: dict[np.dtype, tuple[np.ndarray, np.ndarray]] = {}
        self.steps = Steps(
            np.array([pricer.blank]),
            pricer.token_steps.numpy(),
            pricer.blank_steps.numpy(),
        )
        self.late, self.num_labels = pricer.late, pricer.num_labels
        self.num_durations = len(model.durations)
        self.longest = max(model.durations, default=1)
        self.zero = NONE if pricer.zero is None else pricer.zero
        self.has_zero_step = not model.durations or pricer.zero is not None

    def predict(self, labels: np.ndarray, state: Any) -> tuple[Tensor, Any]:
        """The predictor one token further; labels int64 [N] of V + 1."""
        tokens = labels - (labels > self._pricer.blank)
        return self._model.predict(torch.from_numpy(tokens), state)

    def prices(
        self, frames: Tensor, g: Tensor, states: list[np.ndarray] | None
    ) -> JoinerLogprobs:
        """Join rows."""
        pricer, blank_lasts = self._pricer, None
        logprobs, lasts = pricer.checked(self._model.join(frames, g))
        if lasts is not None:
            lasts = lasts.to(logprobs.dtype)
            blank_lasts = torch.log_softmax(lasts[:, pricer.takes_time], 1)
        numbers = logprobs.numpy()
        if numbers.dtype not in self._of_type:
            weight, paid = pricer.blank_weight, pricer.options.token_insertion
            weights = np.array([weight, paid, 1 + weight, 1, -np.inf], numbers.dtype)
            self._of_type[numbers.dtype] = NO_ROWS.astype(numbers.dtype), weights
        none, weights = self._of_type[numbers.dtype]
        spoke = none.ravel()
        # Asked for only where fusion weighs blanks: the log-prob of all tokens
        # together.
        if pricer.blank_weight:
            tokens = logprobs.masked_fill(pricer.is_blank, -torch.inf)
            spoke = torch.logsumexp(tokens, 1).numpy()
        gains = self.fusion.rows(states) if self.late and states is not None else None
        return JoinerLogprobs(
            logprobs=np.ascontiguousarray(numbers),
            spoke=spoke,
            gains=NO_ROWS if gains is None else gains,
            lasts=none if lasts is None else np.ascontiguousarray(lasts.numpy()),
            blank_lasts=none if blank_lasts is None else blank_lasts.numpy(),
            weights=weights,
        )
