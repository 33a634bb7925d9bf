"""Make compilers of phrases for a decoder: how phrases are spelt with its vocabulary.

compiler = phrase_compiler(vocabulary)                 # words, if the decoder has any
compiler = phrase_compiler(vocabulary, unit="token")   # tokens, between separators
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from wfstdec.boost.compile import PhraseCompiler, warn
from wfstdec.boost.matching import WordMatcher, first_of
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.boost.spelling import (
    Speller,
    Spelling,
    by_lexicon,
    by_table,
    by_tokenizer,
    by_words,
)
from wfstdec.errors import OptionError
from wfstdec.lm.automaton import Unit
from wfstdec.text.loading import token_named, word_ids
from wfstdec.text.vocabulary import Vocabulary

Tokenizer = Callable[[str], Sequence[str]]
"""Text to names of tokens."""


def phrase_compiler(
    vocabulary: Vocabulary,
    options: PhraseOptions | None = None,
    *,
    unit: Unit | None = None,
    boundary: str | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
    tokenizer: Tokenizer | None = None,
    matcher: WordMatcher | None = None,
) -> PhraseCompiler:
    """A compiler of phrases; arguments and errors as of `Decoder.phrase_compiler`.

    Where there is no lexicon, and no SentencePiece model is given, a `tokenizer` cuts
    phrases into names of tokens; where one is given, it warns of what differs.
    `matcher` finds the words that others may mean.
    """
    if vocabulary.words and sentencepiece_model is not None:
        raise OptionError(
            f"sentencepiece_model={os.fspath(sentencepiece_model)!r} for a decoder "
            "that has words, expected None: its lexicon spells phrases"
        )
    if unit not in (None, "word", "token"):
        raise OptionError(f"unit={unit!r}, expected 'word', 'token' or None")
    if (unit or ("word" if vocabulary.words else "token")) == "word":
        if not vocabulary.words:
            raise OptionError(
                "unit='word', expected 'token': this decoder has no words"
            )
        if boundary is not None:
            raise OptionError(
                f"boundary={boundary!r} with phrases of words, which need none; "
                "expected None, or unit='token'"
            )
        ids = word_ids(vocabulary.words)
        speller = by_words(ids)
        return PhraseCompiler(speller, vocabulary.words, options, matcher=matcher)
    tokens = vocabulary.tokens
    edge = token_named(boundary, tokens, "boundary")
    between, optional = edge, False
    if edge is None:
        # Without a boundary, the separator is one if it stands between all words: one
        # that may be missing cannot tell where words end.
        between, optional = vocabulary.separator, vocabulary.separator_optional
        edge = None if optional else between
    if vocabulary.lexicon is not None:
        speller = by_lexicon(
            vocabulary.lexicon, separator=between, separator_optional=optional
        )
    else:
        own = getattr(tokenizer, "spell", None)  # a ModelTokenizer
        if tokenizer is not None and own is None:
            own = by_tokenizer(tokenizer, tokens=tokens)
        speller = by_table(
            tokens, separator=between, sentencepiece_model=sentencepiece_model
        )
        if own is not None:
            is_given = sentencepiece_model is not None
            speller = partial(_spelt_as_given, speller, own) if is_given else own
    return PhraseCompiler(speller, tokens, options, edge, matcher)


def _spelt_as_given(
    speller: Speller, own: Speller, phrases: Sequence[str]
) -> Sequence[Sequence[Spelling]]:
    """Spell phrases by one speller; warns where the model's own has other pieces."""
    spelt, expected = speller(phrases), own(phrases)
    pairs = zip(phrases, spelt, expected, strict=True)
    if differ := [text for text, a, b in pairs if a and not {*a} & {*b}]:
        warn(
            f"{len(differ)} boosted phrases have other pieces than the model's own "
            f"tokenizer cuts and may have no effect: {first_of(differ)}"
        )
    return spelt
