"""Phrase boosts for the oracle: strings are spelt, searched and counted, nothing else.

    phrases = Phrases({"ann bob": 1.5}, unit="word")
    cost = phrases.coster(lexicon, fillers)     # lexicon, fillers: those of `naive`
    cost(words, tokens)                         # nats to add to a total

A phrase is worth `weight * base(n)` nats each time one of its spellings ends, n being
the labels of the longest; base(n) = c0 + sum over d = 2..n of (c0 * beta + ln d).
Spellings that contain another one of the same phrase do not count in addition. A worth
is rounded to 1/16384 nat. With a boundary a phrase counts only where that is before and
after it; one is before and after the utterance, and several in a row are one.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = tuple[str, ...]


def occurrences(text, part):
    """How often a string is in another, overlaps included."""
    starts = range(len(text) - len(part) + 1)
    return sum(text[i : i + len(part)] == part for i in starts)


def minimal(spellings):
    """Keep the phrases that contain no other one."""
    return {
        s for s in spellings if not any(o != s and occurrences(s, o) for o in spellings)
    }


@dataclass(frozen=True)
class Phrases:
    """A list of phrases, in text, and what they are worth.

    spellings has those of each phrase where they are not of its words or the lexicon;
    boundary is the name of a token.
    """

    weights: Mapping[str, float]
    unit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    spellings: Mapping[str, Sequence[Labels]] | None = None
    boundary: str | None = None

    def worth(self, weight, length):
        """Nats each time."""
        c0, beta = self.options.get("c0", 1.0), self.options.get("beta", 2.0)
        base = c0 + sum(c0 * beta + math.log(d) for d in range(2, length + 1))
        if self.options.get("uniform"):
            base = c0 * length
        if self.options.get("weights_are_totals"):
            base = 1.0
        return round(weight * base * 16384) / 16384

    def coster(self, lexicon, fillers):
        """A function of words and tokens -> the cost of the phrases in them."""
        edge = () if self.boundary is None else (self.boundary,)
        spelt = {}
        for phrase in self.weights:
            words = tuple(phrase.split())
            ways = {words} if self.unit == "word" else readings(words, lexicon, fillers)
            ways = ways if self.spellings is None else self.spellings[phrase]
            spelt[phrase] = minimal({edge + way + edge for way in ways})

        def cost(words, tokens):
            text = words if self.unit == "word" else tokens
            text, total = edge + text + edge, 0.0
            if edge:  # several boundaries in a row are one
                follows = zip(text, (None, *text), strict=False)
                text = tuple(x for x, y in follows if (x,) != edge or x != y)
            for phrase, spellings in spelt.items():
                count = sum(occurrences(text, spelling) for spelling in spellings)
                if count:
                    longest = max(map(len, spellings)) - 2 * len(edge)
                    total -= count * self.worth(self.weights[phrase], longest)
            return total

        return cost


def readings(words, lexicon, fillers):
    """All ways to pronounce words, with fillers between."""
    between = [()] if fillers.separator is None else [(fillers.separator,)]
    if fillers.separator is not None and fillers.separator_optional:
        between.append(())
    places = []
    for word in words:
        ways = [entry.tokens for entry in lexicon if entry.word == word]
        places += [between, ways] if places else [ways]
    return {tuple(itertools.chain(*way)) for way in itertools.product(*places)}
