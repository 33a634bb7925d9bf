"""The server as a program runs it: signals, draining, limits and keys as flags."""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
import time
from dataclasses import fields

import httpx
import pytest
from processes import python
from served import serving, still_service, wait_until
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from wfstdec.cli import serve
from wfstdec.cli.flags import limits_of
from wfstdec.cli.main import main, make_parser
from wfstdec.cli.serve import known_hosts, read_key
from wfstdec.errors import FormatError, OptionError
from wfstdec.server.app import Checks, check_access, make_app
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service
from wfstdec.server.uvicorn_server import open_socket


class DeferredSignals:
    def __init__(self, service):
        self.let_go, self.begun = threading.Event(), 0
        self.app = Starlette(
            routes=[
                Route("/v1/hold", self._hold),
                Route("/ready", self._ready),
                WebSocketRoute("/v1/stream", self._stream),
            ],
            middleware=[Middleware(Checks, service=service, check=check_access)],
            lifespan=make_app(service).router.lifespan_context,
        )
        self.app.state.service = service

    async def _until_let_go(self):
        self.begun += 1
        while not self.let_go.is_set():
            await asyncio.sleep(0.005)

    async def _hold(self, request):
        await self._until_let_go()
        return PlainTextResponse("held")

    async def _ready(self, request):
        return PlainTextResponse(f"{request.app.state.service.unready}")

    async def _stream(self, websocket):
        await websocket.accept()
        await self._until_let_go()
        await websocket.send_text("last words")
        await websocket.close(1001)


@contextlib.contextmanager
def asked(url):
    """A GET in a thread, under way; its answer, or error, in the list in the end."""
    found = []

    def ask():
        try:
            found.append(httpx.get(url, timeout=20))
        except httpx.HTTPError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        thread.join(20)


@contextlib.contextmanager
def under_way(service):
    """A server with a stream and a request; the answer to this is in the list later."""
    held = DeferredSignals(service)
    with (
        serving(service, held.app) as running,
        connect(f"{running.ws}/v1/stream") as stream,
        asked(f"{running.url}/v1/hold") as found,
    ):
        wait_until(lambda: held.begun == 2)
        yield running, held, stream, found


def test_what_is_under_way_ends_and_nothing_new_begins():
    service = still_service()
    with under_way(service) as (running, held, stream, found):
        running.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: service.draining)
        refused = httpx.get(f"{running.url}/v1/hold")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert refused.headers["retry-after"]
        with pytest.raises(InvalidStatus) as handshake:
            connect(f"{running.ws}/v1/stream")
        assert handshake.value.response.status_code == 503
        assert httpx.get(f"{running.url}/ready").text == "draining"
        assert not found and running.thread.is_alive()
        held.let_go.set()
        assert stream.recv(10) == "last words"
        with pytest.raises(ConnectionClosed):
            stream.recv(10)
        assert stream.close_code == 1001
        running.thread.join(20)
        assert not running.thread.is_alive()
    assert found[0].text == "held"
    assert service.engine.calls == ["start", "warm", "drain", "stop"]


def test_what_takes_too_long_is_cut_off(caplog):
    service = still_service(Limits(drain_s=0.3))
    with under_way(service) as (running, _, stream, found):
        began = time.monotonic()
        running.server.handle_exit(signal.SIGTERM, None)
        with pytest.raises(ConnectionClosed):
            stream.recv(10)
        assert stream.close_code == 1012
        assert time.monotonic() - began > 0.3
        running.thread.join(20)
        assert time.monotonic() - began < 5
    assert not getattr(found[0], "is_success", False)
    assert "--max-drain-s" in caplog.text
    assert service.engine.calls[-1] == "stop"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(second):
    service = still_service()
    held = DeferredSignals(service)
    with serving(service, held.app) as running, asked(f"{running.url}/v1/hold"):
        wait_until(lambda: held.begun)
        running.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: service.draining)
        began = time.monotonic()
        running.server.handle_exit(second, None)
        running.thread.join(20)
        assert time.monotonic() - began < 2


def test_a_signal_while_kernels_are_compiled_ends_at_once():
    """Kernels may take half a minute, and a container's patience is 10 s."""
    service = still_service()
    service.engine.is_warm.clear()
    with serving(service, wait_for_kernels=False) as running:
        began = time.monotonic()
        running.server.handle_exit(signal.SIGTERM, None)
        running.thread.join(20)
        assert time.monotonic() - began < 2
        service.engine.is_warm.set()


def test_what_cannot_be_warmed_up_ends():
    service = still_service()
    fault = RuntimeError("no such kernel")

    def warm():
        raise fault

    service.engine.warm = warm
    with serving(service, wait_for_kernels=False) as running:
        running.thread.join(20)
        assert not running.thread.is_alive()
        assert running.server.fault is fault
    assert service.engine.calls == ["start", "stop"]


def test_a_signal_that_spoils_the_warming_is_no_fault():
    """The engine takes no stream while it drains, nor the one that warms it."""
    service = still_service()
    service.engine.is_warm.clear()

    def warm():
        service.engine.is_warm.wait(10)
        raise OptionError("the server is about to stop")

    service.engine.warm = warm
    held = DeferredSignals(service)
    with serving(service, held.app, wait_for_kernels=False) as running:
        with asked(f"{running.url}/ready") as found:
            wait_until(lambda: found)
        running.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: service.draining)
        service.engine.is_warm.set()
        running.thread.join(20)
        assert running.server.fault is None


def test_warming_up_is_not_measured(encoder, decoder):
    service = Service(encoder, decoder, confidence=True)
    assert service.confidence
    with serving(service) as running:
        text = httpx.get(f"{running.url}/metrics").text
    assert "wfstdec_audio_seconds_total 0.0" in text
    assert "wfstdec_round_streams_count 0.0" in text


def test_a_taken_port_is_named():
    with contextlib.closing(open_socket("127.0.0.1", 0)) as one:
        one.listen()
        port = one.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            open_socket("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_it_listens_by_ipv6():
    try:
        listening = open_socket("::1", 0)
    except OSError:
        pytest.skip("this machine has no address of IPv6")
    with contextlib.closing(listening):
        assert listening.family == socket.AF_INET6


def test_tls_and_the_headers_of_proxies(certificate, caplog):
    """Headers of a proxy on this machine are believed where asked for."""
    trust = ssl.create_default_context(cafile=certificate["ssl_certfile"])
    header = {"X-Forwarded-For": "203.0.113.9"}
    for believed in (True, False):
        caplog.clear()
        with (
            serving(still_service(), proxy_headers=believed, **certificate) as running,
            caplog.at_level(logging.INFO, "wfstdec.server.requests"),
        ):
            url = running.url.replace("http:", "https:")
            own = {**header, "Origin": url}
            assert httpx.get(f"{url}/", headers=own, verify=trust).status_code == 200
            wait_until(lambda: "GET / 200" in caplog.text)
        assert ("203.0.113.9 GET / 200" in caplog.text) == believed


def test_ready_leaves_the_collector_nothing_to_walk(monkeypatch):
    calls = []
    monkeypatch.setattr(serve.gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(serve.gc, "freeze", lambda: calls.append("freeze"))
    serve._keep_objects()
    assert calls == ["collect", "freeze"]


def given(*flags):
    return make_parser("serve").parse_args(["serve", "model", *flags])


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_has_the_flag_that_its_errors_name(name):
    default = getattr(Limits(), name)
    limits = limits_of(given(Limits.flag(name), "7"))
    assert getattr(limits, name) == 7 != default
    others = {field.name for field in fields(Limits)} - {name}
    assert all(getattr(limits, one) == getattr(Limits(), one) for one in others)
    with pytest.raises(OptionError, match=f"^{name}=0"):
        limits_of(given(Limits.flag(name), "0"))


def test_hosts_that_clients_may_call(caplog):
    own = {"localhost", "127.0.0.1", "::1"}
    assert {*known_hosts(given(), "127.0.0.1", None)} == own
    flags = "--host", "Here.example", "--host-name", "A.example:80"
    flags += "--host-name", "[::2]", "--origin", "https://b.example:8443"
    found = known_hosts(given(*flags), "192.0.2.1", "key")
    named = {"192.0.2.1", "here.example", "a.example", "::2", "b.example"}
    assert {*found} == own | named
    assert "*" in known_hosts(given("--origin", "*"), "::1", None)
    assert "*" in known_hosts(given("--host-name", "*"), "0.0.0.0", None)
    assert "0.0.0.0" in known_hosts(given(), "0.0.0.0", None)
    with caplog.at_level(logging.INFO, "wfstdec"):
        assert known_hosts(given("--host-name", "a"), "::", "key")[-1] == "a"
        assert not caplog.text
        assert known_hosts(given(), "::", "key") == ("*",)
        assert "--host-name" in caplog.text
    for wrong in ("https://example.org", ""):
        with pytest.raises(OptionError, match="a name alone"):
            known_hosts(given("--host-name", wrong), "::1", None)


def test_keys_of_files_and_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("WFSTDEC_KEY", raising=False)
    assert read_key(None) is None
    monkeypatch.setenv("WFSTDEC_KEY", "of-the-environment")
    assert read_key(None) == "of-the-environment"
    path = tmp_path / "key"
    path.write_text("  of-the-file\nits second line\n")
    assert read_key(str(path)) == "of-the-file"


@pytest.mark.parametrize(
    "text", ["", "\nkey", "two words", "schlüssel", "a\tb", "a\0b"]
)
def test_keys_that_no_header_carries(tmp_path, monkeypatch, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(FormatError, match="expected one or more of ASCII") as error:
        read_key(str(path))
    assert str(path) in str(error.value)
    assert not text.strip() or text not in str(error.value)
    if text == "":  # set, and empty, is a mistake: else everybody might come
        monkeypatch.setenv("WFSTDEC_KEY", text)
        with pytest.raises(FormatError, match="WFSTDEC_KEY"):
            read_key(None)


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--origin", "example.org"), "--origin 'example.org', expected"),
        (("--origin", "https://example.org/"), "scheme, host and port alone"),
        (("--ssl-keyfile", "key.pem"), "without --ssl-certfile, expected both"),
        ((), "--decoder wfst without --graph"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, capsys):
    assert main(["serve", "model", *flags]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("wfstdec serve: ") and message in line


def test_missing_packages_are_named():
    program = (
        "import sys; sys.modules['uvicorn'] = None; from wfstdec.cli.main import main; "
        "sys.exit(main(['serve', 'model', '--graph', 'graph.npz']))"
    )
    done = python("-c", program)
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and "needs uvicorn: pip install" in line
