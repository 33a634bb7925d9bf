"""What a tokenizer of Transformers says: names, marks, how phrases are cut.

tokens = token_table_of(tokenizer)            # what language models are over
marks = neutral_of(tokenizer)                 # timestamps, languages, padding
speller = tokenizer_speller(tokenizer, marks, written_ways)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from wfstdec.boost.spelling import Speller, Spelling, case_variants
from wfstdec.errors import OptionError, TokenTableError
from wfstdec.text.symbols import TokenTable, token_table

_BLANK = "<blank>"
_MARK = re.compile(r"<.*>|\[.*\]")
"""Added tokens that are nothing to be said: `<|0.02|>`, `<<ST_1>>`, `[NOISE]`."""


def token_table_of(tokenizer: Any) -> TokenTable:
    """The tokens of a tokenizer, and a blank behind them that no model has.

    For `NgramLM.from_arpa`: the words of the ARPA file are names of tokens, as
    `tokenizer.tokenize` gives them. An id without a token gets a name of its own.

    Args:
        tokenizer: Of Transformers, or a processor that has one.

    Raises:
        TokenTableError: Two tokens have one id, or nothing of the kind is known of it.
    """
    by_id = names_of(tokenizer)
    names = [by_id.get(i, f"<unused_{i}>") for i in range(max(by_id, default=-1) + 1)]
    blank = _BLANK
    while blank in by_id.values():
        blank = f"<{blank}>"
    return token_table([*names, blank], len(names))


def names_of(tokenizer: Any) -> dict[int, str]:
    """The names of tokens by their ids; errors as of `token_table_of`."""
    tokenizer = tokenizer_of(tokenizer)
    by_id: dict[int, str] = {}
    for name, i in tokenizer.get_vocab().items():
        if by_id.setdefault(i, name) != name:
            raise TokenTableError(
                f"tokens {by_id[i]!r} and {name!r} both have id {i}, expected one each"
            )
    return by_id


def tokenizer_of(given: Any) -> Any:
    """The tokenizer of a processor, or itself.

    Raises:
        TokenTableError: It is no tokenizer.
    """
    tokenizer = getattr(given, "tokenizer", given)
    if not hasattr(tokenizer, "get_vocab"):
        raise TokenTableError(
            f"{type(given).__name__} has no get_vocab(), expected a tokenizer of "
            "Transformers, or a processor that has one"
        )
    return tokenizer


def neutral_of(tokenizer: Any) -> frozenset[int]:
    """Tokens that say nothing: special ones, and those added as `<...>` or `[...]`."""
    tokenizer = tokenizer_of(tokenizer)
    marks = set(getattr(tokenizer, "all_special_ids", ()))
    added = getattr(tokenizer, "get_added_vocab", dict)()
    marks |= {i for name, i in added.items() if _MARK.fullmatch(name)}
    return frozenset(marks)


def ends_of(eos: int | Iterable[int] | None, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a text.

    Raises:
        OptionError: None is given, and the tokenizer has none.
    """
    if eos is None:
        eos = getattr(tokenizer_of(tokenizer), "eos_token_id", None)
    if eos is None:
        raise OptionError("the tokenizer has no eos_token_id, expected eos=, its id")
    return (eos,) if isinstance(eos, int) else tuple(int(one) for one in eos)


def written_ways(text: str) -> list[str]:
    """As it is and in other cases (`case_variants`), behind a space and without.

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
