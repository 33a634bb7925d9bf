"""How a path's tokens are cut into the pronunciations of its words, arc by arc.

    cuts = Cuts(vocabulary)
    state, cost = cuts.step(START, token, word, NEXT_ANY)
    cost = cuts.final(state, complete=True)

A word's label may stand anywhere in its pronunciation, or behind it. So what is known
of a path so far is a set of ways to cut it, each with what it costs:

    rest       tokens that the word which is being said still needs
    waiting    words whose labels have come, but none of their tokens
    pending    tokens that no label has come for

One of the three may be empty, or all. A word is charged the least that it may cost when
its label comes, and the rest when its tokens tell: so what a path costs is the least
over all ways to cut it, and charged as early as may be. A state is such a set, less
what the least of them costs. Words of a path that cannot be cut (it ends within one,
or the graph says a word in another way) cost the least of theirs from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy import int64, uint32

from wfstdec.errors import LatticeError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT, GraphInfo
from wfstdec.jit import jit, read_only
from wfstdec.jit.arrays import enter, longer, slot_of_pair
from wfstdec.jit.records import WeakCache
from wfstdec.jit.sorting import counted
from wfstdec.lattice.arrays import ARC, Lattice
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of
from wfstdec.text.vocabulary import Vocabulary

START = 0
LOST = 1
"""The state of a path that cannot be cut."""
NEXT_ANY, NEXT_OPEN, NEXT_NONE = 0, 1, 2
"""Which words may come next: any; open ones alone; none before the path ends."""
_MOST_HEARD = 4
"""A label comes within this many times the tokens of the longest pronunciation."""
_DIGITS = 9
_OPEN, _IDLE = (-1,), (-2,)
"""Pending tokens: of an open word; of no word any more."""


class Cut(NamedTuple):
    """A way to cut a path so far."""

    rest: tuple[int, ...]
    waiting: tuple[int, ...]
    pending: tuple[int, ...]


_BETWEEN = Cut((), (), ())
_Ways = Iterator[tuple[Cut, float]]


class Cuts:
    """The states of one graph, made as they are asked for.

    `info`: how the graph was built, for what silences cost; None costs nothing.

    Attributes:
        open_cost: What an open word costs beside its tokens; None where there are none,
            or where it is not known.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        info: GraphInfo | None = None,
        *,
        word_first: bool = False,
    ) -> None:
        self._said = pronunciations_of(vocabulary)
        self._least = {w: min(c for _, c in ways) for w, ways in self._said.items()}
        self._fillers = frozenset(vocabulary.separators)
        self._begins = {tokens[0] for ways in self._said.values() for tokens, _ in ways}
        self.gap, self.filler = filler_costs(info or GraphInfo())
        self._word_first = word_first
        opened, self._spelling = vocabulary.open_word, vocabulary.open_spelling
        self._open = opened.word if opened else -1
        self._token_cost = opened.token_cost if opened else 0.0
        self.open_cost = opened.word_cost if opened else None
        longest = max((len(t) for w in self._said.values() for t, _ in w), default=0)
        self._most_pending = _MOST_HEARD * (longest + 1)
        self._states: list[tuple[tuple[Cut, float], ...]] = [((_BETWEEN, 0.0),), ()]
        self._numbers = {ways: i for i, ways in enumerate(self._states)}

    def step(
        self, state: int, ilabel: int, word: int, follows: int
    ) -> tuple[int, float]:
        """Step along an arc: the next state, and the cost."""
        if state == LOST:
            return LOST, self._lost_cost(ilabel, word)
        ways = dict(self._states[state])
        if word and self._word_first:
            ways = _least(ways, self._say, word)
        if ilabel:
            ways = _least(ways, self._hear, int(token_of(ilabel)))
        if word and not self._word_first:
            ways = _least(ways, self._say, word)
        if follows != NEXT_ANY:
            ways = _least(ways, self._narrow, follows)
        if not ways:
            return LOST, self._lost_cost(ilabel, word)
        # States differ by what ways cost more than the best one, so that few numbers
        # stand for all paths; rounded, or sums in other orders would make more.
        least = min(ways.values())
        kept = ((cut, round(cost - least, _DIGITS)) for cut, cost in ways.items())
        key = tuple(sorted(kept))
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(key)
        return number, least

    def final(self, state: int, complete: bool) -> float:
        """Cost of ending in a state."""
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
        """The least that a word may cost, with the place behind it."""
        if word == self._open:
            return self.gap + self._token_cost + (self.open_cost or 0.0)
        return self.gap + self._least.get(word, 0.0)

    def _hear(self, cut: Cut, token: int) -> _Ways:
        """A token begins."""
        rest, waiting, pending = cut
        # Inside a word only its next token may come: fillers stand between words.
        if rest:
            if rest[0] == token:
                yield Cut(rest[1:], waiting, ()), 0.0
            return
        if not pending and token in self._fillers:
            yield cut, self.filler
        # A label came before its tokens: these must spell it.
        if waiting:
            least = self._least.get(waiting[0], 0.0)
            for tokens, cost in self._said.get(waiting[0], ()):
                if tokens[0] == token:
                    yield Cut(tokens[1:], waiting[1:], ()), cost - least
        elif pending == _IDLE:
            yield cut, 0.0
        elif pending == _OPEN:
            if self._spelling is not None and self._spelling.extends[token]:
                yield cut, self._token_cost
        # The first token of a word, fillers left alone, or a further one.
        elif (
            len(pending) < self._most_pending
            if pending
            else token not in self._fillers or token in self._begins
        ):
            yield Cut((), (), (*pending, token)), 0.0

    def _say(self, cut: Cut, word: int) -> _Ways:
        """A label comes."""
        rest, waiting, pending = cut
        cost = self._word_cost(word)
        if word == self._open:
            if pending == _OPEN:
                yield _BETWEEN, self.gap + (self.open_cost or 0.0)
            elif pending and self._spells(pending):
                yield _BETWEEN, cost + self._token_cost * (len(pending) - 1)
        # Nothing is pending that it could explain: its tokens are still to come.
        elif not pending:
            yield Cut(rest, (*waiting, word), ()), cost
        elif pending[0] >= 0:
            least = self._least.get(word, 0.0)
            for tokens, own in self._said.get(word, ()):
                if tokens[: len(pending)] == pending:
                    yield Cut(tokens[len(pending) :], (), ()), cost + own - least
                # More is pending than this word has: the rest begins another one.
                elif pending[: len(tokens)] == tokens:
                    for cut, more in self._begun(pending[len(tokens) :]):
                        yield cut, cost + own - least + more

    def _begun(self, pending: tuple[int, ...]) -> _Ways:
        """Tokens behind a word: all that fillers among them may be."""
        cost = 0.0
        while pending and pending[0] in self._fillers:
            if pending[0] in self._begins:
                yield Cut((), (), pending), cost
            pending, cost = pending[1:], cost + self.filler
        yield Cut((), (), pending), cost

    def _narrow(self, cut: Cut, follows: int) -> _Ways:
        """Drop the pending tokens, where it is known what they are."""
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
    """Advance every way by a label; keep the cheapest of equal ones."""
    found: dict[Cut, float] = {}
    for cut, cost in ways.items():
        for other, more in passed(cut, label):
            found[other] = min(cost + more, found.get(other, math.inf))
    return found


def pronunciations_of(
    vocabulary: Vocabulary,
) -> dict[int, list[tuple[tuple[int, ...], float]]]:
    """The tokens and costs of each word's pronunciations."""
    prons = vocabulary.pronunciations
    found: dict[int, list[tuple[tuple[int, ...], float]]] = {}
    tokens, splits = prons.tokens.tolist(), prons.splits.tolist()
    columns = zip(prons.word.tolist(), prons.cost.tolist(), strict=True)
    for i, (word, cost) in enumerate(columns):
        one = tuple(tokens[splits[i] : splits[i + 1]])
        if one:
            found.setdefault(word, []).append((one, cost))
    return found


def filler_costs(info: GraphInfo) -> tuple[float, float]:
    """Price each place without a silence, and how much more one with it costs, nats."""
    if info.silence_prob is None:
        return 0.0, 0.0
    without = -float(np.log1p(-info.silence_prob))
    return without, -math.log(info.silence_prob) - without


_MOST_KNOWN = 1 << 20
"""Steps of a graph's cuts that are cached between lattices."""


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
    """
    known = _known_of(lattice)
    olabel = lattice.arcs["olabel"]
    opened = lattice.vocabulary.open_word
    has_open = opened is not None and bool((olabel == opened.word).any())
    if has_open and known.cuts.open_cost is None:
        raise LatticeError(
            "has open words whose costs are not known, expected a lattice of a graph "
            "that says what they cost; build the graph again"
        )
    # The usual case: no word of this lattice has two costs, so that labels tell all.
    if known.by_label or not (has_open or known.differs[olabel].any()):
        found = _by_label(lattice, known)
    else:
        found = _by_path(lattice, known)
    return Pronounced(*(read_only(array[:]) for array in found))


class _Known:
    """Knowledge of one graph's pronunciations.

    Attributes:
        info: How the graph was built.
        word_cost: float32 [W], the least of each word, with the place behind it.
        differs: bool [W], words whose costs depend on how they are prons.
        by_label: Whether the tokens of paths say nothing of costs.
        cuts: Made of the tokens of paths.
        steps: Those of `cuts` that are known, as the kernel takes them.
    """

    def __init__(self, lattice: Lattice) -> None:
        vocabulary, self.info = lattice.vocabulary, lattice.info
        self.cuts = Cuts(vocabulary, self.info, word_first=lattice.labels_at_word_end)
        gap, filler = filler_costs(self.info)
        prons = vocabulary.pronunciations
        least = np.full(len(vocabulary.words), np.inf, np.float32)
        np.minimum.at(least, prons.word, prons.cost)
        most = np.full(len(vocabulary.words), -np.inf, np.float32)
        np.maximum.at(most, prons.word, prons.cost)
        self.differs = least < most
        # Words without pronunciation, as those of graphs from elsewhere, cost nothing.
        least[least == np.inf] = 0
        self.word_cost = (least + np.float32(gap)).astype(np.float32)
        self.word_cost[EPSILON] = 0
        if filler:  # where a word may have a silence in it, paths tell which it is
            inside = np.isin(prons.tokens, vocabulary.separators)
            has = np.add.reduceat(inside, prons.splits[:-1]) if len(prons) else inside
            self.differs[prons.word[has > 0]] = True
        self.by_label = not (len(prons) and self.info.marks_repeats)
        self.steps = Steps()


_KNOWN: WeakCache[Vocabulary, list[_Known]] = WeakCache(lambda _: [])
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

    Returns (what is made, how far in the order of states, int64 [M, 2] unknown steps).
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

    `pairs`: int32 [N, 2], as they came up. `arcs`: `ARC` [A], whose states are numbers
    of pairs. `order`: int64 [S], the states, each before those that its arcs lead to.
    Returns (int32 [N, 2]; `ARC` [A], by the new numbers; int64 [N], the order of
    pairs).
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
