"""Statistics of CTC posteriors whose truth is known: what do they look like?

    figures = describe(pairs, blank)         # pairs of (logprobs [T, V], Sausage)
    print(table({"real": figures, "synthetic": other}))

The truth is aligned to the frames (Viterbi over the CTC states of all pronunciations),
so that real and simulated sets are measured by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import kaldialign
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
    """The CTC states of a sentence, `[s] w s w s ... w [s]` where there is an s."""
    states = Sausage(blank)
    after_word: list[int] = []
    ends = [START]
    if separator is not None:
        ends += states.say([separator], ends)
    for pronunciations in words:
        after_word = [states.say(said, ends)[0] for said in pronunciations]
        ends = after_word
        if separator is not None:
            ends = states.say([separator], after_word)
    ends = [*ends, *after_word] if separator is not None else ends
    states.finals = [*ends, states.add(blank, ends)]
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


def greedy_tokens(logprobs: np.ndarray, blank: int) -> list[int]:
    """The best token of each frame, repeats merged, blanks dropped."""
    return [token for token, _, _ in spans(logprobs.argmax(1)) if token != blank]


def describe(
    pairs: Iterable[tuple[np.ndarray, Sausage]], blank: int
) -> dict[str, float]:
    """Figures by name; those in percent end in %.

    Args:
        pairs: Log-probs [T, V] and the CTC states of what was said.
        blank: The blank's token.
    """
    rows, truths, errors, count = [], [], 0, 0
    for logprobs, states in pairs:
        logprobs = logprobs.astype(np.float32)
        path = force_align(logprobs, states)
        said = [
            (states.tokens[state], start, stop)
            for state, start, stop in spans(path)
            if states.tokens[state] != blank
        ]
        truths.append(_truth(logprobs, said))
        reference = [str(token) for token, _, _ in said]
        guess = [str(token) for token in greedy_tokens(logprobs, blank)]
        errors += kaldialign.edit_distance(reference, guess)["total"]
        count += len(reference)
        rows.append(logprobs)
    figures = {"greedy token error rate %": 100.0 * errors / count}
    figures |= _frame_figures(np.concatenate(rows), blank)
    figures["frame to frame correlation of the background"] = float(
        np.mean([_persistence(logprobs) for logprobs in rows])
    )
    return figures | _truth_figures(np.concatenate(truths))


def _truth(logprobs: np.ndarray, said: list[tuple[int, int, int]]) -> np.ndarray:
    """Rank (0 best) and gap to the best of each said token, at its best frame."""
    found = []
    for token, start, stop in said:
        frame = start + int(logprobs[start:stop, token].argmax())
        own = logprobs[frame, token]
        rank = (logprobs[frame] > own).sum()
        found.append((rank, logprobs[frame].max() - own))
    return np.array(found, np.float64).reshape(-1, 2)


def _truth_figures(truths: np.ndarray) -> dict[str, float]:
    rank, gap = truths.T
    missed = rank > 0
    figures = {"truth is not the best token %": 100.0 * missed.mean()}
    if missed.any():
        figures |= {
            "  then it is the runner-up %": 100.0 * (rank[missed] == 1).mean(),
            "  then it is third to fifth %": 100.0
            * ((rank[missed] > 1) & (rank[missed] < 5)).mean(),
            "  then it lacks, median, nats": float(np.median(gap[missed])),
            "  then it lacks, 90th percentile, nats": float(
                np.quantile(gap[missed], 0.9)
            ),
        }
    return figures


def _frame_figures(rows: np.ndarray, blank: int) -> dict[str, float]:
    best = rows.argmax(1)
    lengths = [stop - start for token, start, stop in spans(best) if token != blank]
    figures = {
        "blank frames %": 100.0 * (best == blank).mean(),
        "peaks of 1 frame %": 100.0 * np.mean(np.equal(lengths, 1)),
        "peaks of 2 frames %": 100.0 * np.mean(np.equal(lengths, 2)),
        "peaks of 3 frames %": 100.0 * np.mean(np.equal(lengths, 3)),
    }
    for name, chosen in ("blank", best == blank), ("peak", best != blank):
        part = rows[chosen]
        top = part.max(1)
        entropy = -(np.exp(part) * part).sum(1)
        ranked = np.sort(part, axis=1)[:, ::-1]
        figures |= {
            f"{name} frames: entropy, nats": float(entropy.mean()),
            f"{name} frames: mean of 1 - p %": 100.0 * float((1 - np.exp(top)).mean()),
            f"{name} frames: p > 0.99 %": 100.0 * float((top > np.log(0.99)).mean()),
            f"{name} frames: p > 0.9 %": 100.0 * float((top > np.log(0.9)).mean()),
            f"{name} frames: mean of 2nd best": float(ranked[:, 1].mean()),
            f"{name} frames: mean of 3rd best": float(ranked[:, 2].mean()),
            f"{name} frames: mean of 6th best": float(ranked[:, 5].mean()),
            f"{name} frames: median": float(np.median(part)),
            f"{name} frames: spread behind": float(ranked[:, 5:].std(1).mean()),
        }
    return figures


def _persistence(logprobs: np.ndarray) -> float:
    """Correlation of a token's log-probs with those one frame before."""
    around = logprobs - logprobs.mean(0)
    return float((around[1:] * around[:-1]).mean() / (around * around).mean())


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Figures side by side, one line each."""
    names = list(dict.fromkeys(name for own in columns.values() for name in own))
    width = max(map(len, names))
    lines = [" " * width + "".join(f"{title:>12}" for title in columns)]
    for name in names:
        cells = [own.get(name) for own in columns.values()]
        shown = "".join(" " * 12 if c is None else f"{c:12.2f}" for c in cells)
        lines.append(f"{name:<{width}}{shown}")
    return "\n".join(lines)
