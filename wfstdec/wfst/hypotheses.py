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

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.paths.label_path import BestPath, JoinedPaths, join_paths
from wfstdec.search.paths.word_cut import Aligner
from wfstdec.text.symbols import token_of
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.wfst.options import WfstOptions


class Reader(NamedTuple):
    """How paths are read: what a decoder has, as its options are now.

    Attributes:
        tables: Of the graph, with the words that are added.
        aligner: Of these.
        options: Search options.
        frame_shift_s: Seconds per frame.
    """

    tables: Vocabulary
    aligner: Aligner
    options: WfstOptions
    frame_shift_s: float


class _Numbers(NamedTuple):
    """The numbers of all hypotheses; of what is made at each look as Python's own."""

    joined: JoinedPaths
    words: list[str]
    times: tuple[list[float], list[float]]
    frames: tuple[list[int], list[int]]
    word_splits: list[int]
    costs: list[CostAccount]


_TOKENS = ("token_ids", "token_frames")
_word = partial(tuple.__new__, Word)  # of a tuple of its fields


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
        self._made: _Numbers | None = None
        self._lock = threading.Lock()

    def hypothesis(self, i: int) -> Hypothesis:
        """That of path `i`."""
        died = self._paths[i].died_at_frame
        make = partial(self._fields, i)
        return Hypothesis.when_asked(make, died if died >= 0 else None)

    def _fields(self, i: int, name: str) -> dict[str, Any]:
        """Field `name` of hypothesis `i`, and those that are made with it."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        made = self._made
        if name in _TOKENS:
            first, end = made.joined.token_splits[i : i + 2].tolist()
            said = (column[first:end] for column in made.joined.said[:3])
            ilabel, starts, ends = said
            return {
                "token_ids": tuple(token_of(ilabel).tolist()),
                "token_frames": (tuple(starts.tolist()), tuple(ends.tolist())),
            }
        path, account = self._paths[i], made.costs[i]
        first, end = made.word_splits[i : i + 2]
        of_words = (made.words, *made.times, *made.frames)
        columns = (column[first:end] for column in of_words)
        words = zip(*columns, [None] * (end - first), strict=True)  # no confidences
        return {
            "words": tuple(map(_word, words)),
            "token_names": self._reader.tables.tokens.names,
            "frame_shift_s": self._reader.frame_shift_s,
            **dict(zip(CostAccount._fields, account, strict=True)),
            "reached_final": path.reached_final,
            "num_frames": path.num_frames,
        }

    def _make(self) -> _Numbers:
        _, aligner, _, shift = self._reader
        joined = join_paths([path.said for path in self._paths])
        complete = np.array([path.reached_final for path in self._paths], np.bool_)
        frames = aligner.frames_of_all(joined, complete)
        begin_s, end_s = (frames * shift).T.tolist()
        begin, end = frames.T.tolist()
        words = joined.said.word.tolist()
        return _Numbers(
            joined,
            aligner.texts_of_all(joined, frames),
            (begin_s, end_s),
            (begin, end),
            joined.word_splits.tolist(),
            self._costs(joined, words),
        )

    def _costs(self, joined: JoinedPaths, words: list[int]) -> list[CostAccount]:
        options = self._reader.options
        at_words = joined.word_splits.tolist()
        accounts = []
        for i, (path, boosts) in enumerate(zip(self._paths, self._boosts, strict=True)):
            first, end = at_words[i : i + 2]
            boost = 0.0
            if boosts:
                said = token_of(path.said.ilabel).tolist()
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
