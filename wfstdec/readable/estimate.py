"""N-gram models of words and events in a row, small: discounted, interpolated, pruned.

    model = estimate(symbols, labels, order=4, most=400_000)     # an ArpaModel

Counts are plain at all orders, not Kneser-Ney's: pruning relies on the lower orders'
probabilities. p(w | h) = (c(h w) - D) / c(h) + backoff(h) p(w | h'), with a discount
for counts of 1, 2 and more. N-grams are dropped whose count times their log-ratio to
backing off is least.
"""

from collections.abc import Sequence

import numpy as np

from wfstdec.text.arpa import ArpaModel, NgramTable

_BITS = 16
_IMPOSSIBLE = 99.0


def estimate(
    symbols: np.ndarray, labels: Sequence[str], *, order: int, most: int
) -> ArpaModel:
    """Estimate a model of `symbols`, int [N], positions in `labels`.

    At most `most` n-grams of two and more symbols stay.
    """
    keys, counts = _counted(symbols, order)
    probs, backoffs = _discounted(keys, counts, len(labels))
    kept = _pruned(keys, counts, probs, backoffs, most)
    tables = []
    for n in range(order):
        rows = keys[n][kept[n]]
        shifts = np.arange(n, -1, -1, dtype=np.uint64) * np.uint64(_BITS)
        words = (rows[:, None] >> shifts & np.uint64((1 << _BITS) - 1)).astype(np.int32)
        cost = -np.log(probs[n][kept[n]])
        backoff = np.zeros(len(rows))
        if n + 1 < order:
            backoff = -np.log(_rest(keys, probs, kept, n)[kept[n]])
        tables.append(NgramTable(words, cost, backoff))
    words = (*labels, "<s>", "</s>")
    return ArpaModel(words, _with_all_unigrams(tables, len(words)))


def _counted(
    symbols: np.ndarray, order: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Keys of all n-grams, sorted, and counts; the last symbol is in the low bits."""
    keys, counts = [], []
    key = wide = symbols.astype(np.uint64)
    for n in range(order):
        if n:
            key = (key[:-1] << np.uint64(_BITS)) | wide[n:]
        distinct, count = np.unique(key, return_counts=True)
        keys.append(distinct)
        counts.append(count.astype(np.float64))
    return keys, counts


def _discounted(
    keys: list[np.ndarray], counts: list[np.ndarray], num_labels: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Probabilities of all n-grams; weights of backing off from their histories."""
    probs, backoffs = [], []
    for n, (key, count) in enumerate(zip(keys, counts, strict=True)):
        ones, twos, threes, fours = (max(1, (count == k).sum()) for k in (1, 2, 3, 4))
        scale = ones / (ones + 2 * twos)
        by_count = [1 - 2 * scale * twos / ones, 2 - 3 * scale * threes / twos]
        by_count.append(3 - 4 * scale * fours / threes)
        discount = np.clip(by_count, 0.1, 0.95 * np.array([1, 2, 3]))[
            np.minimum(count, 3).astype(int) - 1
        ]
        if n == 0:
            total = count.sum()
            rest = discount.sum() / total
            probs.append((count - discount) / total + rest / num_labels)
            continue
        history = np.searchsorted(keys[n - 1], key >> np.uint64(_BITS))
        size = len(keys[n - 1])
        total = np.bincount(history, count, size)
        backoff = np.bincount(history, discount, size) / np.maximum(total, 1)
        suffix = _suffix(keys, n, key)
        probs.append(
            (count - discount) / total[history]
            + backoff[history] * probs[n - 1][suffix]
        )
        backoffs.append(np.where(total > 0, backoff, 1.0))
    return probs, backoffs


def _suffix(keys: list[np.ndarray], n: int, key: np.ndarray) -> np.ndarray:
    """Positions of n-grams without their first symbol."""
    mask = (np.uint64(1) << np.uint64(_BITS * n)) - np.uint64(1)
    return np.searchsorted(keys[n - 1], key & mask)


def _pruned(
    keys: list[np.ndarray],
    counts: list[np.ndarray],
    probs: list[np.ndarray],
    backoffs: list[np.ndarray],
    most: int,
) -> list[np.ndarray]:
    """Which n-grams stay, bool for each order."""
    gains = []
    for n in range(1, len(keys)):
        key = keys[n]
        history = np.searchsorted(keys[n - 1], key >> np.uint64(_BITS))
        below = backoffs[n - 1][history] * probs[n - 1][_suffix(keys, n, key)]
        gains.append(counts[n] * np.log(probs[n] / below))
    every = np.concatenate(gains)
    cut = -np.inf if len(every) <= most else np.partition(every, -most)[-most]
    kept = [np.ones(len(keys[0]), bool), *(gain >= cut for gain in gains)]
    for n in range(len(keys) - 1, 0, -1):  # histories and suffixes of longer ones
        rows = keys[n][kept[n]]
        kept[n - 1][np.searchsorted(keys[n - 1], rows >> np.uint64(_BITS))] = True
        kept[n - 1][_suffix(keys, n, rows)] = True
    return kept


def _rest(
    keys: list[np.ndarray], probs: list[np.ndarray], kept: list[np.ndarray], n: int
) -> np.ndarray:
    """Weights of backing off from n-grams of order n + 1, by which rows sum to 1."""
    rows = keys[n + 1][kept[n + 1]]
    history = np.searchsorted(keys[n], rows >> np.uint64(_BITS))
    size = len(keys[n])
    above = np.bincount(history, probs[n + 1][kept[n + 1]], size)
    below = np.bincount(history, probs[n][_suffix(keys, n + 1, rows)], size)
    return np.maximum(1 - above, 1e-6) / np.maximum(1 - below, 1e-6)


def _with_all_unigrams(
    tables: list[NgramTable], num_labels: int
) -> tuple[NgramTable, ...]:
    """A unigram for each label, in order; those not seen are next to impossible."""
    first = tables[0]
    cost, backoff = np.full(num_labels, _IMPOSSIBLE), np.zeros(num_labels)
    cost[first.words[:, 0]] = first.cost
    backoff[first.words[:, 0]] = first.backoff
    words = np.arange(num_labels, dtype=np.int32)[:, None]
    return NgramTable(words, cost, backoff), *tables[1:]
