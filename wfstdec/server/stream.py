"""Stream of a client: bytes in, interim and final hypotheses out.

    stream = engine.open(StreamSettings("linear16"), take)   # take(event)
    stream.send(data)                  # bytes
    stream.flush()                     # pending words become final, with an answer
    stream.change_boosts(["quilter"])
    stream.finish()                    # the rest becomes final; `Finished` comes

A handler on the event loop calls these, and none of them blocks; all other methods
belong to the engine's thread. Final hypotheses are sorted, best first, and the best has
confidences if requested.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from wfstdec.batch.decoding import LatticeReading, rating, search_all
from wfstdec.boost.compile import collected_warnings
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import InputError
from wfstdec.models.encoder import Encoder, StreamingEncoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.endpoints import EndpointRule, Signal
from wfstdec.search.hypothesis import Hypothesis, Partial, Word
from wfstdec.search.options import CheckedOptions
from wfstdec.search.sessions import SessionId
from wfstdec.server.audio import open_bytes
from wfstdec.server.limits import ENDPOINT_FLOOR_S
from wfstdec.transcription.pauses import first_pass
from wfstdec.transcription.pieces import CutOptions, Piece, PieceCutter, join, shifted
from wfstdec.transcription.transcriber import STREAM_CUTS, check_fit
from wfstdec.wfst.decoder import WfstDecoder

_log = logging.getLogger("wfstdec.server")

_SETTLED_S = 3.0
"""Settled words are sent as final if the last final is at least this old."""
_INTERIM_S, _RARE_INTERIM_S = 0.1, 0.5
"""Seconds of audio between two partial results, at least: for interims, and without
them.
"""
SERVER_CUTS = replace(STREAM_CUTS, look_s=0.04)
"""Cutter options of streams, tuned for latency."""
_LONGEST = EndpointRule(length_s=20.0, needs_speech=False)
"""Ends utterances if a stream has no other rule."""

_Message = TypeVar("_Message")


class Outbox(Generic[_Message]):
    """Queue of messages to send; at most one interim of each stream."""

    def __init__(self) -> None:
        self._waiting: list[_Message] = []
        self._interims: dict[int, _Message] = {}  # the last one of each stream
        self._closed = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, message: _Message, *, interim_of: int | None = None) -> None:
        """Add a message; an interim replaces a waiting one of its stream."""
        if interim_of is not None:
            self.drop_interim(interim_of)
        if self._closed:
            return
        self._waiting.append(message)
        if interim_of is not None:
            self._interims[interim_of] = message
        self._changed.set()

    def drop_interim(self, stream: int) -> None:
        """Remove the interim of a stream, if it is not sent yet."""
        dropped = self._interims.pop(stream, None)
        self._waiting = [one for one in self._waiting if one is not dropped]

    def close(self) -> None:
        """Accept no more messages; waiting ones are still returned."""
        self._closed = True
        self._changed.set()

    async def next(self) -> _Message | None:
        """Return the next message; None if closed and empty."""
        while not self._waiting and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.pop(0) if self._waiting else None


@dataclass(frozen=True)
class Words:
    """Words of a stretch of audio; all times are those of the stream."""

    words: tuple[Word, ...]  # since the last final one; may be empty
    start_s: float  # the end of the last final's
    end_s: float
    is_final: bool = False
    ends_utterance: bool = False
    is_endpoint: bool = False  # the first final in a sufficient pause
    # Rule of the endpoint or the end; None if the client or the stream's end caused it.
    rule: EndpointRule | None = None
    # Of the whole utterance at its end, including its final words, with confidences if
    # any.
    hypotheses: tuple[Hypothesis, ...] = ()
    is_answer: bool = False  # to a `flush`
    latency_s: float = 0.0  # since the arrival of the last audio that was searched


@dataclass(frozen=True)
class SpeechStarted:
    """The first token of an utterance was emitted."""

    at_s: float


@dataclass(frozen=True)
class UtteranceEnd:
    """No word has come for the requested time; once for each last word."""

    last_word_end_s: float


@dataclass(frozen=True)
class BoostsChanged:
    """A new boost list is in force, or was refused (`error`)."""

    # Once for the initial list and vocabulary, if any, and for each change.

    from_now: bool = False  # for the open utterance; if not, from the next
    warnings: tuple[str, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True)
class Finished:
    """The stream is over; no event follows. `error` is the reason, if any."""

    audio_s: float
    error: Exception | None = None


Event = Words | SpeechStarted | UtteranceEnd | BoostsChanged | Finished


@dataclass(frozen=True)
class StreamSettings(CheckedOptions):
    """Options of a stream."""

    encoding: str | None = None  # of `audio.ENCODINGS`; None for a container
    sample_rate: int = 16000
    channels: int = 1
    boosts: BoostsLike = None
    vocabulary: tuple[str, ...] = ()  # phrases of `WfstDecoder.of_phrases`; () for all
    interims: bool = False
    # Signals an endpoint after a good end (the second of the rules; the others keep
    # their distance), and ends the utterance if it is not below the server's floor;
    # None for the server's rules, `inf` for no rule of silence.
    endpoint_silence_s: float | None = None
    # `UtteranceEnd` comes this long after the last word
    utterance_end_s: float | None = None
    speech_started: bool = False

    def __post_init__(self) -> None:
        self.check("sample_rate", lambda x: 1000 <= x <= 384000, "1000 to 384000")
        self.check("channels", lambda x: 1 <= x <= 8, "1 to 8")


class EngineResources:
    """Encoder, decoder and threads that all streams of an engine share."""

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder[Any, Any],
        *,
        confidence: bool = False,
        nbest: int = 1,  # hypotheses of finals, at most
        workers: int | None = None,  # threads that encode
        cuts: CutOptions = SERVER_CUTS,
        endpoint_floor_s: float = ENDPOINT_FLOOR_S,
    ) -> None:
        check_fit(model, decoder)
        self._model, self.spec, self.cuts = model, model.spec, cuts
        self.endpoint_floor_s = endpoint_floor_s
        self._from_list = not confidence and nbest > 1
        self.confidence = confidence
        self._reading = LatticeReading(nbest=nbest, confidence=True)
        self.encoder = self._use(decoder)
        # Finals are read from the first pass, or from encoding the utterance again.
        self.one_pass = self.encoder is model
        self.workers = workers or len(os.sched_getaffinity(0))
        # Separate pools: neither a long list nor a long utterance may delay rounds.
        self.encoding = ThreadPoolExecutor(max(1, self.workers - 1), "wfstdec-encoder")
        self._finding = ThreadPoolExecutor(self.workers, "wfstdec-final")
        self._compiling = ThreadPoolExecutor(1, "wfstdec-boosts")
        # Vocabularies in use by streams; for the thread of `_compiling`.
        self._restricted: WeakValueDictionary[Any, Any] = WeakValueDictionary()

    def _use(self, decoder: Decoder[Any, Any]) -> StreamingEncoder:
        """Use a decoder; return an encoder for it."""
        nbest = self._reading.nbest
        if self._from_list:
            if decoder.options.nbest != nbest:
                decoder = decoder.with_options(nbest=nbest)
            decoder.decode_nbest([])  # raises without n-best lists
        self.decoder = decoder
        self.records = (self.confidence and decoder.records_lattices) or (
            self._from_list and decoder.nbest_of_lattices
        )
        self.no_boosts = decoder.compile_boosts(None)
        how: Any = {"lattices": self.records}
        encoder, self.sessions = first_pass(self._model, decoder, self.cuts, **how)
        return encoder

    def restricted(self, vocabulary: tuple[str, ...]) -> Self:
        """Return the resources of a vocabulary, shared by its streams; () for all."""
        found = self._restricted.get(vocabulary) if vocabulary else self
        if found is None:
            found = copy.copy(self)
            found._use(WfstDecoder.of_phrases(self.decoder, vocabulary))
            self._restricted[vocabulary] = found
        return found

    def close(self) -> None:
        """End all threads, and cancel waiting work."""
        for pool in (self.encoding, self._finding, self._compiling):
            pool.shutdown(cancel_futures=True)
        for one in (self, *self._restricted.values()):
            one.sessions.end_threads()

    def compile(self, boosts: BoostsLike, vocabulary: tuple[str, ...]) -> Future:
        """Submit the compilation of a list; the result has resources and warnings."""
        return self._compiling.submit(self._compiled, boosts, vocabulary)

    def _compiled(
        self, boosts: BoostsLike, vocabulary: tuple[str, ...]
    ) -> tuple[Self, CompiledBoosts, tuple[str, ...]]:
        resources = self.restricted(vocabulary)
        with collected_warnings() as texts:
            compiled = resources.decoder.compile_boosts(boosts)
        return resources, compiled, tuple(texts)

    def find(self, piece: Piece) -> Future:
        """Submit the reading of an utterance's hypotheses; immediate if it is quick."""
        if not self.one_pass or self.records:
            return self._finding.submit(self._hypotheses, piece)
        done: Future = Future()
        try:
            done.set_result(self._hypotheses(piece))
        except Exception as error:
            done.set_exception(error)
        return done

    def _hypotheses(self, piece: Piece) -> list[Hypothesis]:
        try:
            if self.one_pass:
                found = self.close_session(piece.first_pass, piece.rows)
            else:
                [rows] = self._model.encode([piece.waveform])
                how = self._from_list, self.confidence
                [found] = search_all(self.decoder, [rows], [piece.boosts], *how)
                if self.confidence:
                    found = self._read(found, rows)
            _ = found[0].words  # computed here, not in a round
            return found
        except InputError:
            raise
        except Exception:
            _log.exception("a final failed")
            raise

    def _read(self, found: Any, rows: np.ndarray | None) -> list[Hypothesis]:
        """Read a lattice or list; log-probs are those of the session, if known."""
        if rows is None:
            return self._reading("", found)
        return rating(self._reading, rows, self.spec.tokens.blank)("", found)

    def close_session(
        self, session: SessionId, rows: np.ndarray | None = None
    ) -> list[Hypothesis]:
        """Close a session; return its hypotheses, best first."""
        if self.confidence:
            found: Any
            if self.records:
                found = self.sessions.close_lattice(session)
            else:
                found = self.sessions.close_nbest(session)
            return self._read(found, rows)
        if self._from_list:
            return self.sessions.close_nbest(session)
        return [self.sessions.close(session)]


@dataclass
class Final:
    """Pending final of a finished utterance."""

    event: Words  # without its words
    piece: Piece
    start_frame: int  # of the utterance in the stream
    num_final: int  # number of its words that were final before
    arrived: float  # of the last audio that was searched
    job: Future  # computes its hypotheses


class Stream:
    """Stream of a client, from its bytes to its events."""

    def __init__(
        self,
        settings: StreamSettings,
        take: Callable[[Event], object],  # in the engine's thread
        resources: EngineResources,
        *,
        buffered_s: float,
        wake: Callable[[Stream], object],  # makes the engine read the inbox
    ) -> None:
        self.settings, self.take = settings, take
        self.resources, self._most_s = resources, buffered_s
        self._wake = lambda: wake(self)
        rate = self._rate = resources.spec.sample_rate
        self._shift_s = resources.spec.frame_shift_s
        how = settings.encoding, settings.sample_rate, settings.channels
        self.audio = open_bytes(*how, rate, buffered_s, self._wake)
        self._bytes_per_s = self.audio.bytes_per_s
        # Of the handler:
        self._inbox: deque[tuple[str, Any, float]] = deque()  # kind, content, when
        self._sent = self._taken = 0  # bytes, counted by one thread each
        self._has_ended = self.is_aborted = False
        # Of the engine:
        self.is_over = False
        is_ready = settings.boosts is None and not settings.vocabulary
        self._boosts = resources.no_boosts if is_ready else None
        self._compiling: deque[Future] = deque()
        self._outbox: deque[Event | Final] = deque()
        self._end: str | None = None  # "flush" or "finish" while pending
        # Of the open segment, from one `flush` to the next:
        self.encoder_state: Any = None
        self.cutter: PieceCutter | None = None
        self._base = 0  # frames of the stream before the segment
        self._last_frame = 0  # where the last final ended
        self._num_samples = 0
        self._arrivals: list[tuple[int, float]] = []  # samples so far, and when
        self._word_end: int | None = None  # of the last word, until it is reported
        often = settings.interims or settings.speech_started
        interim_s = _INTERIM_S if often else _RARE_INTERIM_S
        if settings.utterance_end_s is not None:
            interim_s = min(interim_s, settings.utterance_end_s / 2)
        self._interim_frames = max(1, round(interim_s / self._shift_s))
        self._begin_utterance()

    def _begin_utterance(self) -> None:
        self._num_final = 0  # words
        self._shown: tuple[str, ...] = ()
        self._has_started = False
        self._signal_at = 0  # frames, at the last signal of an endpoint
        self._read_at = 0  # frames, at the last partial result

    @property
    def buffered_s(self) -> float:
        """Seconds of audio that were sent and are not searched."""
        return (self._sent - self._taken) / self._bytes_per_s + self.audio.waiting_s

    @property
    def is_full(self) -> bool:
        """Return whether more than `Limits.buffered_s` waits."""
        return self.buffered_s > self._most_s

    def send(self, data: bytes) -> None:
        """Queue audio, cut anywhere; ignored after `finish`."""
        if data and not self._has_ended:
            self._sent += len(data)
            self._put("audio", bytes(data))

    def flush(self) -> None:
        """Make all audio sent so far final, and end the utterance."""
        self._put("flush")

    def change_boosts(self, boosts: BoostsLike) -> None:
        """Change the list: now if no word has begun, else from the next utterance."""
        self._put("boosts", boosts)

    def finish(self) -> None:
        """End the stream: finals, then `Finished`."""
        self._put("finish")
        self._has_ended = True

    def abort(self) -> None:
        """Abort the stream: no more events."""
        self._has_ended = self.is_aborted = True
        self._wake()

    def _put(self, kind: str, content: Any = None) -> None:
        if not self._has_ended:
            self._inbox.append((kind, content, time.monotonic()))
            self._wake()

    def take_in(self) -> None:
        """Take compiled lists and the inbox, up to the end of a segment."""
        while self._compiling and self._compiling[0].done():
            try:
                compiled = self._compiling.popleft().result()
            except Exception as error:
                if self._boosts is None:
                    self.fail(error)
                    return
                self._outbox.append(BoostsChanged(error=error))
            else:
                self.resources, *boosts = compiled
                self._use_boosts(*boosts)
        if self._boosts is None:
            if not self._compiling:
                self._compile(self.settings.boosts)
            return
        while self._end is None and self._inbox:
            if self._inbox[0][0] == "finish" and self._compiling:
                break
            kind, content, arrived = self._inbox.popleft()
            if kind == "audio":
                self.audio = self.audio.give(content, arrived)
                self._taken += len(content)
            elif kind == "boosts":
                self._compile(content)
            else:
                self._end = kind
                if kind == "finish":
                    self.audio.end()
        if self.cutter is None and self.audio.is_ready:
            self._begin_segment()

    def _compile(self, boosts: BoostsLike) -> None:
        job = self.resources.compile(boosts, self.settings.vocabulary)
        self._compiling.append(job)
        job.add_done_callback(lambda _: self._wake())

    def _use_boosts(self, boosts: CompiledBoosts, warnings: tuple[str, ...]) -> None:
        """Use a compiled list: now if no word has begun, else in the next utterance."""
        self._boosts, from_now = boosts, True
        if self.cutter is not None:
            from_now = self.cutter.change_boosts(boosts)
            if from_now:
                self._read_at = 0
        self._outbox.append(BoostsChanged(from_now, warnings))

    def _begin_segment(self) -> None:
        shared, silence_s = self.resources, self.settings.endpoint_silence_s
        cuts = shared.cuts
        if silence_s is not None:
            cut_s = max(silence_s, shared.endpoint_floor_s)
            rules = rules_with_silence(cuts.rules, cut_s)
            if silence_s < cut_s:
                signals = [Signal(**vars(one)) for one in cuts.rules]
                rules += rules_with_silence(signals, silence_s)
            cuts = replace(cuts, rules=rules)
        self.encoder_state = shared.encoder.start()
        self.cutter = PieceCutter(
            shared.sessions,
            cuts,
            shared.spec,
            boosts=self._boosts,
            one_pass=shared.one_pass,
            keeps_rows=shared.confidence,
            # Left open in one pass: closed when its hypotheses are read.
            close=(lambda session: session) if shared.one_pass else None,
        )

    @property
    def audio_s(self) -> float:
        """Seconds of audio."""
        return self._num_samples / self._rate

    @property
    def needs_audio(self) -> bool:
        """Return whether audio, or the end of a segment, is to be encoded."""
        ends = self._end is not None and self.audio.is_through
        return not self.is_over and (self.audio.is_ready or ends)

    @property
    def has_more(self) -> bool:
        """Return whether input for the next round waits."""
        if self.is_over or self._boosts is None:
            return False
        is_held = self._end is not None or bool(self._compiling)
        return self.needs_audio or (bool(self._inbox) and not is_held)

    def next_samples(self, seconds: float) -> tuple[np.ndarray, bool]:
        """Return at most `seconds` of samples, and whether they end the segment."""
        samples, arrived = self.audio.take(seconds)
        is_last = self._end is not None and self.audio.is_through
        if is_last:
            samples = np.concatenate([samples, self.audio.rest()])
        if len(samples):
            self._num_samples += len(samples)
            self._arrivals.append((self._num_samples, arrived))
        return samples, is_last

    def push_audio(self, samples: np.ndarray, rows: np.ndarray) -> None:
        """Add samples and their log-probs."""
        if self.cutter is None:
            return
        if not self.resources.one_pass:
            self.cutter.push_audio(samples)
        self.cutter.push_rows(rows)

    def advanced(self) -> None:
        """Update after the session has passed through the cutter's `next_rows`."""
        assert self.cutter is not None
        start = self._base + self.cutter.start_frame
        piece = self.cutter.advanced()
        partial = self.cutter.last_partial if piece is None else piece.partial
        if partial is not None:
            self._note_last_word(partial, start)
            self._note_start(partial, start)  # before its words, and before a signal
        if piece is not None:
            self._put_final(piece)
        elif self.cutter.signal is not None:
            assert partial is not None
            # Once in a pause: not before another token is emitted.
            if partial.num_frames - partial.silent_frames > self._signal_at:
                self._signal_at = partial.num_frames
                end = start + partial.num_frames
                self._put_settled(partial, start, end, self.cutter.signal)

    def end_segment(self) -> None:
        """Answer a `flush`, or end the stream: all audio has been searched."""
        end, self._end = self._end, None
        cutter, self.cutter, self.encoder_state = self.cutter, None, None
        awaits_speech = self.settings.speech_started and not self._has_started
        if cutter is not None and cutter.num_frames and awaits_speech:
            self._note_start(cutter.partial, self._base + cutter.start_frame)
        piece = None if cutter is None else cutter.end()
        if piece is not None and piece.num_frames:
            self._put_final(piece, is_answer=end == "flush")
        else:
            if piece is not None and self.resources.one_pass:
                self.resources.sessions.close(piece.first_pass)  # without hypotheses
            # A flush is answered even without new words: clients wait.
            if end == "flush":
                at_s = self._last_frame * self._shift_s
                self._outbox.append(
                    Words((), at_s, at_s, True, True, is_endpoint=True, is_answer=True)
                )
        # Audio counts from here on, even if the encoder output no frames for its end.
        behind = math.ceil(self._num_samples / self._rate / self._shift_s - 1e-6)
        self._base = self._last_frame = max(behind, self._last_frame)
        if end == "finish":
            self._outbox.append(Finished(self.audio_s))
            self._close()

    def _put_final(self, piece: Piece, *, is_answer: bool = False) -> None:
        start = self._base + piece.start_frame
        end = start + piece.num_frames
        partial, is_signalled = piece.partial, False  # in this pause
        if piece.rule is not None and partial is not None:
            spoken = partial.num_frames - partial.silent_frames
            is_signalled = 0 < spoken <= self._signal_at
        event = Words(
            *((), self._last_frame * self._shift_s, end * self._shift_s, True),
            ends_utterance=True,
            is_endpoint=not is_signalled,
            rule=piece.rule,
            is_answer=is_answer,
        )
        num, arrived = self._num_final, self._arrival_of(end)
        job = self.resources.find(piece)
        self._outbox.append(Final(event, piece, start, num, arrived, job))
        job.add_done_callback(lambda _: self._wake())
        self._last_frame = end
        self._begin_utterance()

    def _place(self, frame: int) -> int:
        sample = round(frame * self._shift_s * self._rate)
        return bisect_left(self._arrivals, (sample, -math.inf))

    def _arrival_of(self, frame: int) -> float:
        at = min(self._place(frame), len(self._arrivals) - 1)
        return self._arrivals[at][1] if self._arrivals else time.monotonic()

    def emit_interim(self) -> None:
        """Emit new interim words, settled words, and events of speech."""
        self._emit_utterance_end()
        cutter = self.cutter
        # A partial result is expensive: not after every chunk.
        if cutter is None or cutter.num_frames < self._read_at + self._interim_frames:
            return
        self._read_at = cutter.num_frames
        settings, shift_s = self.settings, self._shift_s
        start = self._base + cutter.start_frame
        end = start + cutter.num_frames
        since_s = (end - self._last_frame) * shift_s
        is_due = self.resources.one_pass and since_s >= _SETTLED_S
        awaits_speech = settings.speech_started and not self._has_started
        awaits_end = settings.utterance_end_s is not None
        if not (is_due or awaits_speech or awaits_end or settings.interims):
            return
        partial = cutter.partial
        self._note_last_word(partial, start)
        self._emit_utterance_end()
        self._note_start(partial, start)
        if is_due and partial.num_timed > self._num_final:
            self._put_settled(partial, start, end)
        if settings.interims and self.resources.decoder.can_stream:
            rest = partial.words[self._num_final :]
            texts = tuple(word.text for word in rest)
            # Repeated interims would only fill the client's queue.
            if texts != self._shown:
                self._put_words(rest, start, end, end, is_final=False)
                self._shown = texts

    def _put_settled(
        self, partial: Partial, start: int, end: int, signal: Signal | None = None
    ) -> None:
        """Emit settled words; with a signal also an event without words."""
        settled: tuple = ()
        if self.resources.one_pass:  # two passes encode the utterance again
            settled = partial.words[self._num_final : partial.num_timed]
        settled_end = start + settled[-1].end_frame if settled else self._last_frame
        how = {"is_final": True, "is_endpoint": signal is not None, "rule": signal}
        self._put_words(settled, start, settled_end, end, **how)
        self._num_final += len(settled)
        self._last_frame, self._shown = settled_end, ()

    def _put_words(
        self, words: tuple, start: int, end: int, searched: int, **how: Any
    ) -> None:
        event = Words(
            tuple(shifted(word, start, self._shift_s) for word in words),
            self._last_frame * self._shift_s,
            end * self._shift_s,
            **how,
            latency_s=time.monotonic() - self._arrival_of(searched),
        )
        last = self._outbox[-1] if self._outbox else None
        if not event.is_final and isinstance(last, Words) and not last.is_final:
            self._outbox.pop()  # not sent yet
        self._outbox.append(event)

    def _note_last_word(self, partial: Partial, start: int) -> None:
        """Remember the last word, if its end is to be reported."""
        silence_s = self.settings.utterance_end_s
        if silence_s is None or not partial.words:
            return
        end = partial.words[-1].end_frame
        if (partial.num_frames - end) * self._shift_s < silence_s:
            self._word_end = start + end

    def _note_start(self, partial: Partial, start: int) -> None:
        """Emit the start of speech once in an utterance, if requested."""
        if self._has_started or partial.silent_frames == partial.num_frames:
            return
        self._has_started = True
        if self.settings.speech_started:
            at = partial.num_frames - partial.silent_frames
            if partial.words:
                at = partial.words[0].start_frame
            self._outbox.append(SpeechStarted((start + at) * self._shift_s))

    def _emit_utterance_end(self) -> None:
        silence_s, cutter = self.settings.utterance_end_s, self.cutter
        if silence_s is None or self._word_end is None:
            return
        at = self._base + (cutter.start_frame + cutter.num_frames if cutter else 0)
        if (at - self._word_end) * self._shift_s >= silence_s - 1e-6:
            self._outbox.append(UtteranceEnd(self._word_end * self._shift_s))
            self._word_end = None

    def events(self) -> Iterator[tuple[Event, float | None]]:
        """Yield events that are ready, in order: none overtakes a final."""
        while self._outbox:
            first = self._outbox[0]
            if isinstance(first, Final):
                if not first.job.done():
                    return
                if (error := first.job.exception()) is not None:
                    assert isinstance(error, Exception)
                    self.fail(error, at_once=True)
                    continue
            self._outbox.popleft()
            yield self._words_of(first) if isinstance(first, Final) else (first, None)
        # None before the last final is needed again.
        del self._arrivals[: max(0, self._place(self._last_frame) - 1)]

    def _words_of(self, final: Final) -> tuple[Words, float | None]:
        found = tuple(join([(final.start_frame, one)]) for one in final.job.result())
        words, latency_s = found[0].words, time.monotonic() - final.arrived
        new = words[final.num_final :]
        is_endpoint = final.event.is_endpoint or bool(new)
        event = replace(
            final.event, words=new, is_endpoint=is_endpoint, hypotheses=found
        )
        spoken = self._arrival_of(words[-1].end_frame) if words else None
        return replace(event, latency_s=latency_s), spoken

    def fail(self, error: Exception, *, at_once: bool = False) -> None:
        """End the stream with an error after pending finals; `at_once` without them."""
        if at_once:
            self.discard()
        elif self.is_over:
            return
        self._close()
        self._outbox.append(Finished(self.audio_s, error))

    def discard(self) -> None:
        """End the stream without an event; close sessions that have no reader."""
        self._close()
        for one in self._outbox:
            if isinstance(one, Final) and one.job.cancel() and self.resources.one_pass:
                self.resources.sessions.close(one.piece.first_pass)
        self._outbox.clear()

    def _close(self) -> None:
        self.is_over = True
        self.audio.close()
        if self.cutter is not None:
            self.cutter.close()
            self.cutter = None
        self.encoder_state = None
        for one in self._compiling:
            one.cancel()


def rules_with_silence(
    rules: Sequence[EndpointRule], silence_s: float
) -> tuple[EndpointRule, ...]:
    """Return endpoint rules with another silence after a good end of speech."""
    # Rules for worse ends keep their distance, and utterances without words do not end
    # before them.
    lengths = tuple(rule for rule in rules if rule.silence_s == 0)
    if math.isinf(silence_s):
        return lengths or (_LONGEST,)
    after_speech = [r for r in rules if r.silence_s > 0 and r.needs_speech]
    if not after_speech:
        kind = type(rules[0]) if rules else EndpointRule
        return (kind(silence_s=silence_s), *rules)
    later = silence_s - min(rule.silence_s for rule in after_speech)
    # A rule for silence alone must not end an utterance before the rules after speech.
    longest = max(rule.silence_s for rule in after_speech) + later

    def changed(rule: EndpointRule) -> EndpointRule:
        own = rule.silence_s
        moved = own + later if rule.needs_speech else max(own, longest)
        return rule if own == 0 else replace(rule, silence_s=moved)

    return tuple(map(changed, rules))
