"""Flashlight's trie: spellings, and the best first word below each node.

trie, node_score = score_trie(entries, first_scores)
arc_kinds(trie), arc_gains(trie, word_gain, unk_gain)          # for the kernels
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from wfstdec.adapters.torchaudio.records import ENDS, GOES_ON
from wfstdec.jit import jit
from wfstdec.trie.lexicon_trie import LexiconTrie, parents_of, trie_of


def score_trie(
    entries: Sequence[tuple[tuple[int, ...], int, str]],
    first_scores: Mapping[int, float],
) -> tuple[LexiconTrie, np.ndarray]:
    """Make the trie of spellings, "smeared" with the scores of words.

    Words that are spelt alike count together at their node, as natural logarithms
    (flashlight adds up log10 as if they were).

    Args:
        entries: Tokens, word and its name; sorted. One that comes twice counts twice.
        first_scores: The score of each word as the first one.

    Returns:
        The trie, and float32 [N], what may be hoped for below each node.
    """
    trie = trie_of([(spelt, word, 0.0) for spelt, word, _ in entries])
    scores = np.array([first_scores[word] for _, word, _ in entries], np.float32)
    node_score = _smear(trie.node_pron_splits, parents_of(trie), scores)
    return trie, node_score


def arc_gains(trie: LexiconTrie, word_gain: np.ndarray, unk_gain: float) -> np.ndarray:
    """The most that a word may add at the child of each arc, float64 [N - 1].

    Args:
        trie: The lexicon.
        word_gain: float64 [W], of each word.
        unk_gain: Of an unknown word, which may end where no other does.
    """
    prons = np.diff(trie.node_pron_splits)
    gains = np.where(prons > 0, -np.inf, unk_gain)
    nodes = np.repeat(np.arange(trie.num_nodes), prons)
    np.maximum.at(gains, nodes, word_gain[trie.pron_word])
    return gains[trie.child_node]


def arc_kinds(trie: LexiconTrie) -> np.ndarray:
    """What the child of each arc is for, `GOES_ON` and `ENDS`, uint8 [N - 1]."""
    goes_on = np.diff(trie.node_child_splits)[trie.child_node] > 0
    ends = np.diff(trie.node_pron_splits)[trie.child_node] > 0
    return (GOES_ON * goes_on + ENDS * ends).astype(np.uint8)


@jit
def _smear(pron_splits, parent, scores):
    """The scores of the words at each node, and of the best node below."""
    best = np.full(len(parent), -np.inf, np.float32)
    for node in range(len(parent)):
        for pron in range(pron_splits[node], pron_splits[node + 1]):
            low = float(min(best[node], scores[pron]))
            high = float(max(best[node], scores[pron]))
            if low > -np.inf:
                high += math.log1p(math.exp(low - high))
            best[node] = high
    for node in range(len(parent) - 1, 0, -1):
        best[parent[node]] = max(best[parent[node]], best[node])
    return best
