"""How phrases are spelt: text to the labels that a boost follows.

    by_words(graph.word_ids)                        # words: the unit is the word
    by_lexicon(lexicon, separator=3)                # all pronunciations of all words
    by_table(tokens)                                # characters or pieces
    by_tokenizer(tokenizer.encode)                  # whatever made the token ids
    by_tokenizer(processor.encode_as_pieces, tokens=tokens)       # ... or their names

A speller takes phrases and gives the spellings of each: none where a phrase cannot be
spelt, several where it can be said in several ways. Spellers can be pickled, and so can
decoders, which have them.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from wfstdec.text.lexicon import MARKS, Lexicon, spellable_words
from wfstdec.text.tokens import TokenTable

Spelling = tuple[int, ...]
Speller = Callable[[Sequence[str]], Sequence[Sequence[Spelling]]]

MAX_SPELLINGS = 256
"""A phrase of many words with many pronunciations is spelt in no more ways."""

_log = logging.getLogger("wfstdec.boost")


def by_words(word_ids: Mapping[str, int]) -> Speller:
    """Phrases as sequences of word ids."""
    return partial(_word_ids_of, word_ids)


def _word_ids_of(
    word_ids: Mapping[str, int], phrases: Sequence[str]
) -> list[list[Spelling]]:
    ids = (tuple(map(word_ids.get, phrase.split())) for phrase in phrases)
    return [[] if None in found else [found] for found in ids]  # type: ignore[list-item]


def by_lexicon(
    lexicon: Lexicon,
    *,
    separator: int | None = None,
    separator_optional: bool = False,
) -> Speller:
    """Phrases as the pronunciations of their words, in all ways (at most 256)."""
    known: dict[str, list[Spelling]] = {}
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        known.setdefault(word, []).append(tokens)
    between: list[Spelling] = [()] if separator is None else [(separator,)]
    if separator_optional and separator is not None:
        between.append(())
    return partial(_pronunciations_of, known, between)


def _pronunciations_of(
    known: Mapping[str, Sequence[Spelling]],
    between: Sequence[Spelling],
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    said = ([known.get(word, ()) for word in phrase.split()] for phrase in phrases)
    return [_joined(parts, between) for parts in said]


def _joined(
    parts: Sequence[Sequence[Spelling]], between: Sequence[Spelling]
) -> list[Spelling]:
    """Spell a phrase in all ways that its words and what is between them allow."""
    places = [place for part in parts for place in (between, part)]
    ways = itertools.product(*places[1:])
    first = itertools.islice(ways, MAX_SPELLINGS)
    spelt = dict.fromkeys(tuple(itertools.chain(*way)) for way in first)
    if next(ways, None):
        text = "a phrase has over %d spellings, the rest are left out"
        _log.warning(text, MAX_SPELLINGS)
    return list(spelt)


def by_table(
    tokens: TokenTable,
    *,
    separator: int | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
) -> Speller:
    """Phrases as `lexicon.spelling_lexicon` spells their words; arguments as there."""
    return partial(_spelt_by_table, tokens, separator, sentencepiece_model)


def _spelt_by_table(
    tokens: TokenTable,
    separator: int | None,
    sentencepiece_model: str | os.PathLike[str] | None,
    phrases: Sequence[str],
) -> Sequence[Sequence[Spelling]]:
    # All words at once: SentencePiece is asked once for a list.
    words = list(dict.fromkeys(w for phrase in phrases for w in phrase.split()))
    lexicon, _ = spellable_words(
        words, tokens, separator=separator, sentencepiece_model=sentencepiece_model
    )
    return by_lexicon(lexicon, separator=separator)(phrases)


def by_tokenizer(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    *,
    tokens: TokenTable | None = None,
) -> Speller:
    """Phrases as a tokenizer cuts them; an empty result is a phrase it cannot spell."""
    return partial(_encoded_by, encode, tokens)


def _encoded_by(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    tokens: TokenTable | None,
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    """Spellings of phrases by a tokenizer; none of those that it cannot spell."""

    def tokens_of(text: str) -> Spelling:
        found = encode(text)
        if tokens is None:
            return tuple(int(token) for token in found)
        # A mark of the model, or the blank, is never said: a text with one is unspelt.
        unspelt = {*MARKS, tokens.names[tokens.blank]}
        ids = [-1 if n in unspelt else tokens.ids.get(str(n), -1) for n in found]
        return () if -1 in ids else tuple(ids)

    return [[spelt] if spelt else [] for spelt in map(tokens_of, phrases)]
