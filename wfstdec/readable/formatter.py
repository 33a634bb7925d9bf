"""Readable text: written numbers, punctuation and capitals for words with times.

    formatter = Formatter(itn="en", punctuation="en")
    shown = formatter(hypothesis)            # also words with times, or text
    shown.text                               # "Mr. Quilter paid $342, didn't he?"
    shown.words[2]                           # DisplayWord("paid", start_s, ..., 2, 3)

    stream = formatter.stream()              # utterances that follow each other
    shown = stream.feed(words, num_settled)  # the words of an utterance so far
    shown = stream.end(words)                # all of them; the next one continues it

Numbers come first, then punctuation and capitals of what is left as words. The ranges
of display words partition the words, so that times and confidences are exact. Raw words
are not changed: scores and lattices have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wfstdec.errors import OptionError
from wfstdec.readable.itn import ItnGrammar, Segment, load_itn
from wfstdec.readable.printed import CLASSES, MARKS, NONE
from wfstdec.readable.punctuation import (
    ENGLISH,
    PunctuationModel,
    capitalized,
    load_punctuation,
)
from wfstdec.search.hypothesis import HasWords, Word
from wfstdec.text.files import PathLike

_SHIPPED = {"en": ENGLISH}


class DisplayWord(NamedTuple):
    """Written form of some words.

    Attributes:
        text: With the marks behind it: `$342,`.
        start_s: Start of the first word, seconds; None where words have no times.
        end_s: End of the last word.
        confidence: The least of the words; None where there are none.
        first: The first of the words, from 0.
        last: One behind the last of them.
    """

    text: str
    start_s: float | None
    end_s: float | None
    confidence: float | None
    first: int
    last: int


class Shown(NamedTuple):
    """Display words of an utterance.

    Attributes:
        words: They cover all words, in order.
        num_settled: The first of them that cannot change.
    """

    words: tuple[DisplayWord, ...]
    num_settled: int

    @property
    def text(self) -> str:
        """Display words, joined by spaces."""
        return " ".join(word.text for word in self.words)

    def to_dict(self) -> dict[str, Any]:
        """The text and the words, as lines of JSON have them."""
        words = []
        for one in self.words:
            fields = {"word": one.text, "first": one.first, "last": one.last}
            if one.start_s is not None and one.end_s is not None:
                fields |= {
                    "start_s": round(one.start_s, 6),
                    "end_s": round(one.end_s, 6),
                }
            if one.confidence is not None:
                fields["confidence"] = round(one.confidence, 6)
            words.append(fields)
        return {"text": self.text, "words": words}


class Formatter:
    """Makes words readable, by any of numbers, punctuation and display forms.

    Args:
        itn: The grammar of numbers: "en", "en:all" (zero to nine as well), a path as
            `load_itn` takes it, or a grammar; None for none.
        punctuation: The model of punctuation and capitals: "en", a path to what
            `wfstdec build-punctuation` wrote, or a model; None for none.
        case: Whether words get capitals; False leaves them as they are.
        display: Written forms such as "McDonald" or "New York" of words that are the
            same but for case. They come before the model's.

    Raises:
        FormatError, GrammarError: As `load_itn` and `load_punctuation`.
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

        The end is that of a recording: its sentence ends there.
        """
        if isinstance(words, HasWords):
            words = words.words
        elif isinstance(words, str):
            words = words.split()
        return self.stream().end(words, last=True)

    def with_display(self, forms: Iterable[str]) -> Formatter:
        """The formatter with more written forms, before those it has."""
        known = map(" ".join, self.display.values())
        return Formatter(
            self.itn, self.punctuation, case=self.case, display=(*known, *forms)
        )

    def stream(self) -> FormatStream:
        """Begin a stream, at the beginning of a sentence."""
        return FormatStream(self)


class FormatStream:
    """Utterances that follow each other, each of which comes in parts."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter
        model = formatter.punctuation
        self._marks = None if model is None else model.stream()
        self._segments: list[Segment] = []  # of this utterance, settled

    def feed(
        self, words: Sequence[Word | str], num_settled: int | None = None
    ) -> Shown:
        """Format the words of the utterance so far.

        Args:
            words: With times, or their texts; those settled before come first.
            num_settled: The first words that will not change; None: all.
        """
        count = len(words) if num_settled is None else num_settled
        if not self._num_known <= count <= len(words):
            raise OptionError(
                f"num_settled={count}, expected {self._num_known} to {len(words)}"
            )
        texts, itn = [_text(word) for word in words], self._formatter.itn
        known = self._num_known
        if itn is None:
            self._segments += _copied(texts, known, count)
        else:
            found, settled = itn.partial(texts[known:count])
            self._segments += _moved([s for s in found if s.last <= settled], known)
        segments = self._segments + self._rest(texts)
        if self._marks is None:
            events: Sequence[int] = [NONE] * len(segments)
            forms: Sequence[str] | None = None
            num_shown = len(self._segments)
        else:
            tokens, pauses = self._tokens(segments, words)
            marked = self._marks.feed(tokens, pauses, len(self._segments))
            events, forms, num_shown = marked
        num_closed = len(self._segments) - self._num_open()
        shown = self._shown(segments, events, forms, words)
        return Shown(shown, min(num_shown, num_closed))

    def end(self, words: Sequence[Word | str], *, last: bool = False) -> Shown:
        """Format the whole utterance, and begin the next one.

        Args:
            words: As for `feed`; all are settled.
            last: The end of a recording: its sentence ends there.
        """
        texts = [_text(word) for word in words]
        segments = self._segments + self._rest(texts)
        events: Sequence[int] = [NONE] * len(segments)
        forms: Sequence[str] | None = None
        if self._marks is not None:
            tokens, pauses = self._tokens(segments, words)
            events, forms, _ = self._marks.end(tokens, pauses, last=last)
        self._segments = []
        shown = self._shown(segments, events, forms, words)
        return Shown(shown, len(shown))

    @property
    def _num_known(self) -> int:
        return self._segments[-1].last if self._segments else 0

    def _rest(self, texts: list[str]) -> list[Segment]:
        """Segments of the words behind the settled ones."""
        known, itn = self._num_known, self._formatter.itn
        if itn is None:
            return _copied(texts, known, len(texts))
        return _moved(itn(texts[known:]), known)

    def _tokens(
        self, segments: Sequence[Segment], words: Sequence[Word | str]
    ) -> tuple[list[str], list[float | None] | None]:
        """Words and classes for the punctuation model, and the pauses behind them."""
        tokens = [
            one.text if one.kind is None else one.kind if one.kind in CLASSES else "NUM"
            for one in segments
        ]
        if not words or isinstance(words[0], str):
            return tokens, None
        timed: Any = words
        pauses: list[float | None] = [
            max(0.0, timed[one.last].start_s - timed[one.last - 1].end_s)
            for one in segments[:-1]
        ]
        return tokens, [*pauses, None]

    def _shown(
        self,
        segments: Sequence[Segment],
        events: Sequence[int],
        forms: Sequence[str] | None,
        words: Sequence[Word | str],
    ) -> tuple[DisplayWord, ...]:
        """Display words of segments."""
        formatter = self._formatter
        texts = [one.text for one in segments]
        if forms is not None and formatter.case:
            pairs = zip(segments, forms, strict=True)
            texts = [form if one.kind is None else one.text for one, form in pairs]
        if formatter.display:
            self._put_display_forms(_plain(segments), texts)
        shown = []
        for one, text, event in zip(segments, texts, events, strict=True):
            text += MARKS[event]
            start_s = end_s = confidence = None
            if not isinstance(words[one.first], str):
                some: Any = words[one.first : one.last]
                sure = [w.confidence for w in some if w.confidence is not None]
                start_s, end_s = some[0].start_s, some[-1].end_s
                confidence = min(sure, default=None)
            times = start_s, end_s, confidence
            shown.append(DisplayWord(text, *times, one.first, one.last))
        return tuple(shown)

    def _put_display_forms(self, plain: list[str], texts: list[str]) -> None:
        """Put display forms of words into their texts: the longest, from the left."""
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

    def _num_open(self) -> int:
        """How many of the last settled segments may begin a longer display form."""
        longest = self._formatter.longest
        plain = _plain(self._segments[max(0, len(self._segments) - longest + 1) :])
        for first in range(len(plain) if longest else 0):
            tail = tuple(plain[first:])
            if any(
                len(form) > len(tail) and form[: len(tail)] == tail
                for form in self._formatter.display
            ):
                return len(tail)
        return 0


def _text(word: Word | str) -> str:
    return word if isinstance(word, str) else word.text


def _copied(texts: Sequence[str], first: int, end: int) -> list[Segment]:
    return [Segment(i, i + 1, texts[i], None) for i in range(first, end)]


def _moved(segments: Iterable[Segment], by: int) -> list[Segment]:
    return [one._replace(first=one.first + by, last=one.last + by) for one in segments]


def _plain(segments: Sequence[Segment]) -> list[str]:
    """Words in lower case; those with digits have no display form."""
    return [one.text.casefold() if one.kind is None else "" for one in segments]
