"""Pieces of long audio, cut in silence by the words of a first pass.

A first pass decodes log-probs of windows or of a streaming encoder, and queries an
`Endpointer` several times per second. At the end of an utterance, the audio is cut in
the middle of the silence:

    cutter = PieceCutter(sessions, options, model.spec)
    cutter.push_audio(samples)                     # kept until it is cut off
    cutter.push_rows(rows)                         # its log-probs
    while len(rows := cutter.next_rows()):
        sessions.advance({cutter.session: rows})   # any number of cutters at once
        piece = cutter.advanced()                  # None while the utterance continues
    for piece in cutter.search(): ...              # or this one alone
    piece = cutter.end()

Without a streaming encoder the words of the first pass are discarded: each piece is
then encoded as a whole. The hypotheses of pieces are joined:

    join([(piece.start_frame, hypothesis) for piece, hypothesis in found])
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import OptionError
from wfstdec.models.encoder import Encoder, EncoderSpec, StreamingEncoder, Windowed
from wfstdec.search.endpoints import Endpointer, EndpointRule, Signal
from wfstdec.search.hypothesis import Hypothesis, Partial, Token, Word, seconds
from wfstdec.search.options import CheckedOptions
from wfstdec.search.sessions import SessionId, Sessions

LONG_RULES = (
    EndpointRule(silence_s=0.4, max_final_cost=4.0, length_s=8.0),
    EndpointRule(silence_s=0.8, length_s=4.0),
    EndpointRule(silence_s=0.24, length_s=16.0),
    EndpointRule(silence_s=5.0, needs_speech=False),
    EndpointRule(length_s=24.0, needs_speech=False),
)
"""For recordings, without latency limits: an encoder is better on long pieces, so
shorter pieces need more certain ends.
"""

_MIN_PIECE_S = 1.0


@dataclass(frozen=True)
class CutOptions(CheckedOptions):
    """Options of cutting long audio into pieces.

    Raises:
        OptionError: A value is out of range.
    """

    rules: Sequence[EndpointRule] = LONG_RULES  # Any ends a piece; see `Endpointer`
    # For encoders that do not stream: seconds of log-probs in a window for the cuts,
    # and of audio context before and after
    window_s: float = 16.0
    left_s: float = 2.0
    right_s: float = 1.0
    look_s: float = 0.2  # Seconds between endpoint queries, at least
    whole_s: float = 30.0  # Longest recording that is one piece; 0 cuts all

    def __post_init__(self) -> None:
        if not self.rules:
            raise OptionError("no rules, expected at least one")
        for name in ("window_s", "look_s"):
            self.check(name, lambda x: 0 < x < 3600, "seconds, above 0")
        for name in ("left_s", "right_s", "whole_s"):
            self.check(name, lambda x: 0 <= x < 3600, "seconds, 0 or more")

    def chunked(self, model: Encoder) -> StreamingEncoder:
        """Return an encoder of chunks: a streaming model, or windows of it."""
        if isinstance(model, StreamingEncoder):
            return model
        return Windowed(model, self.window_s, self.left_s, self.right_s)

    def windows(
        self, blocks: Iterable[np.ndarray], spec: EncoderSpec
    ) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield overlapping windows of audio, each with its frames to keep."""
        shift = spec.frame_shift_s * spec.sample_rate

        def samples(first: int, end: int) -> int:
            # Rounded from the start of the recording, so that fractional shifts do not
            # drift.
            return round(end * shift) - round(first * shift)

        size, left, right = (
            math.ceil(seconds / spec.frame_shift_s)
            for seconds in (self.window_s, self.left_s, self.right_s)
        )
        kept, first, done = np.empty(0, np.float32), 0, 0
        for block in blocks:
            kept = np.concatenate([kept, block])
            while len(kept) >= (end := samples(first, done + size + right)):
                yield kept[:end], slice(done - first, done - first + size)
                done += size
                # Keep the context of the next window.
                cut = max(first, done - left)
                kept, first = kept[samples(first, cut) :], cut
        yield kept, slice(done - first, None)


@dataclass(frozen=True)
class Piece:
    """Audio between two cuts, float32 [N], and the result of the first pass."""

    start_frame: int  # from the beginning of the audio
    num_frames: int
    waveform: np.ndarray
    # the one that ended it; None at the end of the audio
    rule: EndpointRule | None = None
    first_pass: Any = None  # its hypothesis, or session, if that is the result
    rows: np.ndarray | None = None  # its log-probs [T, V], if kept
    boosts: BoostsLike = None
    partial: Partial | None = None  # partial result at its end, if a rule ended it


class PieceCutter:
    """Cutter of one recording or stream into pieces, as audio arrives."""

    def __init__(
        self,
        sessions: Sessions,
        options: CutOptions,
        spec: EncoderSpec,
        *,
        boosts: BoostsLike = None,
        one_pass: bool = False,
        keeps_rows: bool = True,
        close: Callable[[SessionId], Any] | None = None,  # returns `first_pass`
    ) -> None:
        self._sessions, self._one_pass = sessions, one_pass
        self._close = close or sessions.close
        frame_shift_s = spec.frame_shift_s
        self._endpointer = Endpointer(frame_shift_s, options.rules)
        self._samples_per_frame = frame_shift_s * spec.sample_rate
        self._look_frames = max(1, round(options.look_s / frame_shift_s))
        self._min_frames = max(1, round(_MIN_PIECE_S / frame_shift_s))
        self._keeps_rows = keeps_rows or not one_pass
        self.boosts = boosts  # of later sessions
        self.start_frame = 0  # of the open piece
        self._audio: list[np.ndarray] = []  # from the beginning of the piece
        self._waiting = _joined()  # rows
        self._open()

    def _open(self) -> None:
        self._used_boosts = self.boosts
        self.session = self._sessions.open(self.boosts)
        self.num_frames = 0  # searched frames of it
        self._searched: list[np.ndarray] = []  # rows, if kept
        self._under_way = _joined()
        self._look_at = self._look_frames
        self.last_partial: Partial | None = None
        self.signal: Signal | None = None  # current one after `advanced`
        self._has_begun = False

    @property
    def partial(self) -> Partial:
        """Partial result of the open piece."""
        if self.last_partial is None or self.last_partial.num_frames != self.num_frames:
            self.last_partial = self._sessions.partial(self.session)
        return self.last_partial

    @property
    def has_begun(self) -> bool:
        """Whether a word of the open piece has begun."""
        partial = self.partial
        return bool(partial.words) or partial.silent_frames < partial.num_frames

    def push_audio(self, samples: np.ndarray) -> np.ndarray:
        """Keep audio, float32 [N], until it is cut off; return it."""
        self._audio.append(samples)
        return samples

    def push_rows(self, rows: np.ndarray) -> None:
        """Queue log-probs, [T, V], for the search."""
        self._waiting = _joined(self._waiting, rows)

    def next_rows(self) -> np.ndarray:
        """Return log-probs, maybe none, to advance the session by before `advanced`."""
        # None past the next endpoint query: cuts do not depend on the chunks.
        room = self._look_at - self.num_frames
        self._under_way, self._waiting = self._waiting[:room], self._waiting[room:]
        return self._under_way

    def advanced(self) -> Piece | None:
        """Update after the session has passed `next_rows`; return an ended piece."""
        self.num_frames += len(self._under_way)
        self.signal = None
        if self._keeps_rows or not self._has_begun:
            self._searched.append(self._under_way)
        if self.num_frames < self._look_at:
            return None
        partial = self.partial
        rule = self._endpointer.ended(partial)
        if isinstance(rule, Signal):
            self.signal = rule
        if rule is self.signal:
            looks = self._endpointer.frames_to_go(partial) / self._look_frames
            self._look_at += self._look_frames * max(1, math.ceil(looks))
            # Rows are kept only for `change_boosts`, so not after a word has begun.
            if not self._has_begun and self.has_begun:
                self._has_begun = True
                if not self._keeps_rows:
                    self._searched = []
            return None
        return self._cut(self._cut_frame(partial), rule)

    def search(self) -> Iterator[Piece]:
        """Advance the session through all queued rows; yield the pieces that end."""
        while len(rows := self.next_rows()):
            self._sessions.advance({self.session: rows})
            if (piece := self.advanced()) is not None:
                yield piece

    def change_boosts(self, boosts: BoostsLike) -> bool:
        """Use boosts: at once if no word has begun (True), else for the next piece."""
        self.boosts = boosts
        if self._has_begun or self.has_begun:
            return False
        self._sessions.close(self.session)
        self._waiting = _joined(*self._searched, self._waiting)
        self._open()
        return True

    def end(self) -> Piece | None:
        """End the audio; return its last piece, if any."""
        if self.num_frames or not self.start_frame:
            return self._cut(self.num_frames, None)
        self.close()
        return None

    def close(self) -> None:
        """Close the session after an error."""
        if self.session in self._sessions:
            self._sessions.close(self.session)

    def _cut_frame(self, partial: Partial) -> int:
        """Return the frame to cut at, in the longest silence."""
        end = partial.num_frames
        if self._one_pass:
            return end
        if partial.silent_frames:
            return max(end - partial.silent_frames // 2, min(end, self._min_frames))
        gaps = [
            (after.start_frame - word.end_frame, after.start_frame)
            for word, after in itertools.pairwise(partial.words)
            if after.start_frame >= max(end // 2, self._min_frames)
        ]
        if not gaps:
            return end
        width, start = max(gaps)
        return start - width // 2

    def _cut(self, frame: int, rule: EndpointRule | None) -> Piece:
        """Close the session, cut the audio, open the next session at the cut."""
        audio = np.concatenate([*self._audio, np.empty(0, np.float32)])
        begin, behind = self.start_frame, self.start_frame + frame
        first, end = (round(t * self._samples_per_frame) for t in (begin, behind))
        # At the end all remaining samples belong to the piece, even without frames.
        size = len(audio) if rule is None else end - first
        found = self._close(self.session)
        rows = _joined(*self._searched)
        piece = Piece(
            *(begin, frame, audio[:size], rule),
            first_pass=found if self._one_pass else None,
            rows=rows if self._one_pass and self._keeps_rows else None,
            boosts=self._used_boosts,
            partial=self.last_partial,
        )
        self._audio = [audio[size:]]
        self.start_frame, self.num_frames = behind, 0
        if rule is not None:
            if not self._one_pass:
                self._waiting = _joined(rows[frame:], self._waiting)
            self._open()
        return piece


def _joined(*parts: np.ndarray) -> np.ndarray:
    some = [part for part in parts if len(part)]
    return np.concatenate(some) if len(some) > 1 else (some or [np.empty((0, 0))])[0]


COSTS = ("total_cost", "graph_cost", "acoustic_cost", "insertion_cost", "boost_cost")
"""Costs of a hypothesis that are summed over pieces."""
_Timed = TypeVar("_Timed", Word, Token)


def join(found: Sequence[tuple[int, Hypothesis]]) -> Hypothesis:
    """Join the hypotheses of consecutive pieces."""
    # A single piece is unchanged, including confidences and n-best.
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    pieces = [one for _, one in found]
    last_start, last = found[-1]
    died = [
        start + h.died_at_frame for start, h in found if h.died_at_frame is not None
    ]
    starts, ends = (
        tuple(start + t for start, h in found for t in h.token_frames[side])
        for side in (0, 1)
    )
    costs: Any = {name: sum(getattr(one, name) for one in pieces) for name in COSTS}
    return Hypothesis(
        words=tuple(
            shifted(w, start, h.frame_shift_s) for start, h in found for w in h.words
        ),
        token_ids=tuple(token for h in pieces for token in h.token_ids),
        token_frames=(starts, ends),
        token_names=last.token_names,
        frame_shift_s=last.frame_shift_s,
        **costs,
        reached_final=all(h.reached_final for h in pieces),
        num_frames=last_start + last.num_frames,
        died_at_frame=min(died, default=None),
    )


def join_nbest(
    found: Sequence[tuple[int, Sequence[Hypothesis]]], n: int
) -> list[Hypothesis]:
    """Join n-best lists of pieces: the n best of all combinations."""
    best: list[tuple[float, list[tuple[int, Hypothesis]]]] = [(0.0, [])]
    for start, hypotheses in found:
        pairs = itertools.product(best, hypotheses)
        longer = [(b[0] + h.total_cost, [*b[1], (start, h)]) for b, h in pairs]
        # Only the n best prefixes can be part of the n best.
        best = sorted(longer, key=lambda pair: pair[0])[:n]
    texts: dict[str, Hypothesis] = {}
    for one in (join(pieces) for _, pieces in best):
        texts.setdefault(one.text, one)
    return list(texts.values())


def shifted(timed: _Timed, frames: int, frame_shift_s: float) -> _Timed:
    """Move a word or a token by some frames."""
    start, end = timed.start_frame + frames, timed.end_frame + frames
    return timed._replace(
        start_s=seconds(start, frame_shift_s),
        end_s=seconds(end, frame_shift_s),
        start_frame=start,
        end_frame=end,
    )
