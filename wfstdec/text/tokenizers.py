"""Tokenizers of Transformers: names of tokens, marks, ends.

tokens = token_table_of(tokenizer)            # with a blank behind them
marks = neutral_of(tokenizer)                 # timestamps, languages, padding
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

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
    added: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
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
