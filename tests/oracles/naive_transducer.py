"""The oracle for transducers: all alignments of a table over frames and prefixes.

    joint(t, prefix) -> (log-probs of tokens, of the blank, of durations or None)
    totals(joint, num_frames, ...) -> {text: total}      nats, higher is better

A text's total is the sum (or the best) over every sequence of symbols that ends at
the last frame, every symbol fused by itself, and what the text's end is worth. Nothing
is shared, cut or remembered between alignments.
"""

import math
from collections import defaultdict

INF = math.inf


def logsumexp(values):
    best = max(values)
    if best == -INF:
        return best
    return best + math.log(sum(math.exp(v - best) for v in values))


def symbols(joint, t, prefix, *, durations, lm_weight, blank_scored, insertion):
    """All that may come: (token or None, frames, nats without fusion)."""
    tokens, blank, lasts = joint(t, prefix)
    spoke = lm_weight * logsumexp(tokens) if blank_scored and lm_weight else 0.0
    weighed = (1 + lm_weight) * blank if blank_scored else blank
    if not durations:
        yield None, 1, weighed
        for token, lp in enumerate(tokens):
            yield token, 0, lp + spoke - insertion
        return
    moving = logsumexp([lp for d, lp in zip(durations, lasts, strict=True) if d > 0])
    for d, of_d in zip(durations, lasts, strict=True):
        if d > 0:
            yield None, d, weighed + of_d - moving
        for token, lp in enumerate(tokens):
            yield token, d, lp + spoke - insertion + of_d


def alignments(joint, num_frames, gain, **kinds):
    """Yield (text, nats) of every alignment; `gain` is the fusion of one token."""
    stack = [(0, (), 0.0)]
    while stack:
        t, prefix, total = stack.pop()
        if t >= num_frames:
            yield prefix, total
            continue
        for token, d, nats in symbols(joint, t, prefix, **kinds):
            if token is None:
                stack.append((t + d, prefix, total + nats))
            elif nats > -INF:
                more = total + nats + gain(prefix, token)
                stack.append((t + d, (*prefix, token), more))


def totals(
    joint,
    num_frames,
    *,
    durations=(),
    merge="sum",
    costs=(),
    boost=None,
    blank_scored=True,
    insertion=0.0,
):
    """The total of each text; costs: (weight, function of (history, token or None))."""
    lm_weight = max(0.0, sum(weight for weight, _ in costs))

    def gain(prefix, token):
        return -sum(weight * cost(prefix, token) for weight, cost in costs)

    by_text = defaultdict(list)
    kinds = {"durations": durations, "lm_weight": lm_weight}
    kinds |= {"blank_scored": blank_scored, "insertion": insertion}
    for text, nats in alignments(joint, num_frames, gain, **kinds):
        by_text[text].append(nats)
    add = logsumexp if merge == "sum" else max
    found = {}
    for text, nats in by_text.items():
        end = -sum(weight * cost(text, None) for weight, cost in costs)
        found[text] = add(nats) + end - (boost(text) if boost else 0.0)
    return found
