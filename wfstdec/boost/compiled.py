"""Compiled boosts of an utterance, the input of every search, and their scaling.

Boosted words are the one-state acceptor B of "GPU-Accelerated WFST Beam Search Decoder
for CTC-based Speech Recognition" (arXiv 2311.04996): a bonus is credited on any arc
with the word's label. It is a hash map with linear probing, so that CPU and GPU read
the same arrays.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wfstdec.boost.phrases import GRAIN, PhraseBoosts
from wfstdec.errors import OptionError
from wfstdec.jit import jit, kernel
from wfstdec.lm.automaton import frozen
from wfstdec.text.tokens import EPSILON
from wfstdec.text.vocabulary import OovWords


class WordBoosts(NamedTuple):
    """The compiled list of one utterance."""

    # uint32 [H], word ids; 0 is an empty slot. H is a power of two, at least twice the
    # number of words.
    keys: np.ndarray
    bonuses: np.ndarray  # float32 [H], nats; above 0 favours the word
    top_bonus: np.float32  # the largest bonus, at least 0: bounds the credit of any arc

    def bonus(self, word: int) -> float:
        """Return the bonus of a word id, 0 where it has none."""
        return float(find_bonus(self.keys, self.bonuses, np.uint32(word)))

    def total(self, words: Sequence[int]) -> float:
        """Return the total bonus of word ids, with repetitions."""
        ids = np.asarray(words, np.uint32)
        return float(_total(self.keys, self.bonuses, ids))

    def __bool__(self) -> bool:
        return bool(self.keys.any())


def compile_word_boosts(
    boosts: Mapping[str, float] | None, word_ids: Mapping[str, int]
) -> tuple[WordBoosts, list[str]]:
    """Compile words and bonuses, nats; return also the words without an id."""
    given = boosts or {}
    known = {word_ids[w]: float(bonus) for w, bonus in given.items() if w in word_ids}
    words = sorted(known)
    by_word = np.array([*map(known.get, words)], np.float32)
    size = 1 << max(1, (2 * len(known)).bit_length())
    keys, bonuses = np.zeros(size, np.uint32), np.zeros(size, np.float32)
    _fill(keys, bonuses, np.array(words, np.uint32), by_word)
    compiled = WordBoosts(keys, bonuses, max(np.float32(0), bonuses.max()))
    return compiled, sorted(word for word in given if word not in word_ids)


@kernel
def _fill(keys, bonuses, words, by_word):
    mask = np.uint32(len(keys) - 1)
    for i in range(len(words)):
        slot = mix(words[i]) & mask
        while keys[slot] != 0:
            slot = (slot + np.uint32(1)) & mask
        keys[slot], bonuses[slot] = words[i], by_word[i]


@jit
def _total(keys, bonuses, words):
    total = 0.0
    for word in words:
        total += np.float64(find_bonus(keys, bonuses, word))
    return total


@kernel
def mix(key):
    """Return a 32-bit integer hash (Wellons, hash-prospector "lowbias32"), uint32."""
    key = np.uint32(key)
    key ^= key >> np.uint32(16)
    key = np.uint32(key * np.uint32(0x7FEB352D))
    key ^= key >> np.uint32(15)
    key = np.uint32(key * np.uint32(0x846CA68B))
    return np.uint32(key ^ (key >> np.uint32(16)))


@kernel
def find_bonus(keys, bonuses, word):
    """Return the bonus of `word`, float32; 0 if the map lacks it."""
    mask = np.uint32(len(keys) - 1)
    slot = mix(word) & mask
    # Ends: at most half of the slots are taken.
    while keys[slot] != word and keys[slot] != np.uint32(EPSILON):
        slot = (slot + np.uint32(1)) & mask
    return bonuses[slot]


class DecoderKey(NamedTuple):
    """Identity of the decoder that boosts were compiled for."""

    fingerprint: str  # of everything that affects compilation
    scale: float  # its `boost_scale`, included in the boosts


@dataclass(frozen=True, eq=False)
class CompiledBoosts:
    """Compiled boosts of an utterance, for every search."""

    words: WordBoosts  # the hash map of boosted words; may be empty
    # of words or of tokens; labels of OOV words follow the decoder's
    phrases: PhraseBoosts | None = None
    oov: OovWords | None = None
    made_for: DecoderKey | None = None  # set by a decoder's `compile_boosts`

    def __bool__(self) -> bool:
        return bool(self.words) or self.phrases is not None or self.oov is not None

    def __repr__(self) -> str:
        parts = [f"{int((self.words.keys > 0).sum())} words"]
        parts += [] if self.phrases is None else [f"phrases={self.phrases!r}"]
        parts += [] if self.oov is None else [f"oov={self.oov!r}"]
        return f"CompiledBoosts({', '.join(parts)})"

    @property
    def of_tokens(self) -> bool:
        """Whether there are phrases of tokens."""
        return self.phrases is not None and self.phrases.unit == "token"

    def cost(self, words: Sequence[int], tokens: Sequence[int] | np.ndarray) -> float:
        """Return the cost of word ids and tokens: negative nats for credit."""
        total = 0.0
        if self.words:
            total -= self.words.total(words)
        if self.oov is not None:
            total -= self.oov.total(words)
        if self.phrases is not None:
            total += self.phrases.total(tokens if self.of_tokens else words)
        return total + 0.0  # no -0.0


def check_made_for(
    compiled: Iterable[CompiledBoosts], expected: Callable[[], DecoderKey]
) -> None:
    """Raise unless boosts compiled ahead were compiled for this decoder."""
    for i, one in enumerate(compiled):
        # `expected` hashes a graph, so it is called only if needed.
        if one.made_for is None or one.made_for == (wanted := expected()):
            continue
        fingerprint, scale = one.made_for
        if fingerprint == wanted.fingerprint:
            made_for, expected_one = f"boost_scale={scale!r}", repr(wanted.scale)
        else:
            made_for = f"decoder {fingerprint[:8]}"
            expected_one = f"{wanted.fingerprint[:8]}: its kind, graph and models"
        raise OptionError(
            f"boosts compiled for {made_for}, expected {expected_one}; "
            "compile them by this one",
            i,
        )


def scaled_boosts(boosts: CompiledBoosts, scale: float) -> CompiledBoosts:
    """Scale all bonuses, amounts and credits by a number, 0 or more."""
    if scale == 1:
        return boosts
    phrases, oov = boosts.phrases, boosts.oov
    return replace(
        boosts,
        words=scaled_words(boosts.words, scale),
        phrases=None if phrases is None else scaled_phrases(phrases, scale),
        oov=None if oov is None else replace(oov, bonus=_scaled(oov.bonus, scale)),
    )


def scaled_words(words: WordBoosts, scale: float) -> WordBoosts:
    """Scale all bonuses by a number, 0 or more."""
    bonuses = _scaled(words.bonuses, scale)
    return WordBoosts(words.keys, bonuses, max(np.float32(0), bonuses.max()))


def _scaled(bonuses: np.ndarray, scale: float) -> np.ndarray:
    return (bonuses * np.float64(scale)).astype(np.float32)


def scaled_phrases(phrases: PhraseBoosts, scale: float) -> PhraseBoosts:
    """Scale all amounts and credits by a number, 0 or more."""
    automaton = phrases.automaton
    # Costs are differences of credits. Each part is scaled and rounded separately, so
    # that differences cancel: rounded costs would not add up to 0 on a cycle.
    credit = credits_of(automaton.backoff_state, automaton.backoff_cost)
    source = np.repeat(np.arange(len(credit)), np.diff(automaton.state_arc_splits))
    done = credit[source] - credit[automaton.arc_next] - automaton.arc_cost
    left = automaton.final_cost - credit
    credit, done, left = (
        np.round(x * scale / GRAIN) * GRAIN for x in (credit, done, left)
    )
    backoff = automaton.backoff_state
    return replace(
        phrases,
        automaton=frozen(
            automaton._replace(
                arc_cost=credit[source] - (credit[automaton.arc_next] + done),
                backoff_cost=np.where(backoff < 0, 0, credit - credit[backoff]),
                final_cost=credit + left,
                model_default_cost=automaton.model_default_cost * np.float64(scale),
            )
        ),
    )


@jit
def credits_of(backoff_state, backoff_cost):
    """Return the credit paid in advance at each state, float64 [S]: 0 at the root."""
    credit = np.zeros(len(backoff_cost))
    for state in range(1, len(credit)):
        credit[state] = credit[backoff_state[state]] + np.float64(backoff_cost[state])
    return credit
