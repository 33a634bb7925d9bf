"""Count what a model says, frame by frame: is its blank one, is any token unheard.

said = Said(num_tokens)
said.add(logprobs)                          # of some utterances, float [T, V] each
said.frame_share(blank)                     # of all frames: those that it wins
said.likely_blank(blank, separators)        # a token that behaves as the blank ought to
said.unheard(names, heard)                  # tokens that are said and no word has

A run is a token that wins in frames one after the other. CTC's blank wins many frames,
in many short runs between all other tokens; silence wins many in few long ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

FEWEST_FRAMES = 50
"""Less says nothing about the blank."""
RARER = 1 / 3
"""A blank wins no less of the frames than so many times what any other token does."""
BLANK_FRAMES, BLANK_RUNS = 0.35, 0.25
"""Shares of frames and of runs that only a blank has (on real speech: 0.70, 0.45)."""
FEWEST_RUNS, FEWEST_TIMES = 30, 5
"""Tokens said, and times that one of them is: less says nothing about it."""
OFTEN = 0.12
"""What share of the tokens said an unheard one may have: letters have up to 0.12."""
OFTEN_BETWEEN = 0.03
"""The same of tokens that are called as separators are (on real speech: 0.20)."""
_BETWEEN = frozenset("| ▁ _ wb space ws boundary sep sil silence sp pau".split())


class Said:
    """Counts of the tokens that win in frames of log-probs.

    Args:
        num_tokens: V.

    Attributes:
        frames: Frames that each token wins, int64 [V].
        runs: Runs of each token, int64 [V].
    """

    def __init__(self, num_tokens: int) -> None:
        self.frames = np.zeros(num_tokens, np.int64)
        self.runs = np.zeros(num_tokens, np.int64)

    def add(self, logprobs: np.ndarray) -> np.ndarray:
        """Count the frames of an utterance, or of a part of it.

        Args:
            logprobs: Float [T, V].

        Returns:
            The token of each run, int64.
        """
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
        """The share that a token has of all that is said, which blanks are not."""
        return float(self.runs[token] / max(self.runs.sum() - self.runs[blank], 1))

    def likely_blank(self, blank: int, between: Collection[int] = ()) -> int | None:
        """A token that behaves as the blank should; None where the blank may be right.

        Args:
            blank: What is taken for the blank.
            between: Tokens that are known to stand between words.
        """
        other = int(self.frames.argmax())
        few = self.num_frames < FEWEST_FRAMES
        if few or self.frames[blank] >= RARER * self.frames[other]:
            return None
        wins = self.frame_share(other) >= BLANK_FRAMES
        alternates = self.runs[other] >= BLANK_RUNS * self.runs.sum()
        return other if wins and alternates and other not in between else None

    def unheard(
        self, names: Sequence[str], blank: int, heard: Collection[int]
    ) -> list[int]:
        """Tokens that are said often and are in no word, the most frequent first.

        Args:
            names: Of all tokens.
            blank: The blank.
            heard: Tokens of words, and those that are known to stand between them.
        """
        count = self.runs.sum() - self.runs[blank]
        if count < FEWEST_RUNS:
            return []
        return [
            token
            for token in np.argsort(-self.runs, kind="stable").tolist()
            if token != blank
            and token not in heard
            and self.runs[token] >= FEWEST_TIMES
            and self.runs[token]
            >= count * (OFTEN_BETWEEN if called_separator(names[token]) else OFTEN)
        ]


def called_separator(name: str) -> bool:
    """Tell whether a token's name is one that separators or silence have."""
    return name.isspace() or name.lower().strip("<>[]") in _BETWEEN
