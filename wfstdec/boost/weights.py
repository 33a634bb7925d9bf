"""Phrases and their weights, as users give them: checked.

checked_weights(["new  york"])                       # {"new york": 1.0}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from wfstdec.errors import BoostError

MAX_WEIGHT = 1e6
"""A weight may not be larger, either way: so that no sum of costs reaches infinity."""


def checked_weights(phrases: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Phrases with one space between their words, and their weights.

    Args:
        phrases: Phrase to weight, or phrases of weight 1.

    Raises:
        BoostError: A phrase is no string or empty, has two weights, or a weight is no
            number.
    """
    if isinstance(phrases, str):
        raise BoostError(f"phrases is the string {phrases!r}, expected a list of them")
    if not isinstance(phrases, Mapping):
        phrases = dict.fromkeys(phrases, 1.0)
    found: dict[str, float] = {}
    for phrase, weight in phrases.items():
        if not isinstance(phrase, str) or not phrase.strip():
            raise BoostError(f"boosted phrase {phrase!r}, expected a string of words")
        numeric = isinstance(weight, int | float | np.number)
        if not numeric or not math.isfinite(weight) or abs(weight) > MAX_WEIGHT:
            raise BoostError(
                f"weight {weight!r} of {phrase!r}, expected a number, "
                f"-{MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
            )
        text = " ".join(phrase.split())
        if found.get(text, weight) != weight:
            raise BoostError(
                f"{text!r} has the weights {found[text]!r} and {weight!r}, expected one"
            )
        found[text] = float(weight)
    return found
