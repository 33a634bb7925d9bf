"""Default bonuses of a list without numbers.

    bonus = min(MOST, ln(1 + TRUST / (sqrt(p) * sum of all sqrt(p)))) * share
    bonus = max(0, unk_cost - max(ADDED, ln(3 n))) * share      of each of n OOV words

`p` is the unigram probability of an entry; for a phrase that of its rarest word, an
upper bound. With such bonuses the list is `TRUST` times as probable as everything
else; words share that by the roots of their probabilities, so that rare ones gain more.
`share` is 1, except: `NEIGHBOURS` for a word that differs in one token from a likelier
one; `HOMOPHONES` for a word that sounds like one that is `SIMILAR` times as likely and
not in the list; for a phrase the share of its most distinct word. For an OOV word it is
`NEAR_ADDED` and `SAME_ADDED`, by words that cost less than `COMMON` nats.

Without words, p follows from the number of tokens n of an entry and the number of all
tokens, V, or of combinations of the list's letters if that is far less: a model of
6,625 characters writes English with 27. A list in which letters recur less often than
`RECURRENCES` does not show them all. With `MOST_OF_TOKENS`, and 1 for `TRUST`, the rule
is the same:

    p = min(V, letters ** (letters per token)) ** -((n + 1.5) / 3)

Two pronunciations differ in one token if one without its token `i` is the other, or the
other without its token `i`: so all of them are hashed with each token removed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain, combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from wfstdec.jit import jit
from wfstdec.text.lexicon import Lexicon, Pronunciation, word_ids

DISTINCT, NEIGHBOUR, HOMOPHONE = 0, 1, 2
"""Similarity of a word's pronunciations to others; the largest value of any counts."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PLACE = np.uint64(0xC2B2AE3D27D4EB4F)
MOST, MOST_OF_TOKENS = 8.0, 6.0
"""Largest bonus, nats: larger ones brought no gain on relevant lists."""
TRUST = 0.25
"""1 has slightly more of the words of short lists right, and raises WER with 20,000."""
NEIGHBOURS, HOMOPHONES = 0.6, 0.2  # shares of words confusable with likelier ones
SIMILAR = 3.0  # a ratio of probabilities; below it homophones do not count
ADDED = 6.7  # least cost of an OOV word minus its bonus, nats
COMMON = 9.0  # words below this cost, nats, must not be confused with OOV words
NEAR_ADDED, SAME_ADDED = 0.6, 0.1  # shares of OOV words that sound like common ones
RECURRENCES = 30
"""Average count of each letter above which a list shows all letters."""
FAR_LESS = 1.5
"""Exponent for the number of combinations of letters, below which V does not count."""

_RAREST = 40.0  # largest cost of a word, nats
_EXTRA_TOKENS, _TOKENS_PER_V = 1.5, 3.0


def bonuses_of_lengths(num_tokens: int, lengths: Mapping[str, int]) -> dict[str, float]:
    """Return the bonus of each phrase of a list by its number of tokens, nats."""
    sizes = np.array(list(lengths.values()), np.float64)
    power = (sizes + _EXTRA_TOKENS) / _TOKENS_PER_V
    per_token = math.log(max(2, num_tokens))
    length, letters = sum(map(len, lengths)), len(set(chain.from_iterable(lengths)))
    if length >= RECURRENCES * letters:
        spelled = length / max(1.0, sizes.sum()) * math.log(max(2, letters))
        per_token = spelled if spelled < per_token / FAR_LESS else per_token
    cost = np.minimum(power * per_token, _RAREST)
    root = np.exp(-0.5 * cost)
    bonus = _bonuses(root, MOST_OF_TOKENS)
    return dict(zip(lengths, bonus.tolist(), strict=True))


def _bonuses(
    root: np.ndarray, most: float, trust: float = 1.0, more: float = 0.0
) -> np.ndarray:
    """Return bonuses by the roots of probabilities; `more`: sum of additional roots."""
    # `fsum`: independent of the order of a list.
    return np.minimum(most, np.log1p(trust / (root * (math.fsum(root) + more))))


class Sounds:
    """Pronunciations of a lexicon, for comparison with others."""

    # `word_cost`: float [W], unigram costs, nats.

    def __init__(
        self, lexicon: Lexicon, word_ids: Mapping[str, int], word_cost: np.ndarray
    ) -> None:
        pairs = zip(lexicon.words, lexicon.pronunciations, strict=True)
        known = [(word_ids[word], prons) for word, prons in pairs if word in word_ids]
        self.word = np.array([word for word, _ in known], np.int64)
        self.prons = [prons for _, prons in known]
        self.cost = np.asarray(word_cost, np.float64)[self.word]
        lengths, whole, without, at_place = _hashes_of(self.prons)
        cost = np.repeat(self.cost, lengths)
        self._whole = _least(whole, self.cost)
        self._without = _least(without, cost)
        # Equal pronunciations are also equal without a token.
        order = np.argsort(cost, kind="stable")
        of_whole = np.repeat(whole, lengths)
        keys, first = np.unique(at_place[order], return_index=True)
        best_whole = of_whole[order][first].astype(np.uint64)
        some = len(keys) > 0
        self._best_whole = (keys, best_whole) if some else (np.zeros(1, np.uint64),) * 2
        self._at_place = _least(at_place, cost)
        best = _look_up(self._best_whole, at_place, np.uint64(0))
        others = np.where(of_whole == best, np.inf, cost)
        self._other_at_place = _least(at_place, others)

    def of_words(self, num_words: int) -> np.ndarray:
        """Return the similarity to likelier words, for each word, uint8 [W]."""
        found = np.zeros(num_words, np.uint8)
        np.maximum.at(
            found, self.word, self.near(self.prons, self.cost, math.log(SIMILAR))
        )
        return found

    def near(
        self,
        prons: Sequence[Sequence[int]],
        cost: np.ndarray | float,
        least: float = 0.0,
    ) -> np.ndarray:
        """Return the similarity to words of lower cost, per pronunciation [P]."""
        # `cost`: nats, float64 [P] or one for all. `least`: cost difference above which
        # homophones count.
        found = self.neighbours(prons, cost).astype(np.uint8)
        whole = _hashes_of(prons)[1]
        found[_look_up(self._whole, whole) < cost - least] = HOMOPHONE
        return found

    def neighbours(
        self, prons: Sequence[Sequence[int]], cost: np.ndarray | float
    ) -> np.ndarray:
        """Mark pronunciations one token apart from a likelier one, bool [P]."""
        # Hashes instead of pairs: lexicons have 200,000 pronunciations. A neighbour has
        # one token more, less, or replaced: then both are equal without it.
        lengths, whole, without, at_place = _hashes_of(prons)
        owner = np.repeat(np.arange(len(prons)), lengths)
        cost = np.full(len(prons), cost)
        near = _look_up(self._without, whole) < cost
        shorter = _look_up(self._whole, without) < cost[owner]
        is_same = _look_up(self._best_whole, at_place, np.uint64(0)) == whole[owner]
        best = _look_up(self._at_place, at_place)
        other = np.where(is_same, _look_up(self._other_at_place, at_place), best)
        other = other < cost[owner]
        # `at`, since a pronunciation has one entry per removed token.
        np.logical_or.at(near, owner, shorter | other)
        return near


def _hashes_of(prons: Sequence[Sequence[int]]) -> tuple[np.ndarray, ...]:
    """Return lengths of pronunciations, int64 [P], and their `_hashes`."""
    lengths = np.array([len(one) for one in prons], np.int64)
    tokens = np.fromiter(chain.from_iterable(prons), np.int64, int(lengths.sum()))
    return lengths, *_hashes(tokens, np.concatenate([[0], np.cumsum(lengths)]))


def _least(keys: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(keys):
        return np.zeros(1, keys.dtype), np.full(1, np.inf)
    order = np.argsort(keys, kind="stable")
    different, first = np.unique(keys[order], return_index=True)
    return different, np.minimum.reduceat(costs[order], first)


def _look_up(
    known: tuple[np.ndarray, np.ndarray], keys: np.ndarray, missing: Any = np.inf
) -> np.ndarray:
    different, least = known
    order = np.argsort(keys)  # sorted queries are twice as fast
    at = np.empty(len(keys), np.int64)
    at[order] = np.searchsorted(different, keys[order])
    at = np.minimum(at, len(different) - 1)
    return np.where(different[at] == keys, least[at], missing)


@jit
def _hashes(tokens, splits):
    """Return hashes, uint64: whole [P]; without each token [N]; also with its place."""
    whole = np.zeros(len(splits) - 1, np.uint64)
    without = np.zeros(len(tokens), np.uint64)
    at_place = np.zeros(len(tokens), np.uint64)
    for p in range(len(splits) - 1):
        first, last = splits[p], splits[p + 1]
        for t in range(first, last):
            whole[p] = _longer(whole[p], tokens[t])
            for skipped in range(first, last):
                if skipped != t:
                    without[skipped] = _longer(without[skipped], tokens[t])
        for skipped in range(first, last):
            # Without the place, any two neighbours by a removed token would count as
            # replaced.
            place = np.uint64(skipped - first + 1) * _PLACE
            at_place[skipped] = (without[skipped] ^ place) * _FACTOR
    return whole, without, at_place


@jit
def _longer(key, token):
    key = (key ^ np.uint64(token + 1)) * _FACTOR
    return key ^ (key >> np.uint64(29))


class DefaultBonuses:
    """Default bonuses for the words of one decoder, `words[0]` being `<eps>`."""

    # `word_cost`: float [W], unigram costs, nats; None: all words are equally likely.

    def __init__(
        self,
        words: Sequence[str],
        lexicon: Lexicon | None = None,
        word_cost: np.ndarray | None = None,
        unk_cost: float = math.inf,
    ) -> None:
        self._words, self._ids, self._lexicon = words, word_ids(words), lexicon
        if word_cost is None or not len(word_cost):
            word_cost = np.full(len(words), math.log(max(2, len(words))))
        self._cost = np.asarray(word_cost, np.float64)
        self._unk_cost = unk_cost

    def is_rare(self, words: Iterable[str], commonest: int) -> bool | None:
        """Return whether none of these is among the commonest; None for equal costs."""
        order = self._by_cost
        if not len(order) or order[0] == order[-1]:
            return None
        costs = [self._cost[self._ids[word]] for word in words]
        last = order[min(commonest, len(order)) - 1]
        return bool(min(costs, default=math.inf) > last)

    def of(
        self,
        texts: Iterable[str],
        oov: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
        others: Iterable[str] = (),
    ) -> dict[str, float]:
        """Return the bonus of each word or phrase; `others`: entries with numbers."""
        new = oov.keys()
        known = [text for text in texts if text not in new]
        spelt = {text: [self._ids.get(word) for word in text.split()] for text in known}
        lacking = self._unk_cost if new else math.inf
        root = np.array([self._root(ids, lacking) for ids in spelt.values()])
        bonus = _bonuses(root, MOST, TRUST, len(new) * math.exp(-lacking / 2))
        # Words that occur only in phrases gain nothing alone.
        listed = {self._ids.get(text) for text in (*known, *others)}
        found = {
            text: one * self._share(ids, listed)
            for (text, ids), one in zip(spelt.items(), bonus.tolist(), strict=True)
        }
        return found | (self._of_oov(oov) if new else {})

    def _of_oov(self, oov: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, float]:
        most = max(0.0, self._unk_cost - max(ADDED, math.log(3 * len(oov))))
        prons = [one for ways in oov.values() for one in ways]
        owner = np.repeat(np.arange(len(oov)), [len(w) for w in oov.values()])
        near = np.zeros(len(oov), np.uint8)
        if self._sounds is not None:
            np.maximum.at(near, owner, self._sounds.near(prons, COMMON))
        shares = np.array([1.0, NEAR_ADDED, SAME_ADDED])[near]
        return dict(zip(oov, (most * shares).tolist(), strict=True))

    def _root(self, ids: Sequence[int | None], lacking: float) -> float:
        """Return the root of a phrase's probability, bounded by its rarest word's."""
        costs = [lacking if one is None else float(self._cost[one]) for one in ids]
        return math.exp(-min(max(costs, default=math.inf), _RAREST) / 2)

    def _share(self, ids: Sequence[int | None], listed: Set[int | None]) -> float:
        shares = (1.0, NEIGHBOURS, HOMOPHONES)
        known = [shares[self._near_of(one, listed)] for one in ids if one is not None]
        return max(known, default=1.0)

    def _near_of(self, word: int, listed: Set[int | None]) -> int:
        if self._near[word] != HOMOPHONE:
            return int(self._near[word])
        assert self._sounds is not None
        least = self._cost[word] - math.log(SIMILAR)
        prons = self._prons[self._words[word]]
        same = {one for pron in prons for one in self._by_pron[pron]}
        if any(self._cost[one] < least for one in same - listed):
            return HOMOPHONE
        return int(self._sounds.neighbours(prons, self._cost[word]).any())

    def alike(self, words: Iterable[str]) -> list[tuple[str, str]]:
        """Return sorted pairs of words of a list that share a pronunciation."""
        by_pron: dict[Pronunciation, list[str]] = {}
        for word in sorted(words):
            for pron in dict.fromkeys(self._prons.get(word, ())):
                by_pron.setdefault(pron, []).append(word)
        return sorted({p for some in by_pron.values() for p in combinations(some, 2)})

    @cached_property
    def _by_cost(self) -> np.ndarray:
        return np.sort(self._cost[np.isfinite(self._cost)])

    @cached_property
    def _prons(self) -> dict[str, list[Pronunciation]]:
        return {} if self._lexicon is None else self._lexicon.by_word()

    @cached_property
    def _by_pron(self) -> dict[Pronunciation, list[int]]:
        found: dict[Pronunciation, list[int]] = {}
        for word, prons in self._prons.items():
            for pron in prons:
                if word in self._ids:
                    found.setdefault(pron, []).append(self._ids[word])
        return found

    @cached_property
    def _sounds(self) -> Sounds | None:
        if self._lexicon is None:
            return None
        return Sounds(self._lexicon, self._ids, self._cost)

    @cached_property
    def _near(self) -> np.ndarray:
        count, sounds = len(self._cost), self._sounds
        return np.zeros(count, np.uint8) if sounds is None else sounds.of_words(count)
