"""The best alignment of a sentence to log-probs, over all of its pronunciations.

    states = sausage([[[2], [1, 1]], [[2]]], blank=0)    # two words, the first in
    path = force_align(logprobs, states)                 # two ways: a state per frame
    [states.tokens[state] for state in path]

Plain dynamic programming over the CTC states of one sentence: nothing here is of the
decoders, so that benchmarks can check their costs by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

Pronunciations = Sequence[Sequence[int]]
"""The ways to say one word: tokens each."""

START = 0
"""The state of a sausage before the first frame."""


@dataclass
class Sausage:
    """The CTC states of a sentence, in topological order; make it by `sausage`.

    Attributes:
        tokens: Token of each state; that of `START` is never asked for.
        sources: States from which each state is entered, itself first.
        finals: States in which the sentence may end.
    """

    blank: int
    tokens: list[int] = field(default_factory=lambda: [0])
    sources: list[list[int]] = field(default_factory=lambda: [[]])
    finals: list[int] = field(default_factory=list)

    def add(self, token: int, sources: Iterable[int]) -> int:
        """Append a state that repeats itself."""
        state = len(self.tokens)
        self.tokens.append(token)
        self.sources.append([state, *sources])
        return state

    def say(self, spelling: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Append the states of some tokens after `ends`; the new ends, one."""
        for token in spelling:
            pause = self.add(self.blank, ends)
            other = [end for end in ends if self.tokens[end] != token or end == START]
            ends = [self.add(token, [pause, *other])]
        return list(ends)


def sausage(
    words: Iterable[Pronunciations], blank: int, separator: int | None = None
) -> Sausage:
    """The CTC states of a sentence: `s* (w s+)* [w]`, or `w*` without a separator."""
    states = Sausage(blank)

    def separated(ends: Sequence[int]) -> list[int]:
        if separator is None:
            return list(ends)
        (end,) = states.say([separator], ends)
        states.sources[end].append(states.add(blank, [end]))  # once more
        return [end]

    unsaid = [START, *separated([START])] if separator is not None else [START]
    ends, last = unsaid, unsaid
    for ways in words:
        last = [states.say(tokens, ends)[0] for tokens in ways]
        ends = separated(last)
    finals = list(dict.fromkeys([*last, *ends]))
    states.finals = [*finals, states.add(blank, finals)]
    return states


def force_align(logprobs: np.ndarray, states: Sausage) -> np.ndarray:
    """The best state of each frame: int [T]; empty if the frames are too few.

    for each frame: cost[s] = best of cost[sources of s] + logprobs[t, token of s]
    """
    width = max(map(len, states.sources))
    nowhere = len(states.tokens)
    sources = np.full((nowhere, width), nowhere)
    for state, entered in enumerate(states.sources):
        sources[state, : len(entered)] = entered
    tokens = np.array(states.tokens)
    score = np.full(nowhere + 1, -np.inf)
    score[START] = 0.0
    back = np.empty((len(logprobs), nowhere), np.int64)
    every = np.arange(nowhere)
    for t, row in enumerate(logprobs):
        candidates = score[sources]
        choice = candidates.argmax(1)
        back[t] = sources[every, choice]
        score[:-1] = candidates[every, choice] + row[tokens]
        score[START] = -np.inf
    state = max(states.finals, key=lambda final: score[final])
    path = []
    for t in reversed(range(len(logprobs) if score[state] > -np.inf else 0)):
        path.append(state)
        state = back[t, state]
    return np.array(path[::-1], np.int64)


def spans(values: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal values: (value, start frame, end frame)."""
    edges = np.flatnonzero(np.diff(values)) + 1
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), len(values)]
    return [(int(values[a]), a, b) for a, b in zip(starts, stops, strict=True)]
