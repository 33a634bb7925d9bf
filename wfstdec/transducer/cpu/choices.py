"""Kernels that price symbols and choose those that may follow; as `Pricer` does.

choose(prices, steps, STEP, ...)              # the best tokens, and the blank
total(prices, row, label)                     # what a token gains
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import inlined, kernel

NONE = -1
STEP, EXPAND, CLOSE = 0, 1, 2
"""Kinds of choices: of ALSD++, of AES++, and the blank alone."""
_INF = np.inf


@inlined
def own(prices, i, label):
    """Gain of a token but for fusion and its duration."""
    found = prices.logprobs[i, label]
    if len(prices.spoke):
        found = found + prices.weights[0] * prices.spoke[i]
    if prices.weights[1] != 0:
        found = found - prices.weights[1]
    return found


@inlined
def total(prices, i, label):
    """Gain of a token with late fusion, its duration left out."""
    found = own(prices, i, label)
    if len(prices.gains):
        found = found + prices.gains[i, label]
    return found


@inlined
def blank_gain(prices, i, e, blank, weight):
    """Gain of a blank with its duration number e."""
    found = weight * prices.logprobs[i, blank]
    if len(prices.blank_lasts):
        found = found + prices.blank_lasts[i, e]
    return found


@inlined
def best_blank(prices, i, steps):
    """A blank's gain with its best duration, and the number of that."""
    best, most = 0, blank_gain(prices, i, 0, steps.blank[0], prices.weights[2])
    for e in range(1, len(steps.of_blank)):
        gain = blank_gain(prices, i, e, steps.blank[0], prices.weights[2])
        if gain > most:
            best, most = e, gain
    return most, best


@inlined
def is_good(prices, i):
    """Tell whether no log-prob of a row is NaN or +inf."""
    for label in range(prices.logprobs.shape[1]):
        if not prices.logprobs[i, label] < _INF:
            return False
    for d in range(prices.lasts.shape[1]):
        if not prices.lasts[i, d] < _INF:
            return False
    return True


@kernel
def choose(prices, steps, kind, late, num, limits, runs, found, bad):
    """Choose the symbols that may follow each row, as `Pricer` does.

    Args:
        prices: Of N rows or more.
        steps: What symbols are.
        kind: `STEP`, `EXPAND` or `CLOSE`.
        late: Tokens are chosen by all that they gain, else by the model alone; what
            fusion gives is then still to be added.
        num: Tokens of each.
        limits: float64 [3], gamma and labels of AES++, most tokens in a frame.
        runs: int64 [N], tokens in this frame so far.
        found: Written.
        bad: bool [N], written: NaN or +inf is among the row.
    """
    blank, ways = steps.blank[0], len(steps.of_blank)
    lasting = prices.lasts.shape[1]
    value, order = found.value, found.order
    for i in range(len(runs)):
        bad[i] = not is_good(prices, i)
        if kind == CLOSE:
            found.gain[i, 0], best = best_blank(prices, i, steps)
            found.label[i, 0], found.step[i, 0] = NONE, steps.of_blank[best]
            continue
        # The best tokens, of equal ones the lower first.
        most, count = min(num, prices.logprobs.shape[1] - 1), 0
        for label in range(prices.logprobs.shape[1]):
            if label == blank:
                continue
            one = np.float64(
                total(prices, i, label) if late else prices.logprobs[i, label]
            )
            if count == most and not one > value[count - 1]:
                continue
            at = min(count, most - 1)
            count = min(count + 1, most)
            while at > 0 and one > value[at - 1]:
                value[at], order[at, 0] = value[at - 1], order[at - 1, 0]
                at -= 1
            value[at], order[at, 0] = one, label
        # With durations the best pairs of these, of equal ones the first.
        gain, label, step = found.gain[i], found.label[i], found.step[i]
        wide = len(gain) - ways
        if lasting:
            filled = 0
            for r in range(count):
                for d in range(lasting):
                    one = value[r] + np.float64(prices.lasts[i, d])
                    if filled == wide and not one > gain[ways + filled - 1]:
                        continue
                    at = min(filled, wide - 1)
                    filled = min(filled + 1, wide)
                    while at > 0 and one > gain[ways + at - 1]:
                        gain[ways + at] = gain[ways + at - 1]
                        label[ways + at] = label[ways + at - 1]
                        step[ways + at] = step[ways + at - 1]
                        at -= 1
                    gain[ways + at], label[ways + at] = one, order[r, 0]
                    step[ways + at] = d
        else:
            for r in range(wide):
                gain[ways + r], label[ways + r] = value[r], order[r, 0]
                step[ways + r] = 0
        for e in range(ways):
            label[e], step[e] = NONE, steps.of_blank[e]
            gain[e] = blank_gain(prices, i, e, blank, prices.weights[2])
        forced = runs[i] >= limits[2]
        if kind == EXPAND:
            # Those far below the best, and those behind so many others, are left out.
            highest = -_INF
            for w in range(len(gain)):
                value[w] = gain[w]
                if w < ways and not late:
                    value[w] = blank_gain(prices, i, w, blank, prices.weights[3])
                if w >= ways and forced:
                    value[w] = -_INF
                highest = max(highest, value[w])
            for w in range(len(gain)):
                rank = 0
                for other in range(len(gain)):
                    if value[other] > value[w] or (
                        value[other] == value[w] and other < w
                    ):
                        rank += 1
                order[w, 1] = rank < limits[1] and value[w] > highest - limits[0]
        for w in range(ways, len(gain)):
            d = step[w]
            step[w] = steps.of_token[d]
            if not late and gain[w] > -_INF:
                gain[w] = np.float64(own(prices, i, label[w]))
                if lasting:
                    gain[w] = gain[w] + np.float64(prices.lasts[i, d])
            if forced:
                gain[w] = -_INF
        if kind == EXPAND:
            for w in range(len(gain)):
                if not order[w, 1]:
                    gain[w] = -_INF
