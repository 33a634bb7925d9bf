"""OpenAI's protocol for streams: `WS /v1/realtime`, transcription only.

    session.update              format, turn detection, expected words
    input_audio_buffer.append   audio in base64; the first one opens a stream
    input_audio_buffer.commit   ends an item; with turn detection, pauses do so too
    input_audio_buffer.clear    drops the audio since the last item

An item is the audio from one commit to the next, and its text. Deltas are words that
can no longer change; the deltas of an item, joined, are its transcript.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from wfstdec.boost.compile import collected_warnings
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import BoostError, OptionError
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.connection import (
    STOPS,
    Ending,
    Json,
    WebSocketConnection,
    apart,
    error_ending,
    serve_websocket,
)
from wfstdec.server.limits import RequestError, wrong_value
from wfstdec.server.prompt import prompt_terms
from wfstdec.server.readable import ShownWords
from wfstdec.server.service import Service
from wfstdec.server.stream import (
    BoostsChanged,
    Event,
    Finished,
    SpeechStarted,
    StreamSettings,
    Words,
)
from wfstdec.text.display import extend_text, join_words, short

_wrong = partial(wrong_value, code="invalid_value")
_POLL_S = 0.02
_EXPECTED = "'session.update' or 'input_audio_buffer.append', 'commit', 'clear'"

_FORMATS = {"audio/pcm": "linear16", "audio/pcmu": "mulaw", "audio/pcma": "alaw"}
_DETECTORS = ["server_vad", "semantic_vad"]
_MAX_IGNORED, _NAME_CHARS = 50, 60
"""Ignored fields that are reported, and characters of each name, at most."""

_INPUT = "session.audio.input"
_FORMAT, _TEXTS = f"{_INPUT}.format", f"{_INPUT}.transcription"
_TURNS = f"{_INPUT}.turn_detection"
_OBJECTS = ("session", "session.audio", _INPUT, _FORMAT, _TEXTS, _TURNS)


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(map(_is_text, found))


def _is_whole(least: int, most: int, found: Any) -> bool:
    return type(found) is int and least <= found <= most


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "session.type": (["transcription"].__contains__, "'transcription'"),
    f"{_FORMAT}.type": ([*_FORMATS].__contains__, repr([*_FORMATS])[1:-1]),
    f"{_FORMAT}.rate": (partial(_is_whole, 1000, 384_000), "1000 to 384000"),
    f"{_TEXTS}.model": (_is_text, "a string"),
    f"{_TEXTS}.language": (_is_text, "a string"),
    f"{_TEXTS}.prompt": (_is_text, "a string"),
    f"{_TEXTS}.keywords": (_are_texts, "a list of strings"),
    f"{_TURNS}.type": (_DETECTORS.__contains__, repr(_DETECTORS)[1:-1]),
    f"{_TURNS}.silence_duration_ms": (partial(_is_whole, 1, 60_000), "1 to 60000 ms"),
}


def check_session(given: Any, path: str = "session") -> Iterator[str]:
    """Validate the fields of `session.update`; yield those without effect."""
    if not isinstance(given, dict):
        raise _wrong(path, short(given), "an object")
    for name, value in given.items():
        full = f"{path}.{name}"
        # null is an absent field; it turns two of them off, and turns may be.
        if value is None and full != _TEXTS:
            continue
        if full in _OBJECTS:
            yield from check_session(value, full)
        elif full not in _CHECKS:
            yield full.removeprefix("session.")[:_NAME_CHARS]
        elif not _CHECKS[full][0](value):
            raise _wrong(full, short(value), _CHECKS[full][1])


def merged(before: Json, given: Json) -> Json:
    """Merge an update into `audio.input`; absent fields are kept."""
    new = dict(before)
    if kind := given.get("format"):
        name = kind.get("type") or "audio/pcm"
        rate = {"rate": kind.get("rate") or 24_000} if name == "audio/pcm" else {}
        new["format"] = {"type": name, **rate}
    if "turn_detection" in given:
        turns = given["turn_detection"]
        if turns is not None:
            turns = _only(("type", "silence_duration_ms"), turns)
            turns = {"type": _DETECTORS[0], **turns}
        new["turn_detection"] = turns
    texts = new["transcription"] | (given.get("transcription") or {})
    new["transcription"] = _only(("model", "language", "prompt", "keywords"), texts)
    return new


def _only(names: tuple[str, ...], given: Json) -> Json:
    return {name: value for name in names if (value := given.get(name))}


def _read(text: str | bytes) -> Json:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    text = f"found {short(text)}, expected an object of JSON, as text"
    raise RequestError(400, text, code="invalid_event")


def _audio(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        text = f"audio is no base64 ({error}), expected it"
        raise RequestError(400, text, "audio", code="invalid_value") from None


@dataclass
class _Item:
    """Audio from one commit to the next; seconds since the start of the stream."""

    id: str = field(default_factory=lambda: f"item_{uuid.uuid4().hex[:24]}")
    transcript: str = ""  # all deltas
    start_s: float | None = None  # of the speech, if pauses end items
    end_s: float | None = None  # None until it is committed


def routes() -> list[WebSocketRoute]:
    """Return the route for the app."""
    return [WebSocketRoute("/v1/realtime", _serve)]


async def _serve(websocket: WebSocket) -> None:
    given = websocket, websocket.app.state.service, f"sess_{uuid.uuid4().hex[:24]}"
    connect = partial(RealtimeConnection, *given)
    await serve_websocket(websocket, given[-1], connect, RealtimeConnection.open)


class RealtimeConnection(WebSocketConnection):
    """Connection with a client: its session, its items, and at most one stream."""

    waits_for = "input_audio_buffer.append"

    def __init__(self, websocket: WebSocket, service: Service, session_id: str) -> None:
        super().__init__(websocket, service)
        self.idle_s = self.limits.silent_s  # the protocol has no KeepAlive
        self._id = session_id
        self._input: Json = {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "transcription": {"model": service.name, "language": service.language},
            "turn_detection": {"type": _DETECTORS[0]},
        }
        self._boosts: CompiledBoosts | None = None
        self._num_lists = 0  # known to the engine and not in force yet
        # The first gets words, the last gets audio; those between are committed.
        self._items = deque([_Item()])
        self._previous: str | None = None  # id of the last committed item
        # Seconds of all audio: sent, at the client's last commit, at the end of the
        # last item, and at the start of the open stream.
        self._sent_s = self._asked_s = self._ended_s = self._began_s = 0.0
        self._shown = ShownWords(service.readable.formatter())
        self._finished: Finished | None = None

    @property
    def _has_turns(self) -> bool:
        """Return whether pauses end items."""
        return self._input["turn_detection"] is not None

    def _send(self, kind: str, **fields: Any) -> None:
        event_id = f"event_{uuid.uuid4().hex[:24]}"
        self.outbox.send({"type": kind, "event_id": event_id, **fields})

    def _send_session(self, kind: str, warnings: list[str]) -> None:
        session: Json = {"type": "transcription", "id": self._id}
        session["object"] = "realtime.transcription_session"
        session |= {"audio": {"input": self._input}, "warnings": warnings}
        self._send(kind, session=session)

    def _send_transcription(self, kind: str, item: _Item, **fields: Any) -> None:
        kind = f"conversation.item.input_audio_transcription.{kind}"
        self._send(kind, item_id=item.id, content_index=0, **fields)

    def _send_at(self, kind: str, item: _Item, name: str, at_s: float) -> None:
        fields = {"item_id": item.id, name: round(1000 * at_s)}
        self._send(f"input_audio_buffer.{kind}", **fields)

    def take(self, event: Event, stream: int) -> None:
        """Handle an event: words of the first item, its end, or the stream's end."""
        if isinstance(event, SpeechStarted):
            self._start(self._began_s + event.at_s)
        elif isinstance(event, Words):
            self._take_words(event)
        elif isinstance(event, BoostsChanged):
            self._num_lists -= 1
        elif isinstance(event, Finished):
            # The last item has no commit if the server ends the stream.
            while (item := self._items[0]) != _Item(item.id):
                self._commit(item, self._began_s + event.audio_s)
                self._complete(event.error)
            self._finished = event
            self.outbox.close()

    def _take_words(self, event: Words) -> None:
        item = self._items[0]
        if self._has_turns and event.words:  # it may end before its start is noticed
            self._start(self._began_s + event.words[0].start_s)
        event = self._shown.of(event)
        is_turn = self._has_turns and event.ends_utterance and item.start_s is not None
        if ends := event.is_answer or is_turn:
            self._commit(item, self._began_s + event.end_s)
        if event.words:
            delta = join_words(word.text for word in event.words)
            delta = extend_text(item.transcript, delta)
            item.transcript += delta
            self._send_transcription("delta", item, delta=delta)
        if ends:
            self._complete()

    def _start(self, at_s: float) -> None:
        item = self._items[0]
        if item.start_s is None:
            item.start_s = at_s
            self._send_at("speech_started", item, "audio_start_ms", at_s)

    def _commit(self, item: _Item, end_s: float) -> None:
        if item.end_s is not None:
            return
        if item.start_s is not None:
            self._send_at("speech_stopped", item, "audio_end_ms", end_s)
        item.start_s = self._ended_s if item.start_s is None else item.start_s
        item.end_s = self._ended_s = max(end_s, item.start_s)
        after = {"previous_item_id": self._previous}
        self._send("input_audio_buffer.committed", item_id=item.id, **after)
        added: Json = {"id": item.id, "object": "realtime.item", "type": "message"}
        added |= {"status": "completed", "role": "user"}
        added["content"] = [{"type": "input_audio", "transcript": None}]
        self._send("conversation.item.added", item=added, **after)
        self._previous = item.id

    def _complete(self, error: Exception | None = None) -> None:
        """Send the transcript of the first item, which is committed."""
        item = self._items.popleft()
        if not self._items:
            self._items.append(_Item())
        assert item.start_s is not None and item.end_s is not None
        if error is not None:
            _, ending = error_ending(error, self._id)
            failed = RequestError(500, ending.reason, code="fault").body["error"]
            self._send_transcription("failed", item, error=failed)
            return
        done: Json = {"transcript": item.transcript, "usage": {"type": "duration"}}
        done["usage"]["seconds"] = round(item.end_s - item.start_s, 6)
        self._send_transcription("completed", item, **done)

    async def open(self) -> None:
        """Accept the client if a stream may be opened."""
        if (reason := self.service.unready) is not None:
            self.metrics.refused.labels(reason).inc()
            text = f"no stream can be opened now ({reason}), expected a retry later"
            raise RequestError(503, text, code=reason, retry_after_s=1)
        await self.accept()
        self._send_session("session.created", [])

    async def obey(self, message: Any) -> bool:
        """Handle an event; an error is reported by an event."""
        event_id = None
        try:
            given = await apart(message, lambda: _read(message))
            event_id, kind = given.get("event_id"), given.get("type")
            if kind == "input_audio_buffer.append":
                return await self._append(given.get("audio"))
            if kind == "input_audio_buffer.commit":
                self._ask_to_commit()
            elif kind == "input_audio_buffer.clear":
                await self._clear()
            elif kind == "session.update":
                await self._update(given.get("session"))
            else:
                raise _wrong("type", short(kind), _EXPECTED)
        except RequestError as error:
            self._send_error(error, event_id)
        except (BoostError, OptionError) as error:
            wrong = RequestError(400, str(error), "session", code="invalid_value")
            self._send_error(wrong, event_id)
        return False

    def _send_error(self, error: RequestError, event_id: Any = None) -> None:
        event_id = event_id[:_NAME_CHARS] if isinstance(event_id, str) else None
        self._send("error", error={**error.body["error"], "event_id": event_id})

    async def _update(self, given: Any) -> None:
        ignored = list(check_session(given))
        if given.get("type") is None:
            raise _wrong("session.type", "none", "'transcription'")
        found = (given.get("audio") or {}).get("input") or {}
        new, warnings = merged(self._input, found), list[str]()
        for name in ("format", "turn_detection"):
            if self.streams and new[name] != self._input[name]:
                text = f"audio.input.{name} is changed after audio was sent, expected "
                text += "it before, or after input_audio_buffer.clear"
                raise RequestError(400, text, f"{_INPUT}.{name}", code="session_in_use")
        if found.get("transcription"):
            texts = new["transcription"]
            self._boosts, warnings = await asyncio.to_thread(self._compiled, texts)
            for stream in self.streams:
                stream.change_boosts(self._boosts)
                self._num_lists += 1
            while self._num_lists:  # later audio is searched with them
                await asyncio.sleep(_POLL_S)
        self._input = new
        names = ignored[:_MAX_IGNORED]
        warnings += [f"the field {name!r} has no effect" for name in names]
        self._send_session("session.updated", warnings)

    def _compiled(self, texts: Json) -> tuple[CompiledBoosts | None, list[str]]:
        service, asked = self.service, texts.get("language") or self.service.language
        terms, warnings = prompt_terms(service, texts.get("prompt"))
        boosts = requested_boosts(
            keyterms=texts.get("keywords", ()), prompt=terms, limits=service.limits
        )
        if asked[:2].lower() != service.language[:2].lower():
            known = f"this server's model is for {service.language!r}"
            warnings.append(f"language {asked[:_NAME_CHARS]!r}, {known}")
        with collected_warnings() as more:
            compiled = service.decoder.compile_boosts(boosts) if boosts else None
        return compiled, warnings + more

    async def _append(self, audio: Any) -> bool:
        if not isinstance(audio, str):
            raise _wrong("audio", short(audio), "a string of base64")
        if not (data := await apart(audio, lambda: _audio(audio))):
            return False
        if not self.streams:
            form, turns = self._input["format"], self._input["turn_detection"]
            silence_ms = math.inf if turns is None else turns.get("silence_duration_ms")
            settings = StreamSettings(
                *(_FORMATS[form["type"]], form.get("rate", 8000)),
                boosts=self._boosts,
                endpoint_silence_s=silence_ms and silence_ms / 1000,
                speech_started=turns is not None,
            )
            self.open_stream(settings)
            self._num_lists += self._boosts is not None
        [stream] = self.streams
        stream.send(data)
        self._sent_s += len(data) / stream.audio.bytes_per_s
        return True

    def _ask_to_commit(self) -> None:
        if self._sent_s <= max(self._asked_s, self._ended_s):
            text = "no audio since the last commit, expected input_audio_buffer.append"
            code = "input_audio_buffer_commit_empty"
            raise RequestError(400, text, code=code)
        self._asked_s = self._sent_s
        self.flush()
        if not self._has_turns:  # with turn detection, its reply commits
            self._commit(self._items[-1], self._sent_s)
            self._items.append(_Item())

    async def _clear(self) -> None:
        while self._unanswered:  # committed items keep their text
            await asyncio.sleep(_POLL_S)
        given_up = [*self.streams]
        self.abort()
        while not all(stream.is_over for stream in given_up):  # its place is free then
            await asyncio.sleep(_POLL_S)
        self._items, self._num_lists = deque([_Item()]), 0
        self._shown = ShownWords(self.service.readable.formatter())
        self._began_s = self._ended_s = self._sent_s
        self._send("input_audio_buffer.cleared")

    async def finish(self) -> Ending:
        """Return how to close; an error of the stream is sent before."""
        ending = self.ending or STOPS
        if self._finished is not None and self._finished.error is not None:
            kind, ending = error_ending(self._finished.error, self._id)
            error = RequestError(500, ending.reason, code=kind).body["error"]
            await self.send({"type": "error", "event_id": "event_end", "error": error})
        return ending
