"""Paths of searches of a graph, by labels: the same from every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.text.symbols import token_of


class PathTokens(NamedTuple):
    """The tokens of a path, blanks left out, and its word labels.

    Attributes:
        ilabel: int32 [N], of the tokens.
        start, end: int32 [N], first frame, one behind the last frame.
        word: int32 [W], word ids.
        word_token: int32 [W], how many tokens had begun when the label came.
        word_frame: int32 [W], how many frames had passed then.
        graph_cost, acoustic_cost: float64 sums over the arcs.
    """

    ilabel: np.ndarray
    start: np.ndarray
    end: np.ndarray
    word: np.ndarray
    word_token: np.ndarray
    word_frame: np.ndarray
    graph_cost: float
    acoustic_cost: float

    @property
    def token(self) -> np.ndarray:
        """Tokens, int32 [N]."""
        return token_of(self.ilabel)


class JoinedPaths(NamedTuple):
    """Several paths, one after the other.

    Attributes:
        said: Of all of them; the costs are 0.
        token_splits, word_splits: int64 [B + 1], where each begins.
    """

    said: PathTokens
    token_splits: np.ndarray
    word_splits: np.ndarray


def join_paths(paths: Sequence[PathTokens]) -> JoinedPaths:
    """Paths one after the other."""
    none = np.zeros(0, np.int32)
    columns = list(zip(*paths, strict=True)) or [()] * len(PathTokens._fields)
    arrays = [np.concatenate(column or (none,)) for column in columns[:6]]
    splits = [np.cumsum([0, *map(len, columns[at])]) for at in (0, 3)]
    return JoinedPaths(PathTokens._make([*arrays, 0.0, 0.0]), splits[0], splits[1])


class BestPath(NamedTuple):
    """The least-cost path of one utterance; the same from every backend.

    Attributes:
        said: Its tokens and words.
        final_cost: Unscaled final cost, 0.0 where the path ends in no final state.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        reached_final: Whether the path ends in a final state.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that nothing survived, or -1.
    """

    said: PathTokens
    final_cost: float
    search_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int
