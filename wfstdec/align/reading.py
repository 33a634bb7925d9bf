"""Conversion of a path through a text's graph to an alignment."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wfstdec.align.alignment import Alignment, AlignOptions, Misfit, MisfitKind
from wfstdec.align.search import STAR, Found, Transcript
from wfstdec.search.hypothesis import seconds
from wfstdec.search.nearness import Nearness


def read_alignment(
    found: Found,
    near: Nearness,
    transcript: Transcript,
    star: int | None,
    options: AlignOptions,
    least_frames: int,  # that the text needs
) -> Alignment:
    """Return words, tokens and misfits of a path."""
    path = found.hypothesis

    def sure(one: Any, **changes: Any) -> Any:
        confidence = near.confidence(one.start_frame, one.end_frame)
        return one._replace(confidence=confidence, **changes)

    spoken = [word for word in path.words if word.text != STAR]
    positions = tuple(int(word.text) for word in spoken)
    words = [sure(word, text=transcript.words[int(word.text)]) for word in spoken]
    for place, at in enumerate(positions):
        if at in transcript.wildcards:  # any speech fits equally
            words[place] = words[place]._replace(confidence=None)
    is_cut = bool(spoken) and not path.reached_final
    if is_cut:  # the audio ends within or after the last word
        start = bisect_left(path.token_frames[0], spoken[-1].start_frame)
        left = tuple(path.token_ids[start:])
        entries = transcript.entries[positions[-1]]
        is_cut = not any(left[: len(tokens)] == tokens for tokens, _ in entries)
    if is_cut:
        words[-1] = words[-1]._replace(confidence=0.0)
    numbered = zip(path.tokens, path.token_ids, strict=True)
    tokens = tuple(sure(token) for token, number in numbered if number != star)
    starts = [token.start_frame for token in tokens]  # in order: words are slices of it
    places = _Places(found, near, transcript, options, is_cut)
    misfits = [*places.by_words(), *places.missing()]
    misfits.sort(key=lambda misfit: (misfit.start_frame, misfit.first_word))
    return Alignment(
        words=tuple(words),
        positions=positions,
        tokens=tokens,
        word_tokens=tuple(
            (bisect_left(starts, word.start_frame), bisect_left(starts, word.end_frame))
            for word in words
        ),
        transcript=transcript.words,
        misfits=tuple(misfits),
        total_cost=path.total_cost,
        excess=found.excess,
        exact=found.exact,
        reached_end=path.reached_final,
        num_frames=path.num_frames,
        missing_frames=max(0, least_frames - path.num_frames),
        frame_shift_s=path.frame_shift_s,
    )


@dataclass(frozen=True)
class _Places:
    found: Found
    near: Nearness
    transcript: Transcript
    options: AlignOptions
    is_cut: bool = False  # whether the last word of the path is incomplete

    def _misfit(
        self, kind: MisfitKind, words: tuple[int, int], frames: tuple[int, int]
    ) -> Misfit:
        shift_s = self.found.hypothesis.frame_shift_s
        text = " ".join(self.transcript.words[slice(*words)])
        start_s, end_s = (seconds(frame, shift_s) for frame in frames)
        confidence = self.near.confidence(*frames)
        return Misfit(kind, *words, text, start_s, end_s, *frames, confidence)

    def _is_weak(self, first: int, end: int) -> bool:
        near, options = self.near, self.options
        is_low = near.confidence(first, end) < options.misfit_below
        return is_low and near.excess(first, end) >= options.misfit_nats

    def by_words(self) -> Iterator[Misfit]:
        path, before, frame = self.found.hypothesis, 0, 0
        weak: list[tuple[int, int, int]] = []
        for word in path.words:
            first, end = word.start_frame, word.end_frame
            if self._is_weak(frame, first):
                yield self._misfit("speech", (before, before), (frame, first))
            frame = end
            if word.text == STAR:
                yield self._misfit("put in", (before, before), (first, end))
                continue
            at, is_weak = int(word.text), self._is_weak(first, end)
            before = at + 1
            if at in self.transcript.wildcards:
                yield self._misfit("unknown", (at, at + 1), (first, end))
                is_weak = False
            # Adjacent weak words are one misfit: a wrong sentence is not twenty.
            if weak and not (is_weak and weak[-1][0] + 1 == at):
                yield self._weak(weak)
                weak = []
            if is_weak:
                weak.append((at, first, end))
        if self._is_weak(frame, path.num_frames):
            yield self._misfit("speech", (before, before), (frame, path.num_frames))
        if weak:
            yield self._weak(weak)

    def _weak(self, run: list[tuple[int, int, int]]) -> Misfit:
        (at, first, _), (last, _, end) = run[0], run[-1]
        return self._misfit("weak", (at, last + 1), (first, end))

    def missing(self) -> Iterator[Misfit]:
        path, at, frame = self.found.hypothesis, 0, 0
        words = [word for word in path.words if word.text != STAR]
        for word in words:
            if int(word.text) > at:
                frames = (frame, word.start_frame)
                yield self._misfit("left out", (at, int(word.text)), frames)
            at, frame = int(word.text) + 1, word.end_frame
        if self.is_cut:
            at, frame = at - 1, words[-1].start_frame
        if at < len(self.transcript.words):
            kind: MisfitKind = "left out" if path.reached_final else "not reached"
            frames = (frame, path.num_frames)
            yield self._misfit(kind, (at, len(self.transcript.words)), frames)
