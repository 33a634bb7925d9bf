"""Boosts for the CPU kernels: listed words with bonuses, rows of phrases.

A row is a state of a graph, its positions are the arcs; or a node of a trie, with the
words that end there. A position is hot if its word is boosted, or begins a phrase of
words; elsewhere a search continues without boosts.

The root of phrases and states with many arcs are dense: a table has the steps of all
labels. A row has the labels, modulo 64, of the states before the next dense one, and
the cost of backing off to that one.
"""

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy import float32, uint64

from wfstdec.boost.compiled import CompiledBoosts, compile_word_boosts, credits_of
from wfstdec.boost.kernels import BIT, LOW_BITS, NO_BITS, WORD_SHIFT, check_states
from wfstdec.boost.phrases import GRAIN, PhraseBoosts
from wfstdec.jit import jit, kernel, read_only
from wfstdec.jit.records import WeakCache, record
from wfstdec.jit.sorting import counted
from wfstdec.lm import kernels
from wfstdec.text.tokens import EPSILON

MIN_BITS = 1 << 12
BITS_PER_POSITION = 32
"""Bits per position with a bonus, up to one per row or position."""
ROW = record(
    "u8 labels",
    "u4 begin backoff",
    "f4 backoff_cost dense_cost",
    "u4 dense",
    "f4 credit",
)
"""Boost state: the labels, modulo 64, of its arcs and of the states that it backs off
to before a dense one, none if it is dense itself; its first arc; back-off state and
cost; the row of the next dense state and the cost of backing off to it; the largest
credit of a label, at least 0."""
ARC = record("u4 label next", "f4 cost")
STEP = record("u4 next", "f4 cost")
DENSE_SHARE = 1 / 6  # a state with arcs for this share of the labels is dense
MAX_DENSE = 2048
"""Most dense states, except the root, so that the table stays in the cache."""
_ROUNDING = 2.0**-22  # above the relative error of a sum of two float32


class ListedWords(NamedTuple):
    """Boosted words of an utterance, and hot rows and positions."""

    # Positions may share a bit: a false positive changes no result.
    keys: np.ndarray  # uint32 [H], as `WordBoosts`
    bonuses: np.ndarray  # float32 [H]
    top_bonus: np.float32
    hot_rows: np.ndarray  # uint64 [2 ** n]: a bit for each row, modulo their number
    row_mask: np.uint64  # the number of bits minus 1
    hot: np.ndarray  # uint64 [2 ** n]: the same of positions
    hot_mask: np.uint64


_NONE_HOT = read_only(np.zeros(1, np.uint64)), LOW_BITS
NO_WORDS = ListedWords(*compile_word_boosts(None, {})[0], *_NONE_HOT, *_NONE_HOT)


def _bits_of(
    words: np.ndarray, splits: np.ndarray, positions: np.ndarray, most: int
) -> tuple[np.ndarray, np.uint64]:
    """Return bits for the positions of some words, and the number of bits minus 1."""
    count = int((splits[words + 1] - splits[words]).sum())
    wanted = min(max(BITS_PER_POSITION * count, MIN_BITS), most)
    num_bits = 1 << max(6, (wanted - 1).bit_length())
    bits, mask = np.zeros(num_bits // 64, np.uint64), np.uint64(num_bits - 1)
    _set_bits(bits, mask, words, splits, positions)
    return read_only(bits), mask


@jit
def _set_bits(bits, mask, words, splits, positions):
    for word in words:
        for i in range(splits[word], splits[word + 1]):
            bit = uint64(positions[i]) & mask
            bits[bit >> WORD_SHIFT] |= BIT << (bit & LOW_BITS)


class PhraseRows(NamedTuple):
    """Phrases for the kernels; without any, of neither unit."""

    rows: np.ndarray  # ROW [S + 1]
    arcs: np.ndarray  # ARC [A]
    dense: np.ndarray  # STEP [D * L]: of the root and states with many arcs
    final_cost: np.ndarray  # float32 [S]
    credited: np.ndarray  # uint64 [S]: labels, modulo 64, that a step may credit
    num_labels: np.uint32  # labels from here on are in no phrase
    of_words: bool
    of_tokens: bool
    initial: np.uint32  # boost state in which only labels in `begun` have an effect
    begun: np.uint64  # the labels, modulo 64, that begin a phrase
    start: np.uint32


NO_PHRASES = PhraseRows(
    rows=read_only(np.zeros(1, ROW)),
    arcs=read_only(np.zeros(0, ARC)),
    dense=read_only(np.zeros(0, STEP)),
    final_cost=read_only(np.zeros(1, np.float32)),
    credited=read_only(np.zeros(1, np.uint64)),
    num_labels=np.uint32(0),
    of_words=False,
    of_tokens=False,
    initial=np.uint32(0),
    begun=np.uint64(0),
    start=np.uint32(0),
)
"""One state, in which no label has an effect."""


def phrase_rows(phrases: PhraseBoosts, first_label: int = 0) -> PhraseRows:
    """Return the rows of compiled phrases."""
    check_states(phrases.num_states)
    automaton = phrases.automaton
    arcs = np.empty(phrases.num_arcs, ARC)
    arcs["label"] = automaton.arc_label + first_label
    arcs["next"], arcs["cost"] = automaton.arc_next, automaton.arc_cost
    rows = np.zeros(phrases.num_states + 1, ROW)
    rows["begin"] = automaton.state_arc_splits
    inner = rows[:-1]
    # The root's is -1; kernels never follow it, as the root is dense.
    inner["backoff"] = np.maximum(automaton.backoff_state, 0)
    inner["backoff_cost"] = automaton.backoff_cost
    states = _dense_states(phrases)
    # Steps of all labels in some states, STEP [D, L].
    shape = len(states), phrases.num_labels
    costs, nextstates = np.empty(shape, np.float32), np.empty(shape, np.int32)
    kernels.rows(phrases.automaton, np.zeros_like(states), states, costs, nextstates)
    dense = np.zeros((shape[0], first_label + shape[1]), STEP)
    dense["next"][:, first_label:] = nextstates
    dense["cost"][:, first_label:] = costs
    is_dense = np.zeros(phrases.num_states, np.bool_)
    is_dense[states] = True
    inner["dense"][states] = np.arange(len(states)) * dense.shape[1]
    credited = _fill(inner, rows["begin"], arcs, is_dense, dense[0]["cost"])
    begun = BIT << (arcs["label"][: rows["begin"][1]].astype(np.uint64) & LOW_BITS)
    return PhraseRows(
        rows=read_only(rows),
        arcs=read_only(arcs),
        dense=read_only(dense.ravel()),
        final_cost=read_only(automaton.final_cost),
        credited=read_only(credited),
        num_labels=np.uint32(first_label + phrases.num_labels),
        of_words=phrases.unit == "word",
        of_tokens=phrases.unit == "token",
        initial=np.uint32(0),
        begun=np.bitwise_or.reduce(begun, initial=NO_BITS),
        start=np.uint32(phrases.start),
    )


def _dense_states(phrases: PhraseBoosts) -> np.ndarray:
    """Return the root, and states with many arcs if sums are exact in any order."""
    automaton = phrases.automaton
    num_arcs = np.diff(automaton.state_arc_splits)
    num_arcs[0] = 0
    costs = np.append(automaton.arc_cost, automaton.backoff_cost)
    # Largest cost of backing off from any state to the root, of either sign.
    largest = np.abs(credits_of(automaton.backoff_state, automaton.backoff_cost)).max()
    largest = 2 * largest + np.abs(costs).max()
    exact = (costs % GRAIN == 0).all() and largest < 2**24 * GRAIN
    many = np.flatnonzero(num_arcs >= max(2, DENSE_SHARE * phrases.num_labels))
    many = np.sort(many[np.argsort(-num_arcs[many], kind="stable")[:MAX_DENSE]])
    return np.concatenate([[0], many if exact else []]).astype(np.int32)


@jit
def _fill(rows, begin, arcs, is_dense, root_cost):
    """Fill in labels, dense states and credits; return the labels that get credit."""
    # Credits are bounds: they count arcs that a longer state hides, and allow for
    # rounding of float32 sums along a chain.
    credited, length = np.zeros(len(rows), np.uint64), np.zeros(len(rows))
    credit, largest = np.zeros(len(rows)), np.zeros(len(rows))
    credit[0] = -np.float64(root_cost.min())
    largest[0] = np.float64(np.abs(root_cost).max())
    for label in range(len(root_cost)):
        if root_cost[label] < 0:
            credited[0] |= BIT << (uint64(label) & LOW_BITS)
    for s in range(len(rows)):
        below, cost = np.int64(rows[s].backoff), np.float64(rows[s].backoff_cost)
        own = NO_BITS
        for a in range(begin[s], begin[s + 1]):
            own |= BIT << (uint64(arcs[a].label) & LOW_BITS)
        # Back-off leads to lower numbers, which are complete.
        if s > 0:
            credited[s] = credited[below] if cost >= 0 else ~NO_BITS
            credit[s], length[s] = credit[below] - cost, length[below] + 1
            largest[s] = largest[below] + abs(cost)
            for a in range(begin[s], begin[s + 1]):
                cost = np.float64(arcs[a].cost)
                credit[s] = max(credit[s], -cost)
                largest[s] = max(largest[s], abs(cost))
        credited[s] |= own
        slack = _ROUNDING * (length[s] + 2) * largest[s]
        rows[s].credit = float32(max(0.0, credit[s] + slack))
        if not is_dense[s]:
            rows[s].labels, rows[s].dense = rows[below].labels | own, rows[below].dense
            total, at = float32(0), s
            while not is_dense[at]:
                total = float32(total + rows[at].backoff_cost)
                at = np.int64(rows[at].backoff)
            rows[s].dense_cost = total
    return credited


class BoostTables:
    """Boost tables for the kernels of one graph or trie; cached."""

    # `words`: int [P], the words of all rows; 0 is none. `splits`: int [R + 1].

    def __init__(
        self, words: np.ndarray, splits: np.ndarray, first_token: int = 0
    ) -> None:
        self._row_words, self._row_splits = words, splits
        self._first_token = first_token
        self._words = WeakCache(self._list)
        self._phrases = WeakCache(self._lay_out)

    def words(self, boosts: CompiledBoosts) -> ListedWords:
        """Return the boosted words of an utterance, and first words of phrases."""
        of_words = boosts.phrases is not None and boosts.phrases.unit == "word"
        return self._words.of(boosts) if boosts.words or of_words else NO_WORDS

    def phrases(self, boosts: CompiledBoosts) -> PhraseRows:
        """Return the phrases of an utterance."""
        phrases = boosts.phrases
        return NO_PHRASES if phrases is None else self._phrases.of(phrases)

    def _list(self, boosts: CompiledBoosts) -> ListedWords:
        keys, phrases = boosts.words.keys, boosts.phrases
        words = keys[keys != EPSILON].astype(np.int64)
        if phrases is not None and phrases.unit == "word":
            first = phrases.automaton.state_arc_splits[1]
            words = np.union1d(words, phrases.automaton.arc_label[:first])
        splits, rows, positions = self._by_word
        words = words[words < len(splits) - 1]
        hot_rows = _bits_of(words, splits, rows, len(self._row_splits) - 1)
        hot = _bits_of(words, splits, positions, len(self._row_words))
        return ListedWords(*boosts.words, *hot_rows, *hot)

    def _lay_out(self, phrases: PhraseBoosts) -> PhraseRows:
        return phrase_rows(phrases, self._first_token * (phrases.unit == "token"))

    @cached_property
    def _by_word(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Splits by word, int64 [W + 1]; their rows and positions, uint32."""
        with_word = np.flatnonzero(self._row_words != EPSILON)
        words = self._row_words[with_word]
        splits, order = counted(words, int(words.max(initial=0)) + 1)
        positions = with_word[order]
        rows = np.searchsorted(self._row_splits, positions, side="right") - 1
        return splits, rows.astype(np.uint32), positions.astype(np.uint32)


EndRule = Literal["closed", "none"]
"""Treatment of phrases at the end, which competes with them."""
OPEN, CLOSING, CLOSED = 0, 1, 2
"""Phrases continue; are refunded with the next token; are closed."""


class RowStates(NamedTuple):
    """States of phrases, by row of scores."""

    row: np.ndarray  # int64 [N], the row of each
    state: np.ndarray  # int32 [N], of the automaton
    mode: np.ndarray  # int8 [N], `OPEN`, `CLOSING` or `CLOSED`
    silent: np.ndarray  # int64 [M], sorted: columns without speech, ends included
    ends: np.ndarray  # int64 [E], columns of ends


@kernel
def credit_rows(automaton, rows, scores, out, is_last):
    """Write scores with the boosts to `out`, float32 [N, V] both, equal at first."""
    final_cost, backoff = automaton.final_cost, automaton.backoff_state
    none = np.float32(0)
    for each in range(len(rows.row)):
        if rows.mode[each] == CLOSED:
            continue
        i = rows.row[each]
        state = np.int64(rows.state[each])
        paid = final_cost[state]
        if rows.mode[each] == CLOSING:  # a common shift, which changes no order
            for label in range(scores.shape[1]):
                out[i, label] = scores[i, label] - paid
            continue
        depth, root, to_root = 0, state, none
        while backoff[root] >= 0:
            to_root += automaton.backoff_cost[root]
            root = np.int64(backoff[root])
            depth += 1
        # Labels without an arc lead to the root, where no credit is in advance.
        if to_root != none:
            for label in range(scores.shape[1]):
                out[i, label] = scores[i, label] - to_root
            at_mark = paid if is_last else none
            for label in rows.silent:
                out[i, label] = scores[i, label] - at_mark
        # Arcs of longer histories override those of shorter ones.
        for level in range(depth, -1, -1):
            at, total = state, none
            for _ in range(level):
                total += automaton.backoff_cost[at]
                at = np.int64(backoff[at])
            begin = np.int64(automaton.state_arc_splits[at])
            end = np.int64(automaton.state_arc_splits[at + 1])
            for arc in range(begin, end):
                label = np.int64(automaton.arc_label[arc])
                cost = total + automaton.arc_cost[arc]
                if is_last:
                    cost += final_cost[automaton.arc_next[arc]]
                out[i, label] = scores[i, label] - cost
        for label in rows.ends:
            out[i, label] = scores[i, label] - paid  # of a phrase that is incomplete
