"""Wyoming with its own client, unmodified: transcripts, rude clients, limits, drain."""

import asyncio
import contextlib
import json
import signal
import socket
import time

import numpy as np
import pytest
from row_streams import bytes_of
from served import listened, serving, still_service, wait_until

pytest.importorskip("wyoming")

from wyoming.asr import (
    Transcribe,
    Transcript,
    TranscriptChunk,
    TranscriptStart,
    TranscriptStop,
)
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong

from wfstdec.cli.main import main
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service

LIMITS = Limits(idle_s=1.0, unread_s=1.0, boosts=3, message_bytes=1 << 17)
FORM = {"rate": 16000, "width": 2, "channels": 1}


@contextlib.contextmanager
def wyoming(service, **more):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with serving(service, wyoming_socket=listening, **more) as server:
            server.wyoming_port = port
            yield server


@pytest.fixture(scope="module")
def server(encoder, decoder):
    with wyoming(Service(encoder, decoder, LIMITS, name="rows")) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        wait_until(lambda: not len(server.service.engine))
        wait_until(lambda: not server.server.server_state.tasks)
        wait_until(lambda: not len(server.service.engine._resources.sessions))
        assert not server.service.shared.clients.any()


def connected(server):
    return AsyncTcpClient("127.0.0.1", server.wyoming_port, read_timeout=30)


def spoken(data, form=FORM, size=4096):
    starts = range(0, len(data), size)
    chunks = [AudioChunk(**form, audio=data[at : at + size]) for at in starts]
    return [AudioStart(**form), *chunks, AudioStop()]


async def until(client, *kinds):
    """Read up to an event of one of these types; all that came."""
    found = []
    while (event := await client.read_event()) is not None:
        found.append(event)
        if any(kind.is_type(event.type) for kind in kinds):
            return found
    return [*found, None]


def talk(server, *utterances):
    """Send the events of utterances on one connection; what came of each."""

    async def run():
        found = []
        async with connected(server) as client:
            for events in utterances:
                for event in events:
                    await client.write_event(event.event())
                found.append(await until(client, TranscriptStop, Error))
        return found

    return asyncio.run(run())


def text_of(events):
    [transcript] = [one for one in events if Transcript.is_type(one.type)]
    return Transcript.from_event(transcript).text


def deepgram_text(server, rows):
    parts = [bytes_of(part) for part in np.array_split(rows, 8)]
    found = [one for one in listened(server, *parts)[0] if one["type"] == "Results"]
    texts = [one["channel"]["alternatives"][0]["transcript"] for one in found]
    return " ".join(text for text in texts if text)


def errors(events):
    return [Error.from_event(x) for x in events if x and Error.is_type(x.type)]


def raw_answers(server, *parts, eof=False, seconds=20):
    """Send bytes; what was answered until the server has closed."""
    with socket.create_connection(("127.0.0.1", server.wyoming_port), 10) as client:
        client.settimeout(seconds)
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
        if eof:
            client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as file:
            found = []
            while line := file.readline():
                header = json.loads(line)
                data = json.loads(file.read(header["data_length"]))
                found.append((header["type"], data))
    return found


def event(kind, data=None, payload=b"", **more):
    header = {"type": kind, "data": data or {}, **more}
    if payload:
        header["payload_length"] = len(payload)
    return json.dumps(header).encode() + b"\n" + payload


# ------------------------------------------------------------------- utterances
def test_two_utterances_have_the_words_of_the_other_protocol(server, speech):
    """Of 12 s with pauses: utterances that the engine cuts are joined."""
    some = [speech(12, seed) for seed in (1, 2)]
    found = talk(server, *(spoken(bytes_of(rows)) for rows in some))
    for rows, events in zip(some, found, strict=True):
        text = text_of(events)
        assert text == deepgram_text(server, rows) and len(text.split()) > 10
        first, *chunks, transcript, last = events
        assert TranscriptStart.is_type(first.type) and TranscriptStop.is_type(last.type)
        parts = [TranscriptChunk.from_event(one).text for one in chunks]
        assert "".join(parts) == text and len(parts) > 1
        assert Transcript.from_event(transcript).language == "en"


def test_wide_samples_and_several_channels(server, speech):
    data = bytes_of(speech(4, 3))
    expected = text_of(talk(server, spoken(data))[0])
    samples = np.frombuffer(data, "<i2")
    wide = (samples.astype("<i4") << 16).tobytes()
    both = np.repeat(samples, 2).tobytes()
    for form, other in (({"width": 4}, wide), ({"channels": 2}, both)):
        [events] = talk(server, spoken(other, {**FORM, **form}))
        assert text_of(events) == expected != ""


def test_silence_has_an_empty_transcript(server):
    [events] = talk(server, [AudioStart(**FORM), AudioStop()])
    assert text_of(events) == ""


def test_lists_change_words_of_the_next_utterance_alone(server, speech):
    data = bytes_of(speech(6, 4))
    names = Transcribe(language="en", transcript_names=["There"])
    terms = Transcribe(transcript_terms=["there", "zzyzx"], transcript_names=[])
    found = talk(server, [names, *spoken(data)], [terms, *spoken(data)], spoken(data))
    texts = [text_of(events) for events in found]
    assert texts[0] == texts[1] == texts[2].replace("their off", "there off")
    assert texts[0] != texts[2]


def test_home_assistant_learns_what_is_there(server):
    async def run():
        async with connected(server) as client:
            await client.write_event(Describe().event())
            await client.write_event(Ping("hello").event())
            info, pong = [await client.read_event() for _ in range(2)]
            return Info.from_event(info), Pong.from_event(pong)

    info, pong = asyncio.run(run())
    [program] = info.asr
    assert program.installed and program.supports_transcript_streaming
    assert program.requires_external_vad  # or its pipeline would wait for our own
    [model] = program.models
    assert (model.name, model.languages) == ("rows", ["en"]) and model.installed
    assert pong.text == "hello"


# ------------------------------------------------------------------- wrong events
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (event("x", data_length=3) + b"{]}", "expected an object"),
        (b'{"type": "x", "data": [1]}\n', "expected an object"),
        (event("audio-stop"), "audio-stop outside an utterance"),
        (event("audio-chunk", FORM, b"??") * 5, "expected audio-start"),
        (event("audio-start", {**FORM, "width": 3}), "2 or 4 as the width"),
        (event("audio-start", {**FORM, "rate": 1}), "sample_rate=1"),
        (event("audio-start", {**FORM, "rate": "16000"}), "whole numbers"),
        (event("transcribe", {"transcript_names": 1}), "a list of strings"),
        (event("transcribe", {"transcript_terms": [*"abcd"]}), "--max-boosts"),
        (event("transcribe", {"transcript_terms": ["\ud800"]}), "surrogate"),
    ],
)
def test_wrong_events_are_errors_and_the_connection_stays(server, wrong, text):
    found = raw_answers(server, wrong, event("ping"), eof=True)
    [(kind, error), pong] = found
    assert kind == "error" and text in error["text"] and error["code"]
    assert pong == ("pong", {"text": None})


def test_chunks_of_another_form_are_left_out(server):
    parts = event("audio-start", FORM), event("audio-chunk", {**FORM, "rate": 8000})
    start, error, *rest = raw_answers(server, *parts, event("audio-stop"), eof=True)
    assert start[0] == "transcript-start" and "rate" in error[1]["text"]
    assert not rest or rest[0] == ("transcript", {"text": "", "language": "en"})


def test_events_without_meaning_are_ignored(server):
    found = raw_answers(server, event("select-program", {"name": "x"}), eof=True)
    assert found == []


@pytest.mark.parametrize(
    "wrong",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"[]\n",
        b'{"type": "x", "payload_length": -1}\n',
        b'{"type": "x", "data_length": 1.5}\n',
        b"[" * 50_000 + b"\n",
        b"x" * (1 << 17),
        b"\xff\xfe\n",
    ],
)
def test_an_event_without_an_end_closes(server, wrong):
    found = raw_answers(server, wrong)
    assert [kind for kind, _ in found] == ["error"]
    assert found[0][1]["code"] == "framing"


def test_an_event_too_large_closes_before_it_is_read(server):
    for of in ("data", "payload"):
        header = event("x", **{f"{of}_length": 1 << 40})
        [(kind, error)] = raw_answers(server, header)
        assert kind == "error" and error["code"] == "message_size"
        assert "--max-message-bytes" in error["text"]


# ------------------------------------------------------------------- clients that stop
@pytest.mark.parametrize(
    "parts", [(), (b'{"type": ',), (event("audio-chunk", payload_length=100) + b"?",)]
)
def test_silent_clients_are_closed(server, parts):
    began = time.monotonic()
    [(kind, error)] = raw_answers(server, *parts)
    assert kind == "error" and error["code"] == "idle"
    assert "--max-idle-s" in error["text"] and 0.9 < time.monotonic() - began < 5


def test_an_utterance_that_is_left_has_its_transcript(server, speech):
    data = bytes_of(speech(4, 5))
    parts = event("audio-start", FORM), event("audio-chunk", FORM, data[: 1 << 15])
    found = raw_answers(server, *parts)
    assert [kind for kind, _ in found][-3:] == [
        *("transcript", "transcript-stop", "error")
    ]


def test_clients_that_leave_in_an_utterance(server, speech):
    data = bytes_of(speech(4, 5))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.wyoming_port)) as client:
            client.sendall(event("audio-start", FORM))
            client.sendall(event("audio-chunk", FORM, data[: 1 << 15]))
            client.sendall(b'{"type": "audio-ch')


def test_a_client_that_never_reads_is_cut(server):
    sample = server.service.metrics.registry.get_sample_value
    count = lambda: sample("wfstdec_errors_total", {"kind": "unread"}) or 0  # noqa: E731
    before = count()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.wyoming_port))
        client.setblocking(False)
        began = time.monotonic()
        while count() == before:
            assert time.monotonic() - began < 30
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.send(event("describe") * 20)
            time.sleep(0.001)


# ------------------------------------------------------------------- limits, stopping
def test_more_streams_than_there_are_places_are_errors(encoder, decoder, speech):
    data = bytes_of(speech(4, 5))
    for limits, code in (
        (Limits(streams=1), "full"),
        (Limits(per_client=1), "too_many_of_client"),
    ):
        with wyoming(Service(encoder, decoder, limits)) as server:

            async def run(server=server):
                async with connected(server) as one, connected(server) as other:
                    first, *rest = spoken(data)
                    await one.write_event(first.event())
                    await until(one, TranscriptStart)
                    await other.write_event(first.event())
                    refused = await until(other, TranscriptStop)
                    for event in rest:
                        await one.write_event(event.event())
                    return refused, await until(one, TranscriptStop)

            refused, found = asyncio.run(run())
            [error] = errors(refused)
            assert error.code == code and refused[-1] is None  # closed
            assert text_of(found)


def test_connections_have_one_limit_with_those_of_http():
    with wyoming(still_service(Limits(connections=2))) as server:
        ports = server.wyoming_port, server.port
        clients = [
            socket.create_connection(("127.0.0.1", port), 10)
            for port in (*ports, ports[0])
        ]
        assert clients[0].recv(1) == b""  # the oldest
        clients[2].sendall(event("ping"))
        assert clients[2].recv(1000).startswith(b'{"type": "pong"')
        for client in clients:
            client.close()


def test_streams_are_refused_while_kernels_are_compiled():
    service = still_service()
    service.engine.is_warm.clear()
    with wyoming(service, wait_for_kernels=False) as server:
        parts = event("describe"), event("audio-start", FORM)
        info, (kind, error) = raw_answers(server, *parts)
        assert info[0] == "info" and (kind, error["code"]) == ("error", "warming")
        service.engine.is_warm.set()


def test_a_drain_waits_for_transcripts(encoder, decoder, speech):
    rows = speech(6, 4)
    data = bytes_of(rows)
    with wyoming(Service(encoder, decoder)) as server:

        async def run():
            async with connected(server) as one, connected(server) as silent:
                for event in spoken(data)[:-1]:
                    await one.write_event(event.event())
                [stream] = await opened()
                while stream._sent < len(data):  # all of it has come
                    await asyncio.sleep(0.01)
                server.server.handle_exit(signal.SIGTERM, None)
                return await until(one, Error), await until(silent, Error)

        async def opened():
            while not server.service.engine._streams:
                await asyncio.sleep(0.01)
            return server.service.engine._streams

        expected = deepgram_text(server, rows)
        found, of_silent = asyncio.run(run())
        assert text_of(found[:-1]) == expected != ""
        assert found[-1] is None and of_silent == [None]
        server.thread.join(20)
        assert not server.thread.is_alive()


def test_a_drain_cuts_off_who_does_not_let_go(encoder, decoder, caplog):
    with wyoming(Service(encoder, decoder, Limits(drain_s=0.3))) as server:
        with socket.create_connection(("127.0.0.1", server.wyoming_port), 10) as client:
            client.sendall(event("ping"))
            assert client.recv(1000)
            began = time.monotonic()
            server.server.handle_exit(signal.SIGTERM, None)
            server.thread.join(20)
            assert not server.thread.is_alive() and time.monotonic() - began < 5
    assert "Traceback" not in caplog.text


# ------------------------------------------------------------------- the command line
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--wyoming", "http://127.0.0.1:0"), "expected tcp://HOST:PORT"),
        (("--wyoming", "tcp://127.0.0.1"), "expected tcp://HOST:PORT"),
        (("--wyoming", "tcp://127.0.0.1:99999"), "expected tcp://HOST:PORT"),
        (("--wyoming", "tcp://0.0.0.0:0"), "--wyoming-any allows others"),
        (("--wyoming-any",), "without --wyoming"),
        (("--wyoming", "tcp://0.0.0.0:0", "--wyoming-any"), "missing.onnx"),
    ],
)
def test_only_this_machine_unless_it_is_asked_for(flags, text, tmp_path, capsys):
    model = ("serve", str(tmp_path / "missing.onnx"), "--graph", "graph.npz")
    assert main([*model, "--port", "0", *flags]) == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec serve: ") and text in line
