"""`WS /v1/realtime`: words as of other protocols, items, errors, OpenAI's client."""

import asyncio
import base64
import contextlib
import json
import threading

import numpy as np
import pytest
import websockets
from real_speech import utterances
from row_streams import bytes_of
from served import LINEAR16, listened, serving, wait_until
from websockets.asyncio.client import connect

from tools.bench.row_encoder import StreamingRowEncoder, rounded_rows
from wfstdec import Formatter
from wfstdec.readable import load_itn, load_punctuation
from wfstdec.server.limits import Limits
from wfstdec.server.readable import Readable
from wfstdec.server.service import Service

openai = pytest.importorskip("openai")
pytest.importorskip("openai.types.realtime")

from openai.types.realtime.realtime_server_event import (  # noqa: E402
    RealtimeServerEvent,
)
from pydantic import TypeAdapter  # noqa: E402

EVENTS = TypeAdapter(RealtimeServerEvent)
LIMITS = Limits(
    streams=3, idle_s=1.5, silent_s=1.5, unread_s=2, message_bytes=1 << 17, boosts=50
)
PCM16 = {"type": "audio/pcm", "rate": 16000}
"""Ours: other rates than 24 kHz, which carry rows."""
TEXT = "conversation.item.input_audio_transcription."


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service(encoder, decoder, LIMITS, name="rows", key="secret")
    with serving(service) as server:
        yield server


@pytest.fixture(scope="module")
def open_server(encoder, decoder):
    with serving(Service(encoder, decoder, LIMITS, name="rows")) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_left(open_server):
    """After each test all streams are over, and their sessions."""
    yield
    engine = open_server.service.engine
    wait_until(lambda: not len(engine) and not len(engine._resources.sessions))


@pytest.fixture(scope="module")
def spoken():
    """Rows of whole utterances with a second's pause behind each."""
    parts = [rounded_rows(one) for one in utterances(9)]
    pause = np.full((60, parts[0].shape[1]), -24, np.float32)
    pause[:, 0] = 0
    return [np.concatenate([one, pause]) for one in parts]


class Client:
    """A client that checks each event by OpenAI's types, strictly."""

    def __init__(self, socket):
        self.socket, self.events = socket, []

    async def send(self, kind, **fields):
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def update(self, **audio):
        session = {"type": "transcription", "audio": {"input": audio}}
        await self.send("session.update", session=session)
        return await self.until("session.updated", "error")

    async def append(self, data):
        for first in range(0, len(data), 40_000):
            text = base64.b64encode(data[first : first + 40_000]).decode()
            await self.send("input_audio_buffer.append", audio=text)

    async def until(self, *kinds):
        while True:
            text = await asyncio.wait_for(self.socket.recv(), 30)
            event = json.loads(text)
            EVENTS.validate_json(text.replace('"rate": 16000', '"rate": 24000'))
            assert event["event_id"] not in {one["event_id"] for one in self.events}
            self.events.append(event)
            if event["type"] in kinds:
                return event

    def of(self, kind):
        return [one for one in self.events if one["type"] == kind]

    def kinds(self):
        return [one["type"] for one in self.events]

    def transcripts(self):
        """The text of each item, which is its deltas."""
        done = self.of(f"{TEXT}completed")
        for one in done:
            deltas = [
                d for d in self.of(f"{TEXT}delta") if d["item_id"] == one["item_id"]
            ]
            assert "".join(d["delta"] for d in deltas) == one["transcript"]
            assert one["usage"]["type"] == "duration"
        return [one["transcript"] for one in done]


def talk(server, *steps, query="?intent=transcription", **options):
    """Connect, and await steps of the client; the client, with all events."""
    headers = {"Authorization": "Bearer secret"}
    headers = options.pop("additional_headers", headers)

    async def run():
        url = f"{server.ws}/v1/realtime{query}"
        async with connect(url, additional_headers=headers, **options) as socket:
            client = Client(socket)
            await client.until("session.created")
            for step in steps:
                await step(client)
            return client

    return asyncio.run(run())


def rest(client):
    """Take what comes until the close."""

    async def run():
        with contextlib.suppress(websockets.ConnectionClosed):
            await client.until("none")

    return run()


def deepgram_texts(server, data, query):
    parts = [data[i : i + 40_000] for i in range(0, len(data), 40_000)]
    url = f"{LINEAR16}&{query}"
    finals, text = [], []
    for one in listened(server, *parts, query=url)[0]:
        if one["type"] == "Results" and one["is_final"]:
            text += one["channel"]["alternatives"][0]["transcript"].split()
            if one["speech_final"]:
                finals, text = [*finals, " ".join(text)], []
    return [one for one in finals if one]


def test_pauses_end_items_with_the_words_of_deepgrams_stream(open_server, spoken):
    data = b"".join(map(bytes_of, spoken))
    expected = deepgram_texts(open_server, data, "endpointing=700")

    async def run(client):
        turns = {"type": "server_vad", "silence_duration_ms": 700}
        await client.update(format=PCM16, turn_detection=turns)
        await client.append(data)
        for _ in expected:
            await client.until(f"{TEXT}completed")

    client = talk(open_server, run)
    assert client.transcripts() == expected and len(expected) >= len(spoken)
    items = [one["item_id"] for one in client.of("input_audio_buffer.committed")]
    previous = [
        one["previous_item_id"] for one in client.of("input_audio_buffer.committed")
    ]
    assert previous == [None, *items[:-1]] and len({*items}) == len(items)
    starts = client.of("input_audio_buffer.speech_started")
    stops = client.of("input_audio_buffer.speech_stopped")
    assert [one["item_id"] for one in starts] == items
    assert [one["item_id"] for one in stops] == items
    end = 0
    for start, stop in zip(starts, stops, strict=True):
        assert end <= start["audio_start_ms"] < stop["audio_end_ms"]
        end = stop["audio_end_ms"]
    of_item = [
        one["type"]
        for one in client.events
        if items[0] in (one.get("item_id"), one.get("item", {}).get("id"))
    ]
    assert [kind for kind in of_item if not kind.endswith("delta")] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        f"{TEXT}completed",
    ]


def test_only_commits_end_items_without_turn_detection(open_server, decoder, spoken):
    """Long ones too: the engine ends utterances after 20 s."""
    first = np.concatenate([*spoken, *spoken])
    assert len(first) > 1100  # 22 s

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes_of(first))
        await client.send("input_audio_buffer.commit")
        await client.append(bytes_of(spoken[1]))
        await client.send("input_audio_buffer.commit")
        await client.until(f"{TEXT}completed")
        await client.until(f"{TEXT}completed")

    client = talk(open_server, run)
    whole = " ".join(deepgram_texts(open_server, bytes_of(first), "endpointing=false"))
    [hypothesis] = decoder.decode([spoken[1]])
    assert client.transcripts() == [whole, hypothesis.text]
    assert "input_audio_buffer.speech_started" not in client.kinds()
    seconds = [one["usage"]["seconds"] for one in client.of(f"{TEXT}completed")]
    assert seconds == [pytest.approx(len(x) * 0.02) for x in (first, spoken[1])]
    assert len(client.of(f"{TEXT}delta")) > 3


def test_words_at_24_khz_and_of_telephones(open_server):
    """Noise: what matters is that bytes are decoded as Deepgram's are."""
    noise = np.random.default_rng(0).normal(0, 40, 48_000).astype("<i2").tobytes()
    for form, query in (
        ({"type": "audio/pcm", "rate": 24000}, "encoding=linear16&sample_rate=24000"),
        ({"type": "audio/pcmu"}, "encoding=mulaw&sample_rate=8000"),
        ({"type": "audio/pcma"}, "encoding=alaw&sample_rate=8000"),
    ):

        async def run(client, form=form):
            updated = await client.update(format=form, turn_detection=None)
            assert updated["session"]["audio"]["input"]["format"] == form
            await client.append(noise)
            await client.send("input_audio_buffer.commit")
            await client.until(f"{TEXT}completed")

        messages, _ = listened(open_server, noise, query=f"{query}&endpointing=false")
        expected = [
            one["channel"]["alternatives"][0]["transcript"]
            for one in messages
            if one["type"] == "Results" and one["is_final"]
        ]
        client = talk(open_server, run)
        assert client.transcripts() == [" ".join(filter(None, expected))]
        [done] = client.of(f"{TEXT}completed")
        assert done["usage"]["seconds"] == pytest.approx(messages[-1]["duration"])


def test_openais_client(server, spoken):
    from openai.types.realtime import SessionUpdatedEvent

    async def run():
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret")
        found = []
        how = {"extra_query": {"intent": "transcription"}}
        async with client.realtime.connect(**how) as connection:
            await connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": PCM16,
                            "transcription": {"model": "gpt-4o-transcribe"},
                            "turn_detection": None,
                        }
                    },
                    "include": ["item.input_audio_transcription.logprobs"],
                }
            )
            data = bytes_of(spoken[0])
            for first in range(0, len(data), 16_000):
                audio = base64.b64encode(data[first : first + 16_000]).decode()
                await connection.input_audio_buffer.append(audio=audio)
            await connection.input_audio_buffer.commit()
            async for event in connection:
                found.append(event)
                if event.type == f"{TEXT}completed":
                    return found

    found = asyncio.run(asyncio.wait_for(run(), 60))
    assert found[0].type == "session.created" and found[0].session.id
    assert isinstance(found[1], SessionUpdatedEvent)
    assert found[1].session.warnings == ["the field 'include' has no effect"]
    text = "".join(one.delta for one in found if one.type == f"{TEXT}delta")
    assert found[-1].transcript == text and len(text.split()) > 3


def test_words_to_expect_change_a_word(open_server, decoder, spoken):
    [plain] = decoder.decode([spoken[0]])
    [boosted] = decoder.decode([spoken[0]], boosts=["yet"])
    assert boosted.text != plain.text
    texts = {"keywords": ["Yet"], "prompt": "Names: Zzyzx, Qwert"}

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        updated = await client.update(transcription=texts)
        message, *_ = updated["session"]["warnings"]
        assert message == "2 boosts of the prompt: 'Zzyzx', 'Qwert'"
        assert "'Qwert' (fits no word)" in " ".join(updated["session"]["warnings"])
        await client.append(bytes_of(spoken[0]))
        await client.send("input_audio_buffer.commit")
        await client.until(f"{TEXT}completed")
        await client.update(transcription={"keywords": [], "prompt": None})
        await client.append(bytes_of(spoken[0]))
        await client.send("input_audio_buffer.commit")
        await client.until(f"{TEXT}completed")

    client = talk(open_server, run)
    assert client.transcripts() == [boosted.text, plain.text]


def test_cleared_audio_has_no_text(open_server, decoder, spoken):
    texts = deepgram_texts(open_server, bytes_of(spoken[1]), "")

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes_of(spoken[0]))
        await client.send("input_audio_buffer.commit")
        await client.append(bytes_of(spoken[1]))
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        await client.send("input_audio_buffer.commit", event_id="mine")
        error = (await client.until("error"))["error"]
        assert error["code"] == "input_audio_buffer_commit_empty"
        assert error["event_id"] == "mine"
        updated = await client.update(turn_detection={"type": "semantic_vad"})
        assert updated["type"] == "session.updated"  # no stream is under way
        await client.append(bytes_of(spoken[1]))
        for _ in texts:
            await client.until(f"{TEXT}completed")

    client = talk(open_server, run)
    assert client.transcripts() == [decoder.decode([spoken[0]])[0].text, *texts]
    start = client.of("input_audio_buffer.speech_started")[0]
    assert start["audio_start_ms"] > 20 * (len(spoken[0]) + len(spoken[1]))


def test_a_full_server_refuses_at_the_handshake(open_server):
    async def hold(client):
        await client.append(bytes(640))
        wait_until(lambda: len(open_server.service.engine) == 1)
        # The place of a stream that was cleared is free at once.
        for _ in range(5):
            await client.send("input_audio_buffer.clear")
            await client.until("input_audio_buffer.cleared")
            await client.append(bytes(640))
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(LIMITS.streams - 1):
                url = f"{open_server.ws}/v1/listen?{LINEAR16}"
                await stack.enter_async_context(connect(url))
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with connect(f"{open_server.ws}/v1/realtime"):
                    pass
            assert refused.value.response.status_code == 503
            assert "Retry-After" in refused.value.response.headers

    talk(open_server, hold)


INPUT = "session.audio.input"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("{", None),
        ("[1]", None),
        (b"bytes", None),
        ("[" * 50_000, None),
        ({"type": "response.create"}, "type"),
        ({"type": ["a"]}, "type"),
        ({}, "type"),
        ({"type": "input_audio_buffer.append"}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": 3}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": "a"}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": "\ud800äöü="}, "audio"),
        ({"type": "input_audio_buffer.append", "audio": "-" * 80_000}, "audio"),
        ({"type": "input_audio_buffer.commit"}, None),
        ({"type": "session.update"}, "session"),
        ({"session": {}}, "session.type"),
        ({"session": {"type": "realtime"}}, "session.type"),
        ({"session": {"type": "transcription", "audio": []}}, "session.audio"),
        ({"input": {"format": {"type": "audio/mp3"}}}, f"{INPUT}.format.type"),
        ({"input": {"format": {"rate": 24000.5}}}, f"{INPUT}.format.rate"),
        ({"input": {"format": {"rate": True}}}, f"{INPUT}.format.rate"),
        ({"input": {"transcription": None}}, f"{INPUT}.transcription"),
        ({"input": {"transcription": {"prompt": {}}}}, f"{INPUT}.transcription.prompt"),
        (
            {"input": {"transcription": {"keywords": [1]}}},
            f"{INPUT}.transcription.keywords",
        ),
        ({"input": {"transcription": {"keywords": [" "]}}}, "session"),
        ({"input": {"transcription": {"keywords": ["x" * 99]}}}, "session"),
        ({"input": {"turn_detection": {"type": {}}}}, f"{INPUT}.turn_detection.type"),
        (
            {"input": {"turn_detection": {"silence_duration_ms": 0}}},
            f"{INPUT}.turn_detection.silence_duration_ms",
        ),
    ],
)
def test_errors_are_events_and_the_socket_stays_open(open_server, message, param):
    async def run(client):
        sent = message
        if isinstance(message, dict):
            sent = dict(message)
            if "input" in sent:
                audio = {"input": sent.pop("input")}
                sent["session"] = {"type": "transcription", "audio": audio}
            if "session" in sent:
                sent["type"] = "session.update"
            sent = json.dumps({**sent, "event_id": "mine"})
        await client.socket.send(sent)
        error = (await client.until("error"))["error"]
        assert error["type"] == "invalid_request_error"
        assert "expected" in error["message"] and len(error["message"]) < 600
        assert error["param"] == param
        assert error["event_id"] == ("mine" if isinstance(message, dict) else None)
        updated = await client.update(format=PCM16)  # nothing is changed but this
        before = client.events[0]["session"]["audio"]["input"]
        assert updated["session"]["audio"]["input"] == {**before, "format": PCM16}

    talk(open_server, run)


def test_fields_without_effect_are_named(open_server):
    async def run(client):
        found = await client.update(
            noise_reduction={"type": "near_field"},
            transcription={"delay": "low", "model": "m", "language": "de"},
            turn_detection={"type": "server_vad", "threshold": 0.5, "silence": None},
        )
        warnings = found["session"]["warnings"]
        named = "noise_reduction", "transcription.delay", "turn_detection.threshold"
        for name in named:
            assert any(f"'audio.input.{name}'" in text for text in warnings)
        assert any("'de'" in text and "'en'" in text for text in warnings)
        assert len(warnings) == 4

    talk(open_server, run, query="?model=gpt-realtime")


def test_format_and_turns_are_kept_while_a_stream_is_under_way(open_server):
    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes(6400))
        for change in ({"format": {"type": "audio/pcmu"}}, {"turn_detection": {}}):
            found = await client.update(**change)
            assert found["error"]["code"] == "session_in_use"
        again = await client.update(format=PCM16, turn_detection=None)
        assert again["type"] == "session.updated"

    talk(open_server, run)


def test_keys_come_by_subprotocol(server):
    offered = ["realtime", "openai-insecure-api-key.secret", "openai-beta.realtime-v1"]

    async def accepted(client):
        assert client.socket.subprotocol == "realtime"

    talk(server, accepted, additional_headers={}, subprotocols=offered)
    for wrong in (["realtime"], ["realtime", "openai-insecure-api-key.other"]):
        with pytest.raises(websockets.InvalidStatus) as refused:
            talk(server, additional_headers={}, subprotocols=wrong)
        assert refused.value.response.status_code == 401


def test_limits(open_server):
    """Silent clients, with a stream or none, and messages that are too large."""

    async def large(client):
        await client.send("input_audio_buffer.append", audio="A" * (1 << 18))

    async def begun(client):
        await client.append(bytes(640))

    for steps, code in (((rest,), 1011), ((begun, rest), 1011), ((large, rest), 1009)):
        client = talk(open_server, *steps)
        assert client.socket.close_code == code
        expected = "silent" if code == 1011 else "message"
        assert f"--max-{expected}" in client.socket.close_reason or code == 1009


class FailingEncoder(StreamingRowEncoder):
    """Fails at rows that are all zero, when it may."""

    may_fail = threading.Event()

    def step(self, states, chunks, last):
        if any(len(one) and not one.any() for one in chunks):
            assert self.may_fail.wait(30)
            raise RuntimeError("secret")
        return super().step(states, chunks, last)


def test_a_failing_model_fails_the_item_and_closes(encoder, decoder, spoken):
    service = Service(FailingEncoder(encoder.spec.tokens), decoder, LIMITS)

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes_of(spoken[0]))
        await client.send("input_audio_buffer.commit")
        await client.until(f"{TEXT}completed")
        await client.append(bytes(64_000))
        await client.send("input_audio_buffer.commit")
        await client.until("conversation.item.added")
        FailingEncoder.may_fail.set()
        await rest(client)

    with serving(service) as server:
        client = talk(server, run)
    assert client.socket.close_code == 1011
    [failed] = client.of(f"{TEXT}failed")
    assert failed["item_id"] == client.of("input_audio_buffer.committed")[-1]["item_id"]
    assert client.kinds()[-1] == "error" and "secret" not in json.dumps(client.events)


def test_a_draining_server_completes_the_item(encoder, decoder, spoken):
    service = Service(encoder, decoder, LIMITS)

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes_of(spoken[0]))
        wait_until(lambda: len(service.engine) == 1)
        [stream] = service.engine._streams
        while stream.audio_s < len(spoken[0]) * 0.02 - 0.001:
            await asyncio.sleep(0.01)
        service.engine.drain()
        await rest(client)

    with serving(service) as server:
        client = talk(server, run)
    assert client.socket.close_code == 1001
    assert client.transcripts() == [decoder.decode([spoken[0]])[0].text]


def test_cleared_words_are_in_no_readable_text(encoder, decoder, spoken):
    readable = Readable(load_itn(), load_punctuation(), smart=True)
    service = Service(encoder, decoder, LIMITS, readable=readable)
    expected = Formatter("en", "en").stream()

    async def run(client):
        await client.update(format=PCM16, turn_detection=None)
        await client.append(bytes_of(np.concatenate([spoken[0], spoken[0], spoken[0]])))
        await client.until(f"{TEXT}delta")
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        await client.append(bytes_of(spoken[1]))
        await client.send("input_audio_buffer.commit")
        await client.until(f"{TEXT}completed")

    with serving(service) as server:
        client = talk(server, run)
    words = decoder.decode([spoken[1]])[0].words
    assert client.transcripts() == [expected.end(words).text]
