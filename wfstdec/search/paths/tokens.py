"""Paths of searches: tokens with frames, and word labels between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.records import record

NO_PRON, OPEN_PRON = -1, 1 << 30
"""Special pronunciation numbers: no word ends; an open word ends."""
SPELLINGS_PER_TEXT = 8
"""Token sequences per text of an n-best list without a lexicon. Several may spell one
text, by other word pieces or an extra separator."""


class PathTokens(NamedTuple):
    """Tokens of a path without blanks, and its word labels; all int32."""

    # A label is a graph's word id or a trie's pronunciation: its number (OOV words
    # follow the lexicon's), or `OPEN_PRON`.

    token: np.ndarray  # [N]
    start: np.ndarray  # [N], first frame
    end: np.ndarray  # [N], one after the last frame
    label: np.ndarray  # [W]
    label_token: np.ndarray  # [W], tokens begun before the label
    label_frame: np.ndarray  # [W], frames passed before it; for word ids only

    def part(self, tokens: slice, labels: slice) -> PathTokens:
        """Return some tokens and labels; `label_token` counts from the first."""
        columns = [column[tokens] for column in self[:3]]
        columns += [column[labels] for column in self[3:]]
        if tokens.start:
            columns[4] = columns[4] - np.int32(tokens.start)
        return PathTokens(*columns)


PATH_END = record(
    "f8 graph_cost acoustic_cost search_cost",
    "i8 reached_final num_frames died_at_frame first count",
)
"""Data of a path other than its tokens, as in `Path`; the first of its arcs and their
number, if any."""


class Path(NamedTuple):
    """Path of one utterance; identical from every backend."""

    tokens: PathTokens
    graph_cost: float  # unscaled, with the final cost; 0.0 in token searches
    acoustic_cost: float  # unscaled; NaN for summed alignments
    search_cost: float  # total of the search: float32 steps, float64 base
    reached_final: bool  # whether it ends in a final state, or at a sentence end
    num_frames: int
    died_at_frame: int  # the frame that no path survived, or -1


class Paths(Sequence[Any]):
    """Concatenated paths."""

    # `token_splits`, `label_splits`: int64 [P + 1]. `ends`: PATH_END [P].
    __slots__ = "columns", "ends", "label_splits", "token_splits"

    def __init__(
        self, ends: Any, columns: Any, token_splits: Any, label_splits: Any
    ) -> None:
        self.columns, self.ends = PathTokens(*columns), ends
        self.token_splits, self.label_splits = token_splits, label_splits

    @classmethod
    def of(cls, paths: Sequence[Any]) -> Paths:
        """Concatenate paths or their tokens and ends; costs are omitted."""
        if isinstance(paths, Paths):
            return paths
        ends = np.zeros(len(paths), PATH_END)
        for name in ("reached_final", "died_at_frame"):
            ends[name] = [getattr(path, name) for path in paths]
        return cls.of_tokens([path.tokens for path in paths], ends)

    @classmethod
    def of_tokens(cls, paths: Sequence[PathTokens], ends: np.ndarray) -> Paths:
        """Concatenate the tokens and labels of paths."""
        if len(paths) == 1:
            [one] = paths
            return cls(ends, one, *(np.array([0, len(one[at])]) for at in (0, 3)))
        columns = list(zip(*paths, strict=True)) or [(NO_TOKENS.token,)] * 6
        splits = (np.cumsum([0, *map(len, columns[at])]) for at in (0, 3))
        return cls(ends, map(np.concatenate, columns), *splits)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: Any) -> Any:
        graph, acoustic, cost, final, frames, died, *_ = self.ends[i].item()
        return Path(self.tokens(i), graph, acoustic, cost, bool(final), frames, died)

    def tokens(self, i: int) -> PathTokens:
        """Return the tokens and labels of path `i`."""
        t, w = (s[i : i + 2] for s in (self.token_splits, self.label_splits))
        columns = [column[t[0] : t[1]] for column in self.columns[:3]]
        columns += [column[w[0] : w[1]] for column in self.columns[3:]]
        return PathTokens(*columns)


class SinglePaths(Sequence[Any]):
    """Lists of one path per utterance; `paths` has them concatenated."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: Any) -> Any:
        return [self.paths[i]]


class PartialPath(NamedTuple):
    """Best path of a search so far, from given tokens and labels on."""

    tokens: PathTokens
    num_whole: int  # settled tokens
    num_labels: int  # settled labels; 0 in token searches
    num_frames: int
    # Cost of ending now relative to the best path, scaled nats; inf if impossible.
    final_cost: float


def path_of_rows(rows: np.ndarray, last_pron: int = NO_PRON) -> PathTokens:
    """Return the path of rows as in `columns_of_rows`."""
    return PathTokens(
        *columns_of_rows(rows, np.array([0, len(rows)]), np.array([last_pron]))[0]
    )


@jit
def columns_of_rows(rows, splits, last_pron):
    """Return the last three arguments of `Paths` for token searches."""
    # `rows`: int32 [N, 4], token, first frame, one after the last, pronunciation ended
    # before the token or `NO_PRON`. `splits`: int64 [P + 1]. `last_pron`: int64 [P],
    # pronunciation that ends with the last token.
    num_paths = len(last_pron)
    count = splits[num_paths]
    token, start = np.empty(count, np.int32), np.empty(count, np.int32)
    end, label = np.empty(count, np.int32), np.empty(count + num_paths, np.int32)
    label_token = np.empty(count + num_paths, np.int32)
    label_splits, w = np.zeros(num_paths + 1, np.int64), np.int64(0)
    for p in range(num_paths):
        first, behind = splits[p], splits[p + 1]
        for t in range(first, behind):
            token[t], start[t], end[t] = rows[t, 0], rows[t, 1], rows[t, 2]
            if rows[t, 3] >= 0:
                label[w], label_token[w] = rows[t, 3], t - first
                w += 1
        if last_pron[p] >= 0:
            label[w], label_token[w] = last_pron[p], behind - first
            w += 1
        label_splits[p + 1] = w
    label, label_token = label[:w], label_token[:w]
    return (token, start, end, label, label_token, label_token), splits, label_splits


NO_TOKENS = PathTokens(*np.zeros((6, 0), np.int32))


def without_labels(columns: np.ndarray) -> PathTokens:
    """Return a token path; int32 [3, N], token, first frame, one after the last."""
    token, start, end = columns
    return NO_TOKENS._replace(token=token, start=start, end=end)
