"""`WS /v1/listen`: an unmodified client, many streams to the bit, and rude clients."""

import asyncio
import contextlib
import io
import json
import threading
import time
import wave

import numpy as np
import pytest
import websockets
from row_streams import SHIFT_S, bytes_of, random_cuts
from served import serving, wait_until
from websockets.asyncio.client import connect

from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

QUERY = "encoding=linear16&sample_rate=16000"
LIMITS = Limits(streams=64, idle_s=1.5, unread_s=1.5, message_bytes=1 << 16)


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service.of(encoder, decoder, LIMITS, name="rows", nbest=2)
    with serving(service) as server:
        yield server
        wait_until(lambda: not len(service.engine))


@pytest.fixture(scope="module")
def sure_server(encoder, decoder):
    """A server whose words have confidences."""
    with serving(Service.of(encoder, decoder, LIMITS, confidence=True)) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """After each test all streams are over."""
    yield
    wait_until(lambda: not len(server.service.engine))


async def listen(server, rows, rng, query="", say=()):
    """Send rows in messages of any size; all messages that come, and the close code."""
    found = []

    async def read():
        async for text in socket:
            found.append(json.loads(text))

    async with connect(f"{server.ws}/v1/listen?{QUERY}{query}") as socket:
        reader = asyncio.create_task(read())
        data, first = bytes_of(rows), 0
        for size in random_cuts(rng, len(data), max(12, len(data) // 30_000)):
            for start in range(first, first + size, 1 << 16):
                part = data[start : min(start + (1 << 16), first + size)]
                await socket.send(part)
            first += size
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0.01]))
        for message in (*say, {"type": "CloseStream"}):
            await socket.send(json.dumps(message))
        await asyncio.wait_for(reader, 60)
    return found, socket.close_code


def results(messages, **fields):
    found = [one for one in messages if one["type"] == "Results"]
    return [x for x in found if all(x.get(key) == v for key, v in fields.items())]


def seconds(frame):
    """Round seconds as times of words are written: to the microsecond."""
    return round(frame * SHIFT_S, 6)


def words_of(result):
    return result["channel"]["alternatives"][0]["words"]


def check_to_the_bit(messages, rows, decoder):
    """Compare words, times and costs of lists with `decode_nbest` between endpoints."""
    first, begun, end_s, num = 0, [], 0.0, 0
    for result in results(messages, is_final=True):
        assert result["start"] == end_s
        end_s = result["start"] + result["duration"]
        begun += words_of(result)
        if not result["speech_final"]:
            continue
        end = round(end_s / SHIFT_S)
        expected = decoder.decode_nbest([rows[first:end]])[0] if end > first else []
        if expected:
            assert [(w["word"], w["start"], w["end"]) for w in begun] == [
                (w.text, seconds(w.start_frame + first), seconds(w.end_frame + first))
                for w in expected[0].words
            ]
            costs = [one["cost"] for one in result["channel"]["alternatives"]]
            assert costs == [one.total_cost for one in expected]
        num, first, begun = num + len(begun), end, []
    assert first == len(rows) and not begun
    return num


def test_many_streams_give_what_decode_gives(server, decoder, speech):
    """12 streams of half a minute; beside them others die, stop reading, or crawl."""
    streams = [speech(30, seed) for seed in range(12)]

    async def die(seed):
        rng = np.random.default_rng(seed)
        socket = await connect(f"{server.ws}/v1/listen?{QUERY}&interim_results=true")
        for _ in range(rng.integers(1, 30)):
            await socket.send(rng.bytes(rng.integers(1, 1 << 15)))
        socket.transport.abort()

    async def run():
        good = [
            listen(
                *(server, rows, np.random.default_rng(i)),
                query="&interim_results=true" if i % 2 else "",
            )
            for i, rows in enumerate(streams)
        ]
        found = await asyncio.gather(*good, *(die(seed) for seed in range(8)))
        return found[: len(good)]

    lister = decoder.with_options(nbest=2)
    num_words = 0
    for rows, (messages, code) in zip(streams, asyncio.run(run()), strict=True):
        assert code == 1000
        assert messages[-1]["type"] == "Metadata"
        assert messages[-1]["duration"] == pytest.approx(30)
        num_words += check_to_the_bit(messages, rows, lister)
        for result in results(messages, is_final=False):
            assert result["duration"] >= 0
    assert num_words > 350


def test_confidences_are_those_of_the_lattice(sure_server, decoder, speech):
    from wfstdec.batch.lattices import LatticeReading

    rows = speech(20, 4)
    messages, _ = asyncio.run(listen(sure_server, rows, np.random.default_rng(0)))
    first, found, expected = 0, [], []
    reading = LatticeReading(nbest=1, confidence=True)
    for result in results(messages, is_final=True):
        found += [w["confidence"] for w in words_of(result) if w["confidence"]]
        if result["speech_final"]:
            end = round((result["start"] + result["duration"]) / SHIFT_S)
            [lattice] = decoder.decode_lattice([rows[first:end]])
            # Words that were settled before have none yet.
            sent = len(words_of(result))
            words = reading("", lattice)[0].words
            expected += [w.confidence for w in words[len(words) - sent :]]
            first = end
    assert found == expected and len(found) > 3 and max(found) <= 1


def test_deepgrams_own_client(server, speech):
    """The SDK as it is installed: interims, finals, all of its messages."""
    deepgram = pytest.importorskip("deepgram")
    from deepgram.environment import DeepgramClientEnvironment
    from deepgram.listen.v1.types import ListenV1Metadata, ListenV1Results

    place = DeepgramClientEnvironment(
        base=server.url, production=server.ws, agent=server.ws, agent_rest=server.url
    )
    client = deepgram.DeepgramClient(api_key="anything", environment=place)
    rows, found = speech(10, 2), []
    with client.listen.v1.connect(
        model="nova-3",
        encoding="linear16",
        sample_rate=16000,
        interim_results="true",
        smart_format="true",
        keyterm=["bartley", "new york"],
    ) as socket:
        thread = threading.Thread(target=lambda: found.extend(socket))
        thread.start()
        for first in range(0, 250, 50):
            socket.send_media(bytes_of(rows[first : first + 50]))
        socket.send_keep_alive()
        socket.send_finalize()
        for first in range(250, len(rows), 50):
            socket.send_media(bytes_of(rows[first : first + 50]))
        socket.send_close_stream()
        thread.join(30)
        assert not thread.is_alive()
    said = [one for one in found if isinstance(one, ListenV1Results)]
    assert len(said) > 3 and any(one.is_final is False for one in said)
    assert sum(bool(one.from_finalize) for one in said) == 1
    first = next(one for one in said if one.from_finalize)
    assert first.start + first.duration == pytest.approx(5.0)
    text = " ".join(
        one.channel.alternatives[0].transcript for one in said if one.is_final
    )
    assert len(text.split()) > 10
    assert isinstance(found[-1], ListenV1Metadata)
    assert found[-1].duration == pytest.approx(10)


def test_a_file_says_itself_what_it_is(server, decoder, speech):
    """WAV in messages of any size, without an encoding in the query."""
    rows, data = speech(6, 9), io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes_of(rows))

    async def run():
        async with connect(f"{server.ws}/v1/listen") as socket:
            whole = data.getvalue()
            for first in range(0, len(whole), 1777):
                await socket.send(whole[first : first + 1777])
            await socket.send('{"type": "CloseStream"}')
            return [json.loads(text) async for text in socket]

    assert check_to_the_bit(asyncio.run(run()), rows, decoder.with_options(nbest=2)) > 5


def test_boosts_are_changed_under_way(server, speech):
    async def run():
        query = f"{QUERY}&keywords=bartley:4&vad_events=true&tag=mine"
        async with connect(f"{server.ws}/v1/listen?{query}") as socket:
            for message in (
                {"type": "Configure", "keyterms": ["new york", "zzyzx"]},
                {"type": "Configure", "boosts": {"i": "many"}},
                {"type": "Configure", "keyterms": []},
                {"type": "KeepAlive"},
            ):
                await socket.send(json.dumps(message))
            for part in np.array_split(speech(3, 1), 3):
                await socket.send(bytes_of(part))
            await socket.send('{"type": "Finalize"}')
            await socket.send('{"type": "Finalize"}')
            await socket.send('{"type": "CloseStream"}')
            return [json.loads(text) async for text in socket]

    found = asyncio.run(run())
    kinds = [one["type"] for one in found]
    assert kinds.count("ConfigureSuccess") == 2 and kinds.count("ConfigureFailure") == 1
    success = found[kinds.index("ConfigureSuccess")]
    assert (
        success["keyterms"] == ["new york", "zzyzx"] and success["effective"] == "now"
    )
    assert any("zzyzx" in warning for warning in success["warnings"])
    assert "many" in found[kinds.index("ConfigureFailure")]["description"]
    assert "SpeechStarted" in kinds
    assert found[0]["type"] == "Metadata" and found[0]["ignored"] == ["tag"]
    answers = results(found, from_finalize=True)
    assert len(answers) == 2 and words_of(answers[0]) and not words_of(answers[1])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("encoding=opus", "encoding"),
        ("encoding=linear16&sample_rate=fast", "sample_rate"),
        ("encoding=linear16&sample_rate=1", "sample_rate"),
        ("encoding=linear16&channels=99", "channels"),
        ("encoding=linear16&endpointing=-3", "endpointing"),
        (
            "encoding=linear16&utterance_end_ms=10&interim_results=true",
            "utterance_end_ms",
        ),
        ("encoding=linear16&keywords=bartley:lots", "bartley"),
        ("encoding=linear16&interim_results=maybe", "interim_results"),
    ],
)
def test_wrong_queries_are_refused_in_words(server, query, expected):
    async def run():
        async with connect(f"{server.ws}/v1/listen?{query}"):
            pass

    with pytest.raises(websockets.InvalidStatus) as refused:
        asyncio.run(run())
    assert refused.value.response.status_code == 400
    said = json.loads(refused.value.response.body)["error"]
    assert expected in said["message"] and "expected" in said["message"]


def test_500_keyterms_in_the_address(server, speech):
    terms = "".join(f"&keyterm=word{i}%20and%20more" for i in range(500))
    messages, code = asyncio.run(
        listen(server, speech(1, 1), np.random.default_rng(0), query=terms)
    )
    assert code == 1000 and results(messages, is_final=True)


def test_the_full_house_is_closed_before_the_handshake(encoder, decoder):
    service = Service.of(encoder, decoder, Limits(streams=1))

    async def run():
        async with connect(f"{server.ws}/v1/listen?{QUERY}"):
            async with connect(f"{server.ws}/v1/listen?{QUERY}"):
                pass

    with serving(service) as server, pytest.raises(websockets.InvalidStatus) as refused:
        asyncio.run(run())
    assert refused.value.response.status_code == 503
    assert "Retry-After" in refused.value.response.headers


def test_rude_clients_are_told_why(server):
    """No message for too long: 1011; a message too large: 1009; random ones: Errors."""

    async def silent():
        async with connect(f"{server.ws}/v1/listen?{QUERY}") as socket:
            with contextlib.suppress(websockets.ConnectionClosed):
                async for _ in socket:
                    pass
        return socket.close_code, socket.close_reason

    async def large():
        async with connect(f"{server.ws}/v1/listen?{QUERY}") as socket:
            with contextlib.suppress(websockets.ConnectionClosed):
                await socket.send(bytes(25 << 20))
            with contextlib.suppress(websockets.ConnectionClosed):
                async for _ in socket:
                    pass
        return socket.close_code, socket.close_reason

    async def babbling():
        rng, wrong = np.random.default_rng(1), 0
        async with connect(f"{server.ws}/v1/listen?{QUERY}") as socket:
            for text in (
                "",
                "{",
                "[1]",
                "nil",
                '{"type": []}',
                '{"type": "Configure", "keyterms": 3}',
                "ä" * 999,
                "[" * 3000,
            ):
                await socket.send(text)
                await socket.send(rng.bytes(rng.integers(0, 999)))
            await socket.send('{"type": "CloseStream"}')
            async for text in socket:
                wrong += json.loads(text)["type"] in ("Error", "ConfigureFailure")
        return socket.close_code, wrong

    async def run():
        return await asyncio.gather(silent(), large(), babbling())

    (idle, why), (too_large, _), (done, wrong) = asyncio.run(run())
    assert idle == 1011 and "--max-idle-s" in why
    assert too_large == 1009
    assert done == 1000 and wrong >= 6


def test_who_does_not_read_costs_nobody(server, decoder, speech):
    """Beside one that never reads a good client is exact; its end: test_listen_rude."""
    rows = speech(20, 3)

    async def deaf():
        url = f"{server.ws}/v1/listen?{QUERY}&interim_results=true"
        async with connect(url, max_queue=1, close_timeout=1) as socket:
            socket.transport.pause_reading()
            data = bytes_of(speech(1, 5))
            with contextlib.suppress(
                websockets.ConnectionClosed, TimeoutError, OSError
            ):
                async with asyncio.timeout(12):
                    while True:
                        await socket.send(data)
            socket.transport.abort()

    async def run():
        task = asyncio.create_task(deaf())
        found = await listen(server, rows, np.random.default_rng(0))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    messages, _ = asyncio.run(run())
    assert check_to_the_bit(messages, rows, decoder.with_options(nbest=2))


def test_audio_that_is_none_closes_with_1008(server):
    async def run():
        async with connect(f"{server.ws}/v1/listen") as socket:
            await socket.send(b"no audio, whatever it says" * 50)
            await socket.send('{"type": "CloseStream"}')
            messages = []
            with contextlib.suppress(websockets.ConnectionClosed):
                async for text in socket:
                    messages.append(json.loads(text))
        return messages, socket.close_code, socket.close_reason

    messages, code, reason = asyncio.run(run())
    assert code == 1008 and "expected" in (reason + json.dumps(messages))


def test_leaving_at_any_moment_leaves_nothing(server, speech):
    data = bytes_of(speech(4, 1))

    async def leave(i):
        socket = await connect(f"{server.ws}/v1/listen?{QUERY}&keyterm=bartley")
        if i % 3:
            await socket.send(data[: i * 1000])
        if i % 2:
            await socket.send('{"type": "Finalize"}')
        await asyncio.sleep(i * 0.002)
        if i % 5 == 0:
            await socket.close()
        else:
            socket.transport.abort()

    async def run():
        await asyncio.gather(*(leave(i) for i in range(40)))

    began = time.monotonic()
    asyncio.run(run())
    wait_until(lambda: not len(server.service.engine))
    assert time.monotonic() - began < 20
    assert not len(server.service.engine._means.sessions)
