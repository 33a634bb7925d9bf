"""OpenAI's protocol for files: `POST /v1/audio/transcriptions`, `GET /v1/models`."""

from __future__ import annotations

import json
import math
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from wfstdec.batch.decoding import LatticeReading
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import InputError
from wfstdec.io.boost_files import unique_object
from wfstdec.io.subtitles import cue_bounds, srt_text, vtt_text
from wfstdec.readable import Formatter
from wfstdec.search.hypothesis import CONFIDENCES, Hypothesis, Word
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.files import (
    FILE,
    IN_MEMORY,
    Client,
    counting,
    file_errors,
    receive_body,
    transcribe_file,
)
from wfstdec.server.limits import Limits, RequestError, read_value, wrong_value
from wfstdec.server.prompt import prompt_terms
from wfstdec.server.service import Job, Service
from wfstdec.text.display import join_words
from wfstdec.transcription import Transcript

Json = dict[str, Any]
Answer = tuple[bytes, str]  # Body, or the last part of a stream, and its content type

_STARTED = int(time.time())
_ALIVE_S = 10.0  # Interval of keep-alive messages: proxies close silent streams
_EVENTS = "text/event-stream"

_FIELD_BYTES = 64  # overhead of a field in addition to its name and value
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
_STREAMED = ("json", "text", "verbose_json")
_TEXTS: Mapping[str, tuple[Callable[[Hypothesis], str], str]] = {
    "text": (lambda best: best.text + "\n", "text/plain"),
    "srt": (lambda best: srt_text(best.words), "application/x-subrip"),
    "vtt": (lambda best: vtt_text(best.words), "text/vtt"),
}
"""Formatter of a body, and content type, of the text formats."""
_COSTS = ("total_cost", "graph_cost", "acoustic_cost", "boost_cost")
_MAX_HYPOTHESES = 100
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_LEAST = 1e-10  # smallest probability in the logarithm of a confidence
_KNOWN = {
    *("response_format", "stream", "language", "nbest", "confidence", "channel"),
    *("allow_cut", "boosts", "keywords", "temperature", "include", "smart_format"),
    *("model", "prompt", "timestamp_granularities"),
}
_NO_EFFECT = {
    *("chunking_strategy", "languages", "known_speaker_names"),
    "known_speaker_references",
}
"""OpenAI's fields that have no effect here."""


def routes() -> list[BaseRoute]:
    """Return the routes of files and models."""
    return [
        Route("/v1/audio/transcriptions", Transcriptions(), methods=["POST"]),
        Route("/v1/models", _models),
        Route("/v1/models/{name:path}", _models),
    ]


async def _models(request: Request) -> Response:
    name = request.app.state.service.name
    model = {"id": name, "object": "model", "created": _STARTED, "owned_by": "wfstdec"}
    asked = request.path_params.get("name")
    if asked is None:
        return JSONResponse({"object": "list", "data": [model]})
    if asked == name:
        return JSONResponse(model)
    text = f"no model {asked!r}, expected {name!r}"
    raise RequestError(404, text, code="model_not_found")


@dataclass(frozen=True)
class TranscriptionRequest:
    """Parsed fields of a transcription request."""

    format: str = "json"
    stream: bool = False
    language: str | None = None
    nbest: int = 1
    confidence: bool = False
    channel: int | None = None
    allow_cut: bool = False
    keywords: Sequence[str] = ()
    boosts: str | None = None  # JSON, parsed later
    prompt: str | None = None
    smart_format: bool | None = None  # None for the server's default
    ignored: Sequence[str] = ()  # names of known fields without effect
    unknown: Sequence[str] = ()  # unknown names: a misspelt one is a warning

    def boost_list(self, limits: Limits, prompt: Sequence[str] = ()) -> BoostsLike:
        """Parse the boosts, which takes a while for long lists."""
        parsed, param = None, "keywords" if self.boosts is None else "boosts"
        keep = partial(unique_object, "boosts")
        try:
            if self.boosts is not None:
                parsed = json.loads(self.boosts, object_pairs_hook=keep)
            return requested_boosts(
                keyterms=self.keywords, boosts=parsed, prompt=prompt, limits=limits
            )
        except InputError as error:
            raise RequestError(400, str(error), param) from error
        except (ValueError, RecursionError) as error:
            text = f"boosts are no JSON ({error}), expected "
            text += '{"word": bonus} or ["word", ...]'
            raise RequestError(400, text, param) from None


def read_request(
    fields: Sequence[tuple[str, str]], *, confidence: bool = False
) -> TranscriptionRequest:
    """Validate the fields of a form; names of lists may end in `[]`."""
    given: dict[str, list[str]] = {}
    for name, value in fields:
        # Clients write `name[]`, `name[0]` or the bare name for lists.
        given.setdefault(name.partition("[")[0], []).append(value)
    for value in given.get("timestamp_granularities", ()):
        if value not in ("word", "segment"):
            expected = "'word', 'segment'"
            raise wrong_value("timestamp_granularities", repr(value), expected)

    def one(
        name: str, default: Any, read: Callable[[str], Any] = str, expected: str = ""
    ) -> Any:
        values = given.get(name, [])
        if len(values) > 1:
            raise wrong_value(name, f"it {len(values)} times", "it once")
        if not values or not values[0]:
            return default
        return read_value(name, values[0], read, expected)

    def flag(name: str, default: bool = False) -> bool:
        # The spellings of several client languages.
        return one(name, default, lambda text: _FLAGS[text.lower()], "'true', 'false'")

    # 0 is the search's only mode.
    ignored = _NO_EFFECT & given.keys()
    if one("temperature", 0.0, _number(float, 0, 1), "0 to 1"):
        ignored |= {"temperature"}
    format, stream = one("response_format", "json"), flag("stream")
    if format not in FORMATS:
        raise wrong_value("response_format", repr(format), repr(FORMATS)[1:-1])
    if stream and format not in _STREAMED:
        expected = f"{repr(_STREAMED)[1:-1]} with stream=true"
        raise wrong_value("response_format", repr(format), expected)
    most = _MAX_HYPOTHESES
    return TranscriptionRequest(
        format=format,
        stream=stream,
        language=one("language", None),
        nbest=one("nbest", 1, _number(int, 1, most), f"1 to {most}"),
        confidence=flag(
            "confidence", confidence or "logprobs" in given.get("include", ())
        ),
        channel=one("channel", None, _number(int, 0, math.inf), "0 or more"),
        allow_cut=flag("allow_cut"),
        keywords=tuple(given.get("keywords", ())),
        boosts=one("boosts", None),
        prompt=one("prompt", None),
        smart_format=flag("smart_format") if "smart_format" in given else None,
        ignored=tuple(sorted(ignored)),
        unknown=tuple(sorted(given.keys() - _KNOWN - _NO_EFFECT)),
    )


def _number(
    kind: type[int] | type[float], least: float, most: float
) -> Callable[[str], float]:
    def read(text: str) -> float:
        if least <= (number := kind(text)) <= most:  # false for NaN
            return number
        raise ValueError(text)

    return read


class FormData(NamedTuple):
    """File, and names and values of all other fields, in order."""

    file: IO[bytes]
    fields: list[tuple[str, str]]


async def read_form(request: Request, job: Job, limits: Limits) -> FormData:
    """Parse a request's form; the file is closed with the job."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        raise RequestError(
            415,
            f"content type {kind.decode('latin-1', 'replace')!r}, expected "
            "'multipart/form-data' with a field 'file'",
        )
    if not options.get(b"boundary"):
        text = "a form without a boundary, expected one in Content-Type"
        raise RequestError(400, text)
    receiver = _Receiver(options[b"boundary"], job, limits)
    await receive_body(request, limits, receiver.write)
    return receiver.finish()


class _Receiver:
    def __init__(self, boundary: bytes, job: Job, limits: Limits) -> None:
        self._job, self._limits = job, limits
        # A full boost list may need as much, and a margin.
        entry = 4 * limits.boost_chars + 2 * _FIELD_BYTES
        self._max_bytes = IN_MEMORY + limits.boosts * entry
        self._file: Any = None
        self._fields: list[tuple[str, str]] = []
        self._num_bytes = 0  # of fields, which are kept in memory
        self._is_over = False
        names = [name for name in dir(self) if name.startswith("on_")]
        callbacks: Any = {name: getattr(self, name) for name in names}
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise RequestError(400, f"a malformed form: {error}") from None

    def write(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise RequestError(400, f"a malformed form: {error}") from None

    def finish(self) -> FormData:
        if not self._is_over:
            text = "a form that was cut short, expected its last boundary"
            raise RequestError(400, text)
        if self._file is None:
            raise RequestError(400, "no file, expected one in the field 'file'", FILE)
        self._file.seek(0)
        return FormData(self._file, self._fields)

    # Callbacks of the parser, by its names.
    def on_part_begin(self) -> None:
        self._header = self._value = self._disposition = b""
        self._data = bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def on_headers_finished(self) -> None:
        """Classify a part once its headers are complete."""
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            text = "a part without a name, expected 'name=' for each field"
            raise RequestError(400, text)
        self._name = _decoded(options[b"name"], "the name of a field")
        self._is_file = b"filename" in options
        if not self._is_file:
            # Names count too: a form of nothing but names fills memory.
            self._count(_FIELD_BYTES + len(self._name))
        elif self._name != FILE:
            text = f"a file in the field {self._name!r}, expected it in 'file'"
            raise RequestError(400, text, FILE)
        elif self._file is not None:
            text = "two files, expected one: a request for each"
            raise RequestError(400, text, FILE)
        else:
            self._file = self._job.keep(tempfile.SpooledTemporaryFile(IN_MEMORY))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file.write(data[start:end])
        else:
            self._count(end - start)
            self._data += data[start:end]

    def on_part_end(self) -> None:
        if self._is_file:
            return
        if self._name == FILE:
            text = "the field 'file' without a file name, expected a file"
            raise RequestError(400, text, FILE)
        value = _decoded(self._data, f"the field {self._name!r}", self._name)
        self._fields.append((self._name, value))

    def on_end(self) -> None:
        self._is_over = True

    def _count(self, size: int) -> None:
        self._num_bytes += size
        if self._num_bytes > (most := self._max_bytes):
            raise RequestError(
                413,
                f"more than {most} bytes next to the file, expected {most} or fewer; "
                f"{self._limits.remedy('boosts')}",
                code="form_too_large",
            )


def _decoded(data: bytes | bytearray, what: str, param: str | None = None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = f"{what} is no UTF-8 ({error}), expected it"
        raise RequestError(400, text, param) from None


def transcribe(
    service: Service, file: IO[bytes], request: TranscriptionRequest, job: Job
) -> Answer:
    """Transcribe a file in a thread; parts of a stream go to the job."""
    with file_errors(service.limits):
        return _transcribe(service, file, request, job)


def _transcribe(
    service: Service, file: IO[bytes], request: TranscriptionRequest, job: Job
) -> Answer:
    reading = None
    if service.decoder.has_nbest:
        if request.nbest > 1 or request.confidence:
            reading = LatticeReading(request.nbest, request.confidence)
    elif request.nbest > 1:
        raise RequestError(
            400,
            f"nbest {request.nbest}, expected 1: this server's decoder finds only the "
            "best hypothesis",
            "nbest",
        )
    deltas: list[str] = []
    smart = request.smart_format
    formatter = service.readable.formatter(smart, smart, request.keywords)
    stream = None if formatter is None else formatter.stream()

    def emit(start_frame: int, hypotheses: list[Hypothesis]) -> None:
        """Emit the words of a piece of audio; joined, they are the whole text."""
        text = hypotheses[0].text
        if stream is not None:
            text = stream.end(hypotheses[0].words).text
        if text:
            deltas.append(f" {text}" if deltas else text)
            job.emit(_event({"type": "transcript.text.delta", "delta": deltas[-1]}))

    terms, of_prompt = prompt_terms(service, request.prompt)
    [transcript], warnings = transcribe_file(
        *(service, file, request.boost_list(service.limits, terms), job),
        channels=[request.channel],
        allow_cut=request.allow_cut,
        reading=reading,
        on_piece=emit if request.stream else None,
    )
    warnings[:0] = [*of_prompt, *service.readable.missing(smart, smart)]
    asked, known = request.language, service.language
    if asked is not None and asked.lower()[:2] != known.lower()[:2]:
        warnings.append(f"language {asked!r}, this server's model is for {known!r}")
    if request.confidence and reading is None:
        warnings.append("no confidences: this server's decoder makes none")
    warnings += [f"the field {name!r} has no effect" for name in request.ignored]
    warnings += [f"the field {name!r} is unknown" for name in request.unknown]
    text = "".join(deltas) if request.stream else None
    return _answer(transcript, request, known, warnings, formatter, text)


def _answer(
    transcript: Transcript,
    request: TranscriptionRequest,
    language: str,
    warnings: Sequence[str],
    formatter: Formatter | None,
    text: str | None,  # of a stream: all deltas
) -> Answer:
    """Return the body of a response, or the last event of a stream."""
    hypotheses = transcript.hypotheses(request.nbest)
    seconds = _rounded(transcript.audio_s)
    best: Any = formatter(hypotheses[0]) if formatter else hypotheses[0]
    if request.format in _TEXTS and not request.stream:
        make, kind = _TEXTS[request.format]
        return make(best).encode(), f"{kind}; charset=utf-8"
    fields: Json = {}
    if request.stream:
        fields = {"type": "transcript.text.done"}
    elif request.format == "verbose_json":
        fields = {"task": "transcribe", "language": language, "duration": seconds}
    fields["text"] = best.text if text is None else text
    if request.stream or request.format == "verbose_json":
        fields |= {"words": _words(best.words), "segments": _segments(best.words)}
    if formatter is not None and request.format == "verbose_json":
        fields["raw_text"] = hypotheses[0].text
    fields["usage"] = {"type": "duration", "seconds": seconds}
    if request.nbest > 1:
        fields["nbest"] = [
            {"text": one.text, "words": _words(one.words)}
            | {name: _cost(getattr(one, name)) for name in _COSTS}
            for one in hypotheses
        ]
    if warnings:
        fields["warnings"] = list(warnings)
    if request.stream:
        return _event(fields), _EVENTS
    return _json(fields), "application/json"


def _words(words: Sequence[Word]) -> list[Json]:
    found = []
    for word in words:
        times = {"start": _rounded(word.start_s), "end": _rounded(word.end_s)}
        found.append({"word": word.text, **times})
        for name in CONFIDENCES:
            if (value := getattr(word, name, None)) is not None:
                found[-1][name] = _rounded(value)
    return found


def _segments(words: Sequence[Word]) -> list[Json]:
    """Return words cut as subtitles, with all fields that OpenAI's clients read."""
    # Fields without an equivalent in our search are empty or 0.
    found = []
    for number, (first, end) in enumerate(cue_bounds(words)):
        some = words[first:end]
        text = join_words(word.text for word in some)
        data, known = text.encode(), [word.confidence for word in some]
        logs = [math.log(max(x, _LEAST)) for x in known if x is not None]
        found.append(
            {
                "id": number,
                "seek": round(100 * some[0].start_s),
                "start": _rounded(some[0].start_s),
                "end": _rounded(some[-1].end_s),
                "text": text,
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": _rounded(sum(logs) / len(logs) if logs else 0.0),
                "compression_ratio": _rounded(len(data) / len(zlib.compress(data))),
                "no_speech_prob": 0.0,
            }
        )
    return found


def _rounded(number: float) -> float:
    """Round to the millionth: frame * shift leaves digits like 0.6000000000000001."""
    return round(float(number), 6)


def _cost(cost: float) -> float | None:
    return float(cost) if math.isfinite(cost) else None


def _json(fields: Json) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _event(fields: Json) -> bytes:
    return b"data: " + _json(fields) + b"\n\n"


class Transcriptions:
    """Endpoint that transcribes a file; an ASGI app."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        service: Service = request.app.state.service
        limits = service.limits
        with counting(service), service.jobs.receive() as job:
            form = await read_form(request, job, limits)
            asked = read_request(form.fields, confidence=service.confidence)
            job.take_place()
            async with Client(receive, send, limits.unread_s) as client:
                job.start(lambda job: transcribe(service, form.file, asked, job))
                if asked.stream:
                    await _stream(job, client)
                else:
                    body, kind = await client.unless_gone(job.result())
                    response = Response(body, media_type=kind)
                    await response(scope, receive, client.send)


async def _stream(job: Job, client: Client) -> None:
    # The status waits for the first words, or for an error of the file.
    part = await client.unless_gone(job.next_part())
    end, kind = (b"", _EVENTS) if part else await job.result()
    headers = {"content-type": f"{kind}; charset=utf-8", "cache-control": "no-cache"}
    headers["x-accel-buffering"] = "no"  # nginx would gather the parts
    raw = Headers(headers).raw
    await client.send({"type": "http.response.start", "status": 200, "headers": raw})
    try:
        while part is not None:
            await client.send_body(part, more=True)
            try:
                part = await client.unless_gone(job.next_part(), _ALIVE_S)
            except TimeoutError:
                part = b": the server works\n\n"
        if not end:
            end, _ = await job.result()
    except RequestError as error:  # too late for a status
        end = _event(error.body)
    await client.send_body(end)
