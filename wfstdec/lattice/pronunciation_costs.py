"""Costs of pronunciations on the arcs of a lattice.

    cuts = Cuts(lattice)
    state, cost = cuts.step(START, token, word, NEXT_ANY)
    cost = cuts.final(state, complete=True)

A word's label may be anywhere in its pronunciation, or after it. So the state of a path
is a set of possible cuts into words, each with a cost relative to the least. A word is
charged the least of its possible costs at its label, and the rest once its tokens
decide it. If no cut is possible, each later word is charged its least cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy import int64, uint32

from wfstdec.errors import LatticeError
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.jit import jit, read_only
from wfstdec.jit.arrays import enter, longer, slot_of_pair
from wfstdec.jit.records import WeakCache
from wfstdec.jit.sorting import counted
from wfstdec.lattice.arrays import ARC, Lattice, starts_token
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of
from wfstdec.text.vocabulary import Vocabulary

START = 0
LOST = 1
"""The state of a path that cannot be cut."""
NEXT_ANY, NEXT_OPEN, NEXT_NONE = 0, 1, 2
"""Possible next words: any; only open ones; none before the end of the path."""
_MOST_PENDING = 4
"""A label is at most this many times the longest pronunciation late, in tokens."""
_DIGITS = 9
_OPEN, _IDLE = (-1,), (-2,)
"""Pending tokens: of an open word; of no word."""


class Cut(NamedTuple):
    """One cut of a path so far; at most one of its parts is not empty."""

    rest: tuple[int, ...]  # missing tokens of the current word
    waiting: tuple[int, ...]  # words with labels but no tokens yet
    pending: tuple[int, ...]  # tokens without a label yet


_BETWEEN = Cut((), (), ())
_Ways = Iterator[tuple[Cut, float]]


class Cuts:
    """Pronunciations of one graph, and possible cuts of paths into them.

    Attributes:
        info: Properties of the graph.
        gap: Cost of a place between words without a silence, nats.
        filler: Extra cost of a place with a silence.
        open_cost: Cost of an open word without its tokens; None if there are none, or
            if it is unknown.
        word_cost: float32 [W], least cost of each word, with the place after it.
        differs: bool [W], words whose cost depends on their pronunciation.
        by_label: Whether costs are independent of tokens.
        steps: Known steps, for the kernel.
    """

    def __init__(self, lattice: Lattice) -> None:
        vocabulary, self.info = lattice.vocabulary, lattice.info
        prons, num_words = vocabulary.pronunciations, len(vocabulary.words)
        self._pronunciations = _pronunciations_of(vocabulary)
        known = self._pronunciations.items()
        self._least = {word: min(c for _, c in ways) for word, ways in known}
        self._fillers = frozenset(vocabulary.separators)
        self._begins = {tokens[0] for _, ways in known for tokens, _ in ways}
        self.gap = self.filler = 0.0
        if (probability := self.info.silence_prob) is not None:
            self.gap = -float(np.log1p(-probability))
            self.filler = -math.log(probability) - self.gap
        self._word_first = lattice.labels_at_word_end
        opened, self._spelling = vocabulary.open_word, vocabulary.open_spelling
        self._open = opened.word if opened else -1
        self._token_cost = opened.token_cost if opened else 0.0
        self.open_cost = opened.word_cost if opened else None
        longest = max(
            (len(tokens) for _, ways in known for tokens, _ in ways), default=0
        )
        self._most_pending = _MOST_PENDING * (longest + 1)
        self._states: list[tuple[tuple[Cut, float], ...]] = [((_BETWEEN, 0.0),), ()]
        self._numbers = {ways: i for i, ways in enumerate(self._states)}
        least = np.full(num_words, np.inf, np.float32)
        np.minimum.at(least, prons.word, prons.cost)
        most = np.full(num_words, -np.inf, np.float32)
        np.maximum.at(most, prons.word, prons.cost)
        self.differs = least < most
        # Words without pronunciation, as in graphs composed elsewhere, cost nothing.
        least[least == np.inf] = 0
        self.word_cost = (least + np.float32(self.gap)).astype(np.float32)
        self.word_cost[EPSILON] = 0
        if self.filler:  # paths show which word has a silence
            inside = np.isin(prons.tokens, vocabulary.separators)
            has = np.add.reduceat(inside, prons.splits[:-1]) if len(prons) else inside
            self.differs[prons.word[has > 0]] = True
        self.by_label = not (len(prons) and self.info.marks_repeats)
        self.steps = Steps()

    def step(
        self, state: int, ilabel: int, word: int, follows: int
    ) -> tuple[int, float]:
        """Step along an arc; return the next state and the cost."""
        if state == LOST:
            return LOST, self._lost_cost(ilabel, word)
        ways = dict(self._states[state])
        if word and self._word_first:
            ways = _least(ways, self._take_word, word)
        if ilabel:
            ways = _least(ways, self._take_token, int(token_of(ilabel)))
        if word and not self._word_first:
            ways = _least(ways, self._take_word, word)
        if follows != NEXT_ANY:
            ways = _least(ways, self._narrow, follows)
        if not ways:
            return LOST, self._lost_cost(ilabel, word)
        # States differ by costs relative to the least, so that few of them represent
        # all paths; rounded, since sums in other orders would create more.
        least = min(ways.values())
        kept = ((cut, round(cost - least, _DIGITS)) for cut, cost in ways.items())
        key = tuple(sorted(kept))
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(key)
        return number, least

    def final(self, state: int, complete: bool) -> float:
        """Return the cost of ending in a state."""
        ways = dict(self._states[state])
        if complete and _BETWEEN in ways:
            return ways[_BETWEEN]
        return min(ways.values(), default=0.0)

    def _lost_cost(self, ilabel: int, word: int) -> float:
        cost = 0.0
        if ilabel and int(token_of(ilabel)) in self._fillers:
            cost += self.filler
        return cost + self._word_cost(word) if word else cost

    def _word_cost(self, word: int) -> float:
        if word == self._open:
            return self.gap + self._token_cost + (self.open_cost or 0.0)
        return self.gap + self._least.get(word, 0.0)

    def _take_token(self, cut: Cut, token: int) -> _Ways:
        """Yield the cuts after a token."""
        rest, waiting, pending = cut
        # Inside a word only its next token is possible: fillers are between words.
        if rest:
            if rest[0] == token:
                yield Cut(rest[1:], waiting, ()), 0.0
            return
        if not pending and token in self._fillers:
            yield cut, self.filler
        # The label came before its tokens, which must match.
        if waiting:
            least = self._least.get(waiting[0], 0.0)
            for tokens, cost in self._pronunciations.get(waiting[0], ()):
                if tokens[0] == token:
                    yield Cut(tokens[1:], waiting[1:], ()), cost - least
        elif pending == _IDLE:
            yield cut, 0.0
        elif pending == _OPEN:
            if self._spelling is not None and self._spelling.extends[token]:
                yield cut, self._token_cost
        # The first token of a word, except fillers, or a further one.
        elif (
            len(pending) < self._most_pending
            if pending
            else token not in self._fillers or token in self._begins
        ):
            yield Cut((), (), (*pending, token)), 0.0

    def _take_word(self, cut: Cut, word: int) -> _Ways:
        """Yield the cuts after a word label."""
        rest, waiting, pending = cut
        cost = self._word_cost(word)
        if word == self._open:
            if pending == _OPEN:
                yield _BETWEEN, self.gap + (self.open_cost or 0.0)
            elif pending and self._spells(pending):
                yield _BETWEEN, cost + self._token_cost * (len(pending) - 1)
        # Nothing is pending: its tokens follow.
        elif not pending:
            yield Cut(rest, (*waiting, word), ()), cost
        elif pending[0] >= 0:
            least = self._least.get(word, 0.0)
            for tokens, own in self._pronunciations.get(word, ()):
                if tokens[: len(pending)] == pending:
                    yield Cut(tokens[len(pending) :], (), ()), cost + own - least
                # More is pending than this word has: the rest begins another one.
                elif pending[: len(tokens)] == tokens:
                    for cut, more in self._begun(pending[len(tokens) :]):
                        yield cut, cost + own - least + more

    def _begun(self, pending: tuple[int, ...]) -> _Ways:
        """Yield the possible tokens after a word, with fillers removed."""
        cost = 0.0
        while pending and pending[0] in self._fillers:
            if pending[0] in self._begins:
                yield Cut((), (), pending), cost
            pending, cost = pending[1:], cost + self.filler
        yield Cut((), (), pending), cost

    def _narrow(self, cut: Cut, follows: int) -> _Ways:
        pending = cut.pending
        if not pending or pending[0] < 0:
            yield cut, 0.0
        elif follows == NEXT_NONE:
            yield Cut((), (), _IDLE), 0.0
        elif self._spells(pending):
            yield Cut((), (), _OPEN), self._token_cost * len(pending)

    def _spells(self, pending: tuple[int, ...]) -> bool:
        spelling = self._spelling
        return (
            spelling is not None
            and bool(spelling.begins[pending[0]])
            and bool(spelling.extends[list(pending[1:])].all())
        )


def _least(
    ways: dict[Cut, float], passed: Callable[[Cut, int], _Ways], label: int
) -> dict[Cut, float]:
    found: dict[Cut, float] = {}
    for cut, cost in ways.items():
        for other, more in passed(cut, label):
            found[other] = min(cost + more, found.get(other, math.inf))
    return found


def _pronunciations_of(
    vocabulary: Vocabulary,
) -> dict[int, list[tuple[tuple[int, ...], float]]]:
    prons = vocabulary.pronunciations
    found: dict[int, list[tuple[tuple[int, ...], float]]] = {}
    tokens, splits = prons.tokens.tolist(), prons.splits.tolist()
    columns = zip(prons.word.tolist(), prons.cost.tolist(), strict=True)
    for i, (word, cost) in enumerate(columns):
        if one := tuple(tokens[splits[i] : splits[i + 1]]):
            found.setdefault(word, []).append((one, cost))
    return found


_MOST_KNOWN = 1 << 20
"""Steps of a graph's cuts that are cached between lattices."""


class Pronounced(NamedTuple):
    """Lattice with priced pronunciations."""

    states: np.ndarray  # `STATE` [S'], by the lattice's order
    arcs: np.ndarray  # `ARC` [A'], sorted by state
    order: np.ndarray  # int64 [S'], topological
    cost: np.ndarray  # float32 [A'], of pronunciations and silences, nats
    final_cost: np.ndarray  # float32 [S'], the part known only at the end


def pronounced(lattice: Lattice) -> Pronounced:
    """Return the lattice with the costs of pronunciations and silences on its arcs.

    Of several cuts of a path into its words the one of least cost counts. Without a
    possible cut, each later word costs its least.
    """
    cuts = _cuts_of(lattice)
    olabel = lattice.arcs["olabel"]
    opened = lattice.vocabulary.open_word
    has_open = opened is not None and bool((olabel == opened.word).any())
    if has_open and cuts.open_cost is None:
        raise LatticeError(
            "has open words whose costs are not known, expected a lattice of a graph "
            "that says what they cost; build the graph again"
        )
    # The usual case: no word of this lattice has two costs, so labels suffice.
    is_by_label = cuts.by_label or not (has_open or cuts.differs[olabel].any())
    found = (_by_label if is_by_label else _by_path)(lattice, cuts)
    return Pronounced(*(read_only(array[:]) for array in found))


_KNOWN: WeakCache[Vocabulary, list[Cuts]] = WeakCache(lambda _: [])
"""At most one per vocabulary: that of the last graph."""


def _cuts_of(lattice: Lattice) -> Cuts:
    """Return the cached cuts of a lattice's vocabulary, or new ones."""
    kept = _KNOWN.of(lattice.vocabulary)
    cuts = kept[0] if kept else None
    if not cuts or cuts.info is not lattice.info or len(cuts.steps) > _MOST_KNOWN:
        cuts = Cuts(lattice)
    kept[:] = [cuts]
    return cuts


def _by_label(lattice: Lattice, cuts: Cuts) -> Pronounced:
    """Price words by their labels: no word has two costs; silences are not words."""
    arcs = lattice.arcs
    cost = cuts.word_cost[arcs["olabel"]]
    if cuts.filler:
        silence = _begun(lattice) == ilabel_of(lattice.vocabulary.separators[0])
        cost = cost + np.where(silence, np.float32(cuts.filler), np.float32(0))
    final = np.full(lattice.num_states, cuts.gap, np.float32)
    return Pronounced(lattice.states, arcs, lattice.order, cost, final)


def _begun(lattice: Lattice) -> np.ndarray:
    """Return the ilabel of the token that begins on each arc, else 0; uint32 [A]."""
    ilabel = lattice.arcs["ilabel"]
    begins = starts_token(ilabel, lattice.tokens)
    return np.where(begins, ilabel & np.uint32(LABEL_MASK), np.uint32(EPSILON))


def _by_path(lattice: Lattice, cuts: Cuts) -> Pronounced:
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
    # The kernel continues by known steps; Python adds unknown ones.
    while at < num_states:
        work, at, unknown = _pass(
            (read_only(arcs[:]), to, event, order, splits), cuts.steps.arrays, work, at
        )
        for cut, code in {(int(c), int(e)) for c, e in unknown}:
            rest, follow = divmod(code, 3)
            label = rest % base, rest // base
            cuts.steps.add(cut, code, *cuts.step(cut, *label, follow))
    num, count = work.counts.tolist()
    pairs, made, order = numbered(work.pairs[:num], work.made[:count], order)
    states = lattice.states[pairs[:, 0]]
    ends = np.flatnonzero(states["final_excess"] < np.inf)
    final = np.full(num, cuts.gap, np.float32)
    for end, cut in zip(ends.tolist(), pairs[ends, 1].tolist(), strict=True):
        final[end] += cuts.final(cut, lattice.reached_final)
    return Pronounced(
        states, made, order, np.ascontiguousarray(made["graph_cost"]), final
    )


class Steps:
    """Hash table of known steps."""

    def __init__(self) -> None:
        self._table = np.full((256, 2), -1, np.int64), np.full(1024, -1, np.int32)
        self._to, self._cost = np.empty(256, np.int32), np.empty(256, np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays for `_pass`."""
        return *self._table, self._to, self._cost

    def add(self, cut: int, event: int, to: int, cost: float) -> None:
        """Add a step."""
        self._table, self._count, at = enter(self._table, self._count, cut, event)
        if at == len(self._to):
            self._to, self._cost = longer(self._to, 0), longer(self._cost, 0)
        self._to[at], self._cost[at] = to, cost


class _Work(NamedTuple):
    pairs: np.ndarray  # int32 [N, 2]: a state of the lattice, and of cuts
    slots: np.ndarray  # int32, of pairs
    before: np.ndarray  # int32 [N], previous pair of the same state, or -1
    last: np.ndarray  # int32 [S + 1], of each state, or -1
    made: np.ndarray  # `ARC`, pronunciations for graph costs
    counts: np.ndarray  # int64 [2], numbers of states and arcs

    @classmethod
    def empty(cls) -> _Work:
        table = np.full((256, 2), -1, np.int32), np.full(1024, -1, np.int32)
        (pairs, slots), _, _ = enter(table, 0, 0, START)
        last = np.zeros(1, np.int32)
        before, made = np.full(256, -1, np.int32), np.empty(256, ARC)
        return cls(pairs, slots, before, last, made, np.array([1, 0]))


@jit
def _follows(order, splits, to, word, opened):
    """Return words that may come next in each state, int64 [S]."""
    listed, is_open = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
    # Backwards: successors come first.
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
    # Returns (the work, position in the order, int64 [M, 2] unknown steps).
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
        # All unknown steps of a state at once, to call Python once for it.
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
    """Sort pairs of a state and a history by state, and arcs between them by pair."""
    # `pairs`: int32 [N, 2], unsorted. `arcs`: `ARC` [A], between numbers of pairs.
    # `order`: of states. Returns both sorted, and the order of pairs.
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
        made[i].state = uint32(number[made[i].state])
        made[i].nextstate = uint32(number[made[i].nextstate])
    onwards, num = np.empty(len(pairs), np.int64), 0
    for state in order:
        for at in range(splits[state], splits[state + 1]):
            onwards[num] = at
            num += 1
    return pairs[by_state], made, onwards
