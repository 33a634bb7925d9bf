"""Bounds on slow and hostile clients: each fault costs its own client alone."""

import asyncio
import contextlib
import errno
import gc
import logging
import re
import socket
import ssl
import time

import httpx
import pytest
from served import error_of, serving, still_service, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from wfstdec.server import files, uvicorn_server
from wfstdec.server.limits import Limits
from wfstdec.server.service import client_of, stopping

FORM = "Content-Type: multipart/form-data; boundary=x\r\n"
FILE = '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@contextlib.contextmanager
def connected(server, text=""):
    with socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(text.encode())
        yield client


def upload(server, headers):
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n{FORM}{headers}"
    return connected(server, head + "\r\n")


def dripped(client, part, seconds=10):
    """Send a part again and again; the answer, once the server has closed."""
    client.settimeout(0.05)
    answer, began = b"", time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            client.sendall(part)
            new = client.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:  # closed before it has read what was sent last
            new = b""
        if not new:
            return answer.decode(), time.monotonic() - began
        answer += new
    raise AssertionError("the server still waits")


# ------------------------------------------------------------------- uploads
@pytest.mark.parametrize(
    ("headers", "begin", "part"),
    [
        ("Content-Length: 99999\r\n", FILE, b"-"),
        (
            "Transfer-Encoding: chunked\r\n",
            f"{len(FILE):x}\r\n{FILE}\r\n",
            b"1\r\n-\r\n",
        ),
    ],
)
def test_slow_bodies_are_given_up(monkeypatch, headers, begin, part):
    """Bytes that come often enough for `--max-idle-s` do not keep a body for ever."""
    monkeypatch.setattr(files, "_UPLOAD_S", 0.5)
    monkeypatch.setattr(files, "_CREDIT_S", 0.5)
    limits = Limits(least_upload_rate=1_000_000)
    with serving(still_service(limits)) as server, upload(server, headers) as client:
        client.sendall(begin.encode())
        answer, seconds = dripped(client, part)
        assert answer.startswith("HTTP/1.1 408 ") and "connection: close" in answer
        assert "--least-upload-rate" in answer and 0.4 < seconds < 5
        wait_until(lambda: not server.service.jobs._uploads)


def test_a_body_of_unknown_length_may_last_while_it_keeps_the_rate(monkeypatch):
    monkeypatch.setattr(files, "_CREDIT_S", 1.5)

    def body():
        yield FILE.encode()
        for _ in range(8):
            yield b"-" * 1000  # cut short: it is refused at the end
            time.sleep(0.3)

    limits = Limits(least_upload_rate=2000)
    with serving(still_service(limits)) as server:
        url = f"{server.url}/v1/audio/transcriptions"
        kind = {"content-type": "multipart/form-data; boundary=x"}
        began = time.monotonic()
        answer = httpx.post(url, content=body(), headers=kind)
        assert answer.status_code == 400 and time.monotonic() - began > 1.5


def test_more_uploads_are_told_to_come_again():
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(still_service(Limits(uploads=2))))
        for _ in range(2):
            stack.enter_context(upload(server, "Content-Length: 99999\r\n"))
        wait_until(lambda: len(server.service.jobs._uploads) == 2)
        answer = httpx.post(f"{server.url}/v1/audio/transcriptions")
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
        assert "--max-uploads" in error_of(answer)["message"]


def test_the_rest_of_a_refused_body_is_not_read_for_ever():
    limits = Limits(idle_s=0.5, body_bytes=100)
    with serving(still_service(limits)) as server:
        with upload(server, "Content-Length: 99999\r\n") as client:
            answer, seconds = dripped(client, b"-")
    assert re.match("HTTP/1.1 413 ", answer) and seconds < 5


# ------------------------------------------------------------------- connections
def test_silent_connections_make_room_for_others():
    """The oldest of them go, and neither probes nor requests wait."""
    with contextlib.ExitStack() as stack:
        limits = Limits(connections=10)
        server = stack.enter_context(serving(still_service(limits)))
        busy = stack.enter_context(upload(server, "Content-Length: 99999\r\n"))
        wait_until(lambda: server.service.jobs._uploads)
        kept = httpx.Client()
        stack.callback(kept.close)
        silent = []
        for _ in range(40):
            silent.append(stack.enter_context(connected(server)))
            assert kept.get(f"{server.url}/health").status_code == 200
        open_now = server.server.server_state.connections
        wait_until(lambda: len(open_now) <= limits.connections)
        silent[0].settimeout(5)
        assert silent[0].recv(1) == b""  # closed
        silent[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent[-1].recv(1)
        assert server.service.jobs._uploads and busy.fileno() >= 0


def test_silent_handshakes_of_tls_make_room_too(certificate, caplog):
    trust = ssl.create_default_context(cafile=certificate["ssl_certfile"])
    with contextlib.ExitStack() as stack:
        limits = Limits(connections=10)
        serve = serving(still_service(limits), **certificate)
        server = stack.enter_context(serve)
        url = server.url.replace("http:", "https:")
        for _ in range(30):
            stack.enter_context(connected(server))
            answer = httpx.get(f"{url}/health", verify=trust)
            assert answer.status_code == 200
        wait_until(lambda: len(server.server.server_state.connections) <= 1)
    assert not [one for one in caplog.records if one.levelno > logging.WARNING]


def test_where_all_connections_work_a_new_one_is_closed_at_once():
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(still_service(Limits(connections=4))))
        busy = [
            stack.enter_context(upload(server, "Content-Length: 99999\r\n"))
            for _ in range(4)
        ]
        wait_until(lambda: len(server.service.jobs._uploads) == 4)
        for _ in range(20):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{server.url}/health", timeout=5)
        assert len(server.service.jobs._uploads) == 4
        busy[0].close()
        wait_until(lambda: len(server.service.jobs._uploads) == 3)
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_answers_that_are_not_read_hold_no_connection():
    """The page to clients that read nothing, and have asked for a close after it."""
    page = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(still_service(Limits(connections=6))))
        [listening] = server.server.servers[0].sockets
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(12):
            deaf = stack.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(page.encode())
            time.sleep(0.05)
        assert len(server.server.server_state.connections) == 6
        assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize(
    ("files", "most"), [(-1, 4096), (10_000, 4096), (1000, 781), (128, 18), (50, 1)]
)
def test_connections_are_no_more_than_files_may_be_open(
    monkeypatch, caplog, files, most
):
    monkeypatch.setattr(uvicorn_server.os, "listdir", lambda path: ["0"] * 30)
    limit = files, files
    monkeypatch.setattr(uvicorn_server.resource, "getrlimit", lambda kind: limit)
    assert uvicorn_server.most_connections(Limits()) == most
    assert ("--max-connections" in caplog.text) == (most < 576)


@pytest.mark.parametrize("kind", [errno.EMFILE, errno.EPERM])
def test_a_flood_of_accept_errors_is_a_line_a_second(monkeypatch, caplog, kind):
    """A machine without files for 40 s wrote 55 MB of tracebacks."""
    num_failed = 0
    accept = uvicorn_server._Listening.accept

    def failing(self):
        nonlocal num_failed
        num_failed += 1
        raise OSError(kind, "no more of them")

    with serving(still_service()) as server:
        monkeypatch.setattr(uvicorn_server._Listening, "accept", failing)
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            stack.enter_context(connected(server))
            wait_until(lambda: time.monotonic() - began > 1.5)
        monkeypatch.setattr(uvicorn_server._Listening, "accept", accept)
        seconds = time.monotonic() - began
        assert httpx.get(f"{server.url}/health", timeout=10).status_code == 200
    lines = [one.getMessage() for one in caplog.records if "no more of" in one.message]
    assert 1 < num_failed and 1 <= len(lines) <= seconds + 2
    assert all("a connection is not accepted" in line for line in lines)
    assert "Traceback" not in caplog.text


# ------------------------------------------------------------------- clients
def test_a_client_has_no_more_streams_and_files_than_its_share():
    limits = Limits(per_client=2)
    with contextlib.ExitStack() as stack:
        serve = serving(still_service(limits), proxy_headers=True)
        server = stack.enter_context(serve)

        def begun(address):
            headers = f"Content-Length: 99999\r\nX-Forwarded-For: {address}\r\n"
            return stack.enter_context(upload(server, headers))

        def posted(address):
            headers = {"X-Forwarded-For": address}
            url = f"{server.url}/v1/audio/transcriptions"
            return httpx.post(url, headers=headers)

        first, _ = begun("2001:db8::1"), begun("2001:db8::2:1")
        wait_until(lambda: len(server.service.jobs._uploads) == 2)
        answer = posted("2001:db8::3")
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        error = error_of(answer)
        assert error["type"] == "rate_limit_error"
        assert "--max-per-client" in error["message"]
        assert "2001:db8::/64" in error["message"]
        with pytest.raises(InvalidStatus) as refused:
            own = {"X-Forwarded-For": "2001:db8::4"}
            connect(f"{server.ws}/v1/listen", additional_headers=own)
        assert refused.value.response.status_code == 429
        assert int(refused.value.response.headers["retry-after"]) > 0
        own = {"X-Forwarded-For": "2001:db8::4"}
        assert httpx.get(f"{server.url}/v1/models", headers=own).status_code == 200
        assert posted("2001:db8:0:1::3").status_code == 415  # taken: it has no form
        assert posted("192.0.2.1").status_code == 415
        first.close()
        wait_until(lambda: len(server.service.jobs._uploads) == 1)
        wait_until(lambda: posted("2001:db8::3").status_code == 415)
    wait_until(lambda: not server.service.shared.clients.any())


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_a_client_is_an_address_or_64_bits_of_one(address, client):
    assert client_of(address) == client


# ------------------------------------------------------------------- aborted requests
@pytest.mark.parametrize("is_gone", [True, False])
def test_work_that_fails_when_its_client_has_gone_is_not_logged(is_gone):
    """Of 1,000 aborted requests 24 logged that an exception was never retrieved."""
    complaints = []

    async def receive():
        await asyncio.sleep(0.01 if is_gone else 60)
        return {"type": "http.disconnect"}

    async def work():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise stopping() from None

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with files.Client(receive, None, 1) as client:
            with pytest.raises(files.Gone if is_gone else TimeoutError):
                await client.unless_gone(work(), 0.1)
        await asyncio.sleep(0.01)
        gc.collect()

    asyncio.run(run())
    assert not complaints
