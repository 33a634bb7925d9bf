"""FSTs as arrays, built from arcs in any order; arcs of infinite cost are dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from wfstdec.errors import GrammarError
from wfstdec.graph.arcs import FstArrays
from wfstdec.text.tokens import TokenTable, ilabel_of


class Arcs(NamedTuple):
    """Columns of equal length, one row per arc, in any order."""

    state: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    nextstate: np.ndarray
    cost: np.ndarray


def arcs_of(
    state: ArrayLike,
    ilabel: ArrayLike,
    olabel: ArrayLike,
    nextstate: ArrayLike,
    cost: ArrayLike = 0.0,
) -> Arcs:
    """Return arcs from arrays and numbers; a number applies to all arcs."""
    columns = (state, ilabel, olabel, nextstate, cost)
    return Arcs(*np.broadcast_arrays(*map(np.atleast_1d, columns)))


def fst_of(parts: Sequence[Arcs], start: int, final_cost: ArrayLike) -> FstArrays:
    """Return the FST with these arcs; arcs of a state keep their order."""
    arcs = Arcs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    final_cost = np.asarray(final_cost, np.float32)
    # Stable: graphs, and ties between arcs, must not depend on NumPy's sort.
    order = np.argsort(arcs.state, kind="stable")
    order = order[arcs.cost[order] < np.inf]
    splits = np.zeros(len(final_cost) + 1, np.int64)
    np.cumsum(np.bincount(arcs.state[order], minlength=len(final_cost)), out=splits[1:])
    return FstArrays(
        start,
        final_cost,
        splits,
        ilabel=arcs.ilabel[order].astype(np.int32),
        olabel=arcs.olabel[order].astype(np.int32),
        nextstate=arcs.nextstate[order].astype(np.int32),
        cost=arcs.cost[order].astype(np.float32),
    )


def least_final_costs(fst: FstArrays, label: int) -> np.ndarray:
    """Return least costs to end from each state over arcs with one input label."""
    # With these as final costs of a grammar, no back-off (`label`) is needed at the end
    # of a sentence: cost[s] = min(final_cost[s], arc.cost + cost[arc.nextstate] over
    # such arcs)
    arc = np.flatnonzero(fst.ilabel == label)
    state, nextstate, cost = fst.arc_state()[arc], fst.nextstate[arc], fst.cost[arc]
    least = fst.final_cost.astype(np.float64)
    for _ in range(fst.num_states + 1):
        over_arc = cost + least[nextstate]
        better = over_arc < least[state]
        if not better.any():
            return least.astype(np.float32)
        np.minimum.at(least, state[better], over_arc[better])
    raise GrammarError(
        "the grammar has a cycle without words whose cost is negative, expected none: "
        "its sentences would have no least cost"
    )


_Number = TypeVar("_Number", int, np.ndarray)


@dataclass(frozen=True)
class LabelSpace:
    """Labels of one build."""

    tokens: TokenTable  # Token table of the acoustic model
    words: tuple[str, ...]  # Words by id, `words[0]` is `<eps>`
    num_disambig: int = 1  # D, number of disambiguation symbols, including `#0`
    has_exits: bool = False  # Whether T has OOV exits and returns
    used: frozenset[int] | None = None  # Tokens in LG; None for all

    @property
    def blank(self) -> int:
        """Input label of the blank."""
        return ilabel_of(self.tokens.blank)

    @property
    def backoff_word(self) -> int:
        """`#0` on the side of words: one beyond the last word."""
        return len(self.words)

    @property
    def class_word(self) -> int:
        """Class of OOV words on the side of words."""
        return self.backoff_word + 1

    @property
    def class_token(self) -> int:
        """Class of OOV words on the side of tokens."""
        return ilabel_of(len(self.tokens))

    def disambig(self, k: _Number) -> _Number:
        """Return `#k` on the side of tokens."""
        return ilabel_of(k + len(self.tokens) + 1)

    def units(self) -> np.ndarray:
        """Return the input labels of the U used tokens other than the blank."""
        tokens = range(len(self.tokens)) if self.used is None else sorted(self.used)
        units = [token for token in tokens if token != self.tokens.blank]
        return ilabel_of(np.array(units, np.int32))

    def repeat(self, ilabel: np.ndarray) -> np.ndarray:
        """Return the labels that repeat the tokens of these input labels."""
        return ilabel + len(self.tokens)

    def exit(self, last: _Number) -> _Number:
        """Return the exit for a word after the token of this ilabel, 0 for none."""
        return last + (2 * len(self.tokens) + 1)

    def after(self, ilabel: _Number) -> _Number:
        """Return the return from a word whose last token has this input label."""
        return ilabel + self.exit(len(self.tokens) + 1)

    def split_repeats(self, ilabel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token labels of T's or TLG's input side, and which are repeats."""
        repeats = ilabel > len(self.tokens)
        return np.where(repeats, ilabel - len(self.tokens), ilabel), repeats
