"""A stream: audio in, interim and final hypotheses out, endpoints, changed boosts.

    finals = Finals(model, decoder, confidence=True, nbest=3)
    sessions = finals.sessions()
    hypotheses = finals.of_session(sessions, session)     # one pass: closes it
    hypotheses = finals.of_piece(piece)                   # two: encoded whole, decoded

Final hypotheses come best first, the best one with confidences if asked for.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wfstdec.batch.decoding import search_all
from wfstdec.batch.lattices import LatticeReading
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.models.encoder import Encoder, StreamingEncoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.endpoints import EndpointRule
from wfstdec.search.hypothesis import Hypothesis, Partial, Word
from wfstdec.search.options import CheckedOptions
from wfstdec.search.sessions import SessionId, Sessions
from wfstdec.server.audio import (
    BYTES_PER_S,
    ENCODINGS,
    AudioBytes,
    ContainerBytes,
    RawBytes,
)
from wfstdec.transcription.joining import join, shifted
from wfstdec.transcription.pieces import CutOptions, Piece, Track


class Finals:
    """Finds the hypotheses of utterances.

    `nbest`: how many hypotheses are wanted, at most.

    Attributes:
        decoder: With options that give this many.
        are_quick: Whether `of_session` is so quick that nobody minds waiting for it.
    """

    def __init__(
        self, model: Encoder, decoder: Decoder[Any, Any], confidence: bool, nbest: int
    ) -> None:
        self._model = model
        self._reading = LatticeReading(nbest=nbest, confidence=True)
        self._from_lattice = confidence
        self._from_list = not confidence and nbest > 1
        if self._from_list and decoder.options.nbest != nbest:
            decoder = decoder.with_options(nbest=nbest)
        self.decoder = decoder
        self._records = confidence or (self._from_list and decoder.nbest_of_lattices)
        self.are_quick = not self._records
        if self._from_list:
            self.decoder.decode_nbest([])  # raises where there are no lists
        self.sessions()

    def sessions(self) -> Sessions:
        """Make sessions that record what finals need."""
        return self.decoder.sessions(lattices=self._records)

    def of_session(self, sessions: Sessions, session: SessionId) -> list[Hypothesis]:
        """Close a session; its hypotheses, best first."""
        if self._from_lattice:
            return self._reading(str(session), sessions.close_lattice(session))
        if self._from_list:
            return sessions.close_nbest(session)
        return [sessions.close(session)]

    def of_piece(self, piece: Piece) -> list[Hypothesis]:
        """Encode and decode a piece whole; its hypotheses, best first."""
        rows = self._model.encode([piece.waveform])
        how = self._from_list, self._from_lattice
        [found] = search_all(self.decoder, rows, [piece.boosts], *how)
        return self._reading("", found) if self._from_lattice else found


_Message = TypeVar("_Message")


class Outbox(Generic[_Message]):
    """Messages that wait to be sent, in order; at most one interim, the newest.

    All methods are of the event loop.

    Attributes:
        overflowed: Whether more waited than may; no more is given out then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[_Message] = deque()
        self._interim: _Message | None = None
        self._closed = self.overflowed = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: _Message) -> None:
        """Add a message."""
        if self._closed:
            return
        self._waiting.append(message)
        if len(self._waiting) > self._most:
            self.overflowed = True
            self.close()
        self._changed.set()

    def put_interim(self, message: _Message) -> None:
        """Add a message that the next interim, or `drop_interim`, takes out again."""
        self.drop_interim()
        self._interim = message
        self.put(message)

    def drop_interim(self) -> None:
        """Take out the interim, if it is not sent yet."""
        found, self._interim = self._interim, None
        if found is None:
            return
        for place in reversed(range(len(self._waiting))):  # mostly the last
            if self._waiting[place] is found:
                del self._waiting[place]
                return

    def close(self) -> None:
        """Let nothing more in; what waits is still given out."""
        self._closed = True
        self._changed.set()

    async def next(self) -> _Message | None:
        """Take the next message; None once it is closed and empty, or overflowed."""
        while not self._waiting and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self.overflowed or not self._waiting:
            return None
        message = self._waiting.popleft()
        if message is self._interim:
            self._interim = None
        return message


@dataclass(frozen=True)
class Words:
    """Words of a stretch of audio; all times are those of the stream.

    Attributes:
        words: Those since the last final one, in order; may be empty.
        start_s: Where the stretch begins: the end of the last final's.
        end_s: Where it ends.
        is_final: Whether they can no longer change.
        ends_utterance: Whether the utterance ends here; the next one begins at `end_s`.
        rule: What ended it; None where the client, or the end of the stream, did.
        hypotheses: Of the whole utterance, best first, where it ends; one, or the
            n-best list where the server was started with one. Words of it that were
            final before are in it again, with confidences where there are any.
        is_answer: Whether it answers a `flush`.
        latency_s: Seconds from the arrival of the last audio that was searched to here.
    """

    words: tuple[Word, ...]
    start_s: float
    end_s: float
    is_final: bool = False
    ends_utterance: bool = False
    rule: EndpointRule | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    is_answer: bool = False
    latency_s: float = 0.0


@dataclass(frozen=True)
class SpeechStarted:
    """The first token of an utterance was heard.

    Attributes:
        at_s: Seconds of the stream.
    """

    at_s: float


@dataclass(frozen=True)
class UtteranceEnd:
    """No word has come for as long as the client asked; once for each last word.

    Attributes:
        last_word_end_s: Seconds of the stream.
    """

    last_word_end_s: float


@dataclass(frozen=True)
class BoostsChanged:
    """A new boost list is in force, or was refused.

    It comes once for the list that a stream was opened with, unless that is None, and
    once for each `change_boosts`, in order. A protocol may wait for the first before it
    says that a stream is open, and refuse the stream where the list was refused.

    Attributes:
        from_now: Whether it holds for the utterance under way; if not, from the next.
        warnings: Of words that the decoder cannot find, as a decoder warns of them.
        error: Why it was refused; the list before it stays. None if it was not.
    """

    from_now: bool = False
    warnings: tuple[str, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True)
class Room:
    """Event: there is room for audio again after `Stream.is_full`."""


@dataclass(frozen=True)
class Finished:
    """The stream is over; nothing follows.

    Attributes:
        heard_s: Seconds of audio.
        error: What ended it; None where the client did, or the server drains.
    """

    heard_s: float
    error: Exception | None = None


Event = Words | SpeechStarted | UtteranceEnd | BoostsChanged | Room | Finished


@dataclass(frozen=True)
class StreamSettings(CheckedOptions):
    """Settings that a client asks for its stream.

    Attributes:
        encoding: 'linear16', 'mulaw' or 'alaw'; None where the audio says what it is
            by its first bytes (WAV, FLAC, Ogg, WebM, ...).
        sample_rate: Samples a second of an encoding.
        channels: Channels, interleaved; they are mixed.
        boosts: A list as `Sessions.open` takes it.
        interims: Whether words that may still change are wanted.
        endpoint_silence_s: Silence that ends an utterance with a good end (the second
            of the rules; the others keep their distance); None for the server's rules,
            `inf` for no rule of silence.
        utterance_end_s: Seconds behind the last word after which `UtteranceEnd` is
            said; None for never.
        speech_started: Whether `SpeechStarted` is wanted.
    """

    encoding: str | None = None
    sample_rate: int = 16000
    channels: int = 1
    boosts: BoostsLike = None
    interims: bool = False
    endpoint_silence_s: float | None = None
    utterance_end_s: float | None = None
    speech_started: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        if self.encoding is not None:
            self.check_choice("encoding", tuple(ENCODINGS))
        self.check("sample_rate", lambda x: 1000 <= x <= 384000, "1000 to 384000")
        self.check("channels", lambda x: 1 <= x <= 8, "1 to 8")
        for name in ("endpoint_silence_s", "utterance_end_s"):
            self.check(
                name,
                lambda x: 0 < x and not math.isnan(x),
                "seconds, above 0, or None",
                optional=True,
            )


class End(Enum):
    """End of an utterance at the client's wish."""

    FLUSH = "the utterance"
    FINISH = "the stream"


class NewBoosts(NamedTuple):
    """A boost list that is to hold from here on."""

    boosts: BoostsLike


Message = bytes | End | NewBoosts


class Stream:
    """Stream as its handler has it; no method waits.

    A handler that reads faster than words are found waits while `is_full`:

        stream.send(data)
        while stream.is_full:
            await room.wait()                     # set by the event `Room`
            room.clear()

    Args:
        settings: What its client asks for.
        context: Anything of the handler's own.
        sample_rate: The model's.
        buffered_s: Seconds of audio that may wait.
        wake: Tells the engine that there is something new.

    Attributes:
        settings: As it was opened.
        context: Anything of the handler's own: whom to hand events to.
        inbox: What was sent, with the time it came; the engine takes it.
        audio: Makes samples of bytes; the engine's.
        is_aborted: Whether it was given up.
        awaits_room: Whether `Room` is to be said once there is some.
    """

    def __init__(
        self,
        settings: StreamSettings,
        context: Any,
        *,
        sample_rate: int,
        buffered_s: float,
        wake: Callable[[Stream], None],
    ) -> None:
        self.settings, self.context = settings, context
        self.inbox: deque[tuple[Message, float]] = deque()
        self.audio: AudioBytes
        if settings.encoding is None:
            self.audio = ContainerBytes(sample_rate, buffered_s, lambda: wake(self))
            self._bytes_per_s = BYTES_PER_S
        else:
            coding, rate = ENCODINGS[settings.encoding], settings.sample_rate
            self.audio = RawBytes(coding, rate, settings.channels, sample_rate)
            self._bytes_per_s = coding.width * settings.channels * rate
        self.is_aborted = self.awaits_room = False
        self._wake, self._most_s = wake, buffered_s
        self._has_ended = False
        self._sent = self._taken = 0  # bytes, counted by one thread each

    @property
    def buffered_s(self) -> float:
        """Seconds of audio that were sent and are not searched.

        Those of a container are counted by 16,000 bytes until they are decoded.
        """
        return (self._sent - self._taken) / self._bytes_per_s + self.audio.waiting_s

    @property
    def is_full(self) -> bool:
        """Tell whether more than `Limits.buffered_s` waits, so that `Room` is said."""
        return self.buffered_s > self._most_s

    @property
    def has_room(self) -> bool:
        """Tell whether no more than half of what may wait does."""
        return self.buffered_s <= self._most_s / 2

    def send(self, data: bytes) -> None:
        """Take audio as it came: an encoding's bytes, cut anywhere, or a container's.

        After `finish` it is left out, as is all else.
        """
        if data and not self._has_ended:
            self._sent += len(data)
            self.awaits_room = self.awaits_room or self.is_full
            self._put(bytes(data))

    def flush(self) -> None:
        """Make final what was sent so far, and end the utterance.

        The answer, `Words` that `is_answer`, comes once for each call, without words
        where none are new.
        """
        self._put(End.FLUSH)

    def change_boosts(self, boosts: BoostsLike) -> None:
        """Use another list: now if no word has begun, else from the next utterance.

        `BoostsChanged` comes once for each call, in their order.
        """
        self._put(NewBoosts(boosts))

    def finish(self) -> None:
        """End the stream: finals, then `Finished`."""
        self._put(End.FINISH)
        self._has_ended = True

    def abort(self) -> None:
        """Give the stream up: nothing more is said about it."""
        self._has_ended = self.is_aborted = True
        self._wake(self)

    def take(self) -> Message:
        """Take the next message; bytes go to `audio`. For the engine."""
        message, arrived = self.inbox.popleft()
        if isinstance(message, bytes):
            self.audio = self.audio.give(message, arrived)
            self._taken += len(message)
        return message

    def _put(self, message: Message) -> None:
        if not self._has_ended:
            self.inbox.append((message, time.monotonic()))
            self._wake(self)


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
        """Take what the handler has sent, up to the end of a segment."""
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
        """Take what may go out, in order: nothing overtakes a final."""
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
