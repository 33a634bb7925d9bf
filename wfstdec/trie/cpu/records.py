"""The arrays that the CPU kernels of the beam search work on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.trie.space import SearchSpace

ENTRY = np.dtype(
    [
        ("cost", "<f4"),
        ("over", "<f4"),
        ("on", "<f4"),
        ("ahead", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("over_trace", "<i4"),
        ("on_trace", "<i4"),
        ("over_end", "<i4"),
        ("text", "<u8"),
        ("over_acoustic", "<f8"),
        ("on_acoustic", "<f8"),
    ]
)
"""An entry of the frontier; the fields of a phase begin with its name."""
CANDIDATE = np.dtype(
    [
        ("cost", "<f4"),
        ("ahead", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("source", "<i4"),
        ("token", "<i4"),
        ("said", "<i4"),
        ("text", "<u8"),
        ("from_on", "?"),
        ("to_on", "?"),
    ]
)
"""A way into a phase of an entry; `token` is -1 where none begins."""
MADE = np.dtype(
    [
        ("cost", "<f4"),
        ("over", "<f4"),
        ("on", "<f4"),
        ("ahead", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("over_way", "<i4"),
        ("on_way", "<i4"),
        ("before", "<i4"),
        ("text", "<u8"),
    ]
)
"""An entry being made: its costs, the best candidate of each phase, and the entry
before it at the same place."""
NODE = np.dtype(
    [
        ("previous", "<i4"),
        ("token", "<i4"),
        ("said", "<i4"),
        ("start", "<i4"),
        ("end", "<i4"),
    ]
)
"""A token in the trace, as `ends.Node`."""

AHEAD = np.dtype([("key", "<u8"), ("cost", "<f4"), ("unused", "<u4")])
"""What is paid in advance in a state (the upper half of the key) at a node."""
AHEAD_BITS = 13
"""So many answers are kept, to the power of two."""

OK, GROW_CANDIDATES, GROW_FRONTIER, GROW_TRACE = range(4)
"""What a kernel returns: done, or which arrays are too small for the next frame."""
FRONTIER, TRACE, FRAMES, DIED, ACTIVE, CANDIDATES, STAMP = range(7)
"""Positions in counts: entries, nodes, frames done, the frame that nothing survived or
-1, sums of entries and of candidates, and the last stamp of the table (in `Work`)."""


class Scales(NamedTuple):
    """`TrieOptions` as the kernels take them."""

    beam: np.float32
    beam_size: int
    token_top_k: int
    sums: bool
    by_text: bool  # whether entries have texts of their own
    nbest: int
    acoustic_scale: np.float32
    lm_scale: np.float32
    word_insertion: np.float32
    token_insertion: np.float32
    blank_penalty: np.float32
    blank_skip_logprob: np.float32  # above 0: never
    begin_credit: np.float32  # what a token that begins may be credited, phrases apart
    inside_credit: np.float32  # the same where no word ends
    word_credit: np.float32  # the same where one does, once its cost is known


class Channel(NamedTuple):
    """What one utterance keeps between frames."""

    frontier: np.ndarray  # ENTRY [beam_size]
    trace: np.ndarray  # NODE [N]
    counts: np.ndarray  # int64 [8]
    base: np.ndarray  # float64 [1]: what re-basing took off


class Work(NamedTuple):
    """Scratch of one thread; its content between frames means nothing."""

    candidates: np.ndarray  # CANDIDATE [C]
    made: np.ndarray  # MADE [C]
    keys: np.ndarray  # uint64 [max(C, V)]
    slots: np.ndarray  # int64 [2 ** n >= 2 C]: stamp and entry
    stack: np.ndarray  # int64 [ordering.STACK]
    counts: np.ndarray  # int64 [8]
    before: np.ndarray  # ENTRY [beam_size]: the frontier that a frame came from
    unscaled: np.ndarray  # float32 [V]
    costs: np.ndarray  # float32 [V]
    near_token: np.ndarray  # int32 [V]: tokens that may begin, before they are ordered
    near: np.ndarray  # float32 [V]: their unscaled costs
    live: np.ndarray  # int32 [V]: the tokens that may begin, least cost first
    begin_costs: np.ndarray  # float32 [V]: the costs of these, inf for others
    down_token: np.ndarray  # int32 [V + 1]: the ways down from a node
    down_node: np.ndarray  # int32 [V + 1]
    ahead: np.ndarray  # AHEAD [2 ** AHEAD_BITS], by the hash of the key; stays true
    word_cost: np.ndarray  # float32 [most words of a node]
    word_state: np.ndarray  # int32 [most words of a node]
    word_phrase: np.ndarray  # float32 [most words of a node]: what phrases say of them
    word_boost: np.ndarray  # int32 [most words of a node]


END = np.dtype(
    [
        ("cost", "<f4"),
        ("trace", "<i4"),
        ("end", "<i4"),
        ("said", "<i4"),
        ("text", "<u8"),
        ("acoustic", "<f8"),
    ]
)
"""A way to end, as `ends.End`."""


class Tree(NamedTuple):
    """A space and what the kernels need besides."""

    space: SearchSpace
    root_child: np.ndarray  # int32 [V]: the root's child by a token, or -1
