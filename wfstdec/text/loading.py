"""The words and tokens of a decoder, from files or objects: the same for all decoders.

table = load_tokens("tokens.txt")
between = separator_of("<wb>", table)
lexicon = sayable(load_lexicon("lexicon.txt", table, between), model.index)
words = word_table(lexicon)                      # ids follow the order of the file
word_ids(words)                                  # the other way, without `<eps>`
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wfstdec.errors import LexiconError, OptionError
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.tokens import EPSILON, EPSILON_WORD, TokenTable, token_table

_log = logging.getLogger("wfstdec.build")

Path = str | os.PathLike[str]
TokensLike = Path | TokenTable | Sequence[str] | Mapping[str, int] | Any
"""A file, a table, names in order, `{name: token}`, or a tokenizer."""
AUTO = "auto"
"""Separator that is `|` in tables of Hugging Face, and none in others."""
_warned: set[str] = set()
"""Fingerprints of tables whose separator was logged."""


def load_tokens(tokens: TokensLike, blank: int | str | None) -> TokenTable:
    """Read a token table, make one, or check that one has this blank."""
    if not isinstance(tokens, TokenTable):
        return token_table(tokens, blank)
    if blank is not None and token_table(tokens.names, blank) != tokens:
        raise OptionError(
            f"blank={blank!r} with a token table whose blank is "
            f"{tokens.names[tokens.blank]!r}, expected the same or None"
        )
    return tokens


def load_lexicon(
    lexicon: Path | Lexicon, table: TokenTable, separator: int | None
) -> Lexicon:
    """Read a lexicon, or take one; the separator is a token, as of `separator_of`."""
    if isinstance(lexicon, Lexicon):
        return lexicon
    name = None if separator is None else table.names[separator]
    return read_lexicon(lexicon, table, separator=name)


def token_named(name: str | None, table: TokenTable, option: str) -> int | None:
    """The token of an option; None where it is left out."""
    return None if name is None else table.index(name, option)


def separator_of(
    name: str | None,
    table: TokenTable,
    *,
    lexicon: Path | Lexicon | None = None,
    silence: str | None = None,
) -> int | None:
    """The token between words by name; `"auto"` takes `|` of Hugging Face's tables."""
    if name != AUTO or name in table.ids:
        return token_named(name, table, "separator")
    token = table.word_delimiter
    if token is None or silence is not None:
        return None
    if isinstance(lexicon, Lexicon) and any(
        token in one for one in lexicon.pronunciations
    ):
        return None
    # Logged once a table: several decoders are often made of one.
    if table.fingerprint not in _warned:
        _warned.add(table.fingerprint)
        _log.warning(
            "'|' is taken as the token between words, as in tables of Hugging Face; "
            "separator='|' (--separator '|') says so, None (none) turns it off"
        )
    return token


def sayable(
    lexicon: Lexicon, vocabulary: Collection[str], unk_cost: float | None = None
) -> Lexicon:
    """The entries whose words a language model can have; logs what is dropped."""
    marks = {"<s>", "</s>"} & set(lexicon.words)
    if marks:
        raise LexiconError(
            f"{min(marks)!r} is a word of the lexicon, expected spoken words: "
            "a sentence has <s> and </s> by itself"
        )
    # The model can score every word then.
    if unk_cost is not None:
        return lexicon
    kept, dropped = lexicon.restrict(vocabulary)
    if dropped:
        _log.warning(
            "%d of %d lexicon words are not in the language model and are dropped, "
            "such as %s; unk_cost would keep them",
            len(dropped),
            len(set(lexicon.words)),
            ", ".join(map(repr, dropped[:3])),
        )
    if not len(kept):
        raise LexiconError(
            f"none of the {len(dropped)} lexicon words is in the language model, "
            "expected some: do they differ in case?"
        )
    return kept


def word_table(lexicon: Lexicon) -> tuple[str, ...]:
    """The words by id: `<eps>`, then those of the lexicon in their order."""
    return (EPSILON_WORD, *dict.fromkeys(lexicon.words))


def word_ids(words: Sequence[str]) -> dict[str, int]:
    """The ids of a word table's words; `<eps>`, id 0, is none."""
    return {word: i for i, word in enumerate(words) if i != EPSILON}
