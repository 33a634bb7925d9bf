"""Count the best token of each frame: is the blank right, is a token in no word?

A run is a token that wins in frames one after the other. CTC's blank wins many frames,
in many short runs between all other tokens; silence wins many in few long ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

FEWEST_FRAMES = 50
"""Frames needed to judge the blank."""
RARER = 1 / 3
"""A blank wins at least this many times the frames of any other token."""
BLANK_FRAMES, BLANK_RUNS = 0.35, 0.25
"""Shares of frames and of runs that only a blank has (on real speech: 0.70, 0.45)."""
FEWEST_RUNS, FEWEST_TIMES = 30, 5
"""Runs needed in all, and of one token, to judge it."""
OFTEN = 0.12
"""Share of runs above which an unused token is reported; letters have up to 0.12."""
OFTEN_BETWEEN = 0.03
"""The same of tokens that are called as separators are (on real speech: 0.20)."""
_BETWEEN = frozenset("| ▁ _ wb space ws boundary sep sil silence sp pau".split())


class TokenCounts:
    """Counts of the tokens that win in frames of log-probs."""

    def __init__(self, num_tokens: int) -> None:
        # Frames that each token wins, and its runs.
        self.frames, self.runs = np.zeros((2, num_tokens), np.int64)

    def add(self, logprobs: np.ndarray) -> np.ndarray:
        """Count the frames of [T, V]; the token of each run, int64."""
        if not len(logprobs):
            return np.zeros(0, np.int64)
        # NumPy finds the largest of float16 slowly.
        best = logprobs.astype(np.float32, copy=False).argmax(axis=1)
        runs = best[np.flatnonzero(np.diff(best, prepend=-1))]
        self.frames += np.bincount(best, minlength=len(self.frames))
        self.runs += np.bincount(runs, minlength=len(self.runs))
        return runs

    @property
    def num_frames(self) -> int:
        """Frames counted."""
        return int(self.frames.sum())

    def frame_share(self, token: int) -> float:
        """The share of the frames that a token wins."""
        return float(self.frames[token] / max(self.num_frames, 1))

    def run_share(self, token: int, blank: int) -> float:
        """Share of a token among all runs but those of the blank."""
        return float(self.runs[token] / max(self.runs.sum() - self.runs[blank], 1))

    def likely_blank(self, blank: int, between: Collection[int] = ()) -> int | None:
        """A token that behaves as a blank; None where the blank may be right."""
        other = int(self.frames.argmax())
        few = self.num_frames < FEWEST_FRAMES
        if few or self.frames[blank] >= RARER * self.frames[other]:
            return None
        wins = self.frame_share(other) >= BLANK_FRAMES
        alternates = self.runs[other] >= BLANK_RUNS * self.runs.sum()
        return other if wins and alternates and other not in between else None

    def unused_tokens(
        self, names: Sequence[str], blank: int, used: Collection[int]
    ) -> list[int]:
        """Frequent tokens that are in no word, the most frequent first."""
        count = self.runs.sum() - self.runs[blank]
        if count < FEWEST_RUNS:
            return []
        return [
            token
            for token in np.argsort(-self.runs, kind="stable").tolist()
            if token != blank
            and token not in used
            and self.runs[token] >= FEWEST_TIMES
            and self.runs[token]
            >= count * (OFTEN_BETWEEN if called_separator(names[token]) else OFTEN)
        ]


def called_separator(name: str) -> bool:
    """Tell whether a token's name is one that separators or silence have."""
    return name.isspace() or name.lower().strip("<>[]") in _BETWEEN
