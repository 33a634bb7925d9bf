"""The best tokens of rows, and of beams: exact, with ties by parent and token.

labels, gains = best_labels(fused, count)          # of each row
select(splits, scores, labels, gains, eos, used, chosen)        # of each utterance
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import kernel

_LEAST = np.float32(-np.inf)


class Chosen(NamedTuple):
    """Choice of what goes on of B beams; K places each, the first ones taken.

    Attributes:
        parent: int64 [B, K], rows that go on, best first.
        label: int64 [B, K], by which token.
        total: float64 [B, K].
        num: int64 [B], how many go on.
        end_parent: int64 [B, K], rows that end, best first.
        end_total: float64 [B, K], the end included.
        num_ends: int64 [B].
    """

    parent: np.ndarray
    label: np.ndarray
    total: np.ndarray
    num: np.ndarray
    end_parent: np.ndarray
    end_total: np.ndarray
    num_ends: np.ndarray


def no_choice(num: int, width: int) -> Chosen:
    """Room for B beams of K."""
    parent, label, end_parent = np.zeros((3, num, width), np.int64)
    total, end_total = np.full((2, num, width), -np.inf)
    going, ending = np.zeros((2, num), np.int64)
    return Chosen(parent, label, total, going, end_parent, end_total, ending)


@kernel
def best_labels(fused, labels, gains):
    """Fill in the best labels of each row, best first; of equal ones the lower.

    Args:
        fused: float32 [N, V].
        labels: int64 [N, M].
        gains: float32 [N, M]; -inf where there is none.
    """
    width = labels.shape[1]
    for i in range(len(fused)):
        gains[i] = _LEAST
        labels[i] = 0
        worst = _LEAST
        for label in range(fused.shape[1]):
            gain = fused[i, label]
            if gain > worst:  # an equal one behind it stays out: the lower counts
                place = width - 1
                while place > 0 and gains[i, place - 1] < gain:
                    gains[i, place] = gains[i, place - 1]
                    labels[i, place] = labels[i, place - 1]
                    place -= 1
                gains[i, place], labels[i, place] = gain, label
                worst = gains[i, width - 1]


@kernel
def select(splits, scores, labels, gains, eos, used, chosen):
    """Choose what ends and what goes on, of each utterance.

    Of all that may follow in the order of totals: ends among the first K are taken,
    and the first K that are no ends. Of equal ones the lower row counts, then the
    lower token.

    Args:
        splits: int64 [B + 1], the rows of each utterance.
        scores: float64 [N].
        labels: int64 [N, M], best first.
        gains: float32 [N, M].
        eos: The end.
        used: int64 [N], zeros; counts the labels of each row that were looked at.
        chosen: `Chosen`, to be filled.
    """
    width = chosen.parent.shape[1]
    for one in range(len(splits) - 1):
        seen = going = ending = 0
        # A merge of sorted lists: each row's labels are in order, so that the next best
        # is at the head of one of them.
        while going < width:
            best, total = -1, -np.inf
            for row in range(splits[one], splits[one + 1]):
                if used[row] < labels.shape[1]:
                    ahead = scores[row] + np.float64(gains[row, used[row]])
                    if ahead > total:
                        best, total = row, ahead
            if best < 0:
                break
            label = labels[best, used[best]]
            used[best] += 1
            if label != eos:
                chosen.parent[one, going], chosen.label[one, going] = best, label
                chosen.total[one, going] = total
                going += 1
            # An end among the first K of all that may follow; a later one is worse than
            # K others.
            elif seen < width:
                chosen.end_parent[one, ending] = best
                chosen.end_total[one, ending] = total
                ending += 1
            seen += 1
        chosen.num[one], chosen.num_ends[one] = going, ending
