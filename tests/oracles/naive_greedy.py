"""The oracle of greedy decoding: the two-stage rule over strings, models asked naively.

    case = random_case(np.random.default_rng(17))
    answer = solve(case)             # None where a choice is too close for float32

A label is chosen for every frame; the tokens are what is left of the labels when equal
neighbours are merged and blanks dropped. Costs are those of whole texts.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import naive_cases
import naive_lm
import numpy as np
from naive_phrases import Phrases, minimal

TOO_CLOSE = 1e-4
BOS, EOS, UNK = naive_lm.BOS, naive_lm.EOS, naive_lm.UNK


@dataclass(frozen=True)
class Case:
    """Input: names of tokens, ARPA text or None, phrases of token names."""

    tokens: Sequence[str]
    blank: str
    logprobs: np.ndarray
    arpa: str | None = None
    unk_cost: float | None = None
    phrases: Phrases | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Answer(NamedTuple):
    """Tokens with first frame and one behind the last; costs, unscaled."""

    tokens: list[tuple[str, int, int]]
    acoustic: float
    graph: float
    boost: float
    died_at: int | None


def solve(case):
    """Follow the rule frame by frame; None where the two best choices nearly tie."""
    penalty = np.float32(case.options.get("blank_penalty", 0))
    x = case.logprobs.copy()
    x[:, case.tokens.index(case.blank)] -= penalty
    models = Models(case)
    labels: list[str] = []
    last = case.blank
    for row in x:
        of = dict(zip(case.tokens, row, strict=True))
        best = max(case.tokens, key=lambda name: of[name])  # the first of equal ones
        label = labels[-1] if labels else case.blank
        if of[best] == -math.inf:
            break
        if best == case.blank:
            label = case.blank
        elif not (best == label or (best == last and of[label] > -math.inf)):
            rivals = {v: models.cost(texts(labels, case.blank), v, of) for v in of}
            rivals = {v: c for v, c in rivals.items() if v != label and c < math.inf}
            ranked = sorted(rivals, key=lambda v: rivals[v])
            if not ranked:
                break
            two = [rivals[v] for v in ranked[:2]]
            if len(two) == 2 and two[1] - two[0] < TOO_CLOSE:
                return None
            label = ranked[0]
        last = best
        labels.append(label)
    chosen = [case.tokens.index(label) for label in labels]
    acoustic = -sum(float(x[frame, v]) for frame, v in enumerate(chosen))
    died_at = len(labels) if len(labels) < len(x) else None
    text = texts(labels, case.blank)
    graph = models.graph(text, ended=died_at is None)
    return Answer(
        runs(labels, case.blank), acoustic, graph, models.boost(text), died_at
    )


def runs(labels, blank):
    """Equal neighbours merged, blanks dropped."""
    found, start = [], 0
    for name, run in itertools.groupby(labels):
        end = start + len(list(run))
        if name != blank:
            found.append((name, start, end))
        start = end
    return found


def texts(labels, blank):
    return tuple(name for name, _, _ in runs(labels, blank))


class Models:
    def __init__(self, case):
        self._case = case
        self._lm = naive_lm.parse_arpa(case.arpa) if case.arpa else None
        if self._lm is not None:
            unk_cost = case.unk_cost
            self._maps = unk_cost is None and (UNK,) in self._lm.cost
            self._word_cost = naive_lm.exact_word_coster(self._lm, unk_cost)
        if case.phrases is not None:
            self._phrase_cost = case.phrases.coster((), None)

    def cost(self, text, token, of):
        """Cost by which a token begins after a text, or does not."""
        options = self._case.options
        scale = options.get("acoustic_scale", 1)
        if token == self._case.blank or of[token] == -math.inf:
            return math.inf
        lm = self._next((BOS, *text), token)
        if lm == math.inf:
            return lm
        boost = self._paid((*text, token)) - self._paid(text)
        return options.get("lm_scale", 1) * lm + boost - scale * float(of[token])

    def graph(self, text, *, ended):
        full = (BOS, *text, EOS) if ended else (BOS, *text)
        return sum(self._next(full[:i], full[i]) for i in range(1, len(full)))

    def boost(self, text):
        return 0.0 if self._case.phrases is None else self._phrase_cost(text, ())

    def _next(self, history, word):
        if self._lm is None:
            return 0.0
        if self._maps:
            known = [w if (w,) in self._lm.cost else UNK for w in (*history, word)]
            *past, word = known
            history = tuple(past)
        return self._word_cost(history, word)

    def _paid(self, text):
        """Cost of phrases so far: whole ones, and the credit of one begun."""
        phrases = self._case.phrases
        if phrases is None:
            return 0.0
        amounts: dict[tuple[str, ...], float] = {}
        for phrase, weight in phrases.weights.items():
            for spelling in minimal({tuple(phrase.split())}):
                worth = phrases.worth(weight, len(spelling))
                amounts[spelling] = amounts.get(spelling, 0.0) + worth
        ends = [text[i:] for i in range(len(text) + 1)]
        prefixes = {s[:n] for s in amounts for n in range(len(s))} | {()}
        begun = next(end for end in ends if end in prefixes)
        rates = [
            amount / phrases.worth(1.0, len(s))
            for s, amount in amounts.items()
            if s[: len(begun)] == begun and s != begun
        ]
        credit = max([0.0, *rates]) * (phrases.worth(1.0, len(begun)) if begun else 0.0)
        return self._phrase_cost(text, ()) - credit


def random_case(rng, *, ties=False):
    num_tokens = int(rng.integers(2, 6))
    tokens, blank, _, letters = naive_cases.random_tokens(rng, num_tokens, "none")
    num_frames = int(rng.integers(0, 12))
    hint = np.repeat(rng.integers(0, num_tokens, 12), rng.integers(1, 4, 12))
    hint = hint[:num_frames].tolist() if rng.random() < 0.5 else None
    x = naive_cases.random_logprobs(rng, num_frames, num_tokens, ties=ties, hint=hint)
    options = naive_cases.random_options(rng)
    del options["word_insertion"], options["blank_skip_threshold"]
    options["token_insertion"] = float(rng.choice([0, 0, 0.75, -0.5]))
    arpa = unk_cost = phrases = None
    if rng.random() < 0.8:
        arpa, _ = naive_cases.random_arpa(rng, letters, ties=ties)
        unk_cost = float(rng.choice([0.5, 4.0])) if rng.random() < 0.5 else None
    if rng.random() < 0.6:
        phrases = _random_phrases(rng, letters)
    return Case(tokens, blank, x, arpa, unk_cost, phrases, options)


def _random_phrases(rng, letters):
    texts = [
        " ".join(rng.choice(letters, size=rng.integers(1, 5)))
        for _ in range(rng.integers(1, 5))
    ]
    options = {"c0": float(rng.choice([1, 0.3]))}
    weights = {text: float(rng.choice([1, 2, 0.5, -1])) for text in texts}
    return Phrases(weights, "word", options)
