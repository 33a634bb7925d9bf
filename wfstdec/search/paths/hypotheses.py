"""Readers of what searches found: what those of all decoders have in common.

class TrieReader(FoundReader[list[TokenPath]]):    # adds what is the search's own
    def best(self, found): return found[0]

Of a search under way, the words that are settled are read once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import UNKNOWN
from wfstdec.lm.on_demand import LmArrays, OnDemandLM
from wfstdec.search.backend import Reader
from wfstdec.search.hypothesis import (
    SECONDS_DIGITS,
    CostAccount,
    Hypothesis,
    Partial,
    Scales,
    Word,
    insertion_cost,
)
from wfstdec.search.paths.tokens import BestPath, PartialPath, TokenPath
from wfstdec.search.paths.words import BEGINNING, CountedWords, Cutter, timed
from wfstdec.search.threads import DeferredSignals

_Found_contra = TypeVar("_Found_contra", contravariant=True)


class FoundReader(Reader[_Found_contra]):
    """Reads searches of one boost list; see `Reader`."""

    def __init__(self, paths: PathReader, boosts: CompiledBoosts) -> None:
        self._paths, self._boosts = paths, boosts
        self._partial = PartialReader(paths.cutter, paths.frame_shift_s)

    def best(self, found: Any) -> FoundPath:
        """Find the best path of what a search found; here it is that."""
        return found

    def hypothesis(self, found: _Found_contra) -> Hypothesis:
        """Read the best path."""
        return self.hypotheses([found], [self._boosts])[0]

    def hypotheses(
        self, found: Sequence[_Found_contra], boosts: Sequence[CompiledBoosts]
    ) -> list[Hypothesis]:
        """Read many together, whose boosts add the same words as the reader's."""
        return self._paths.hypotheses(list(map(self.best, found)), boosts)

    def partial(self, look: PartialPath[Any]) -> Partial:
        """Read how far the search has come."""
        return self._partial.read(look)


class PartialReader:
    """Reads one session."""

    def __init__(self, cutter: Cutter[Any], frame_shift_s: float) -> None:
        self._cutter, self._shift = cutter, frame_shift_s
        self._timed: list[Word] = []  # settled words
        self._cut = BEGINNING  # behind them

    def read(self, path: PartialPath[Any]) -> Partial:
        """The words of a search, as of now."""
        whole = path.settled.whole_since(self._cut.tokens, self._cut.words)
        words, self._cut = self._cutter.settled_words(whole, self._cut)
        self._timed += timed(words, self._shift)
        rest = path.unsettled(self._cut.tokens, self._cut.words)
        begun = timed(self._cutter.words(rest, self._cut), self._shift)
        return Partial(
            words=(*self._timed, *begun),
            num_settled=max(path.settled.num_words, len(self._timed)),
            num_timed=len(self._timed),
            num_frames=path.num_frames,
            silent_frames=path.num_frames - self._speech_end(rest),
            final_cost=path.final_cost,
        )

    def _speech_end(self, rest: Any) -> int:
        """Frame behind the last token that is spoken, 0 for none."""
        spoken = np.flatnonzero(self._cutter.are_spoken(rest))
        if len(spoken):
            return int(rest.end[spoken[-1]])
        return self._timed[-1].end_frame if self._timed else 0


FoundPath = BestPath | TokenPath
"""A path, whatever search found it."""


class CostBreakdown(Protocol):
    """A way to count the costs of paths."""

    def of(self, path: Any, counted: CountedWords, boosts: Any, /) -> CostAccount:
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
    account: CostBreakdown
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


class GraphCosts(NamedTuple):
    """Counts the costs of paths through graphs: most stands on their arcs.

    Attributes:
        options: Scales, and what words cost.
        on_arcs: Whether insertion costs stand there too, and are told with the boosts.
    """

    options: WordScales
    on_arcs: bool = False

    def of(self, path: BestPath, counted: CountedWords, boosts: Any) -> CostAccount:
        """The account of a path, whose boosts are `CompiledBoosts` or those on arcs."""
        words = counted.words
        own = insertion_cost(self.options.word_insertion, len(words))
        return CostAccount.of_path(
            self.options,
            graph=path.tokens.graph_cost + path.final_cost,
            acoustic=path.tokens.acoustic_cost,
            insertion=boosts.insertion if self.on_arcs else own,
            boost=boosts.cost(words, path.tokens.token.tolist()) if boosts else 0.0,
        )


class LmCosts(NamedTuple):
    """Counts the costs of paths of tokens, by a language model over words or tokens.

    Where alignments were summed, what is left of the total is acoustic.

    Attributes:
        scales: Options that scale costs.
        automaton: The language model; `NULL_AUTOMATON` without one.
        token_insertion: What each token costs.
        word_insertion: What each word costs; None where the model is over tokens.
    """

    scales: Scales
    automaton: Automaton | OnDemandLM
    token_insertion: float
    word_insertion: float | None = None

    def of(
        self, path: TokenPath, counted: CountedWords, boosts: CompiledBoosts
    ) -> CostAccount:
        """The account of a path."""
        labels = path.token
        insertion = insertion_cost(self.token_insertion, len(labels))
        if self.word_insertion is not None:
            # Word 0 is one that nobody listed, spelled by tokens.
            labels = np.array([word or UNKNOWN for word in counted.words], np.int32)
            insertion += insertion_cost(self.word_insertion, len(labels))
        costs = {
            "graph": self._lm_cost(path, labels, boosts) + counted.pron_cost,
            "insertion": insertion,
            "boost": boosts.cost(counted.words, path.token),
        }
        # Sums over alignments have no acoustic cost of their own: it is what is left.
        if math.isnan(path.acoustic):
            return CostAccount.of_total(self.scales, total=path.search_cost, **costs)
        return CostAccount.of_path(self.scales, acoustic=path.acoustic, **costs)

    def _lm_cost(
        self, path: TokenPath, labels: np.ndarray, boosts: CompiledBoosts
    ) -> float:
        """The model's cost of words or tokens, `</s>` where the end was accepted."""
        if self.automaton is NULL_AUTOMATON:
            return 0.0
        oov = boosts.oov.words if boosts.oov is not None else ()
        with LmArrays(self.automaton, oov) as lm:
            return lm.total(labels, complete=path.reached_final)


_Numbers = tuple[tuple[list[Any], ...], list[int], list[CostAccount]]
"""The numbers of all hypotheses, as Python's own: columns of `Word`, but for
confidences; where the words of each begin; its costs."""
_TOKENS = ("token_ids", "token_frames")
_word = partial(tuple.__new__, Word)  # of a tuple of its fields


class HypothesisBatch:
    """The hypotheses of paths that were found together."""

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
        return Hypothesis.on_demand(make, died if died >= 0 else None)

    def _fields(self, i: int, name: str) -> dict[str, Any]:
        """Field `name` of hypothesis `i`, and those that are made with it."""
        path = self._paths[i]
        # Tokens need no cutting into words: who asks for them alone does not wait for
        # it.
        if name in _TOKENS:
            tokens = path.tokens
            return {
                "token_ids": tuple(tokens.token.tolist()),
                "token_frames": (
                    tuple(tokens.start.tolist()),
                    tuple(tokens.end.tolist()),
                ),
            }
        # For all of a batch, when somebody first looks. A thread that sees them made
        # need not wait: they are put there whole.
        made = self._made
        if made is None:
            with self._lock, DeferredSignals():
                made = self._made = self._made or self._make()
        all_columns, splits, costs = made
        first, end = splits[i : i + 2]
        columns = [column[first:end] for column in all_columns]
        words = zip(*columns, [None] * (end - first), strict=True)  # no confidences
        return {
            "words": tuple(map(_word, words)),
            "token_names": self._reader.token_names,
            "frame_shift_s": self._reader.frame_shift_s,
            **dict(zip(CostAccount._fields, costs[i], strict=True)),
            "reached_final": path.reached_final,
            "num_frames": path.num_frames,
        }

    def _make(self) -> _Numbers:
        cutter, account, _, shift, _ = self._reader
        words, splits, counted = cutter.words_of_all(
            [path.tokens for path in self._paths],
            [path.reached_final for path in self._paths],
        )
        times = np.round(words.frames * shift, SECONDS_DIGITS).T.tolist()
        frames = words.frames.T.tolist()
        costs = list(map(account.of, self._paths, counted, self._boosts))
        return (words.texts, *times, *frames), splits, costs
