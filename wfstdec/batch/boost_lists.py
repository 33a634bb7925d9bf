"""The boosts of many utterances: lists for all, and lists of their own."""

from __future__ import annotations

import hashlib
import warnings

from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.lists import Boosts, BoostsLike, Numbers
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostWarning, OptionError
from wfstdec.io.boost_files import BoostFile
from wfstdec.io.logprobs import LogprobReader

_NAMED_AT_MOST = 5


class BoostLists:
    """The boosts of many utterances: a list for all, or lists of their own.

        lists = BoostLists(read_boosts("words.txt"))
        lists = BoostLists({"bartley": 4.0}, read_phrase_weights("names.jsonl"),
                           decoder.phrase_compiler())
        decoder.decode([logprobs], boosts=[lists.of("utt1")])

    Args:
        words: Word (or phrase of words) to bonus, nats: of all utterances, or as
            `wfstdec.io.read_boosts` reads them.
        phrases: Phrase to weight: likewise, or as `read_phrase_weights` reads them.
        compiler: For these phrases, from `Decoder.phrase_compiler`.

    Raises:
        OptionError: Phrases without a compiler.
    """

    def __init__(
        self,
        words: BoostFile | Numbers | None = None,
        phrases: BoostFile | Numbers | None = None,
        compiler: PhraseCompiler | None = None,
    ) -> None:
        self._words, self._phrases = (
            lists if isinstance(lists, BoostFile) else BoostFile(lists or {})
            for lists in (words, phrases)
        )
        if phrases is not None and compiler is None:
            raise OptionError(
                "phrases without a compiler, expected one of the decoder's "
                "phrase_compiler()"
            )
        self._compiler = compiler
        self._compiled: dict[int, PhraseBoosts] = {}
        self._asked: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """The utterances with lists of their own that `of` was never asked for."""
        return sorted({*self._words.own, *self._phrases.own} - self._asked)

    def __repr__(self) -> str:
        return repr((self._words, self._phrases))

    def of(self, utterance: str, own: Numbers | None = None) -> BoostsLike:
        """The boosts of an utterance, for `Decoder.decode`; None where it has none.

        Args:
            utterance: Its id.
            own: Words in place of those that the lists have for it.
        """
        self._asked.add(utterance)
        words = self._words.of(utterance) if own is None else own or None
        phrases = self._phrases.of(utterance)
        if phrases is None:
            return words
        assert self._compiler is not None
        if id(phrases) not in self._compiled:  # the lists live as long as this
            self._compiled[id(phrases)] = self._compiler.compile(phrases)
        return Boosts(words or {}, self._compiled[id(phrases)])


def warn_of_unused(utterances: list[str], reader: LogprobReader) -> None:
    """Lists for utterances that are not there: most often ids of another form."""
    if not utterances:
        return
    named = ", ".join(map(repr, utterances[:_NAMED_AT_MOST]))
    more = ", ..." if len(utterances) > _NAMED_AT_MOST else ""
    warnings.warn(
        f"{len(utterances)} boost lists are for utterances that {reader.path} does not "
        f"have: {named}{more}",
        BoostWarning,
        stacklevel=3,
    )


def told_apart(boosts: BoostLists | BoostsLike) -> str:
    """A few letters that differ where boosts do."""
    return hashlib.blake2b(repr(boosts).encode(), digest_size=16).hexdigest()
