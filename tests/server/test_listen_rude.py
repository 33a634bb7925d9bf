"""`WS /v1/listen` with clients that mean ill, or know no better: each alone pays."""

import asyncio
import contextlib
import json
import socket
import struct
import time

import numpy as np
import pytest
import websockets
from row_streams import bytes_of
from served import LINEAR16, answers, listened, say, serving, wait_until
from websockets.asyncio.client import connect

from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

LIMITS = Limits(
    streams=64, idle_s=1.0, unread_s=1.0, buffered_s=3.0, message_bytes=1 << 16
)


@pytest.fixture(scope="module")
def server(encoder, decoder):
    service = Service(encoder, decoder, LIMITS, name="rows")
    with serving(service) as server:
        [listening] = server.server.servers[0].sockets
        # Clients get it from there: what is not read fills it in a moment.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        yield server


@pytest.fixture(autouse=True)
def nothing_is_left(server):
    """After each test no stream is left, no session, no connection."""
    yield
    wait_until(lambda: not len(server.service.engine))
    wait_until(lambda: not server.server.server_state.connections)
    wait_until(lambda: not len(server.service.engine._resources.sessions))


def failures(server, kind):
    sample = server.service.metrics.registry.get_sample_value
    return sample("wfstdec_errors_total", {"kind": kind}) or 0


def raw_client(server, receive_bytes=None):
    raw = socket.socket()
    if receive_bytes is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    raw.settimeout(10)
    raw.connect(("127.0.0.1", server.port))
    raw.sendall(
        f"GET /v1/listen?{LINEAR16} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += raw.recv(1)
    assert b" 101 " in head
    return raw


def frame(payload, opcode=1):
    size = len(payload)
    length = struct.pack(">B", 128 | size) if size < 126 else b"\xfe"
    length += b"" if size < 126 else struct.pack(">H", size)
    return bytes([128 | opcode]) + length + bytes(4) + payload


@pytest.fixture
def deaf(server):
    """A client that reads nothing, and a function that sends until it is given up."""
    raw, before = raw_client(server, receive_bytes=4096), failures(server, "unread")
    raw.setblocking(False)
    began, junk = time.monotonic(), frame(b"?" * 120) * 50

    def babble():
        while failures(server, "unread") == before:
            assert time.monotonic() - began < 30, "it was not closed"
            with contextlib.suppress(BlockingIOError, ConnectionError):
                raw.send(junk)
            time.sleep(0.002)

    yield raw, babble
    raw.close()


def test_a_connection_nobody_reads_is_cut_in_the_end(server, deaf):
    deaf[1]()
    wait_until(lambda: not server.server.server_state.connections, 10)


def test_who_never_reads_is_closed_with_1013(server, speech, deaf):
    """Until it reads again it learns nothing; the server has let go long before."""
    rows, (raw, babble) = speech(8, 3), deaf

    async def other_client():
        """A good client, while the other one is stuck: all of its words come."""
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            for part in np.array_split(rows, 16):
                await socket.send(bytes_of(part))
                await asyncio.sleep(0.05)
            await say(socket, type="CloseStream")
            return await answers(socket), socket.close_code

    async def run():
        babbling = asyncio.create_task(asyncio.to_thread(babble))
        found = await other_client()
        await babbling
        return found

    found, code = asyncio.run(run())
    assert code == 1000 and found[-1]["duration"] == pytest.approx(8)
    wait_until(lambda: not len(server.service.engine))
    raw.settimeout(10)
    read = b""  # it begins to read, within the time for last bytes
    while b"--max-unread-s" not in read and (part := raw.recv(1 << 16)):
        read += part
    assert struct.pack(">H", 1013) in read
    assert b"--max-unread-s" in read


@pytest.mark.parametrize(
    ("sent", "drop"),
    [(b"", b""), (b"\x81", b""), (frame(bytes(60_000), 2)[:50], b"\0")],
)
def test_half_a_frame_is_no_sign_of_life(server, sent, drop):
    """Slow-loris senders: bytes of a message that never ends do not keep a stream."""
    raw, began, found = raw_client(server), time.monotonic(), b""
    raw.sendall(sent)
    raw.settimeout(0.1)
    while b"--max-idle-s" not in found:
        assert time.monotonic() - began < 9, f"closed without a reason: {found!r}"
        with contextlib.suppress(TimeoutError, ConnectionError):
            found += raw.recv(1 << 16)
        with contextlib.suppress(ConnectionError):
            raw.sendall(drop)
    raw.close()
    assert struct.pack(">H", 1011) in found
    assert 0.9 < time.monotonic() - began


def test_keep_alive_keeps_and_nothing_else_is_needed(server):
    keep = [{"type": "KeepAlive"}] * 5  # twice as long as may be idle, in all
    found, code = listened(server, *keep, pause_s=0.4)
    assert code == 1000 and found[-1]["type"] == "Metadata"


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
def test_keep_alive_keeps_no_stream_for_ever(encoder, decoder, speech, pause_s):
    """One client held all streams with it; words come before the close."""

    async def run():
        async with connect(f"{own.ws}/v1/listen?{LINEAR16}") as socket:
            await socket.send(bytes_of(speech(3, 1)))
            reader, began = asyncio.create_task(answers(socket)), time.monotonic()
            with contextlib.suppress(websockets.ConnectionClosed):
                while time.monotonic() - began < 10:
                    await say(socket, type="KeepAlive")
                    await asyncio.sleep(pause_s)
            found = await reader
            return found, socket.close_code, socket.close_reason

    service = Service(encoder, decoder, Limits(silent_s=0.7, idle_s=2.0))
    with serving(service) as own:
        found, code, reason = asyncio.run(run())
    assert code == 1011 and "--max-silent-s" in reason
    assert found[-1]["type"] == "Metadata"
    assert found[-2]["channel"]["alternatives"][0]["words"]


def test_bad_utf_8_is_closed_with_1007_and_not_logged(server, caplog):
    raw, found = raw_client(server), b""
    raw.sendall(frame(b"\xff\xfe"))
    while b"UTF-8" not in found and (part := raw.recv(1 << 16)):
        found += part
    raw.close()
    assert struct.pack(">H", 1007) in found and not caplog.records


def test_what_comes_behind_close_stream_is_not_heard(server, speech):
    flush, other = {"type": "Finalize"}, {"type": "Configure", "keyterms": ["a"]}
    end, data = {"type": "CloseStream"}, bytes_of(speech(1, 1))
    plain = listened(server, data)
    rude = listened(server, data, end, bytes_of(speech(1, 2)), flush, other, "x", b"1")
    for found, code in (plain, rude):
        assert code == 1000 and found[-1]["duration"] == pytest.approx(1)
    texts = [
        [one["channel"] for one in found if one["type"] == "Results"]
        for found, _ in (plain, rude)
    ]
    assert texts[0] == texts[1]
    assert not any(one["type"] in ("Error", "ConfigureSuccess") for one in rude[0])


def test_wrong_types_in_every_field_are_said_once_each(server):
    wrong = [None, 3, True, "a", [3], {"a": "b"}, [[]], {"a": {"b": [1]}}, 1e999]
    fields = ("type", "keyterms", "keywords", "boosts", "features", "other")
    messages = [
        {"type": "Configure", field: value} for field in fields for value in wrong
    ]
    found, code = listened(server, *messages)
    kinds = [one["type"] for one in found]
    assert code == 1000 and kinds[-1] == "Metadata" and len(kinds) == len(messages) + 1
    assert kinds.count("Error") == len(wrong)  # those of `type`
    # None keeps what there is, and {"a": "b"} and the like are no list of terms.
    assert kinds.count("ConfigureFailure") == 3 * (len(wrong) - 1)
    assert kinds.count("ConfigureSuccess") == 3 + 2 * len(wrong)


def test_unknown_words_of_the_query_are_told_at_once(server):
    more = "&keyterm=bartley&keyterm=zzyzx&diarize=true&language=de"
    (first, *_, last), _ = listened(server, query=LINEAR16 + more)
    for one in (first, last):
        assert one["type"] == "Metadata" and one["ignored"] == ["diarize"]
        assert any("zzyzx" in warning for warning in one["warnings"])
        assert any("'de'" in warning for warning in one["warnings"])
    assert first["request_id"] == last["request_id"]


def test_segments_shorter_than_a_frame_leave_no_session(server):
    """Two bytes and Finalize, again and again: each left a session of the decoder."""

    async def run():
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            for _ in range(20):
                await socket.send(bytes(2))
                await say(socket, type="Finalize")
            await say(socket, type="KeepAlive")
            for _ in range(20):
                assert json.loads(await socket.recv())["from_finalize"]
            left = len(server.service.engine._resources.sessions)
            await say(socket, type="CloseStream")
            await answers(socket)
            return left

    assert asyncio.run(run()) == 0


def test_random_bytes_and_messages_never_break_it(server):
    async def one(seed):
        rng = np.random.default_rng(seed)
        encoding = ["", "encoding=linear16", "encoding=mulaw", "encoding=flac"][
            seed % 4
        ]
        async with connect(f"{server.ws}/v1/listen?{encoding}") as socket:
            with contextlib.suppress(websockets.ConnectionClosed):
                for _ in range(30):
                    kind = rng.integers(4)
                    if kind == 0:
                        text = rng.bytes(rng.integers(60)).decode("latin-1")
                        await socket.send(text)
                    elif kind == 1:
                        name = ["KeepAlive", "Finalize", "Configure"][rng.integers(3)]
                        await say(socket, type=name, keyterms=["x"])
                    else:
                        await socket.send(rng.bytes(rng.integers(2000)))
                await say(socket, type="CloseStream")
            return await answers(socket), socket.close_code

    async def run():
        return await asyncio.gather(*(one(seed) for seed in range(12)))

    before = failures(server, "handler")
    for found, code in asyncio.run(run()):
        assert code in (1000, 1008)
        assert all("type" in message for message in found)
    assert failures(server, "handler") == before


def test_many_tiny_messages_hold_up_nobody(server, speech):
    """Floods of bytes one by one and of KeepAlives; a good client's answers come."""

    async def flood(end, message):
        with contextlib.suppress(websockets.ConnectionClosed, OSError):
            async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
                while not end.is_set():
                    for _ in range(200):
                        await socket.send(message)
                    await asyncio.sleep(0)
                socket.transport.abort()

    async def run():
        end, waits = asyncio.Event(), []
        floods = [
            asyncio.create_task(flood(end, message))
            for message in (b"\0\0", '{"type": "KeepAlive"}', "junk")
        ]
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            for part in np.array_split(speech(4, 1), 8):
                began = time.monotonic()
                await socket.send(bytes_of(part))
                await say(socket, type="Finalize")
                while not json.loads(await socket.recv()).get("from_finalize"):
                    pass
                waits.append(time.monotonic() - began)
            await say(socket, type="CloseStream")
            await answers(socket)
        end.set()
        await asyncio.gather(*floods)
        return waits

    assert max(asyncio.run(run())) < 5  # on a machine that does much else


def test_messages_are_taken_no_faster_than_may_be(server, monkeypatch):
    from wfstdec.server import connection

    monkeypatch.setattr(connection, "_MESSAGES_PER_S", 500)

    async def run():
        began = time.monotonic()
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            reader = asyncio.create_task(answers(socket))
            for _ in range(600):
                await socket.send("junk")
            await say(socket, type="CloseStream")
            return await reader, time.monotonic() - began

    found, passed = asyncio.run(run())
    assert sum(one["type"] == "Error" for one in found) == 600
    assert passed > 1.1


def test_a_fast_sender_is_held_back(server, speech):
    most, data = 0.0, bytes_of(speech(120, 1))

    def watch():
        nonlocal most
        for stream in list(server.service.engine._streams):
            most = max(most, stream.buffered_s)

    async def run():
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            reader = asyncio.create_task(answers(socket))
            for first in range(0, len(data), 32_000):
                await socket.send(data[first : first + 32_000])
                watch()
            await say(socket, type="CloseStream")
            while not reader.done():
                watch()
                await asyncio.sleep(0.002)
            return reader.result(), socket.close_code

    found, code = asyncio.run(run())
    assert code == 1000 and found[-1]["duration"] == pytest.approx(120)
    assert 0 < most <= LIMITS.buffered_s + 1.5  # one message more, and a bit


def test_interims_never_go_back_behind_a_final(server, speech):
    async def run():
        url = f"{server.ws}/v1/listen?{LINEAR16}&interim_results=true"
        async with connect(url) as socket:
            reader = asyncio.create_task(answers(socket))
            for part in np.array_split(speech(20, 7), 100):
                await socket.send(bytes_of(part))
                await asyncio.sleep(0.01)
            await say(socket, type="CloseStream")
            return await reader

    end_s, interims = 0.0, 0
    for one in asyncio.run(run()):
        if one["type"] != "Results":
            continue
        assert one["start"] == end_s
        words = one["channel"]["alternatives"][0]["words"]
        assert all(word["start"] >= end_s - 1e-9 for word in words)
        if one["is_final"]:
            end_s = one["start"] + one["duration"]
        interims += not one["is_final"]
    assert interims > 5 and end_s == pytest.approx(20, abs=0.1)


def test_a_refused_handshake_says_it_in_both_protocols(server):
    async def run():
        async with connect(f"{server.ws}/v1/listen?encoding=mp5"):
            pass

    with pytest.raises(websockets.InvalidStatus) as refused:
        asyncio.run(run())
    response = refused.value.response
    assert response.status_code == 400
    assert "expected linear16" in response.headers["dg-error"]
    assert response.headers["dg-request-id"]
    error = json.loads(response.body)["error"]
    assert (error["param"], error["code"]) == ("encoding", "invalid_value")


def test_what_fails_unforeseen_is_1011_with_the_number_to_look_for(
    server, monkeypatch, caplog
):
    from wfstdec.server import deepgram as listen

    def broken(text):
        raise KeyError("inner affairs")

    monkeypatch.setattr(listen, "read_message", broken)

    async def run():
        async with connect(f"{server.ws}/v1/listen?{LINEAR16}") as socket:
            await socket.send("{}")
            await answers(socket)
            request = socket.response.headers["dg-request-id"]
            return socket.close_code, socket.close_reason, request

    code, reason, request = asyncio.run(run())
    assert code == 1011 and request in reason and "inner" not in reason
    assert request in caplog.text and failures(server, "handler") == 1
