"""A server for the page that says what a script tells it to, in the real one's JSON.

It shows the page what a real server does seldom: keys, closes, refusals. Its words
come by the audio's clock, whatever the audio is.
"""

import json
import socket
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute

from wfstdec.server.app import read_page

UTTERANCES = (
    (("i", 0.2, 0.9), ("understand", 0.8, 0.97), ("bartley", 0.8, 0.62)),
    (("i", 0.2, 0.99), ("was", 0.3, 0.44), ("wrong", 0.5, 0.93)),
)
"""Words, how long each takes, and how sure it is; a pause of a second behind each."""
PAUSE_S = 1.0
OTHER = "otherwise"
"""What the other reading of each utterance has more."""


def timed(utterances=UTTERANCES):
    at, found = 0.3, []
    for utterance in utterances:
        words = []
        for text, takes, confidence in utterance:
            words.append(_word(text, at, at + takes - 0.05, confidence))
            at += takes
        at += PAUSE_S
        found.append(words)
    return found


def _word(text, start, end, confidence):
    return {
        "word": text,
        "punctuated_word": text,
        "start": round(start, 3),
        "end": round(end, 3),
        "confidence": confidence,
    }


@dataclass
class Streamed:
    """Record of a stream: the query of its handshake, and its samples, int16."""

    query: dict
    audio: bytearray = field(default_factory=bytearray)

    @property
    def samples(self):
        return np.frombuffer(bytes(self.audio), "<i2")

    @property
    def rate(self):
        return int(self.query["sample_rate"])

    @property
    def seconds(self):
        return len(self.audio) / 2 / self.rate


@dataclass
class Script:
    """Script of the server, and what it was sent."""

    utterances: list = field(default_factory=timed)
    key: str | None = None  # what clients have to send
    later: list | None = None  # utterances of streams after the first; None: the same
    closes: list = field(default_factory=list)  # codes, after `close_s` of audio each
    close_s: float = 1.0
    held_s: float = float("inf")  # words come as if no more audio than this had come
    unknown: tuple = ()  # words that boosts warn of
    refuses: list = field(default_factory=list)  # answers to files, before words come
    hypotheses: list = field(default_factory=list)  # of files
    streams: list = field(default_factory=list)
    configured: list = field(default_factory=list)
    forms: list = field(default_factory=list)

    def warnings(self, words):
        return [f"boost: {word!r} is unknown" for word in words if word in self.unknown]


class ScriptedServer:
    """Serves on a port of its own, in a thread."""

    def __init__(self):
        self.script = Script()
        routes = [
            Route("/", self.page),
            Route("/ready", self.ready),
            Route("/v1/models", self.models),
            Route("/v1/audio/transcriptions", self.transcribe, methods=["POST"]),
            WebSocketRoute("/v1/listen", self.listen),
        ]
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="error", lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True
        )

    def start(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(10)

    async def page(self, request):
        body, headers = read_page()
        return Response(body, media_type="text/html", headers=headers)

    async def ready(self, request):
        return PlainTextResponse("ready")

    def _refused(self, request):
        key = self.script.key
        given = request.headers.get("authorization")
        if key is None or given == f"Bearer {key}":
            return None
        error = {"message": "no such key", "type": "authentication_error"}
        return JSONResponse({"error": error}, 401)

    async def models(self, request):
        data = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "us"}]
        answer = JSONResponse({"object": "list", "data": data})
        return self._refused(request) or answer

    async def transcribe(self, request):
        if refused := self._refused(request):
            return refused
        script = self.script
        async with request.form() as form:
            fields = {name: form[name] for name in form if name != "file"}
            fields["bytes"] = len(await form["file"].read())
        script.forms.append(fields)
        if script.refuses:
            status, message, param, headers = script.refuses.pop(0)
            error = {"message": message, "param": param}
            return JSONResponse({"error": error}, status, headers)
        words = [word for utterance in script.utterances for word in utterance]
        text = " ".join(word["word"] for word in words)
        return JSONResponse(
            {
                "text": text,
                "language": "en",
                "duration": 5.0,
                "words": words,
                "segments": [],
                "nbest": script.hypotheses,
                "warnings": script.warnings(json.loads(fields.get("boosts", "{}"))),
            }
        )

    async def listen(self, websocket):
        script = self.script
        protocols = websocket.scope["subprotocols"]
        if script.key is not None and protocols != ["token", script.key]:
            await websocket.close()
            return
        await websocket.accept("token" if script.key else None)
        stream = Streamed(dict(websocket.query_params))
        first = not script.streams
        script.streams.append(stream)
        code = script.closes.pop(0) if script.closes else None
        results = _Said(script, script.utterances if first else script.later)
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if data := message.get("bytes"):
                stream.audio += data
            elif await self._told(websocket, json.loads(message["text"])):
                for result in results.until(stream.seconds, ended=True):
                    await websocket.send_json(result)
                await websocket.close(1000)
                return
            for result in results.until(min(stream.seconds, script.held_s)):
                await websocket.send_json(result)
            if code and stream.seconds >= script.close_s:
                if code == 1006:
                    cut(websocket)
                else:
                    await websocket.close(code, "as scripted")
                return

    async def _told(self, websocket, message):
        script = self.script
        if message["type"] == "Configure":
            script.configured.append(message)
            words = [*message["keyterms"], *message["boosts"]]
            await websocket.send_json(
                {
                    "type": "ConfigureSuccess",
                    "effective": "now",
                    "warnings": script.warnings(words),
                }
            )
        return message["type"] == "CloseStream"


def cut(websocket):
    """Drop the connection below a WebSocket, without a close."""
    send = websocket._send
    while not hasattr(send, "__self__"):
        inner = [cell.cell_contents for cell in send.__closure__]
        send = next(one for one in inner if callable(one) and one is not send)
    send.__self__.transport.abort()


class _Said:
    def __init__(self, script, utterances):
        self.script = script
        self.utterances = script.utterances if utterances is None else utterances
        self.at = self.taken = 0
        self.final_s = 0.0
        self.shown = None

    def until(self, audio_s, ended=False):
        while self.at < len(self.utterances):
            words = self.utterances[self.at]
            words_so_far = [word for word in words if word["end"] <= audio_s]
            new = words_so_far[self.taken :]
            end_s = words[-1]["end"] + 0.5
            if audio_s >= end_s or ended:
                yield self.result(new, min(audio_s, end_s), True, True)
                self.at, self.taken, self.shown = self.at + 1, 0, None
                continue
            if len(new) >= 2:
                yield self.result(new[:1], new[0]["end"], True)
                self.taken += 1
            elif new and words_so_far != self.shown:
                self.shown = words_so_far
                yield self.result(new, audio_s, False)
            return

    def result(self, words, end_s, is_final, speech_final=False):
        text = " ".join(word["word"] for word in words)
        alternatives = [{"transcript": text, "confidence": 0.9, "words": words}]
        if speech_final:
            alternatives[0]["cost"] = 12.0
            more = [*words, {"word": OTHER, "start": end_s, "end": end_s}]
            other = {"transcript": f"{text} {OTHER}", "confidence": 0.0, "words": more}
            alternatives.append(other | {"cost": 13.5})
        start_s, duration = self.final_s, end_s - self.final_s
        if is_final:
            self.final_s = end_s
        return {
            "type": "Results",
            "channel_index": [0, 1],
            "start": start_s,
            "duration": duration,
            "is_final": is_final,
            "speech_final": speech_final,
            "latency_ms": 12.0,
            "channel": {"alternatives": alternatives},
        }
