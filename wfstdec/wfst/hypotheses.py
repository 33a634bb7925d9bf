"""Paths to what users hold, for a whole batch: made when somebody looks.

    batch = HypothesisBatch(reader, paths, boosts)
    hyps = [batch.hypothesis(i) for i in range(len(paths))]

Until a hypothesis is looked at it is its path and no more. Then the numbers of all are
made in a few calls for the batch: the frames of words by a kernel, costs as arrays. The
tuples of a hypothesis are made when it is looked at itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.text.symbols import token_of
from wfstdec.wfst.alignment import Aligner
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.path import BestPath, JoinedPaths, join_paths


class Reader(NamedTuple):
    """How paths are read: what a decoder has, as its options are now.

    Attributes:
        graph: The decoder's.
        aligner: Of the graph.
        options: Search options.
        frame_shift_s: Seconds per frame.
    """

    graph: PackedGraph
    aligner: Aligner
    options: WfstOptions
    frame_shift_s: float


class _Lists(NamedTuple):
    """The numbers of all hypotheses, as lists of Python's numbers."""

    tokens: list[int]
    starts: list[int]
    ends: list[int]
    words: list[str]
    times: tuple[list[float], list[float]]
    frames: tuple[list[int], list[int]]
    token_splits: list[int]
    word_splits: list[int]
    costs: list[CostAccount]


class HypothesisBatch:
    """The hypotheses of paths that were found together.

    Args:
        reader: How they are read.
        paths: The paths.
        boosts: Of each.
    """

    def __init__(
        self,
        reader: Reader,
        paths: Sequence[BestPath],
        boosts: Sequence[CompiledBoosts],
    ) -> None:
        self._reader, self._paths, self._boosts = reader, paths, boosts
        self._made: _Lists | None = None
        self._lock = threading.Lock()

    def hypothesis(self, i: int) -> Hypothesis:
        """That of path `i`."""
        died = self._paths[i].died_at_frame
        make = partial(self._fields, i)
        return Hypothesis.when_asked(make, died if died >= 0 else None)

    def _fields(self, i: int) -> dict[str, Any]:
        """All fields of hypothesis `i` but `died_at_frame`."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        made, path = self._made, self._paths[i]
        first, end = made.word_splits[i : i + 2]
        of_words = (made.words, *made.times, *made.frames)
        words = map(Word, *(column[first:end] for column in of_words))
        first, end = made.token_splits[i : i + 2]
        starts, ends = made.starts[first:end], made.ends[first:end]
        return {
            "words": tuple(words),
            "token_ids": tuple(made.tokens[first:end]),
            "token_frames": (tuple(starts), tuple(ends)),
            "token_names": self._reader.graph.tokens.names,
            "frame_shift_s": self._reader.frame_shift_s,
            **made.costs[i]._asdict(),
            "reached_final": path.reached_final,
            "num_frames": path.num_frames,
        }

    def _make(self) -> _Lists:
        graph, aligner, _, shift = self._reader
        joined = join_paths([path.said for path in self._paths])
        complete = np.array([path.reached_final for path in self._paths], np.bool_)
        frames = aligner.frames_of_all(joined, complete)
        begin_s, end_s = (frames * shift).T.tolist()
        begin, end = frames.T.tolist()
        tokens, words = token_of(joined.said.ilabel).tolist(), joined.said.word.tolist()
        return _Lists(
            tokens,
            joined.said.start.tolist(),
            joined.said.end.tolist(),
            list(map(graph.words.__getitem__, words)),
            (begin_s, end_s),
            (begin, end),
            joined.token_splits.tolist(),
            joined.word_splits.tolist(),
            self._costs(joined, tokens, words),
        )

    def _costs(
        self, joined: JoinedPaths, tokens: list[int], words: list[int]
    ) -> list[CostAccount]:
        options = self._reader.options
        at_words, at_tokens = joined.word_splits.tolist(), joined.token_splits.tolist()
        accounts = []
        for i, (path, boosts) in enumerate(zip(self._paths, self._boosts, strict=True)):
            first, end = at_words[i : i + 2]
            boost = 0.0
            if boosts:
                said = tokens[slice(*at_tokens[i : i + 2])]
                boost = boosts.cost(words[first:end], said)
            account = CostAccount.of_path(
                options,
                graph=path.said.graph_cost + path.final_cost,
                acoustic=path.said.acoustic_cost,
                insertion=insertion_cost(options.word_insertion, end - first),
                boost=boost,
            )
            accounts.append(account)
        return accounts
