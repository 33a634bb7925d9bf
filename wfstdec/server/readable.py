"""Readable text for clients: numbers, punctuation and capitals on request.

readable = Readable(load_itn(), load_punctuation(), smart=False)
formatter = readable.formatter(numbers=True, punctuation=None)   # None: the default
shown = ShownWords(formatter)                                    # of a stream
event = shown.of(event)              # with display words in place of words
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from wfstdec.readable import Formatter, ItnGrammar, PunctuationModel
from wfstdec.search.hypothesis import Word
from wfstdec.server.stream import Words


class Readable:
    """Models for readable text, and whether clients get it by default."""

    def __init__(
        self,
        itn: ItnGrammar | None = None,
        punctuation: PunctuationModel | None = None,
        display: Iterable[str] = (),
        *,
        smart: bool = False,
    ) -> None:
        self._itn, self._punctuation, self._smart = itn, punctuation, smart
        self._display = tuple(display)

    def formatter(
        self,
        numbers: bool | None = None,
        punctuation: bool | None = None,
        display: Iterable[str] = (),
    ) -> Formatter | None:
        """Return the formatter of a client; None for raw words."""
        asked = numbers, punctuation
        numbers, punctuation = (self._smart if x is None else x for x in asked)
        itn = self._itn if numbers else None
        model = self._punctuation if punctuation else None
        if itn is None and model is None:
            return None
        # Lower-case terms have no special written form.
        forms = [form for form in display if form != form.casefold()]
        return Formatter(itn, model, display=(*self._display, *forms))

    def missing(self, numbers: bool | None, punctuation: bool | None) -> Iterator[str]:
        """Yield warnings of requested formats that the server lacks."""
        if numbers and self._itn is None:
            yield "numbers stay words: the server has no --itn grammar"
        if punctuation and self._punctuation is None:
            yield "no punctuation: the server has no --punctuate model"


class ShownWords:
    """Display words in place of a stream's words; final ones never change.

    Without a formatter the words are unchanged. A final event has the settled display
    words. A number that may continue, or a word whose mark depends on the next, comes
    with a later event, at the latest at an endpoint.
    """

    def __init__(self, formatter: Formatter | None) -> None:
        self._formatter = formatter
        self._stream = None if formatter is None else formatter.stream()
        self._before: list[Any] = []  # display words up to the last endpoint
        self._num_before = 0  # words of them
        self._begin()

    def _begin(self) -> None:
        self._words: list[Word] = []  # final ones of the utterance under way
        self._num_sent = 0  # display words that were final

    def of(self, event: Words) -> Words:
        """Return the event with display words."""
        if self._formatter is None or self._stream is None:
            return event
        words: Any = [*self._words, *event.words]
        if event.is_final and (event.ends_utterance or event.is_endpoint):
            if event.hypotheses:  # these have confidences for all words
                words = event.hypotheses[0].words[self._num_before :]
            shown: Any = self._stream.end(words).words
            sent = self._num_sent
            self._begin()
            self._before += shown
            self._num_before += len(words)
            hypotheses = []
            for place, one in enumerate(event.hypotheses):
                other: Any = tuple(self._before)
                if place:
                    other = self._formatter.stream().end(one.words).words
                hypotheses.append(replace(one, words=other))
            if event.ends_utterance:
                self._before, self._num_before = [], 0
            return replace(event, words=shown[sent:], hypotheses=tuple(hypotheses))
        found = self._stream.feed(words, len(words if event.is_final else self._words))
        begin, end = self._num_sent, len(found.words)
        if event.is_final:
            self._words, self._num_sent = words, found.num_settled
            end = found.num_settled
        words = found.words[begin:end]
        return replace(event, words=words)
