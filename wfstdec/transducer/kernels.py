"""Parts of a step on the CPU in numba, as operators that torch can trace and export.

They give what the operations of torch give that other devices run: `pricing` and `beam`
have both. Sums of exponentials may differ in the last bit, since the functions are
others.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wfstdec.jit import jit, kernel

_INF = float("inf")


@torch.library.custom_op("wfstdec::top_labels", mutates_args=(), device_types="cpu")
def cpu_top_labels(scores: Tensor, num: int) -> Tensor:
    """The best labels of each row, int64 [N, num]; of equals the lowest."""
    labels = torch.empty(len(scores), num, dtype=torch.int64)
    _top_labels(scores.contiguous().numpy(), labels.numpy())
    return labels


@cpu_top_labels.register_fake
def _(scores: Tensor, num: int) -> Tensor:
    return scores.new_empty(len(scores), num, dtype=torch.int64)


@kernel
def _top_labels(scores, labels):
    """Insertion into the best so far, lower labels first."""
    num = labels.shape[1]
    for i in range(len(scores)):
        row, best = scores[i], labels[i]
        for label in range(scores.shape[1]):
            if label >= num and not row[label] > row[best[num - 1]]:
                continue
            at = min(label, num - 1)
            while at > 0 and row[label] > row[best[at - 1]]:
                best[at] = best[at - 1]
                at -= 1
            best[at] = label


@torch.library.custom_op("wfstdec::merge_texts", mutates_args=(), device_types="cpu")
def cpu_merge(
    found: list[Tensor], beam: list[Tensor], num_labels: int, is_sum: bool
) -> Tensor:
    """The merged scores of candidates, float64 [B, K, W].

    Args:
        found: Their score, label and frame, [B, K, W] each.
        beam: Score, length and last token [B, K], and shared [B, K, K].
        num_labels: Tokens are below it.
        is_sum: Add up; else the best counts.
    """
    score, label, frame = (part.contiguous().numpy() for part in found)
    live = (beam[0] > -_INF).numpy()
    length, last, shared = (part.contiguous().numpy() for part in beam[1:])
    merged = np.full(score.shape, -_INF)
    for i in range(len(score)):
        _merge(
            *(score[i], label[i], frame[i], live[i], length[i], last[i], shared[i]),
            *(num_labels, is_sum, merged[i]),
        )
    return torch.from_numpy(merged)


@cpu_merge.register_fake
def _(found: list[Tensor], beam: list[Tensor], num_labels: int, is_sum: bool) -> Tensor:
    return torch.empty_like(found[0])


@jit
def _merge(score, label, frame, live, length, last, shared, num_labels, is_sum, merged):
    """One utterance: groups in a table by the exact key, best first, then sums."""
    width, num = score.shape
    first = np.empty(width, np.int64)  # of all hypotheses with this text
    for a in range(width):
        first[a] = a
        for b in range(a):
            same = length[a] == length[b] and shared[a, b] == length[a]
            if same and live[a] and live[b]:
                first[a] = b
                break
    text = np.empty(width, np.int64)  # of hypotheses as they are
    for b in range(width):
        text[b] = (width + first[b]) * num_labels
        for a in range(width):
            longer = length[a] + 1 == length[b] and shared[a, b] == length[a]
            if longer and live[a] and live[b]:
                text[b] = first[a] * num_labels + last[b]
                break
    size = 4
    while size < 2 * width * num:
        size *= 2
    table = np.full(size, -1, np.int64)
    key, group = np.empty(width * num, np.int64), np.full(width * num, -1, np.int64)
    for a in range(width):
        for w in range(num):
            if not score[a, w] > -_INF:
                continue
            said = label[a, w]
            one = text[a] if said < 0 else first[a] * num_labels + said
            one = (one << 32) + frame[a, w]
            i = a * num + w
            key[i] = one
            at = (one ^ (one >> 29)) * 0x9E3779B1 & (size - 1)
            while table[at] >= 0 and key[table[at]] != one:
                at = (at + 1) & (size - 1)
            if table[at] < 0:
                table[at] = i
            group[i] = table[at]
    flat, out = score.ravel(), merged.ravel()
    place, total = np.full(width * num, -1, np.int64), np.zeros(width * num)
    for i in range(width * num):
        head = group[i]
        if head >= 0 and (place[head] < 0 or flat[i] > flat[place[head]]):
            place[head] = i
    for i in range(width * num):
        head = group[i]
        if head >= 0:
            total[head] += np.exp(flat[i] - flat[place[head]])
    for i in range(width * num):
        if place[i] >= 0:
            best = flat[place[i]]
            out[place[i]] = best + np.log(total[i]) if is_sum else best
