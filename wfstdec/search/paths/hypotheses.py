"""Readers of search results: paths to hypotheses, for every decoder.

class TrieReader(Reader[list[Path]]):              # adds search-specific parts
    def best(self, found): return found[0]

Paths of a group are cut into words together, in one kernel call. Strings and tuples are
created on first access. Settled words of a session are read once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lattice.arrays import Lattice
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import UNKNOWN
from wfstdec.lm.on_demand import LmArrays, OnDemandLM
from wfstdec.search.hypothesis import (
    CostAccount,
    Hypothesis,
    Partial,
    Word,
    insertion_cost,
)
from wfstdec.search.paths.tokens import Path, Paths, SinglePaths
from wfstdec.search.paths.words import BEGINNING, Cutter, Words
from wfstdec.search.threads import DeferredSignals
from wfstdec.text.display import close_up, join_words

_Found = TypeVar("_Found")


class Reader(Generic[_Found]):
    """Reads searches of one boost list: of a group, or repeatedly of a session.

    Args:
        cutter: For the search's paths.
        account: Its method `of(path, words, pron_cost, boosts)` returns the
            `CostAccount` of a path. `words`: their ids, 0 for open words without one.
            `pron_cost`: unscaled, of pronunciations whose cost is not on the path.
        token_names: Those of the token table.
        frame_shift_s: Seconds per frame.
        boosts: The list.
    """

    at_once = False
    """Whether costs are computed immediately, as they come from a user's model."""

    def __init__(
        self,
        cutter: Cutter,
        account: Any,
        token_names: tuple[str, ...],
        frame_shift_s: float,
        boosts: Any,
    ) -> None:
        self.cutter, self.account, self.boosts = cutter, account, boosts
        self.token_names, self.frame_shift_s = token_names, frame_shift_s
        self._settled: list[Word] = []
        self._cut = BEGINNING  # after the settled words

    def best(self, found: Any) -> Path:
        """Return the best path of a search result."""
        return found

    def hypothesis(self, found: _Found) -> Hypothesis:
        """Read the best path."""
        return self.hypotheses([found], [self.boosts])[0]

    def hypotheses(
        self, found: Sequence[_Found], boosts: Sequence[Any]
    ) -> list[Hypothesis]:
        """Read several results, whose boosts have the reader's OOV words."""
        paths: Any = found.paths if isinstance(found, SinglePaths) else found
        if not isinstance(paths, Paths):
            paths = list(map(self.best, found))
        return self.read(paths, boosts)

    def read(
        self, paths: Sequence[Path], boosts: Sequence[Any] | None = None
    ) -> list[Hypothesis]:
        """Read paths; `boosts` default to the reader's."""
        joined = Paths.of(paths)
        batch = PathBatch(self, paths, boosts or [self.boosts] * len(paths), joined)
        if not self.cutter.cuts_bare_tokens:  # texts of these need no words
            _ = batch.words
        found = [Hypothesis.on_demand(batch, i) for i in range(len(paths))]
        died = joined.ends["died_at_frame"]
        for i in np.flatnonzero(died >= 0).tolist():
            found[i].__dict__["died_at_frame"] = int(died[i])
        if self.at_once:
            for one in found:
                _ = one.total_cost
        return found

    def partial(self, search: Any) -> Partial:
        """Read the partial result of one search; may be repeated."""
        look = search.look((self._cut.tokens, self._cut.labels))
        settled, self._cut, others, end = self.cutter.partial(
            look, self._cut, self.frame_shift_s
        )
        return self._partial(
            settled, others, look.num_labels, look.num_frames, end, look.final_cost
        )

    @staticmethod
    def partials(readers: Sequence[Reader], searches: Sequence[Any]) -> list[Partial]:
        """Return `partial` of searches of one `kind` and cutter, or of one search."""
        first, search = readers[0], searches[0]
        if not hasattr(search, "kind"):
            return [first.partial(search)]
        words, looks = search.look_together(searches, first.cutter, first.frame_shift_s)
        timed, at, found = first.cutter.timed(words), 0, []
        for reader, (count, hold, *rest) in zip(readers, looks.tolist(), strict=True):
            held, behind = at + hold, at + count
            found.append(reader._partial(timed[at:held], timed[held:behind], *rest))
            at = behind
        return found

    def _partial(
        self,
        settled: list[Word],
        others: list[Word],
        num_labels: int,
        num_frames: int,
        end: int,
        final_cost: float,
    ) -> Partial:
        """Join newly settled words and others; `end`: of their last token, or 0."""
        self._settled += settled
        if not end and self._settled:
            end = self._settled[-1].end_frame
        return Partial(
            words=(*self._settled, *others),
            num_settled=max(num_labels, len(self._settled)),
            num_timed=len(self._settled),
            num_frames=num_frames,
            silent_frames=num_frames - end,
            final_cost=final_cost,
        )

    def nbest(self, found: Any, num: int | None) -> list[Hypothesis]:
        """Read hypotheses, best first, at most `num`; None for all."""
        raise AssertionError("this decoder finds only the best")

    def lattice(self, found: Any) -> Lattice:
        """Read the lattice of a recorded search."""
        raise AssertionError("this decoder records no lattices")

    def segments(self, settled: Any) -> list[Lattice]:
        """Read the segments returned by `Search.settle`."""
        raise AssertionError("this decoder hands out no segments")


class GraphCosts(NamedTuple):
    """Costs of paths through graphs."""

    options: Any  # scales, `word_insertion`
    on_arcs: bool = False  # whether insertion costs are on arcs, passed with boosts

    def of(
        self, path: Path, words: list[int], pron_cost: float, boosts: Any
    ) -> CostAccount:
        """Return a path's account; `boosts` are `CompiledBoosts` or those on arcs."""
        own = insertion_cost(self.options.word_insertion, len(words))
        return CostAccount.of_path(
            self.options,
            graph=path.graph_cost,
            acoustic=path.acoustic_cost,
            insertion=boosts.insertion if self.on_arcs else own,
            boost=boosts.cost(words, path.tokens.token.tolist()) if boosts else 0.0,
        )


class LmCosts(NamedTuple):
    """Costs of token paths by a language model over words or tokens."""

    scales: Any
    automaton: Automaton | OnDemandLM  # `NULL_AUTOMATON` without a model
    token_insertion: float
    word_insertion: float | None = None  # None where the model is over tokens

    def of(
        self, path: Path, words: list[int], pron_cost: float, boosts: CompiledBoosts
    ) -> CostAccount:
        """Return the account of a path."""
        labels = token = path.tokens.token
        insertion = insertion_cost(self.token_insertion, len(labels))
        if self.word_insertion is not None:
            # Word 0 is an open word, spelled by tokens.
            labels = np.array([word or UNKNOWN for word in words], np.int32)
            insertion += insertion_cost(self.word_insertion, len(labels))
        costs = {
            "graph": self._lm_cost(path, labels, boosts) + pron_cost,
            "insertion": insertion,
            "boost": boosts.cost(words, token),
        }
        if math.isnan(path.acoustic_cost):
            return CostAccount.of_total(self.scales, total=path.search_cost, **costs)
        return CostAccount.of_path(self.scales, acoustic=path.acoustic_cost, **costs)

    def _lm_cost(self, path: Path, labels: np.ndarray, boosts: CompiledBoosts) -> float:
        if self.automaton is NULL_AUTOMATON:
            return 0.0
        oov = boosts.oov.words if boosts.oov is not None else ()
        with LmArrays(self.automaton, oov) as lm:
            return lm.total(labels, complete=path.reached_final)


@dataclass(eq=False)
class PathBatch:
    """Paths read together and cut into words; see `Hypothesis.on_demand`."""

    reader: Reader
    paths: Sequence[Path]
    boosts: Sequence[Any]
    joined: Paths  # the same paths

    @cached_property
    def words(self) -> Words:
        """The words of all paths."""
        return self.reader.cutter.cut(self.joined, self.reader.frame_shift_s)

    @cached_property
    def texts(self) -> list[str] | None:
        """The texts of all paths if they need no words."""
        return self.reader.cutter.texts(self.joined)

    def text(self, i: int) -> str:
        """Return the text of path `i`."""
        if self.texts is not None:
            return close_up(self.texts[i])
        return join_words(self.reader.cutter.read(self.words, i)[0])

    def fields(self, i: int, name: str) -> dict[str, Any]:
        """Return field `name` of path `i`'s hypothesis, and those computed with it."""
        reader = self.reader
        if name == "words":
            return {"words": tuple(reader.cutter.timed(self.words, i))}
        if name in ("token_ids", "token_frames"):
            first, end = self.joined.token_splits[i : i + 2].tolist()
            token, *frames = [x[first:end] for x in self.joined.columns[:3]]
            if name == "token_ids":
                return {name: tuple(token.tolist())}
            return {name: tuple([tuple(x.tolist()) for x in frames])}
        path = self.paths[i]
        if name in CostAccount._fields:
            counted = reader.cutter.counted(self.words, i)
            with DeferredSignals():
                account = reader.account.of(path, *counted, self.boosts[i])
            return account._asdict()
        return {
            "token_names": reader.token_names,
            "frame_shift_s": reader.frame_shift_s,
            "reached_final": path.reached_final,
            "num_frames": path.num_frames,
            "died_at_frame": path.died_at_frame if path.died_at_frame >= 0 else None,
            "offset_s": 0.0,
        }
