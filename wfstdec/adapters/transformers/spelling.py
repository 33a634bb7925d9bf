"""Spellings of phrases in the tokens of a tokenizer of Transformers.

speller = tokenizer_speller(tokenizer, neutral_of(tokenizer), written_ways)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from wfstdec.boost.spelling import Speller, Spelling, case_variants
from wfstdec.text.tokenizers import tokenizer_of


def written_ways(text: str) -> list[str]:
    """Spell a phrase as it is and in other cases, behind a space and without.

    Tokenizers cut " New York" otherwise than "New York" at the beginning of a text.
    """
    ways = case_variants(text)
    return [*(f" {way}" for way in ways), *ways]


def tokenizer_speller(
    tokenizer: Any,
    neutral: Collection[int],
    variants: Callable[[str], Iterable[str]] = written_ways,
) -> Speller:
    """Phrases as a tokenizer cuts them; where it needs `neutral` tokens, not at all."""
    return partial(_spelt, tokenizer_of(tokenizer), frozenset(neutral), variants)


def _spelt(
    tokenizer: Any,
    neutral: frozenset[int],
    variants: Callable[[str], Iterable[str]],
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    ways = [list(variants(phrase)) for phrase in phrases]
    texts = list(dict.fromkeys(way for some in ways for way in some))
    if not texts:
        return [[] for _ in phrases]
    cut = tokenizer(texts, add_special_tokens=False)["input_ids"]
    known = {
        text: tuple(ids)
        for text, ids in zip(texts, cut, strict=True)
        if ids and neutral.isdisjoint(ids)
    }
    return [
        list(dict.fromkeys(known[way] for way in some if way in known)) for some in ways
    ]
