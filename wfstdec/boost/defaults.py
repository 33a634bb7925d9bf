"""The bonuses of a list without numbers: as much as is safe.

    defaults = DefaultBonuses(words, lexicon, word_cost)
    defaults.of(["bartley", "new york"])        # {"bartley": 5.1, "new york": 5.1}

Long lists do harm by what they make likelier in all, and their words where they sound
like likelier ones. So

    bonus = min(MOST, ln(1 + 1 / mass)) * share

`mass` is the probability that the language model gives to a word of the list, whatever
was said before: with such bonuses the list is as probable as all other words together.
`share` is 1, of a word that sounds but for one token like a likelier one `NEIGHBOURS`,
of one that sounds the same `HOMOPHONES`; of a phrase that of its most distinct word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from wfstdec.boost.confusions import likelier_sounds
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.vocabulary import word_ids

MOST = 8.0
"""No bonus is larger, nats: lists that may be trusted gain nothing beyond."""
NEIGHBOURS, HOMOPHONES = 0.6, 0.2
"""Shares of words that may be taken for likelier ones."""


class DefaultBonuses:
    """Bonuses for the words of one decoder.

    Args:
        words: The word table, `words[0]` being `<eps>`.
        lexicon: How they are pronounced; None where it is not known.
        word_cost: float [W], what each word costs whatever was said before, nats; None
            where it is not known: all words are then as likely.
    """

    def __init__(
        self,
        words: Sequence[str],
        lexicon: Lexicon | None = None,
        word_cost: np.ndarray | None = None,
    ) -> None:
        self._ids, self._lexicon = word_ids(words), lexicon
        if word_cost is None or not len(word_cost):
            word_cost = np.full(len(words), math.log(max(2, len(words))))
        self._cost = np.asarray(word_cost, np.float64)

    def of(self, texts: Iterable[str]) -> dict[str, float]:
        """The bonus of each word or phrase of a list, nats.

        Words that the table lacks count for nothing.
        """
        spelt = {text: [self._ids.get(word) for word in text.split()] for text in texts}
        mass = sum(self._probability(ids) for ids in spelt.values())
        bonus = MOST if mass <= math.exp(-2 * MOST) else math.log1p(1 / mass)
        bonus = min(MOST, bonus)
        return {text: bonus * self._share(ids) for text, ids in spelt.items()}

    def _probability(self, ids: Sequence[int | None]) -> float:
        """Of a phrase, as if its words were independent."""
        known = [one for one in ids if one is not None]
        if len(known) < len(ids) or not known:
            return 0.0
        return math.exp(-float(self._cost[known].sum()))

    def _share(self, ids: Sequence[int | None]) -> float:
        shares = (1.0, NEIGHBOURS, HOMOPHONES)
        known = [shares[self._sounds[one]] for one in ids if one is not None]
        return max(known, default=1.0)

    @cached_property
    def _sounds(self) -> np.ndarray:
        """See `likelier_sounds`."""
        if self._lexicon is None:
            return np.zeros(len(self._cost), np.uint8)
        return likelier_sounds(self._lexicon, self._ids, self._cost)
