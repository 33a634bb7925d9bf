"""Phrases that a command line favours, compiled for the decoder that it asks for."""

from __future__ import annotations

import argparse
import itertools

import wfstdec
from wfstdec.boost.boosts import BoostsLike
from wfstdec.boost.phrases import PhraseBoosts, PhraseOptions
from wfstdec.boost.spelling import Speller, by_lexicon, by_table, by_words
from wfstdec.cli.decoders import flag_of
from wfstdec.errors import OptionError
from wfstdec.graph.tables import GraphTables
from wfstdec.io.boost_lists import BoostLists, read_boosts, read_phrase_weights
from wfstdec.search.decoder import Decoder
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable
from wfstdec.text.vocabulary import token_named, word_ids


class UtteranceLists:
    """The words and phrases that are boosted in each utterance.

    Args:
        words: The lists of words.
        phrases: The lists of phrases.
        compiler: For these phrases; None where there are none.
    """

    def __init__(
        self,
        words: BoostLists,
        phrases: BoostLists | None = None,
        compiler: wfstdec.PhraseCompiler | None = None,
    ) -> None:
        self._words, self._phrases = words, phrases or BoostLists()
        self._compiler = compiler
        self._compiled: dict[int, PhraseBoosts] = {}
        self._asked: set[str] = set()

    @property
    def left_over(self) -> list[str]:
        """The utterances that have a list of their own, and were never asked for."""
        return sorted({*self._words.own, *self._phrases.own} - self._asked)

    def of(self, utterance: str) -> BoostsLike:
        """The boosts of an utterance."""
        self._asked.add(utterance)
        words = self._words.of(utterance)
        phrases = self._phrases.of(utterance)
        if self._compiler is None or phrases is None:
            return words
        if id(phrases) not in self._compiled:  # the lists live as long as this
            self._compiled[id(phrases)] = self._compiler.compile(phrases)
        return wfstdec.Boosts(words or {}, self._compiled[id(phrases)])


def read_lists(args: argparse.Namespace) -> tuple[BoostLists, BoostLists | None]:
    """The lists of `--boost` and `--phrases`; errors as of their readers.

    Raises:
        OptionError: Flags of phrases without phrases.
    """
    words = read_boosts(args.boost) if args.boost else BoostLists()
    if args.phrases:
        return words, read_phrase_weights(args.phrases)
    refuse_phrase_flags(args, without="--phrases")
    return words, None


def refuse_phrase_flags(args: argparse.Namespace, *, without: str) -> None:
    """Raise `OptionError` where there are flags of phrases and no phrases."""
    names = "phrase_unit", "phrase_boundary", "sentencepiece", "phrase_totals"
    for name in names:
        if getattr(args, name, None) not in (None, False):
            raise OptionError(f"{flag_of(name)} without {without}, expected both")


def lists_of(
    args: argparse.Namespace,
    lists: tuple[BoostLists, BoostLists | None],
    decoder: Decoder,
) -> UtteranceLists:
    """What is boosted in each utterance.

    Raises:
        OptionError: Words for a decoder that has none; or as of `phrase_compiler`.
    """
    words, phrases = lists
    if args.boost and not _tables(decoder)[1]:
        raise OptionError(
            f"--boost {args.boost} for a decoder that has no words, expected --phrases"
        )
    if phrases is None:
        return UtteranceLists(words)
    amounts = PhraseOptions(weights_are_totals=args.phrase_totals)
    return UtteranceLists(words, phrases, phrase_compiler(args, decoder, amounts))


def phrase_compiler(
    args: argparse.Namespace,
    decoder: Decoder,
    options: PhraseOptions | None = None,
) -> wfstdec.PhraseCompiler:
    """A compiler of phrases for a decoder, by `--phrase-unit` and the like.

    Raises:
        OptionError: Phrases of words for a decoder that has none; a boundary for
            phrases of words; a SentencePiece model where words are.
        BackendError: Such a model, and sentencepiece is not installed.
        TokenTableError: The boundary is not a token.
    """
    tokens, words, lexicon = _tables(decoder)
    if words and args.sentencepiece is not None:
        raise OptionError(
            f"--sentencepiece {args.sentencepiece} for a decoder that has words, "
            "expected none: its lexicon spells phrases"
        )
    unit = args.phrase_unit or ("word" if words else "token")
    if unit == "word":
        if not words:
            raise OptionError(
                "--phrase-unit word, expected token: this decoder has no words"
            )
        if args.phrase_boundary is not None:
            raise OptionError(
                f"--phrase-boundary {args.phrase_boundary!r} with phrases of words, "
                "which need none; expected --phrase-unit token"
            )
        return wfstdec.PhraseCompiler(by_words(word_ids(words)), words, options)
    boundary = token_named(args.phrase_boundary, tokens, "--phrase-boundary")
    between, optional = boundary, False
    if boundary is None:
        between, optional = _between_words(args, decoder)
        if not optional:
            boundary = between
    speller: Speller = by_table(
        tokens, separator=between, sentencepiece_model=args.sentencepiece
    )
    if lexicon is not None:
        speller = by_lexicon(lexicon, separator=between, separator_optional=optional)
    return wfstdec.PhraseCompiler(speller, tokens, options, boundary=boundary)


def _tables(decoder: Decoder) -> tuple[TokenTable, tuple[str, ...], Lexicon | None]:
    """The tokens of a decoder, its words, and how they are said."""
    if isinstance(decoder, wfstdec.WfstDecoder):
        tables = decoder.graph.tables
        return tables.tokens, tables.words, _lexicon_of(tables)
    if isinstance(decoder, wfstdec.TrieDecoder):
        return decoder.tokens, decoder.words, decoder.lexicon
    assert isinstance(decoder, wfstdec.GreedyDecoder)
    return decoder.tokens, (), None


def _between_words(
    args: argparse.Namespace, decoder: Decoder
) -> tuple[int | None, bool]:
    """The token that may stand between words, and whether it may be left out."""
    if isinstance(decoder, wfstdec.WfstDecoder):
        tables = decoder.graph.tables
        if len(tables.fillers) != 1:
            return None, False
        return tables.fillers[0], not tables.separated
    assert isinstance(decoder, wfstdec.TrieDecoder | wfstdec.GreedyDecoder)
    return decoder.separator, getattr(args, "separator_optional", False)


def _lexicon_of(tables: GraphTables) -> Lexicon:
    said = tables.pronunciations
    pairs = itertools.pairwise(said.splits.tolist())
    tokens = said.tokens.tolist()
    return Lexicon(
        tuple(tables.words[word] for word in said.word.tolist()),
        tuple(tuple(tokens[begin:end]) for begin, end in pairs),
        said.cost,
    )
