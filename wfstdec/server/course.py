"""The course of a stream: its audio, its utterances, and what is to be said of them.

    course.take_in()                              # what its handler has sent
    course.hear(samples, rows)                    # log-probs of its audio
    while len(rows := course.next_rows()):
        sessions.advance({course.session: rows})  # with those of all other streams
        course.advanced()
    course.notice()                               # words so far
    for event in course.events(): ...             # in order, none before it is due

All of it happens in the engine's thread. A stream is a row of segments, which the
client ends by `flush`, and a segment a row of utterances, which rules end; frames are
counted on through all of them.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.models.encoder import StreamingEncoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.sessions import Partial, SessionId, Sessions
from wfstdec.server.events import (
    BoostsChanged,
    Event,
    Finished,
    SpeechStarted,
    UtteranceEnd,
    Words,
)
from wfstdec.server.stream import End, NewBoosts, Stream
from wfstdec.transcription.joining import join, shifted
from wfstdec.transcription.pieces import CutOptions, Piece, Track

_SETTLED_S = 3.0
"""Words that can no longer change go out as final, once the last final is so old."""
_NOTICE_S, _RARE_NOTICE_S = 0.1, 0.5
"""Seconds of audio between two looks at the words so far, at least: for interims, and
where nobody asks for them."""


class Means(NamedTuple):
    """Means that all courses share.

    Attributes:
        encoder: Of chunks; windows, where the model does not stream.
        one_pass: Whether its log-probs are those that finals are found in.
        sessions: Search them.
    """

    encoder: StreamingEncoder
    one_pass: bool
    sessions: Sessions


@dataclass
class Final:
    """Final of an utterance that is over, found or still to be found.

    Attributes:
        piece: Where it is, its audio, and what ended it.
        start_frame: Where the utterance begins in the stream.
        last_frame: Where the last final ended.
        said: So many of its first words were final before.
        is_answer: Whether it answers a `flush`.
        arrived: When the last audio that was searched came.
        job: Finds it, where that takes long.
        found: Its hypotheses, best first, once they are found.
        error: Why they cannot be found.
    """

    piece: Piece
    start_frame: int
    last_frame: int
    said: int
    is_answer: bool
    arrived: float
    job: Future | None = None
    found: list[Hypothesis] | None = None
    error: Exception | None = None

    @property
    def is_ready(self) -> bool:
        """Tell whether it can go out."""
        return self.found is not None or self.error is not None


class Course:
    """Course of a stream, as the engine's thread has it.

    Args:
        stream: As its handler has it.
        means: What all streams share.
        cuts: Where utterances end.

    Attributes:
        stream: The same.
        boosts: Of utterances to come; None until the first list is compiled.
        compiling: Lists that are being compiled, in order.
        encoder_state: Of the segment under way.
        finals: Those that are to be found, of utterances that have ended since the
            engine looked.
        is_over: Whether nothing more will be heard of it.
        heard_s: Seconds of audio.
    """

    def __init__(self, stream: Stream, means: Means, cuts: CutOptions) -> None:
        self.stream = stream
        self.boosts: CompiledBoosts | None = None
        self.compiling: deque[Future] = deque()
        self.encoder_state: Any = None
        self.finals: list[Final] = []
        self.is_over = False
        self._means, self._cuts = means, cuts
        spec = means.encoder.spec
        self._shift_s, self._rate = spec.frame_shift_s, spec.sample_rate
        self._track: Track | None = None
        self._base = 0  # frames of the stream before the segment
        self._num_samples = 0
        self._arrivals: list[tuple[int, float]] = []  # samples so far, and when
        self._end: End | None = None
        self._outbox: deque[Event | Final] = deque()
        self._last_frame = 0  # where the last final ended
        self._begin_utterance()
        self._word_end: int | None = None  # of the last word, until that was said
        asks = stream.settings
        often = asks.interims or asks.speech_started
        notice_s = _NOTICE_S if often else _RARE_NOTICE_S
        if asks.utterance_end_s is not None:
            notice_s = min(notice_s, asks.utterance_end_s / 2)
        self._notice_frames = max(1, round(notice_s / self._shift_s))

    def _begin_utterance(self) -> None:
        self._said = 0  # words that are final
        self._shown: tuple[str, ...] = ()
        self._has_started = False
        self._noticed = 0  # frames

    # ------------------------------------------------------------ what comes in
    def take_in(self) -> NewBoosts | None:
        """Take what the handler has sent, up to the end of a segment.

        Returns:
            A list that is to be compiled before the rest is taken.
        """
        stream = self.stream
        while self._end is None and stream.inbox:
            if stream.inbox[0][0] is End.FINISH and self.compiling:
                return None
            message = stream.take()
            if isinstance(message, NewBoosts):
                return message
            if isinstance(message, End):
                self._end = message
                if message is End.FINISH:
                    stream.audio.end()
        return None

    @property
    def heard_s(self) -> float:
        """Seconds of audio."""
        return self._num_samples / self._rate

    @property
    def wants_to_hear(self) -> bool:
        """Tell whether there is audio to be encoded, or the end of a segment."""
        audio = self.stream.audio
        return audio.is_ready or (self._end is not None and audio.is_through)

    @property
    def has_more(self) -> bool:
        """Tell whether there is something for the next round already."""
        if self.is_over or self.boosts is None:
            return False
        is_held = self._end is not None or bool(self.compiling)
        return self.wants_to_hear or (bool(self.stream.inbox) and not is_held)

    def open(self) -> None:
        """Begin a segment, unless one is under way or there is no audio for it."""
        if self._track is not None or not self.stream.audio.is_ready:
            return
        means = self._means
        self.encoder_state = means.encoder.start()
        self._track = Track(
            means.sessions,
            self._cuts,
            frame_shift_s=self._shift_s,
            sample_rate=self._rate,
            boosts=self.boosts,
            one_pass=means.one_pass,
            keeps_rows=False,
            # Left open in one pass: closed where its hypotheses are read.
            close=(lambda session: session) if means.one_pass else None,
        )

    def next_samples(self, seconds: float) -> tuple[np.ndarray, bool]:
        """Take samples, at most so much, and whether they end the segment.

        Called by a worker, while the engine waits.

        Raises:
            AudioError: The bytes are no audio.
        """
        audio = self.stream.audio
        samples, arrived = audio.take(seconds)
        is_last = self._end is not None and audio.is_through
        if is_last:
            samples = np.concatenate([samples, audio.rest()])
        if len(samples):
            self._num_samples += len(samples)
            self._arrivals.append((self._num_samples, arrived))
        return samples, is_last

    def hear(self, samples: np.ndarray, rows: np.ndarray) -> None:
        """Take samples and the log-probs that came of them."""
        if self._track is None:
            return
        if not self._means.one_pass:
            self._track.hear(samples)
        self._track.feed(rows)

    # ------------------------------------------------------------ utterances
    @property
    def session(self) -> SessionId:
        """The session of the utterance under way."""
        assert self._track is not None
        return self._track.session

    @property
    def num_frames(self) -> int:
        """Frames that its session has passed through."""
        assert self._track is not None
        return self._track.num_frames

    def next_rows(self) -> np.ndarray:
        """Log-probs for the session; maybe none."""
        return _NO_ROWS if self._track is None else self._track.next_rows()

    def advanced(self) -> None:
        """Take note that the session has passed through `next_rows`."""
        assert self._track is not None
        start = self._base + self._track.start_frame
        piece = self._track.advanced()
        partial = self._track.looked if piece is None else piece.partial
        if partial is not None:
            self._note_last_word(partial, start)
        if piece is not None:
            self._put_final(piece)

    def end_segment(self) -> None:
        """Answer a `flush`, or end the stream: all that was sent has been searched."""
        end, self._end = self._end, None
        track, self._track, self.encoder_state = self._track, None, None
        piece = None if track is None else track.end()
        if piece is not None and not piece.num_frames and self._means.one_pass:
            self._means.sessions.close(piece.first_pass)  # nobody will read it
        # A flush is answered even where nothing was said since: clients wait for it.
        if piece is not None and piece.num_frames:
            self._put_final(piece, is_answer=end is End.FLUSH)
        elif end is End.FLUSH:
            at_s = self._last_frame * self._shift_s
            self._outbox.append(
                Words((), at_s, at_s, True, ends_utterance=True, is_answer=True)
            )
        # Audio counts from here on, whether the encoder made frames of its end or not.
        behind = math.ceil(self._num_samples / self._rate / self._shift_s - 1e-6)
        self._base = self._last_frame = max(behind, self._last_frame)
        if end is End.FINISH:
            self._outbox.append(Finished(self.heard_s))
            self.close()

    def _put_final(self, piece: Piece, *, is_answer: bool = False) -> None:
        start = self._base + piece.start_frame
        end = start + piece.num_frames
        final = Final(
            *(piece, start, self._last_frame, self._said, is_answer),
            arrived=self._arrival_of(end),
        )
        self._outbox.append(final)
        self.finals.append(final)
        self._last_frame = end
        self._begin_utterance()

    def _place(self, frame: int) -> int:
        """The place among arrivals of the frame before `frame`."""
        sample = round(frame * self._shift_s * self._rate)
        return bisect_left(self._arrivals, (sample, -math.inf))

    def _arrival_of(self, frame: int) -> float:
        """When the audio of the frame before `frame` came."""
        at = min(self._place(frame), len(self._arrivals) - 1)
        return self._arrivals[at][1] if self._arrivals else time.monotonic()

    # ------------------------------------------------------------ boosts
    def change_boosts(self, boosts: CompiledBoosts, warnings: tuple[str, ...]) -> None:
        """Use a compiled list: now if no word has begun, else from the next on."""
        is_first, self.boosts = self.boosts is None, boosts
        from_now = True
        if self._track is not None:
            self._track.boosts = boosts
            from_now = self._track.reopen()
            if from_now:
                self._noticed = 0
        if not is_first or self.stream.settings.boosts is not None:
            self._outbox.append(BoostsChanged(from_now, warnings))

    def refuse_boosts(self, error: Exception) -> None:
        """Keep the list before, and say why; without one the stream ends."""
        if self.boosts is None:
            self.fail(error)
        else:
            self._outbox.append(BoostsChanged(error=error))

    # ------------------------------------------------------------ what is said
    def notice(self) -> None:
        """Say what is new about the utterance under way."""
        self._note_utterance_end()
        track = self._track
        # Looking at a session costs time: not after every chunk.
        if track is None or track.num_frames < self._noticed + self._notice_frames:
            return
        self._noticed = track.num_frames
        asks = self.stream.settings
        start = self._base + track.start_frame
        since_s = (start + track.num_frames - self._last_frame) * self._shift_s
        is_due = self._means.one_pass and since_s >= _SETTLED_S
        is_awaited = asks.speech_started and not self._has_started
        if is_due or is_awaited or asks.interims or asks.utterance_end_s is not None:
            self._say(track.partial, start, is_due)

    def _say(self, partial: Partial, start: int, is_due: bool) -> None:
        """Say what a partial result has that is new."""
        asks, shift_s = self.stream.settings, self._shift_s
        self._note_last_word(partial, start)
        self._note_utterance_end()
        if not self._has_started and partial.silent_frames < partial.num_frames:
            self._has_started = True
            if asks.speech_started:
                at = partial.num_frames - partial.silent_frames
                if partial.words:
                    at = partial.words[0].start_frame
                self._outbox.append(SpeechStarted((start + at) * shift_s))
        end = start + partial.num_frames
        if is_due and partial.num_timed > self._said:
            settled = partial.words[self._said : partial.num_timed]
            self._said = partial.num_timed
            settled_end = start + settled[-1].end_frame
            self._put_words(settled, start, settled_end, end, is_final=True)
            self._last_frame = settled_end
            self._shown = ()
        if asks.interims:
            rest = partial.words[self._said :]
            texts = tuple(word.text for word in rest)
            # Interims that say the same again would only fill the client's queue.
            if texts != self._shown:
                self._put_words(rest, start, end, end, is_final=False)
                self._shown = texts

    def _put_words(
        self, words: tuple, start: int, end: int, searched: int, *, is_final: bool
    ) -> None:
        said = Words(
            tuple(shifted(word, start, self._shift_s) for word in words),
            self._last_frame * self._shift_s,
            end * self._shift_s,
            is_final,
            latency_s=time.monotonic() - self._arrival_of(searched),
        )
        last = self._outbox[-1] if self._outbox else None
        if not is_final and isinstance(last, Words) and not last.is_final:
            self._outbox[-1] = said  # nobody has seen the one before
        else:
            self._outbox.append(said)

    def _note_last_word(self, partial: Partial, start: int) -> None:
        """Remember the last word, if it is so new that its end is to be said."""
        silence_s = self.stream.settings.utterance_end_s
        if silence_s is None or not partial.words:
            return
        end = partial.words[-1].end_frame
        if (partial.num_frames - end) * self._shift_s < silence_s:
            self._word_end = start + end

    def _note_utterance_end(self) -> None:
        silence_s, track = self.stream.settings.utterance_end_s, self._track
        if silence_s is None or self._word_end is None:
            return
        at = self._base + (track.start_frame + track.num_frames if track else 0)
        if (at - self._word_end) * self._shift_s >= silence_s - 1e-6:
            self._outbox.append(UtteranceEnd(self._word_end * self._shift_s))
            self._word_end = None

    def events(self) -> Iterator[tuple[Event, float | None]]:
        """Take what may go out, in order: nothing overtakes a final.

        Yields:
            Each event; with an utterance that had words, when its last one came.
        """
        while self._outbox:
            first = self._outbox[0]
            if isinstance(first, Final):
                if not first.is_ready:
                    return
                if first.error is not None:
                    self.fail(first.error, at_once=True)
                    continue
            self._outbox.popleft()
            yield self._words_of(first) if isinstance(first, Final) else (first, None)
        # None before the last final is asked for again.
        del self._arrivals[: max(0, self._place(self._last_frame) - 1)]

    def _words_of(self, final: Final) -> tuple[Words, float | None]:
        """The event of a final, and when the audio of its last word came."""
        found, shift_s, piece = final.found or [], self._shift_s, final.piece
        hypotheses = tuple(join([(final.start_frame, one)]) for one in found)
        words = hypotheses[0].words
        return Words(
            words[final.said :],
            final.last_frame * shift_s,
            (final.start_frame + piece.num_frames) * shift_s,
            True,
            ends_utterance=True,
            rule=piece.rule,
            hypotheses=hypotheses,
            is_answer=final.is_answer,
            latency_s=time.monotonic() - final.arrived,
        ), self._arrival_of(words[-1].end_frame) if words else None

    # ------------------------------------------------------------ the end
    def fail(self, error: Exception, *, at_once: bool = False) -> None:
        """End the stream with an error, behind what is final; `at_once` without."""
        if self.is_over and not at_once:
            return
        self.close()
        if at_once:
            self._give_up_finals()
        self._outbox.append(Finished(self.heard_s, error))

    def abort(self) -> None:
        """End the stream without a word."""
        self.close()
        self._give_up_finals()

    def _give_up_finals(self) -> None:
        """Forget what is to be said; close sessions that nobody will read."""
        for one in self._outbox:
            if isinstance(one, Final) and not one.is_ready:
                begun = one.job is not None and not one.job.cancel()
                if self._means.one_pass and not begun:
                    self._means.sessions.close(one.piece.first_pass)
        self._outbox.clear()
        self.finals.clear()

    def close(self) -> None:
        """Give back what the stream has; finals under way are still found."""
        self.is_over = True
        self.stream.audio.close()
        if self._track is not None:
            self._track.close()
            self._track = None
        self.encoder_state = None
        for one in self.compiling:
            one.cancel()


_NO_ROWS = np.empty((0, 0))
