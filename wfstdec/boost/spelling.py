"""How phrases are spelt: text to the labels that a boost follows.

    by_words(graph.word_ids)                        # words: the unit is the word
    by_lexicon(lexicon, separator=3)                # all pronunciations of all words
    by_lexicon(lexicon, others=by_table(tokens))    # ... and words that it lacks
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from wfstdec.errors import LexiconError
from wfstdec.text.lexicon import MARKS, Lexicon, spelling_lexicon
from wfstdec.text.symbols import TokenTable

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
    lacking = -1  # ids are not below 0
    ids = (
        tuple([word_ids.get(word, lacking) for word in phrase.split()])
        for phrase in phrases
    )
    return [[] if lacking in found else [found] for found in ids]


def by_lexicon(
    lexicon: Lexicon,
    *,
    separator: int | None = None,
    separator_optional: bool = False,
    others: Speller | None = None,
) -> Speller:
    """Phrases as the pronunciations of their words, in all ways (at most 256).

    Args:
        lexicon: Words to tokens.
        separator: A token that stands between words.
        separator_optional: It may also be left out, at each place.
        others: Spells words that the lexicon lacks, one word at a time.
    """
    known: dict[str, list[Spelling]] = {}
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        known.setdefault(word, []).append(tokens)
    between: list[Spelling] = [()] if separator is None else [(separator,)]
    if separator_optional and separator is not None:
        between.append(())
    return partial(_pronunciations_of, known, between, others)


def _pronunciations_of(
    known: Mapping[str, Sequence[Spelling]],
    between: Sequence[Spelling],
    others: Speller | None,
    phrases: Sequence[str],
) -> list[list[Spelling]]:
    words = dict.fromkeys(word for phrase in phrases for word in phrase.split())
    lacking = [word for word in words if word not in known]
    extra: dict[str, Sequence[Spelling]] = {}
    if others is not None and lacking:
        extra = dict(zip(lacking, others(lacking), strict=True))
    return [
        _joined(
            [known.get(word) or extra.get(word, ()) for word in phrase.split()], between
        )
        for phrase in phrases
    ]


def _joined(
    parts: Sequence[Sequence[Spelling]], between: Sequence[Spelling]
) -> list[Spelling]:
    """Spell a phrase in all ways that its words and what is between them allow."""
    places: list[Sequence[Spelling]] = []
    for part in parts:
        places += [between, part] if places else [part]
    ways = itertools.product(*places)
    spelt = [
        tuple(itertools.chain(*way)) for way in itertools.islice(ways, MAX_SPELLINGS)
    ]
    if next(ways, None):
        _log.warning(
            "a phrase has over %d spellings, the rest are left out", MAX_SPELLINGS
        )
    return list(dict.fromkeys(spelt))


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
    spell = partial(
        spelling_lexicon,
        tokens=tokens,
        separator=separator,
        sentencepiece_model=sentencepiece_model,
    )
    found = _spellable(words, spell)

    def spell_word(lacking: Sequence[str]) -> list[list[Spelling]]:
        return [found.get(word, []) for word in lacking]

    empty = Lexicon((), (), np.zeros(0, np.float32))
    return by_lexicon(empty, separator=separator, others=spell_word)(phrases)


def _spellable(
    words: list[str], spell: Callable[[list[str]], Lexicon]
) -> dict[str, list[Spelling]]:
    """The spellings of those words that have one."""
    try:
        lexicon = spell(words)
    except LexiconError:
        half = len(words) // 2
        if not half:
            return {}
        return _spellable(words[:half], spell) | _spellable(words[half:], spell)
    pairs = zip(lexicon.words, lexicon.pronunciations, strict=True)
    return {word: [spelling] for word, spelling in pairs}


def by_tokenizer(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    variants: Callable[[str], Iterable[str]] | None = None,
    *,
    tokens: TokenTable | None = None,
) -> Speller:
    """Phrases as a tokenizer cuts them; an empty result is a phrase it cannot spell.

    Args:
        encode: Text to tokens of the decoder: not always what a tokenizer calls its
            ids, which know no blank. With `tokens`, text to names of tokens.
        variants: Other ways to write a phrase, each a spelling of its own; for
            instance `case_variants`.
        tokens: What the names are looked up in. One that it lacks, or a mark such as
            `<unk>`, spells nothing.
    """
    return partial(_encoded_by, encode, variants, tokens)


def _encoded_by(
    encode: Callable[[str], Sequence[int] | Sequence[str]],
    variants: Callable[[str], Iterable[str]] | None,
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

    written = [variants(one) if variants else [one] for one in phrases]
    return [[s for s in map(tokens_of, texts) if s] for texts in written]


def case_variants(text: str) -> list[str]:
    """Write a text as it is, in small letters, in capitals, with capitals on words."""
    ways = (text, text.lower(), text.upper(), text.title())
    return list(dict.fromkeys(ways))
