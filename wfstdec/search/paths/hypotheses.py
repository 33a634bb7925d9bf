"""Paths to what users hold, for every search: made when somebody looks.

    reader = PathReader(cutter, account, token_names, frame_shift_s)
    hypotheses = reader.hypotheses(paths, boosts)      # of paths found together

Until a hypothesis is looked at it is its path and no more. Then the numbers of all that
were found together are made in a few calls: words and their frames by a `Cutter`, costs
by an account. The tuples of a hypothesis are made when it is looked at itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.costs import CostAccount, Scales, insertion_cost
from wfstdec.search.hypothesis import SECONDS_DIGITS, Hypothesis, Word
from wfstdec.search.interrupts import Held
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.words import Counted, Cutter


class FoundPath(Protocol):
    """A path, whatever search found it."""

    @property
    def said(self) -> Any:
        """Tokens with frames and what tells words, for a `Cutter`."""

    @property
    def reached_final(self) -> bool:
        """Tell whether its end was accepted."""

    @property
    def num_frames(self) -> int:
        """Frames that it covers."""

    @property
    def died_at_frame(self) -> int:
        """The frame that nothing survived, or -1."""


class Account(Protocol):
    """A way to count the costs of paths."""

    def of(self, path: Any, counted: Counted, boosts: Any, /) -> CostAccount:
        """The account of a path, of its words, and of what it has for boosts."""


class PathReader(NamedTuple):
    """All that makes hypotheses of the paths of one search, as its options are now.

    Attributes:
        cutter: How paths are cut into words.
        account: How their costs are counted.
        token_names: The token table's names.
        frame_shift_s: Seconds per frame.
        at_once: Whether hypotheses are made before anybody looks: where a model of
            the user's is asked for costs.
    """

    cutter: Cutter[Any]
    account: Account
    token_names: tuple[str, ...]
    frame_shift_s: float
    at_once: bool = False

    def hypotheses(
        self, paths: Sequence[FoundPath], boosts: Sequence[Any]
    ) -> list[Hypothesis]:
        """The hypotheses of paths that were found together, with what each has."""
        batch = HypothesisBatch(self, paths, boosts)
        hypotheses = list(map(batch.hypothesis, range(len(paths))))
        if self.at_once and hypotheses:
            _ = hypotheses[0].words  # made with those of all
        return hypotheses


class WordScales(Scales, Protocol):
    """Options that scale costs and price words."""

    @property
    def word_insertion(self) -> float:
        """Cost of each word."""


class GraphAccount(NamedTuple):
    """Counts the costs of paths through graphs: most stands on their arcs.

    Attributes:
        options: Scales, and what words cost.
    """

    options: WordScales

    def of(
        self, path: BestPath, counted: Counted, boosts: CompiledBoosts
    ) -> CostAccount:
        """The account of a path."""
        words = counted.words
        return CostAccount.of_path(
            self.options,
            graph=path.said.graph_cost + path.final_cost,
            acoustic=path.said.acoustic_cost,
            insertion=insertion_cost(self.options.word_insertion, len(words)),
            boost=boosts.cost(words, path.said.token.tolist()) if boosts else 0.0,
        )


class _Numbers(NamedTuple):
    """The numbers of all hypotheses; of what is made at each look as Python's own."""

    columns: tuple[list[Any], ...]  # of `Word`, but for confidences
    splits: list[int]  # where the words of each begin
    costs: list[CostAccount]


_TOKENS = ("token_ids", "token_frames")
_word = partial(tuple.__new__, Word)  # of a tuple of its fields


class HypothesisBatch:
    """The hypotheses of paths that were found together.

    Args:
        reader: How they are read.
        paths: The paths.
        boosts: Of each, for the reader's account.
    """

    def __init__(
        self, reader: PathReader, paths: Sequence[FoundPath], boosts: Sequence[Any]
    ) -> None:
        self._reader, self._paths, self._boosts = reader, paths, boosts
        self._made: _Numbers | None = None
        self._lock = threading.Lock()

    def hypothesis(self, i: int) -> Hypothesis:
        """Make the hypothesis of path `i`."""
        died = self._paths[i].died_at_frame
        make = partial(self._fields, i)
        return Hypothesis.when_asked(make, died if died >= 0 else None)

    def _fields(self, i: int, name: str) -> dict[str, Any]:
        """Field `name` of hypothesis `i`, and those that are made with it."""
        path = self._paths[i]
        # Tokens need no cutting into words: who asks for them alone does not wait for
        # it.
        if name in _TOKENS:
            said = path.said
            return {
                "token_ids": tuple(said.token.tolist()),
                "token_frames": (tuple(said.start.tolist()), tuple(said.end.tolist())),
            }
        # For all of a batch, when somebody first looks. A thread that sees them made
        # need not wait: they are put there whole.
        made = self._made
        if made is None:
            with self._lock, Held():
                made = self._made = self._made or self._make()
        first, end = made.splits[i : i + 2]
        columns = [column[first:end] for column in made.columns]
        words = zip(*columns, [None] * (end - first), strict=True)  # no confidences
        return {
            "words": tuple(map(_word, words)),
            "token_names": self._reader.token_names,
            "frame_shift_s": self._reader.frame_shift_s,
            **dict(zip(CostAccount._fields, made.costs[i], strict=True)),
            "reached_final": path.reached_final,
            "num_frames": path.num_frames,
        }

    def _make(self) -> _Numbers:
        cutter, account, _, shift, _ = self._reader
        words, splits, counted = cutter.words_of_all(
            [path.said for path in self._paths],
            [path.reached_final for path in self._paths],
        )
        times = np.round(words.frames * shift, SECONDS_DIGITS).T.tolist()
        frames = words.frames.T.tolist()
        each = zip(self._paths, counted, self._boosts, strict=True)
        count = account.of
        costs = [count(path, those, boosts) for path, those, boosts in each]
        return _Numbers((words.texts, *times, *frames), splits, costs)
