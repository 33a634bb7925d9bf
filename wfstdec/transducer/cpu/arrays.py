"""Arrays of the searches on a CPU, as kernels take them.

A text is a node of a tree, found by its parent and its last token: two hypotheses say
the same if and only if their nodes are one. A trace is a node of another: a token, its
frame and the frame after; texts that come about in several ways have several. Both
begin with a root for each utterance, its text so far unsaid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

NONE = -1
"""No node, no slot, no token: the blank."""


class Lanes(NamedTuple):
    """K hypotheses of each of B utterances; a dead one has the score -inf.

    Attributes:
        score: float64 [B, K], nats, higher is better.
        frame: int64 [B, K], t: the next frame.
        run: int64 [B, K], tokens since the frame last moved.
        text: int64 [B, K], a node of the tree of texts.
        trace: int64 [B, K], a node of the tree of traces.
    """

    score: np.ndarray
    frame: np.ndarray
    run: np.ndarray
    text: np.ndarray
    trace: np.ndarray


class Tree(NamedTuple):
    """Texts and traces; parents stand before their children.

    Attributes:
        parent: int64 [N], -1 of a root.
        token: int64 [N], the last token of a text.
        depth: int64 [N], how many tokens it has.
        slot: int64 [N], where the predictor's output for it is kept, -1 if it is not.
        table: int64 [M], hash table of nodes by parent and token, -1 where free.
        trace_parent: int64 [N].
        trace_row: int32 [N, 3], token, frame, frame after.
        used: int64 [2], nodes and traces so far.
    """

    parent: np.ndarray
    token: np.ndarray
    depth: np.ndarray
    slot: np.ndarray
    table: np.ndarray
    trace_parent: np.ndarray
    trace_row: np.ndarray
    used: np.ndarray


class Reach(NamedTuple):
    """How far frames have come.

    Attributes:
        first: int64 [B], the number of the first frame at hand.
        come: int64 [B], how many there were.
        is_ended: bool [B], no more will come.
        at: int64 [B], of AES++: the frame that is expanded.
    """

    first: np.ndarray
    come: np.ndarray
    is_ended: np.ndarray
    at: np.ndarray


class Prices(NamedTuple):
    """Log-probs of the joiner for N rows; absent parts have no rows; dtype T.

    Attributes:
        logprobs: T [N, V + 1].
        spoke: T [N], logsumexp of the tokens, where blanks are scored.
        gains: float32 [N, V + 1], of late fusion.
        lasts: T [N, D], of durations.
        blank_lasts: T [N, E], of those that a blank may have, normalised again.
        weights: T [5], L of scored blanks, token insertion, 1 + L, 1, -inf.
    """

    logprobs: np.ndarray
    spoke: np.ndarray
    gains: np.ndarray
    lasts: np.ndarray
    blank_lasts: np.ndarray
    weights: np.ndarray


class Steps(NamedTuple):
    """Symbols that may be taken, and how far they go.

    Attributes:
        blank: int64 [1], the blank's column.
        of_token: int64 [D], frames by the position of a duration.
        of_blank: int64 [E].
    """

    blank: np.ndarray
    of_token: np.ndarray
    of_blank: np.ndarray


class Choices(NamedTuple):
    """W symbols for each of N hypotheses; those of the blank come first.

    Attributes:
        gain: float64 [N, W], -inf where there is none.
        label: int64 [N, W], a token, or -1 for the blank.
        step: int64 [N, W], frames.
        value: float64 [W], scratch.
        order: int64 [W, 2], scratch.
    """

    gain: np.ndarray
    label: np.ndarray
    step: np.ndarray
    value: np.ndarray
    order: np.ndarray


class Scratch(NamedTuple):
    """Room for the candidates of an utterance, K x W, and for its new hypotheses.

    Attributes:
        score: float64 [K * W].
        merged: float64 [K * W].
        total: float64 [K * W].
        label: int64 [K * W].
        frame: int64 [K * W].
        text: int64 [K * W], a node, or below -1 a text that is new.
        head: int64 [K * W], the first candidate that is the same.
        best: int64 [K * W], of a head: the best of those.
        table: int64 [2^n], of heads.
        lane: as `Lanes`, of one utterance, B = 1.
    """

    score: np.ndarray
    merged: np.ndarray
    total: np.ndarray
    label: np.ndarray
    frame: np.ndarray
    text: np.ndarray
    head: np.ndarray
    best: np.ndarray
    table: np.ndarray
    lane: Lanes


def scratch_of(width: int, wide: int) -> Scratch:
    """Room for W candidates of each of K hypotheses."""
    num = width * wide
    # A power of two, as `_merge` of the kernels takes it.
    size = 1 << max((2 * num - 1).bit_length(), 2)
    none = np.full((1, width), -np.inf)
    lane = Lanes(none, *(np.zeros((1, width), np.int64) for _ in range(4)))
    score, merged, total = np.empty((3, num))
    label, frame, text, head, best = np.empty((5, num), np.int64)
    return Scratch(
        *(score, merged, total, label, frame, text, head, best),
        *(np.full(size, NONE), lane),
    )


def empty_tree(size: int) -> Tree:
    """A tree with room for so many nodes, a power of two."""
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
