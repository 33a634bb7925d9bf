"""How a path's tokens are cut into the pronunciations of its words, arc by arc.

    cuts = Cuts(vocabulary)
    state, cost = cuts.step(START, token, word, NEXT_ANY)
    cost = cuts.final(state, complete=True)

A word's label may stand anywhere in its pronunciation, or behind it. So what is known
of a path so far is a set of ways to cut it, each with what it costs:

    rest       tokens that the word which is being said still needs
    waiting    words whose labels have come, but none of their tokens
    heard      tokens that no label has come for

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

from wfstdec.graph.info import GraphInfo
from wfstdec.text.symbols import token_of
from wfstdec.text.vocabulary import Vocabulary

START = 0
LOST = 1
"""The state of a path that cannot be cut."""
NEXT_ANY, NEXT_OPEN, NEXT_NONE = 0, 1, 2
"""Which words may come next: any; open ones alone; none before the path ends."""
_MOST_HEARD = 4
"""A label comes before so many times the tokens of the longest pronunciation."""
_DIGITS = 9
_OPEN, _IDLE = (-1,), (-2,)
"""Tokens that were heard: of an open word; of no word any more."""


class Cut(NamedTuple):
    """A way to cut a path so far."""

    rest: tuple[int, ...]
    waiting: tuple[int, ...]
    heard: tuple[int, ...]


_BETWEEN = Cut((), (), ())
_Ways = Iterator[tuple[Cut, float]]


class Cuts:
    """The states of one graph, made as they are asked for.

    Args:
        vocabulary: Of the graph, perhaps with OOV words.
        info: How the graph was built, for what silences cost; None costs nothing.
        word_first: Whether a label that comes with a token is of the word before it.

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
        self._most_heard = _MOST_HEARD * (longest + 1)
        self._states: list[tuple[tuple[Cut, float], ...]] = [((_BETWEEN, 0.0),), ()]
        self._numbers = {ways: i for i, ways in enumerate(self._states)}

    def step(
        self, state: int, ilabel: int, word: int, follows: int
    ) -> tuple[int, float]:
        """Step along an arc: the next state, and the cost.

        Args:
            state: Of the path so far.
            ilabel: Of a token that begins, or 0.
            word: Its label, or 0.
            follows: Which words may come next: `NEXT_ANY` and so on.
        """
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
        """Cost of ending in a state.

        Args:
            state: Of the whole path.
            complete: Whether its last word must be whole.
        """
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
        rest, waiting, heard = cut
        # Inside a word only its next token may come: fillers stand between words.
        if rest:
            if rest[0] == token:
                yield Cut(rest[1:], waiting, ()), 0.0
            return
        if not heard and token in self._fillers:
            yield cut, self.filler
        # A label came before its tokens: these must spell it.
        if waiting:
            least = self._least.get(waiting[0], 0.0)
            for tokens, cost in self._said.get(waiting[0], ()):
                if tokens[0] == token:
                    yield Cut(tokens[1:], waiting[1:], ()), cost - least
        elif heard == _IDLE:
            yield cut, 0.0
        elif heard == _OPEN:
            if self._spelling is not None and self._spelling.extends[token]:
                yield cut, self._token_cost
        # The first token of a word, fillers left alone, or a further one.
        elif (
            len(heard) < self._most_heard
            if heard
            else token not in self._fillers or token in self._begins
        ):
            yield Cut((), (), (*heard, token)), 0.0

    def _say(self, cut: Cut, word: int) -> _Ways:
        """A label comes."""
        rest, waiting, heard = cut
        cost = self._word_cost(word)
        if word == self._open:
            if heard == _OPEN:
                yield _BETWEEN, self.gap + (self.open_cost or 0.0)
            elif heard and self._spells(heard):
                yield _BETWEEN, cost + self._token_cost * (len(heard) - 1)
        # Nothing is heard that it could explain: its tokens are still to come.
        elif not heard:
            yield Cut(rest, (*waiting, word), ()), cost
        elif heard[0] >= 0:
            least = self._least.get(word, 0.0)
            for tokens, own in self._said.get(word, ()):
                if tokens[: len(heard)] == heard:
                    yield Cut(tokens[len(heard) :], (), ()), cost + own - least
                # More was heard than this word has: the rest begins another one.
                elif heard[: len(tokens)] == tokens:
                    for cut, more in self._begun(heard[len(tokens) :]):
                        yield cut, cost + own - least + more

    def _begun(self, heard: tuple[int, ...]) -> _Ways:
        """Tokens behind a word: all that fillers among them may be."""
        cost = 0.0
        while heard and heard[0] in self._fillers:
            if heard[0] in self._begins:
                yield Cut((), (), heard), cost
            heard, cost = heard[1:], cost + self.filler
        yield Cut((), (), heard), cost

    def _narrow(self, cut: Cut, follows: int) -> _Ways:
        """No matter which tokens were heard, where it is known what they are."""
        heard = cut.heard
        if not heard or heard[0] < 0:
            yield cut, 0.0
        elif follows == NEXT_NONE:
            yield Cut((), (), _IDLE), 0.0
        elif self._spells(heard):
            yield Cut((), (), _OPEN), self._token_cost * len(heard)

    def _spells(self, heard: tuple[int, ...]) -> bool:
        spelling = self._spelling
        return (
            spelling is not None
            and bool(spelling.begins[heard[0]])
            and bool(spelling.extends[list(heard[1:])].all())
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
    said = vocabulary.pronunciations
    found: dict[int, list[tuple[tuple[int, ...], float]]] = {}
    tokens, splits = said.tokens.tolist(), said.splits.tolist()
    columns = zip(said.word.tolist(), said.cost.tolist(), strict=True)
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
