"""Parts of a step on the CPU in numba, as operators that torch can trace and export.

They give what the operations of torch give that other devices run: `pricing`, `beam`
and `steps` have those. Sums of exponentials may differ in the last bit, since the
functions are others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, library

from wfstdec.jit import jit, kernel

_INF = float("inf")


@library.custom_op("wfstdec::top_labels", mutates_args=(), device_types="cpu")
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


def cpu_advance(
    choices: Sequence[Tensor],
    beam: Sequence[Tensor],
    is_open: Tensor,
    limit: Tensor,
    *,
    num_labels: int,
    is_sum: bool,
    drops_seen: bool,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Candidates, merged and cut, and the beam of those kept, in one go.

    Args:
        choices: The rows that have any, int64 [N], and their gain, label and step,
            [N, W] each.
        beam: Score, frame, run, length, last [B, K], shared [B, K, K] and rows
            [B * K, U, 3].
        is_open: bool [B, K], those that take a step.
        limit: int64 [B], no frame is beyond it.
        num_labels: Tokens are below it.
        is_sum: Add up; else the best counts.
        drops_seen: Leave out tokens, taking no frame, to texts of open ones.

    Returns:
        The same arrays of the new beam, the parent of each of its rows, int64 [B * K],
        and whether it said a token, bool [B, K].
    """
    num, width = is_open.shape
    old = tuple(part.contiguous().numpy() for part in beam)
    new = tuple(np.empty_like(part) for part in old)
    parent = np.empty((num, width), np.int64)
    spoke = np.empty((num, width), np.bool_)
    given = tuple(part.contiguous().numpy() for part in choices)
    _advance(
        *(given, old, is_open.contiguous().numpy(), limit.numpy()),
        *(num_labels, is_sum, drops_seen, new, parent, spoke),
    )
    tensors = [torch.from_numpy(part) for part in new]
    return tensors, torch.from_numpy(parent).flatten(), torch.from_numpy(spoke)


@jit
def _advance(
    choices, old, is_open, limit, num_labels, is_sum, drops_seen, new, parent, spoke
):
    """All utterances, one after the other; `choices` stand in their order."""
    picked, gain, label, step = choices
    score, frame, run, length, last, shared, rows = old
    num, width = is_open.shape
    wide = gain.shape[1]
    found, merged = np.empty((width, wide)), np.empty((width, wide))
    said = np.empty((width, wide), np.int64)
    there = np.empty((width, wide), np.int64)
    at = 0
    for b in range(num):
        live = score[b] > -_INF
        for k in range(width):
            found[k], said[k], there[k] = -_INF, -1, frame[b, k]
            if not is_open[b, k]:
                found[k, 0] = score[b, k]
                continue
            while picked[at] < b * width + k:
                at += 1
            for w in range(wide):
                found[k, w] = score[b, k] + gain[at, w]
                said[k, w] = label[at, w]
                there[k, w] = min(frame[b, k] + step[at, w], limit[b])
        if drops_seen:
            _drop_seen(
                *(found, said, there, live, is_open[b], length[b], last[b]),
                *(shared[b], frame[b]),
            )
        if width * wide > 1:  # one hypothesis may have equal ways on too
            merged[:] = -_INF
            _merge(
                *(found, said, there, live, length[b], last[b], shared[b]),
                *(num_labels, is_sum, merged),
            )
        else:
            merged[:] = found
        _keep_best(merged, said, there, parent[b], spoke[b], new[0][b], new[4][b])
        for k in range(width):
            choice, spoken = new[4][b, k], spoke[b, k]
            a, w = parent[b, k], choice % wide
            new[1][b, k] = there[a, w]
            new[2][b, k] = 0 if there[a, w] > frame[b, a] else run[b, a] + spoken
            new[3][b, k] = length[b, a] + spoken
            new[4][b, k] = said[a, w] if spoken else last[b, a]
            count = length[b, a]
            new[6][b * width + k, :count] = rows[b * width + a, :count]
            if spoken:
                new[6][b * width + k, count, 0] = said[a, w]
                new[6][b * width + k, count, 1] = frame[b, a]
                new[6][b * width + k, count, 2] = max(there[a, w], frame[b, a] + 1)
        for k in range(width):
            for j in range(width):
                both = shared[b, parent[b, k], parent[b, j]]
                if both < min(new[3][b, k], new[3][b, j]):
                    one, other = new[6][b * width + k], new[6][b * width + j]
                    both += one[both, 0] == other[both, 0]
                new[5][b, k, j] = both
        parent[b] += b * width


@jit
def _drop_seen(found, said, there, live, is_open, length, last, shared, frame):
    """Leave out tokens, taking no frame, to texts that the prefix search saw."""
    for a in range(len(live)):
        for b in range(len(live)):
            longer = length[a] + 1 == length[b] and shared[a, b] == length[a]
            if longer and live[a] and live[b] and is_open[a] and is_open[b]:
                for w in range(found.shape[1]):
                    if said[a, w] == last[b] and there[a, w] == frame[a]:
                        found[a, w] = -_INF


@jit
def _keep_best(merged, said, there, parent, spoke, score, choice):
    """The K best, of equal ones the first; `choice` is a flat position."""
    flat = merged.ravel()
    taken = np.zeros(len(flat), np.bool_)
    wide = merged.shape[1]
    for k in range(len(parent)):
        best = -1
        for i in range(len(flat)):
            if not taken[i] and (best < 0 or flat[i] > flat[best]):
                best = i
        taken[best] = True
        choice[k], score[k] = best, flat[best]
        parent[k] = best // wide
        spoke[k] = said[parent[k], best % wide] >= 0
