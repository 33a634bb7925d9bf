"""Work of a request with a file: from bytes to the body of its answer, in a thread.

    work = FileWork(service, file, request)
    place.start(work)            # says parts of a stream, returns the end of it, or all

The words are those of `Transcriber`, bit for bit.
"""

from __future__ import annotations

import logging
import time
from typing import IO

from wfstdec.batch.lattices import LatticeReading
from wfstdec.boost.compile import collected_warnings
from wfstdec.errors import (
    AudioError,
    AudioFormError,
    AudioLengthError,
    BackendError,
    BoostError,
    DeviceError,
    InputError,
)
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.server.forms import FILE
from wfstdec.server.jobs import Job, JobCancelled
from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service
from wfstdec.server.transcription_answers import answer, delta_event, done_event
from wfstdec.server.transcription_request import TranscriptionRequest
from wfstdec.transcription import AudioOptions, Recording, Transcriber

_log = logging.getLogger(__name__)

_TOLD = ("silence", "cut", "streams")
"""Kinds of notes on audio that are warnings to a client."""

Answer = tuple[bytes, str]
"""A body, or the last part of a stream, and its content type."""


class FileWork:
    """Transcribes a file and makes the answer; called once, in a thread."""

    def __init__(
        self, service: Service, file: IO[bytes], request: TranscriptionRequest
    ) -> None:
        self._service, self._file, self._request = service, file, request
        self._reading: LatticeReading | None = None
        if service.decoder.records_lattices:
            if request.nbest > 1 or request.confidence:
                self._reading = LatticeReading(request.nbest, request.confidence)
        elif request.nbest > 1:
            raise Problem(
                400,
                f"nbest {request.nbest}, expected 1: this server's decoder finds only "
                "the best hypothesis",
                "nbest",
            )

    def __call__(self, job: Job[Answer]) -> Answer:
        """Do the work; what is said are parts of a stream."""
        try:
            return self._answer(job)
        except (Problem, JobCancelled):
            raise
        except Exception as error:
            raise problem_of(error, self._service.limits) from error

    def _answer(self, job: Job[Answer]) -> Answer:
        service, request = self._service, self._request
        began = time.monotonic()
        boosts = request.boost_list(service.limits)
        with collected_warnings() as warnings:
            compiled = boosts and service.decoder.compile_boosts(boosts)
        # Compiling many boosts takes a while: whoever has left by now is not worked
        # for.
        job.check()
        audio = AudioOptions(request.channel, service.limits.file_s, request.allow_cut)
        transcriber = Transcriber(
            *(service.model, service.decoder),
            audio=audio,
            workers=service.jobs.workers,
            lattices=self._reading,
        )
        [transcript] = transcriber.run(
            [Recording(FILE, self._file, compiled)],
            heard=lambda _: job.check(),
            found_piece=_Deltas(job) if request.stream else None,
        )
        if transcript.error is not None:
            raise transcript.error
        # Of the audio, and of what was asked in vain.
        warnings += [note.text for note in transcript.notes if note.kind in _TOLD]
        asked, known = request.language, service.language
        if asked is not None and asked.lower()[:2] != known.lower()[:2]:
            warnings.append(f"language {asked!r}, this server's model is for {known!r}")
        if request.confidence and self._reading is None:
            warnings.append("no confidences: this server's decoder makes none")
        warnings += [f"the field {name!r} is unknown" for name in request.unknown]
        service.measures.file_done(transcript.audio_s, time.monotonic() - began)
        if request.stream:
            return done_event(transcript, request, warnings), "text/event-stream"
        return answer(transcript, request, service.language, warnings)


class _Deltas:
    """Says the words of each piece of audio as soon as they are known."""

    def __init__(self, job: Job[Answer]) -> None:
        self._job, self._any_yet = job, False

    def __call__(self, start_frame: int, hypotheses: list[Hypothesis]) -> None:
        """Say the words of a piece; all that is said, joined, is the text."""
        if text := hypotheses[0].text:
            self._job.say(delta_event(f" {text}" if self._any_yet else text))
            self._any_yet = True


def problem_of(error: Exception, limits: Limits) -> Problem:
    """Say what went wrong with a file in the client's terms; log what is our fault."""
    if isinstance(error, AudioLengthError):
        return Problem(
            413,
            f"audio longer than {limits.file_s:g} s, expected at most that; "
            f"{limits.remedy('file_s')}",
            FILE,
            code="audio_too_long",
        )
    if isinstance(error, AudioFormError) or (
        isinstance(error, BackendError) and not isinstance(error, DeviceError)
    ):
        return Problem(415, str(error), FILE, code="unsupported_audio")
    if isinstance(error, AudioError):
        return Problem(400, str(error), FILE, code="invalid_audio")
    if isinstance(error, BoostError):
        return Problem(400, str(error), "boosts")
    _log.error("a request with a file failed", exc_info=error)
    # The order is from what a client can change to what only the server's owner can.
    if isinstance(error, InputError):  # of the model, or the search
        return Problem(500, f"the model or the search failed: {error}")
    return Problem(500, "the server failed; its log says why")
