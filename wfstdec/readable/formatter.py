"""Readable text: written numbers, punctuation and capitals for words with times.

    formatter = Formatter(itn="en", punctuation="en")
    shown = formatter(hypothesis)            # also words with times, or text
    shown.text                               # "Mr. Quilter paid $342, didn't he?"
    shown.words[2]                           # DisplayWord("paid", start_s, ..., 2, 3)

    stream = formatter.stream()              # consecutive utterances
    shown = stream.feed(words, num_settled)  # words so far
    shown = stream.end(words)                # all words

Numbers come first, then punctuation and capitals of the remaining words. The ranges of
display words partition the words, so that times and confidences are exact. Raw words,
which scores and lattices have, are not changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wfstdec.errors import OptionError
from wfstdec.readable.itn import ItnGrammar, Segment, load_itn
from wfstdec.readable.printed import CLASSES, MARKS, NONE
from wfstdec.readable.punctuation import (
    ENGLISH,
    Punctuated,
    PunctuationModel,
    capitalized,
    load_punctuation,
)
from wfstdec.search.hypothesis import HasWords, Word
from wfstdec.text.display import join_words
from wfstdec.text.files import PathLike

_SHIPPED = {"en": ENGLISH}


class DisplayWord(NamedTuple):
    """Written form of some words."""

    text: str  # Text with punctuation: `$342,`
    start_s: float | None  # Of the first word; None for words without times
    end_s: float | None  # Of the last word
    confidence: float | None  # The least of the words; None without confidences
    first: int  # First of the words, from 0
    last: int  # One after the last of them
    acoustic_confidence: float | None = None  # The least, as above

    def to_dict(self) -> dict[str, Any]:
        """Return the known fields, as in JSON lines."""
        times = {name: getattr(self, name) for name in _NUMBERS}
        known = {name: round(x, 6) for name, x in times.items() if x is not None}
        return {"word": self.text, "first": self.first, "last": self.last, **known}


_NUMBERS = "start_s", "end_s", "confidence", "acoustic_confidence"


class Shown(NamedTuple):
    """Display words of an utterance; they cover all words, in order."""

    words: tuple[DisplayWord, ...]
    num_settled: int  # Number of settled ones

    @property
    def text(self) -> str:
        """Display words joined as in their script."""
        return join_words(word.text for word in self.words)

    def to_dict(self) -> dict[str, Any]:
        """Return the text and the words, as in JSON lines."""
        return {"text": self.text, "words": [word.to_dict() for word in self.words]}


class Formatter:
    """Formatter of words with any of numbers, punctuation and display forms.

    Args:
        itn: Grammar of numbers: "en", "en:all" (zero to nine as well), a path for
            `load_itn`, or a grammar; None for none.
        punctuation: Model of punctuation and capitals: "en", a file of `wfstdec
            build-punctuation`, or a model; None for none.
        case: Whether words get capitals; False leaves them unchanged.
        display: Written forms such as "McDonald" or "New York" of words that differ
            only in case. They override the model's.

    Raises:
        FormatError, GrammarError: As in `load_itn` and `load_punctuation`.
    """

    def __init__(
        self,
        itn: PathLike | ItnGrammar | None = None,
        punctuation: PathLike | PunctuationModel | None = None,
        *,
        case: bool = True,
        display: Iterable[str] = (),
    ) -> None:
        self.itn = itn if isinstance(itn, ItnGrammar | None) else load_itn(itn)
        if punctuation is not None and not isinstance(punctuation, PunctuationModel):
            known = _SHIPPED.get(str(punctuation), punctuation)
            punctuation = load_punctuation(known)
        self.punctuation, self.case = punctuation, case
        self.display: Mapping[tuple[str, ...], tuple[str, ...]] = {
            tuple(form.casefold().split()): tuple(form.split()) for form in display
        }
        self.longest = max(map(len, self.display), default=0)

    def __call__(self, words: Any) -> Shown:
        """Format the words of a hypothesis, words with times, or words as text.

        The end is that of a recording, which ends the sentence.
        """
        if isinstance(words, HasWords):
            words = words.words
        elif isinstance(words, str):
            words = words.split()
        return self.stream().end(words, last=True)

    def stream(self) -> FormatStream:
        """Return a stream at the beginning of a sentence."""
        return FormatStream(self)


class FormatStream:
    """Stream of utterances, each of which arrives in parts."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter, model = formatter, formatter.punctuation
        self._itn = formatter.itn or ItnGrammar(None)
        self._marks = None if model is None else model.stream()
        self._begin()

    def _begin(self) -> None:
        self._segments: list[Segment] = []  # settled ones of this utterance
        self._shown: tuple[DisplayWord, ...] = ()

    def feed(
        self, words: Sequence[Word | str], num_settled: int | None = None
    ) -> Shown:
        """Format the words of the utterance so far.

        Args:
            words: Words with times, or their texts; settled ones come first.
            num_settled: Number of words that will not change; None: all.
        """
        known = self._num_known
        count = len(words) if num_settled is None else num_settled
        if not known <= count <= len(words):
            raise OptionError(f"num_settled={count}, expected {known} to {len(words)}")
        found, settled = self._itn.partial(_texts(words[known:]), count - known)
        segments = self._segments + _moved(found, known)
        self._segments = [one for one in segments if one.last <= known + settled]
        marked = self._marked(segments, words)
        # The last words may begin a longer display form.
        num_closed = len(self._segments) - max(0, self._formatter.longest - 1)
        num_shown = max(len(self._shown), min(marked.num_settled, num_closed))
        shown = self._display(segments, marked, words)
        self._shown = shown[:num_shown]
        return Shown(shown, num_shown)

    def end(self, words: Sequence[Word | str], *, last: bool = False) -> Shown:
        """Format the complete utterance, and begin the next one.

        Args:
            words: As in `feed`; all are settled.
            last: Whether the recording, and its sentence, end here.
        """
        known = self._num_known
        segments = self._segments + _moved(self._itn(_texts(words[known:])), known)
        marked = self._marked(segments, words, ends=True, last=last)
        shown = self._display(segments, marked, words)
        self._begin()
        return Shown(shown, len(shown))

    @property
    def _num_known(self) -> int:
        return self._segments[-1].last if self._segments else 0

    def _marked(
        self,
        segments: Sequence[Segment],
        words: Sequence[Word | str],
        *,
        ends: bool = False,
        last: bool = False,
    ) -> Punctuated:
        if self._marks is None:
            texts = [one.text for one in segments]
            return Punctuated([NONE] * len(texts), texts, len(self._segments))
        tokens = [
            one.text.lower()
            if one.kind is None  # in capitals it might be a class
            else one.kind
            if one.kind in CLASSES
            else "NUM"
            for one in segments
        ]
        pauses: list[float | None] | None = None
        if words and not isinstance(words[0], str):
            timed: Any = words
            pauses = [
                max(0.0, timed[one.last].start_s - timed[one.last - 1].end_s)
                for one in segments[:-1]
            ]
            pauses.append(None)
        if ends:
            return self._marks.end(tokens, pauses, last=last)
        return self._marks.feed(tokens, pauses, len(self._segments))

    def _display(
        self,
        segments: Sequence[Segment],
        marked: Punctuated,
        words: Sequence[Word | str],
    ) -> tuple[DisplayWord, ...]:
        formatter, known = self._formatter, len(self._shown)
        texts = [one.text for one in segments]
        if formatter.case:
            pairs = zip(segments, marked.forms, strict=True)
            texts = [form if one.kind is None else one.text for one, form in pairs]
        if formatter.display:
            # Words with digits have no display form.
            plain = ["" if one.kind else one.text.casefold() for one in segments]
            self._put_display_forms(plain, texts)
        shown = list(self._shown)
        behind = zip(segments, texts, marked.events, strict=True)
        for one, text, event in itertools.islice(behind, known, None):
            text += MARKS[event]
            numbers: Any = dict.fromkeys(_NUMBERS)
            if not isinstance(words[one.first], str):
                some: Any = words[one.first : one.last]
                numbers["start_s"], numbers["end_s"] = some[0].start_s, some[-1].end_s
                for name in _NUMBERS[2:]:
                    each = [getattr(word, name) for word in some]
                    numbers[name] = min(
                        (x for x in each if x is not None), default=None
                    )
            shown.append(DisplayWord(text, first=one[0], last=one[1], **numbers))
        return tuple(shown)

    def _put_display_forms(self, plain: list[str], texts: list[str]) -> None:
        """Replace texts by display forms, the longest first, from the left."""
        display, longest = self._formatter.display, self._formatter.longest
        at = 0
        while at < len(plain):
            size = min(longest, len(plain) - at)
            while size and tuple(plain[at : at + size]) not in display:
                size -= 1
            forms = display.get(tuple(plain[at : at + size]), ())
            for place, form in enumerate(forms, at):
                starts = texts[place][:1].isupper()
                texts[place] = capitalized(form) if starts else form
            at += max(1, size)


def _texts(words: Sequence[Word | str]) -> list[str]:
    return [word if isinstance(word, str) else word.text for word in words]


def _moved(segments: list[Segment], by: int) -> list[Segment]:
    return [Segment(s.first + by, s.last + by, s.text, s.kind) for s in segments]
