"""The engine: one thread that advances all streams in rounds, without a timer.

    engine = Engine(model, decoder, limits, measures, post=hand_over)
    engine.start()
    engine.warm()                      # before anybody waits
    stream = engine.open(settings)     # at once; compiled and opened by the engine
    stream.send(data)                  # bytes, as they came
    stream.flush()                     # what is new becomes final, and an answer comes
    stream.change_boosts(boosts)
    stream.finish()                    # the rest becomes final; `Finished` comes
    engine.stop()

A round takes all streams that have something new, and the next round gathers
meanwhile: under load rounds grow by themselves.

    take in    what handlers have sent; lists that were compiled
    hear       bytes to samples to log-probs, shared out among workers
    search     all sessions together, up to where an utterance may end, again and again
    notice     words so far
    find       finals: at once, or by workers, whole utterances encoded again
    post       all events of the round

What fails in one stream ends it with `Finished(error=...)`, and no other.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from wfstdec.boost.compile import collected_warnings
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import InputError, LimitError, ModelError
from wfstdec.models.encoder import Encoder
from wfstdec.search.decoder import Decoder, one_word
from wfstdec.search.endpoints import EndpointRule
from wfstdec.search.sessions import SessionId
from wfstdec.server.limits import Limits
from wfstdec.server.measures import Measures
from wfstdec.server.stream import (
    Course,
    Event,
    Final,
    Finals,
    Finished,
    Means,
    Room,
    Stream,
    StreamSettings,
)
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.stream import STREAM_CUTS
from wfstdec.transcription.transcriber import check_fit

_log = logging.getLogger("wfstdec.server")

_ROUND_S = 1.0
"""Seconds of audio of a stream that a round takes, at most: what sends faster than it
is spoken costs others no more than that."""
_LONGEST = EndpointRule(length_s=20.0, needs_speech=False)
"""Ends utterances where a stream leaves no other rule."""
_WARM_S = 600.0

SERVER_CUTS = replace(STREAM_CUTS, look_s=0.04)
"""Of streams, which people wait for."""

Post = Callable[[Sequence[tuple[Stream, Event]]], None]
"""Takes what a round found, in order; called by the engine's thread, must not wait."""


class Engine:
    """Advances streams; see the module.

    `nbest`: hypotheses of finals, at most. `workers`: threads that encode; None is one
    for each processor.
    """

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder[Any, Any],
        limits: Limits,
        measures: Measures,
        *,
        post: Post,
        confidence: bool = False,
        nbest: int = 1,
        workers: int | None = None,
        cuts: CutOptions = SERVER_CUTS,
    ) -> None:
        check_fit(model, decoder)
        self._finals = Finals(model, decoder, confidence, nbest)
        self._spec, self._limits, self._measures = model.spec, limits, measures
        self._post, self._cuts = post, cuts
        encoder = cuts.chunked(model)
        self._means = Means(encoder, encoder is model, self._finals.sessions())
        self._no_boosts = decoder.compile_boosts(None)
        self._num_workers = workers or len(os.sched_getaffinity(0))
        self._hearers = ThreadPoolExecutor(
            max(1, self._num_workers - 1), "wfstdec-encoder"
        )
        # Apart: neither a long list nor a long utterance may keep rounds waiting.
        self._finders = ThreadPoolExecutor(self._num_workers, "wfstdec-final")
        self._compilers = ThreadPoolExecutor(1, "wfstdec-boosts")
        self._thread = threading.Thread(
            target=self._run, name="wfstdec-engine", daemon=True
        )
        self._lock = threading.Condition()
        self._streams: set[Stream] = set()
        self._touched: dict[Stream, None] = {}
        self._is_draining = self._is_stopping = self._is_idle = False
        self._courses: dict[Stream, Course] = {}  # the engine's thread's alone

    def __len__(self) -> int:
        """Streams under way."""
        return len(self._streams)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def open(self, settings: StreamSettings, context: Any = None) -> Stream:
        """Begin a stream; its boosts are compiled meanwhile.

        What is wrong with them comes as `Finished(error=...)`.
        """
        stream = Stream(
            settings,
            context,
            sample_rate=self._spec.sample_rate,
            buffered_s=self._limits.buffered_s,
            wake=self._wake,
        )
        reason = None
        # Refused outside of the lock: counting and errors need none.
        with self._lock:
            is_full = len(self._streams) >= self._limits.streams
            if self._is_draining or self._is_stopping:
                reason = "draining"
            elif is_full and not isinstance(context, _Warming):
                reason = "full"
            else:
                self._streams.add(stream)
        if reason is not None:
            self._measures.refused(reason)
            most = self._limits.streams
            raise LimitError(
                "the server is about to stop and takes no streams, expected another one"
                if reason == "draining"
                else f"{most} streams are under way, expected fewer; "
                f"{Limits.flag('streams')} raises the limit"
            )
        self._wake(stream)
        return stream

    def drain(self) -> None:
        """Take no more streams and finish all: each gets its finals and `Finished`."""
        with self._lock:
            self._is_draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.finish()

    def stop(self) -> None:
        """End all streams without a word, and all threads; may be called again."""
        with self._lock:
            self._is_stopping = True
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for pool in (self._hearers, self._finders, self._compilers):
            pool.shutdown(cancel_futures=True)
        self._means.sessions.end_threads()

    def warm(self) -> None:
        """Run all that rounds use once: made-up rows, and a made-up stream.

        Nothing of it is measured: kernels are compiled, and no client waits.
        """
        kept, self._measures = self._measures, Measures()  # that nobody reads
        try:
            self._run_once()
        finally:
            self._measures = kept

    def _run_once(self) -> None:
        finals, sessions = self._finals, self._means.sessions
        finals.decoder.warm_up(lattices=not finals.are_quick)
        rows = one_word(finals.decoder.vocabulary, finals.decoder.num_tokens)
        session = sessions.open(self._no_boosts)
        sessions.advance({session: rows})
        sessions.partial(session)
        _ = finals.of_session(sessions, session)[0].text
        # Then the whole way, threads and queues included, as a client goes it.
        warming = _Warming()
        rate = self._spec.sample_rate
        stream = self.open(StreamSettings("linear16", rate, interims=True), warming)
        noise = np.random.default_rng(0).normal(0, 30, rate)
        stream.send(noise.astype("<i2").tobytes())
        stream.finish()
        if not warming.is_done.wait(_WARM_S):
            raise ModelError(
                f"a second of noise took more than {_WARM_S:g} s, expected words"
            )
        if warming.error is not None:
            raise warming.error

    # ------------------------------------------------------------ the thread
    def _wake(self, stream: Stream) -> None:
        """Have a stream looked at by the next round; for any thread."""
        with self._lock:
            self._touched[stream] = None
            if self._is_idle:
                self._lock.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._is_idle = True
                while not self._touched and not self._is_stopping:
                    self._lock.wait()
                self._is_idle = False
                touched, self._touched = list(self._touched), {}
            if self._is_stopping:
                break
            self._round(touched)
        for course in self._courses.values():
            with contextlib.suppress(Exception):
                course.abort()
        self._courses.clear()
        self._streams.clear()

    def _round(self, touched: Sequence[Stream]) -> None:
        """Do a round; a fault that is nobody's ends the streams that were in it."""
        courses: list[Course] = []
        try:
            for stream in touched:
                course = self._courses.get(stream)
                if stream.is_aborted:
                    self._drop(stream)
                elif course is not None:
                    courses.append(course)
                elif stream in self._streams:
                    courses.append(self._begin(stream))
            for course in courses:
                self._attempt(course, partial(self._take_in, course))
            self._work(courses)
        except Exception as error:
            _log.exception("a round of %d streams failed", len(touched))
            for course in courses:
                with contextlib.suppress(Exception):
                    course.fail(error, at_once=True)
        self._tell(courses)

    def _begin(self, stream: Stream) -> Course:
        silence_s = stream.settings.endpoint_silence_s
        cuts = self._cuts
        if silence_s is not None:
            cuts = replace(cuts, rules=rules_with_silence(cuts.rules, silence_s))
        course = self._courses[stream] = Course(stream, self._means, cuts)
        if stream.settings.boosts is None:
            course.change_boosts(self._no_boosts, ())
        else:
            self._compile(course, stream.settings.boosts)
        return course

    def _take_in(self, course: Course) -> None:
        while not course.is_over and course.compiling and course.compiling[0].done():
            try:
                found = course.compiling.popleft().result()
            except Exception as error:
                course.refuse_boosts(error)
            else:
                course.change_boosts(*found)
        if course.is_over or course.boosts is None:
            return
        while (new := course.take_in()) is not None:
            self._compile(course, new.boosts)
        course.open()

    def _compile(self, course: Course, boosts: BoostsLike) -> None:
        job = self._compilers.submit(self._compiled, boosts)
        course.compiling.append(job)
        job.add_done_callback(lambda _: self._wake(course.stream))

    def _compiled(self, boosts: BoostsLike) -> tuple[CompiledBoosts, tuple[str, ...]]:
        with collected_warnings() as texts:
            compiled = self._finals.decoder.compile_boosts(boosts)
        return compiled, tuple(texts)

    def _work(self, courses: Sequence[Course]) -> None:
        """Encode and search what is new of all streams."""
        hearing = [c for c in courses if not c.is_over and c.wants_to_hear]
        if not hearing:
            return
        now = time.monotonic()
        for course in hearing:
            # Before audio is taken, or nothing would be waiting.
            if (since := course.stream.audio.waits_since) is not None:
                self._measures.queued(now - since)
        began = time.perf_counter()
        # All streams are encoded together, then all searched: one call of the model for
        # a round.
        ended = self._hear(hearing)
        heard = time.perf_counter()
        self._search(hearing)
        for course in hearing:
            if not course.is_over:
                self._attempt(course, course.notice)
                if course in ended:
                    self._attempt(course, course.end_segment)
            self._find(course)
        searched = time.perf_counter()
        self._measures.round_done(len(hearing), heard - began, searched - heard)

    def _attempt(self, course: Course, act: Callable[[], object]) -> None:
        """Do something of one stream; what fails ends it."""
        try:
            act()
        except Exception as error:
            self._fail(course, error)

    def _fail(self, course: Course, error: Exception) -> None:
        if not isinstance(error, InputError):
            _log.error("a stream failed", exc_info=error)
        course.fail(error)

    # ------------------------------------------------------------ encoding
    def _hear(self, courses: Sequence[Course]) -> set[Course]:
        """Encode what came in, by workers; the courses whose segments ended."""
        num = max(1, min(self._num_workers, -(-len(courses) // self._spec.max_batch)))
        groups = [courses[i::num] for i in range(num)]
        jobs = [self._hearers.submit(self._encoded, group) for group in groups[1:]]
        found = [self._encoded(groups[0]), *(job.result() for job in jobs)]
        ended = set()
        for one in chain.from_iterable(found):
            if one.error is not None:
                self._fail(one.course, one.error)
            else:
                self._measures.heard(len(one.samples) / self._spec.sample_rate)
                self._attempt(
                    one.course, partial(one.course.hear, one.samples, one.rows)
                )
                if one.is_last:
                    ended.add(one.course)
        return ended

    def _encoded(self, courses: Sequence[Course]) -> list[_Chunk]:
        """Take what is new of courses, with its log-probs or what went wrong."""
        found, given = [], []
        for course in courses:
            try:
                chunk = _Chunk(course, *course.next_samples(_ROUND_S))
            except Exception as error:
                found.append(_Chunk(course, error=error))
                continue
            # Streams without news take no place in the model's batch.
            if chunk.is_last or len(chunk.samples):
                found.append(chunk)
                if course.encoder_state is not None:
                    given.append(chunk)
        size = self._spec.max_batch
        for start in range(0, len(given), size):
            self._step(given[start : start + size])
        return found

    def _step(self, given: Sequence[_Chunk]) -> None:
        """Make the log-probs of a batch, or find what is wrong with them.

        An error of windows is looked for one by one. Of a model that streams it is
        everybody's: nobody knows what became of the other states.
        """
        before = [copy.copy(one.course.encoder_state) for one in given]
        try:
            rows = self._means.encoder.step(
                [one.course.encoder_state for one in given],
                [one.samples for one in given],
                [one.is_last for one in given],
            )
            if len(rows) != len(given):
                raise ModelError(
                    f"{len(rows)} log-probs of {len(given)} chunks, expected as many"
                )
        except Exception as error:
            for one, state in zip(given, before, strict=True):
                one.error = error
                if len(given) > 1 and not self._means.one_pass:
                    one.course.encoder_state, one.error = state, None
                    self._step([one])
            return
        for one, some in zip(given, rows, strict=True):
            one.rows = np.asarray(some)
            if one.rows.ndim != 2:
                one.error = ModelError(
                    f"the model gave {one.rows.shape}, expected [T, V]"
                )

    # ------------------------------------------------------------ searching
    def _search(self, courses: Iterable[Course]) -> None:
        """Pass all sessions through what is new, up to where utterances may end."""
        left = list(courses)
        while left := [c for c in left if not c.is_over]:
            chunks: dict[SessionId, np.ndarray] = {}
            under_way: dict[SessionId, Course] = {}
            for course in left:
                rows = course.next_rows()
                if len(rows):
                    chunks[course.session] = rows
                    under_way[course.session] = course
            if not chunks:
                return
            try:
                self._means.sessions.advance(chunks)
            except Exception:  # one by one, where one of them fails
                for session, rows in chunks.items():
                    act = partial(self._advance_one, under_way[session], session, rows)
                    self._attempt(under_way[session], act)
            # What comes behind the end of an utterance is searched in another round of
            # this loop, by a new session.
            left = list(under_way.values())
            for course in left:
                if not course.is_over:
                    self._attempt(course, course.advanced)

    def _advance_one(
        self, course: Course, session: SessionId, rows: np.ndarray
    ) -> None:
        """Advance a session that may have passed through some of its rows."""
        sessions = self._means.sessions
        done = sessions.partial(session).num_frames - course.num_frames
        try:
            sessions.advance({session: rows[done:]})
        except InputError as error:
            error.utterance = None  # sessions have no names that clients know
            raise

    # ------------------------------------------------------------ finals
    def _find(self, course: Course) -> None:
        """Find the finals of utterances that have ended: at once, or by workers."""
        finals, course.finals = course.finals, []
        for final in finals:
            if self._means.one_pass and self._finals.are_quick:
                self._found(final)
            else:
                final.job = self._finders.submit(self._found, final)
                final.job.add_done_callback(lambda _: self._wake(course.stream))

    def _found(self, final: Final) -> None:
        """Find a final; what goes wrong is its error."""
        try:
            piece, sessions = final.piece, self._means.sessions
            if self._means.one_pass:
                final.found = self._finals.of_session(sessions, piece.first_pass)
            else:
                final.found = self._finals.of_piece(piece)
            _ = final.found[0].words  # made here, not in a round
        except Exception as error:
            if not isinstance(error, InputError):
                _log.exception("a final failed")
            final.error = error

    # ------------------------------------------------------------ telling
    def _tell(self, courses: Sequence[Course]) -> None:
        """Post what may go out; streams that are over are forgotten."""
        batch: list[tuple[Stream, Event]] = []
        for course in courses:
            stream = course.stream
            try:
                for event, said in course.events():
                    if isinstance(stream.context, _Warming):
                        stream.context.take(event)
                    else:
                        batch.append((stream, event))
                    if said is not None:
                        self._measures.final_after(time.monotonic() - said)
                    if isinstance(event, Finished):
                        if event.error is not None:
                            self._measures.failed(type(event.error).__name__)
                        self._drop(stream)
                if stream.awaits_room and stream.has_room:
                    stream.awaits_room = False
                    batch.append((stream, Room()))
            # One stream's fault ends that stream alone.
            except Exception as error:
                _log.exception("a final cannot be told")
                self._drop(stream)
                batch.append((stream, Finished(course.heard_s, error)))
            if course.has_more:
                self._wake(stream)
        if batch:
            try:
                self._post(batch)
            except Exception:
                _log.exception("%d events could not be handed over", len(batch))

    def _drop(self, stream: Stream) -> None:
        """Forget a stream and all that it has."""
        course = self._courses.pop(stream, None)
        with self._lock:
            self._streams.discard(stream)
        if course is not None:
            course.abort()


@dataclass
class _Chunk:
    """Audio of a course that a round encodes, and its log-probs or what went wrong."""

    course: Course
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    is_last: bool = True
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    error: Exception | None = None


class _Warming:
    """Takes the events of the stream that warms an engine."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.error: Exception | None = None

    def take(self, event: Event) -> None:
        """Take note of the end."""
        if isinstance(event, Finished):
            self.error = event.error
            self.is_done.set()


def rules_with_silence(
    rules: Sequence[EndpointRule], silence_s: float
) -> tuple[EndpointRule, ...]:
    """Endpoint rules with another silence after a good end of speech.

    Those after worse ends keep their distance, and what ends an utterance in which
    nothing was said does not come before them.
    """
    lengths = tuple(rule for rule in rules if rule.silence_s == 0)
    if math.isinf(silence_s):
        return lengths or (_LONGEST,)
    after_speech = [r for r in rules if r.silence_s > 0 and r.needs_speech]
    if not after_speech:
        return (EndpointRule(silence_s=silence_s), *rules)
    later = silence_s - min(rule.silence_s for rule in after_speech)
    # A rule for silence alone must not end an utterance before those after speech can.
    longest = max(rule.silence_s for rule in after_speech) + later
    changed = []
    for rule in rules:
        if rule in after_speech:
            rule = replace(rule, silence_s=rule.silence_s + later)
        elif rule.silence_s > 0:
            rule = replace(rule, silence_s=max(rule.silence_s, longest))
        changed.append(rule)
    return tuple(changed)
