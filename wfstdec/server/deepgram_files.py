"""`POST /v1/listen`: Deepgram's protocol for files.

POST /v1/listen?keyterm=new+york&utterances=true      audio in any container
POST /v1/listen?encoding=mulaw&sample_rate=8000       raw samples
POST /v1/listen?multichannel=true                     a result for each channel
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from wfstdec.audio.reading import open_audio
from wfstdec.batch.decoding import LatticeReading
from wfstdec.search.hypothesis import Word
from wfstdec.server.deepgram import (
    Json,
    Query,
    Reading,
    Replies,
    alternative,
    read_query,
)
from wfstdec.server.files import (
    IN_MEMORY,
    Client,
    counting,
    file_errors,
    receive_body,
    transcribe_file,
)
from wfstdec.server.limits import LISTEN, Limits, RequestError, wrong_value
from wfstdec.server.service import Job, Service
from wfstdec.server.stream import StreamSettings
from wfstdec.text.display import join_words

_OF_FILES = ("utterances", "paragraphs", "utt_split")
_OF_STREAMS = ("interim_results", "endpointing", "utterance_end_ms", "vad_events")
_FORMATS = {"linear16": (1, 2), "mulaw": (7, 1), "alaw": (6, 1)}
"""Format numbers of encodings in a WAV header, and bytes of a sample."""
_HEADER = "<4sI4s4sIHHIIHH4sI"
_MAX_CHANNELS = 8


def routes() -> list[BaseRoute]:
    """Return the routes for the app."""
    return [Route(LISTEN, ListenToFile(), methods=["POST"])]


class FileQuery(NamedTuple):
    """Parameters of a request."""

    query: Query
    utterances: bool
    paragraphs: bool
    utt_split: float  # seconds of silence between two utterances


def read_file_query(
    items: Sequence[tuple[str, str]], limits: Limits, language: str
) -> FileQuery:
    """Parse the query of a request, names and values in order."""
    given = dict(items)
    if "callback" in given:
        expected = "none: the answer is that of the request"
        raise wrong_value("callback", "an address", expected, "invalid_value")
    apart = {*_OF_FILES, *_OF_STREAMS}
    query = read_query([x for x in items if x[0] not in apart], limits, language)
    warnings = [
        f"{name!r} has no effect here"
        for name in (*query.ignored, *(one for one in _OF_STREAMS if one in given))
    ]
    reading = Reading(given)
    return FileQuery(
        replace(query, warnings=(*query.warnings, *warnings)),
        reading.flag("utterances"),
        reading.flag("paragraphs"),
        reading.one("utt_split", 0.8, _pause, "seconds, above 0"),
    )


def _pause(text: str) -> float:
    if 0 < (seconds := float(text)) < 3600:
        return seconds
    raise ValueError(text)


class ListenToFile:
    """Endpoint that transcribes a file; an ASGI app."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        service: Service = request.app.state.service
        limits, items = service.limits, request.query_params.multi_items()
        with counting(service), service.jobs.receive() as job:
            asked = read_file_query(items, limits, service.language)
            if "json" in request.headers.get("content-type", ""):
                text = "a body of JSON, expected audio: no addresses are fetched"
                raise RequestError(400, text, code="invalid_value")
            file = job.keep(tempfile.SpooledTemporaryFile(IN_MEMORY))
            digest = hashlib.sha256()
            settings = asked.query.settings
            if settings.encoding is not None:
                file.write(_wav_header(settings, 0))  # rewritten when the size is known

            def write(chunk: bytes) -> None:
                digest.update(chunk)
                file.write(chunk)

            await receive_body(request, limits, write)
            if settings.encoding is not None:
                size = file.tell() - struct.calcsize(_HEADER)
                file.seek(0)
                file.write(_wav_header(settings, size))
            job.take_place()
            sha256 = digest.hexdigest()
            async with Client(receive, send, limits.unread_s) as client:
                job.start(lambda job: transcribe(service, file, asked, sha256, job))
                body = await client.unless_gone(job.result())
                response = Response(body, media_type="application/json")
                await response(scope, receive, client.send)


def _wav_header(settings: StreamSettings, size: int) -> bytes:
    number, width = _FORMATS[str(settings.encoding)]
    rate, block = settings.sample_rate, settings.channels * width
    size = min(size - size % block, 2**32 - 64)
    head = b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, number, settings.channels
    return struct.pack(
        *(_HEADER, *head, rate, rate * block, block, 8 * width, b"data", size)
    )


def transcribe(
    service: Service, file: IO[bytes], asked: FileQuery, sha256: str, job: Job
) -> bytes:
    """Transcribe a file in a worker thread; return the body of the response."""
    channels: Sequence[int | None] = (None,)
    with file_errors(service.limits):
        if asked.query.multichannel:
            file.seek(0)
            with open_audio(file, service.model.spec.sample_rate) as reader:
                channels = range(reader.source.num_channels)
            if len(channels) > _MAX_CHANNELS:
                text = f"{len(channels)} channels, expected at most {_MAX_CHANNELS}"
                raise RequestError(400, text, "multichannel", code="invalid_value")
        reading, num_best = None, asked.query.alternatives or 1
        if service.decoder.has_nbest and (num_best > 1 or service.confidence):
            reading = LatticeReading(num_best, service.confidence)
        boosts = asked.query.settings.boosts
        transcripts, warnings = transcribe_file(
            *(service, file, boosts, job), channels=channels, reading=reading
        )
    if reading is None and num_best > 1:
        text = f"alternatives={num_best}, the server returns only the best"
        warnings.append(text)
    asked_for = asked.query.numbers, asked.query.punctuation
    formatter = service.readable.formatter(*asked_for, asked.query.keyterms)
    warnings += service.readable.missing(*asked_for)
    replies = Replies(service.name)
    found: list[list[Any]] = [one.hypotheses(num_best) for one in transcripts]
    if formatter is not None:
        found = [[formatter(one) for one in some] for some in found]
    results: Json = {"channels": [_channel(some, asked) for some in found]}
    if asked.utterances:
        utterances = [
            _times(some) | {"channel": channel} | alternative(some, None)
            for channel, [best, *_] in enumerate(found)
            for some in _utterances(best.words, asked.utt_split)
        ]
        utterances.sort(key=lambda one: one["start"])
        results["utterances"] = [one | {"id": str(uuid.uuid4())} for one in utterances]
    metadata = {
        "transaction_key": "deprecated",
        "request_id": replies.request_id,
        "sha256": sha256,
        "created": replies.created,
        "duration": transcripts[0].audio_s,
        "channels": len(channels),
        "models": [replies.model_uuid],
        "model_info": {replies.model_uuid: replies.model_info},
        "warnings": [*asked.query.warnings, *dict.fromkeys(warnings)],
    }
    return json.dumps({"metadata": metadata, "results": results}).encode()


def _channel(hypotheses: Sequence[Any], asked: FileQuery) -> Json:
    best, *others = (alternative(one.words, None) for one in hypotheses)
    if asked.paragraphs:  # a sentence ends at a pause
        parts = [*_utterances(hypotheses[0].words, asked.utt_split)]
        texts = [join_words(word.text for word in some) for some in parts]
        best["paragraphs"] = {
            "transcript": "\n\n".join(texts),
            "paragraphs": [
                {"num_words": len(some)}
                | {"sentences": [{"text": text} | _times(some)]}
                | _times(some)
                for text, some in zip(texts, parts, strict=True)
            ],
        }
    return {"alternatives": [best, *others]}


def _utterances(words: Sequence[Word], split_s: float) -> Iterator[Sequence[Word]]:
    first = 0
    for end in range(1, len(words) + 1):
        if end == len(words) or words[end].start_s - words[end - 1].end_s >= split_s:
            yield words[first:end]
            first = end


def _times(words: Sequence[Word]) -> dict[str, Any]:
    return {"start": float(words[0].start_s), "end": float(words[-1].end_s)}
