"""Costs of pronunciations and silences on a lattice: on its arcs, for each path.

    said = pronounced(lattice)
    said.cost[arc], said.final_cost[state]          # beside the language model's

What a word costs is known by its label alone where all of its pronunciations cost the
same. Where they do not, it is known by the tokens of a path, which
`pronunciation_cuts.py` cuts: a state of the lattice becomes several, one for each way
that paths to it may go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import int64, uint32

from wfstdec.errors import LatticeError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.jit import jit, read_only
from wfstdec.jit.copying import longer
from wfstdec.jit.hashing import enter, slot_of_pair
from wfstdec.jit.pool import Once
from wfstdec.jit.sorting import counted
from wfstdec.lattice.arrays import ARC, Lattice
from wfstdec.lattice.pronunciation_cuts import (
    NEXT_ANY,
    NEXT_NONE,
    NEXT_OPEN,
    START,
    Cuts,
    filler_costs,
)
from wfstdec.text.symbols import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Vocabulary

_MOST_KNOWN = 1 << 20
"""So many steps of a graph's cuts are kept from lattice to lattice."""


class Pronounced(NamedTuple):
    """A lattice whose words' pronunciations are priced.

    Attributes:
        states: `STATE` [S'], by the lattice's order.
        arcs: `ARC` [A'], sorted by state.
        order: int64 [S'], each state before those that its arcs lead to.
        cost: float32 [A'], of pronunciations and silences, nats.
        final_cost: float32 [S'], what of it is known at the end alone.
    """

    states: np.ndarray
    arcs: np.ndarray
    order: np.ndarray
    cost: np.ndarray
    final_cost: np.ndarray


def pronounced(lattice: Lattice) -> Pronounced:
    """The lattice with the costs of pronunciations and silences on its arcs.

    Of several ways to cut a path's tokens into its words the cheapest counts; where
    there is none, from there on the least that each word may cost.

    Args:
        lattice: Any.

    Raises:
        LatticeError: It has open words whose costs are not known.
    """
    known = _known_of(lattice)
    said = lattice.arcs["olabel"]
    opened = lattice.vocabulary.open_word
    has_open = opened is not None and bool((said == opened.word).any())
    if has_open and known.cuts.open_cost is None:
        raise LatticeError(
            "has open words whose costs are not known, expected a lattice of a graph "
            "that says what they cost; build the graph again"
        )
    # The usual case: no word of this lattice has two costs, so that labels tell all.
    if known.by_label or not (has_open or known.differs[said].any()):
        found = _by_label(lattice, known)
    else:
        found = _by_path(lattice, known)
    return Pronounced(*(read_only(array[:]) for array in found))


class _Known:
    """Knowledge of one graph's pronunciations.

    Args:
        lattice: One of the graph.

    Attributes:
        info: How the graph was built.
        word_cost: float32 [W], the least of each word, with the place behind it.
        differs: bool [W], words whose costs depend on how they are said.
        by_label: Whether the tokens of paths say nothing of costs.
        cuts: Made of the tokens of paths.
        steps: Those of `cuts` that are known, as the kernel takes them.
    """

    def __init__(self, lattice: Lattice) -> None:
        vocabulary, self.info = lattice.vocabulary, lattice.info
        self.cuts = Cuts(vocabulary, self.info, word_first=lattice.labels_at_word_end)
        gap, filler = filler_costs(self.info)
        said = vocabulary.pronunciations
        least = np.full(len(vocabulary.words), np.inf, np.float32)
        np.minimum.at(least, said.word, said.cost)
        most = np.full(len(vocabulary.words), -np.inf, np.float32)
        np.maximum.at(most, said.word, said.cost)
        self.differs = least < most
        # Words without pronunciation, as those of graphs from elsewhere, cost nothing.
        least[least == np.inf] = 0
        self.word_cost = (least + np.float32(gap)).astype(np.float32)
        self.word_cost[EPSILON] = 0
        if filler:  # where a word may have a silence in it, paths tell which it is
            inside = np.isin(said.tokens, vocabulary.separators)
            has = np.add.reduceat(inside, said.splits[:-1]) if len(said) else inside
            self.differs[said.word[has > 0]] = True
        self.by_label = not (len(said) and self.info.marks_repeats)
        self.steps = Steps()


_KNOWN: Once[Vocabulary, list[_Known]] = Once(lambda _: [])
"""At most one for each vocabulary: that of the graph facts asked for last."""


def _known_of(lattice: Lattice) -> _Known:
    """Look up what is known of a lattice's vocabulary, or begin anew."""
    kept = _KNOWN.of(lattice.vocabulary)
    known = kept[0] if kept else None
    if not known or known.info is not lattice.info or len(known.steps) > _MOST_KNOWN:
        known = _Known(lattice)
    kept[:] = [known]
    return known


def _by_label(lattice: Lattice, known: _Known) -> Pronounced:
    """Words cost what they cost however they are said; silences are no words."""
    gap, filler = filler_costs(lattice.info)
    arcs = lattice.arcs
    cost = known.word_cost[arcs["olabel"]]
    if filler:
        silence = _begun(lattice) == ilabel_of(lattice.vocabulary.separators[0])
        cost = cost + np.where(silence, np.float32(filler), np.float32(0))
    final = np.full(lattice.num_states, gap, np.float32)
    return Pronounced(lattice.states, arcs, lattice.order, cost, final)


def _begun(lattice: Lattice) -> np.ndarray:
    """The ilabel of the token that begins on each arc, else 0; uint32 [A]."""
    label = lattice.arcs["ilabel"] & np.uint32(LABEL_MASK)
    goes_on = lattice.arcs["ilabel"] & np.uint32(REPEAT) != 0
    goes_on |= label == ilabel_of(lattice.tokens.blank)
    return np.where(goes_on, np.uint32(EPSILON), label)


def _by_path(lattice: Lattice, known: _Known) -> Pronounced:
    """States for each way that paths may go on."""
    arcs, order, num_states = lattice.arcs, lattice.order, lattice.num_states
    splits = np.searchsorted(arcs["state"], np.arange(num_states + 1))
    to, word = arcs["nextstate"].astype(np.int64), arcs["olabel"].astype(np.int64)
    opened = lattice.vocabulary.open_word
    follows = _follows(order, splits, to, word, opened.word if opened else -1)
    base = len(lattice.tokens) + 1
    begun = _begun(lattice).astype(np.int64)
    event = (word * base + begun) * 3 + follows[to]
    event[(word == EPSILON) & (begun == EPSILON)] = -1
    work, at = _Work.empty(), 0
    # The kernel knows steps that came up before; new ones are made in Python, and it
    # goes on where it stopped.
    while at < num_states:
        work, at, unknown = _pass(
            (read_only(arcs[:]), to, event, order, splits), known.steps.arrays, work, at
        )
        for cut, code in {(int(c), int(e)) for c, e in unknown}:
            rest, follow = divmod(code, 3)
            label = rest % base, rest // base
            known.steps.add(cut, code, *known.cuts.step(cut, *label, follow))
    return _numbered(lattice, known, work)


def _numbered(lattice: Lattice, known: _Known, work: _Work) -> Pronounced:
    """The states and arcs that were made, in order."""
    num, count = work.counts.tolist()
    pairs, arcs, order = numbered(work.pairs[:num], work.made[:count], lattice.order)
    states = lattice.states[pairs[:, 0]]
    ends = np.flatnonzero(states["final_excess"] < np.inf)
    gap, complete = filler_costs(lattice.info)[0], lattice.reached_final
    final = np.full(num, gap, np.float32)
    for at, cut in zip(ends.tolist(), pairs[ends, 1].tolist(), strict=True):
        final[at] += known.cuts.final(cut, complete)
    cost = np.ascontiguousarray(arcs["graph_cost"])
    return Pronounced(states, arcs, order, cost, final)


class Steps:
    """Steps that are known: a hash table that grows."""

    def __init__(self) -> None:
        self._table = np.full((256, 2), -1, np.int64), np.full(1024, -1, np.int32)
        self._to, self._cost = np.empty(256, np.int32), np.empty(256, np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays as `_pass` takes them."""
        return *self._table, self._to, self._cost

    def add(self, cut: int, event: int, to: int, cost: float) -> None:
        """Add a state that is new."""
        self._table, self._count, at = enter(self._table, self._count, cut, event)
        if at == len(self._to):
            self._to, self._cost = longer(self._to, 0), longer(self._cost, 0)
        self._to[at], self._cost[at] = to, cost


class _Work(NamedTuple):
    """States and arcs that are made so far."""

    pairs: np.ndarray  # int32 [N, 2]: a state of the lattice, and of cuts
    slots: np.ndarray  # int32, of pairs
    before: np.ndarray  # int32 [N], the one before of the same state, or -1
    last: np.ndarray  # int32 [S + 1], of each state, or -1
    made: np.ndarray  # `ARC`, pronunciations for graph costs
    counts: np.ndarray  # int64 [2], how many states and arcs

    @classmethod
    def empty(cls) -> _Work:
        """The start alone."""
        table = np.full((256, 2), -1, np.int32), np.full(1024, -1, np.int32)
        (pairs, slots), _, _ = enter(table, 0, 0, START)
        last = np.zeros(1, np.int32)
        before, made = np.full(256, -1, np.int32), np.empty(256, ARC)
        return cls(pairs, slots, before, last, made, np.array([1, 0]))


@jit
def _follows(order, splits, to, word, opened):
    """Words that may come next in each state, int64 [S]."""
    listed, is_open = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
    # Backwards: what follows a state is known once all behind it is.
    for state in order[::-1]:
        for a in range(splits[state], splits[state + 1]):
            if word[a] == 0:
                listed[state] |= listed[to[a]]
                is_open[state] |= is_open[to[a]]
            elif word[a] == opened:
                is_open[state] = True
            else:
                listed[state] = True
    found = np.full(len(order), NEXT_NONE)
    for state in range(len(order)):
        if listed[state]:
            found[state] = NEXT_ANY
        elif is_open[state]:
            found[state] = NEXT_OPEN
    return found


@jit
def _pass(lattice, steps, work, at):
    """Go on in the lattice until the end, or to a step that is not known.

    Returns:
        (what is made, how far in the order of states, int64 [M, 2] unknown steps).
    """
    arcs, to, event, order, splits = lattice
    keys, known, step_to, step_cost = steps
    pairs, slots, before, last, made, counts = work
    unknown = np.empty((64, 2), np.int64)
    if len(last) != len(order) + 1:
        last = np.full(len(order) + 1, -1, np.int32)
        last[0] = 0
    num, count, missing = counts[0], counts[1], 0
    while at < len(order):
        state, one = order[at], np.int64(last[order[at]])
        # All of a state's unknown steps at once, so that Python is asked once for it.
        while one >= 0:
            for a in range(splits[state], splits[state + 1]):
                if event[a] >= 0:
                    slot = slot_of_pair(known, keys, pairs[one, 1], event[a])
                    if known[slot] < 0 and missing < len(unknown):
                        unknown[missing, 0] = pairs[one, 1]
                        unknown[missing, 1] = event[a]
                        missing += 1
            one = np.int64(before[one])
        if missing:
            break
        one = np.int64(last[state])
        while one >= 0:
            for a in range(splits[state], splits[state + 1]):
                cut, cost = int64(pairs[one, 1]), np.float32(0)
                if event[a] >= 0:
                    step = known[slot_of_pair(known, keys, cut, event[a])]
                    cut, cost = int64(step_to[step]), step_cost[step]
                number = np.int64(slots[slot_of_pair(slots, pairs, to[a], cut)])
                if number < 0:
                    (pairs, slots), num, number = enter((pairs, slots), num, to[a], cut)
                    before = before if num <= len(before) else longer(before, num)
                    before[number], last[to[a]] = last[to[a]], number
                if count == len(made):
                    made = longer(made, 0)
                made[count] = arcs[a]
                arc = made[count]
                arc.state, arc.nextstate = uint32(one), uint32(number)
                arc.graph_cost = cost
                count += 1
            one = np.int64(before[one])
        at += 1
    counts[0], counts[1] = num, count
    return _Work(pairs, slots, before, last, made, counts), at, unknown[:missing]


@jit
def numbered(pairs, arcs, order):
    """Sort pairs of a state and a history by state, and arcs between them by pair.

    Args:
        pairs: int32 [N, 2], as they came up.
        arcs: `ARC` [A], whose states are numbers of pairs.
        order: int64 [S], the states, each before those that its arcs lead to.

    Returns:
        (int32 [N, 2]; `ARC` [A], by the new numbers; int64 [N], the order of pairs).
    """
    splits, by_state = counted(pairs[:, 0], len(order))
    number = np.empty(len(pairs), np.int32)
    for i in range(len(pairs)):
        number[by_state[i]] = i
    source = np.empty(len(arcs), np.int32)
    for a in range(len(arcs)):
        source[a] = number[arcs[a].state]
    _, by_source = counted(source, len(pairs))
    made = np.empty(len(arcs), ARC)
    for i in range(len(arcs)):
        made[i] = arcs[by_source[i]]
        one = made[i]
        one.state, one.nextstate = (
            uint32(number[one.state]),
            uint32(number[one.nextstate]),
        )
    onwards, num = np.empty(len(pairs), np.int64), 0
    for state in order:
        for at in range(splits[state], splits[state + 1]):
            onwards[num] = at
            num += 1
    return pairs[by_state], made, onwards
