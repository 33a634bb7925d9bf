"""A server on a free port, in a thread of the test's process, for its real clients.

    with serving(service) as server:
        httpx.get(f"{server.url}/health")
        websockets.sync.client.connect(f"{server.ws}/v1/listen")

`still_service()` has an engine that advances nothing: for what is before it.
`listened` is a plain client of `/v1/listen`, `post_file` one of files.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from types import SimpleNamespace

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from wfstdec.server.service import Service

LINEAR16 = "encoding=linear16&sample_rate=16000"
"""The query of streams that are the bytes of `row_streams.bytes_of`."""


class StillEngine:
    """An engine without a thread; tests say how many streams it has."""

    def __init__(self):
        self.streams, self.is_warm = 0, threading.Event()
        self.is_warm.set()
        self.calls = []

    def __len__(self):
        return self.streams

    def start(self):
        self.calls.append("start")

    def warm(self):
        self.is_warm.wait(10)
        self.calls.append("warm")

    def drain(self):
        self.calls.append("drain")

    def stop(self):
        self.calls.append("stop")


def still_service(limits=None, **more):
    engine = StillEngine()
    return Service(None, None, limits, name="still", engine=engine, **more)


@contextlib.contextmanager
def serving(service, app=None, *, wait_for_kernels=True, wyoming_socket=None, **config):
    """Run the app of a service; ready when the block begins, stopped when it ends."""
    from wfstdec.server import wyoming
    from wfstdec.server.app import make_app
    from wfstdec.server.uvicorn_server import DrainingServer, make_config

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        settings = make_config(app or make_app(service), service.limits, **config)
        other = wyoming_socket and wyoming.Server(service, wyoming_socket)
        server = DrainingServer(settings, service, wyoming_server=other)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve([listening])), daemon=True
        )
        thread.start()
        try:
            wait_until(lambda: server.started)
            if wait_for_kernels:  # fresh ones take minutes on a busy machine
                wait_until(lambda: not service.warming or server.should_exit, 400)
                assert server.fault is None
            yield SimpleNamespace(
                url=f"http://127.0.0.1:{port}",
                ws=f"ws://127.0.0.1:{port}",
                port=port,
                server=server,
                service=service,
                thread=thread,
            )
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def wait_until(is_so, seconds=20):
    """Wait for something to become true; a test that waits too long fails."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


async def say(socket, **message):
    await socket.send(json.dumps(message))


async def answers(socket):
    found = []
    with contextlib.suppress(ConnectionClosed):
        async for text in socket:
            found.append(json.loads(text))
    return found


def listened(server, *messages, query=LINEAR16, pause_s=0.0):
    """Send messages, then `CloseStream`; all answers, and the close's code."""

    async def run():
        async with connect(f"{server.ws}/v1/listen?{query}") as socket:
            with contextlib.suppress(ConnectionClosed):
                for message in (*messages, {"type": "CloseStream"}):
                    if isinstance(message, dict):
                        message = json.dumps(message)
                    await socket.send(message)
                    await asyncio.sleep(pause_s)
            return await answers(socket), socket.close_code

    return asyncio.run(run())


def post_file(server, data, timeout=60, **fields):
    files = {"file": ("a", data)}
    url = f"{server.url}/v1/audio/transcriptions"
    return httpx.post(url, files=files, data=fields, timeout=timeout)


def error_of(answer):
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error
