"""States where a boosted word, or a phrase of words, may begin: a bit for each.

    index = WordStates(graph)                  # once per graph
    hot, mask = index.bits(words)              # once per list
    hot[(state & mask) >> 6] >> (state & 63)   # at every entry of every frame

In the other states a search goes on as if nothing was boosted. There may be fewer bits
than states, which then share them: a state too many costs time and changes nothing.
"""

from __future__ import annotations

import numpy as np

from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit, read_only
from wfstdec.text.symbols import EPSILON

MIN_BITS = 1 << 12
BITS_PER_ARC = 32
"""So many bits for each arc with a listed word, up to one for each state."""


class WordStates:
    """The states that arcs with each word leave.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: PackedGraph) -> None:
        self._num_states = graph.num_states
        self._splits, self._states = _index(
            graph.arcs["olabel"], graph.state_arc_splits, len(graph.words)
        )

    def bits(self, words: np.ndarray) -> tuple[np.ndarray, np.uint64]:
        """The states with arcs that have any of some words.

        Args:
            words: int64 [N], word ids.

        Returns:
            uint64 [bits / 64], and the number of bits, a power of two, less 1.
        """
        num_arcs = int((self._splits[words + 1] - self._splits[words]).sum())
        wanted = min(max(BITS_PER_ARC * num_arcs, MIN_BITS), self._num_states)
        num_bits = 1 << max(6, (wanted - 1).bit_length())
        bits = np.zeros(num_bits // 64, np.uint64)
        mask = np.uint64(num_bits - 1)
        _set_bits(bits, mask, words, self._splits, self._states)
        return read_only(bits), mask


@jit
def _index(olabel, state_arc_splits, num_words):
    """The states by word: splits int64 [W + 1], uint32 [arcs with words]."""
    splits = np.zeros(num_words + 1, np.int64)
    for a in range(len(olabel)):
        if olabel[a] != EPSILON:
            splits[np.int64(olabel[a]) + 1] += 1
    for word in range(num_words):
        splits[word + 1] += splits[word]
    at = splits[:-1].copy()
    states = np.empty(splits[-1], np.uint32)
    for state in range(len(state_arc_splits) - 1):
        for a in range(state_arc_splits[state], state_arc_splits[state + 1]):
            word = np.int64(olabel[a])
            if word != EPSILON:
                states[at[word]] = state
                at[word] += 1
    return splits, states


@jit
def _set_bits(bits, mask, words, splits, states):
    """Set the bit of each state that an arc with one of the words leaves."""
    for word in words:
        for at in range(splits[word], splits[word + 1]):
            bit = np.uint64(states[at]) & mask
            one = np.uint64(1) << (bit & np.uint64(63))
            bits[bit >> np.uint64(6)] |= one
