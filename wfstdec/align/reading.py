"""A path through the graph of a text, read as an alignment.

alignment = read_alignment(found, nearness, words, star=None,
                           options=options)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wfstdec.align.alignment import Alignment, Misfit, MisfitKind
from wfstdec.align.confidence import Nearness
from wfstdec.align.linear_graph import STAR
from wfstdec.align.options import AlignOptions
from wfstdec.align.search import Found
from wfstdec.search.hypothesis import Token, Word, seconds


def read_alignment(
    found: Found,
    near: Nearness,
    transcript: Sequence[str],
    *,
    star: int | None,
    options: AlignOptions,
) -> Alignment:
    """Words, tokens and misfits of a path.

    Args:
        found: The path; its words are places in the text, or the star.
        near: How near it is to what the model would have said.
        transcript: The words of the text.
        star: The token of speech that the text does not have, if that may be.
        options: For what is a misfit.
    """
    path = found.hypothesis
    said = [word for word in path.words if word.text != STAR]
    positions = tuple(int(word.text) for word in said)
    words = tuple(
        word._replace(
            text=transcript[at],
            confidence=near.confidence(word.start_frame, word.end_frame),
        )
        for word, at in zip(said, positions, strict=True)
    )
    tokens = tuple(
        token._replace(confidence=near.confidence(token.start_frame, token.end_frame))
        for token, number in zip(path.tokens, path.token_ids, strict=True)
        if number != star
    )
    places = _Places(found, near, tuple(transcript), options)
    misfits = sorted(
        itertools.chain(places.by_words(), places.missing()),
        key=lambda misfit: (misfit.start_frame, misfit.first_word),
    )
    return Alignment(
        words=words,
        positions=positions,
        tokens=tokens,
        word_tokens=_word_tokens(words, tokens),
        transcript=tuple(transcript),
        misfits=tuple(misfits),
        total_cost=path.total_cost,
        excess=found.excess,
        exact=found.exact,
        reached_end=path.reached_final,
        num_frames=path.num_frames,
        frame_shift_s=path.frame_shift_s,
    )


def _word_tokens(
    words: Sequence[Word], tokens: Sequence[Token]
) -> tuple[tuple[int, int], ...]:
    """Find the tokens in the frames of each word."""
    spans, at = [], 0
    for word in words:
        while at < len(tokens) and tokens[at].start_frame < word.start_frame:
            at += 1
        first = at
        while at < len(tokens) and tokens[at].start_frame < word.end_frame:
            at += 1
        spans.append((first, at))
    return tuple(spans)


@dataclass(frozen=True)
class _Places:
    """Places in which text and audio do not fit."""

    found: Found
    near: Nearness
    transcript: tuple[str, ...]
    options: AlignOptions

    def _misfit(
        self, kind: MisfitKind, words: tuple[int, int], frames: tuple[int, int]
    ) -> Misfit:
        shift_s = self.found.hypothesis.frame_shift_s
        (first_word, end_word), (first, end) = words, frames
        return Misfit(
            kind=kind,
            first_word=first_word,
            end_word=end_word,
            text=" ".join(self.transcript[first_word:end_word]),
            start_s=seconds(first, shift_s),
            end_s=seconds(end, shift_s),
            start_frame=first,
            end_frame=end,
            confidence=self.near.confidence(first, end),
        )

    def _pieces(self) -> Iterator[tuple[MisfitKind | None, int, int, int]]:
        """Cover the frames in order: kind, position of the word, first frame, end.

        A word has no kind; the place of what is no word is that of the next one.
        """
        at, frame = 0, 0
        for word in self.found.hypothesis.words:
            if word.start_frame > frame:
                yield "speech", at, frame, word.start_frame
            frame = word.end_frame
            if word.text == STAR:
                yield "put in", at, word.start_frame, frame
            else:
                at = int(word.text) + 1
                yield None, at - 1, word.start_frame, frame
        if self.found.hypothesis.num_frames > frame:
            yield "speech", at, frame, self.found.hypothesis.num_frames

    def by_words(self) -> Iterator[Misfit]:
        """Runs of weak words, speech that no word explains, speech put in."""
        weak: list[tuple[int, int, int]] = []
        for kind, at, *frames in self._pieces():
            first, end = frames
            is_weak = (
                self.near.confidence(first, end) < self.options.misfit_below
                and self.near.excess(first, end) >= self.options.misfit_nats
            )
            # Weak words next to each other are one misfit: a wrong sentence is not
            # twenty.
            if kind is None and is_weak and (not weak or weak[-1][0] + 1 == at):
                weak.append((at, first, end))
                continue
            if kind == "put in" or (kind == "speech" and is_weak):
                yield self._misfit(kind, (at, at), (first, end))
            if kind is None and weak:
                yield self._weak(weak)
                weak = [(at, first, end)] if is_weak else []
        if weak:
            yield self._weak(weak)

    def _weak(self, run: list[tuple[int, int, int]]) -> Misfit:
        (at, first, _), (last, _, end) = run[0], run[-1]
        return self._misfit("weak", (at, last + 1), (first, end))

    def missing(self) -> Iterator[Misfit]:
        """Words that the alignment leaves out, or did not come to."""
        path = self.found.hypothesis
        at, frame = 0, 0
        for word in path.words:
            if word.text == STAR:
                continue
            if int(word.text) > at:
                frames = (frame, word.start_frame)
                yield self._misfit("left out", (at, int(word.text)), frames)
            at, frame = int(word.text) + 1, word.end_frame
        if at < len(self.transcript):
            kind: MisfitKind = "left out" if path.reached_final else "not reached"
            frames = (frame, path.num_frames)
            yield self._misfit(kind, (at, len(self.transcript)), frames)
