"""The app's own routes, and what every request passes: key, Origin, limits, log."""

import json
import logging
import re
import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import error_of, serving, still_service, wait_until
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from wfstdec.server import app as access
from wfstdec.server.app import Checks, RequestLog, check_access, is_same_origin
from wfstdec.server.limits import Limits

KEY = "s3cret-key"


@pytest.fixture(scope="module")
def server():
    with serving(still_service()) as running:
        yield running


@pytest.fixture(scope="module")
def locked():
    with serving(still_service(key=KEY, origins=("https://other.example",))) as running:
        yield running


def test_unknown_paths_and_methods_are_said_in_one_form(server):
    assert error_of(httpx.get(f"{server.url}/nothing"))["type"] == "not_found_error"
    answer = httpx.post(f"{server.url}/health")
    assert answer.status_code == 405 and error_of(answer)["message"]
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_the_page_is_served_under_its_policy_or_not_at_all(server):
    answer = httpx.get(f"{server.url}/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    service = still_service()
    with serving(service, access.make_app(service, page=False)) as running:
        assert httpx.get(f"{running.url}/").status_code == 404


def test_ready_says_why_not():
    service = still_service(Limits(streams=2))
    service.engine.is_warm.clear()
    with serving(service, wait_for_kernels=False) as running:

        def reason():
            answer = httpx.get(f"{running.url}/ready")
            assert (answer.status_code == 200) == answer.json()["ready"]
            return answer.json()["reason"]

        assert reason() == "warming"
        assert httpx.get(f"{running.url}/health").json() == {"status": "ok"}
        answer = httpx.get(f"{running.url}/v1/models")
        assert answer.status_code == 503 and error_of(answer)["code"] == "warming"
        assert int(answer.headers["retry-after"]) > 0
        service.engine.is_warm.set()
        wait_until(lambda: reason() is None)
        service.engine.streams = 2
        assert reason() == "full"
        service.engine.streams = 1
        answer = httpx.get(f"{running.url}/ready").json()
        assert answer == {"ready": True, "reason": None, "streams": 1, "max_streams": 2}
        service.draining = True
        assert reason() == "draining"
    assert service.engine.calls == ["start", "warm", "stop"]


@pytest.mark.parametrize("scheme", ["Bearer", "Token", "bearer", "TOKEN"])
def test_the_key_comes_by_header(locked, scheme):
    given = {"Authorization": f"{scheme} {KEY}"}
    assert httpx.get(f"{locked.url}/metrics", headers=given).status_code == 200


@pytest.mark.parametrize(
    "given", [None, "", KEY, "Basic " + KEY, "Bearer", "Token x", f"Bearer {KEY}x"]
)
def test_without_the_key_nothing_but_page_and_probes(locked, given):
    headers = {} if given is None else {"Authorization": given}
    for path in ("/", "/health", "/ready"):
        assert httpx.get(locked.url + path, headers=headers).status_code == 200
    for path in ("/metrics", "/v1/models", "/nothing"):
        answer = httpx.get(locked.url + path, headers=headers)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        error = error_of(answer)
        assert error["type"] == "authentication_error"
        assert error["code"] == "invalid_api_key" and KEY not in error["message"]


def test_keys_are_compared_in_constant_time(monkeypatch):
    """By digests of one length: neither content nor length shows."""
    compared = []
    monkeypatch.setattr(
        access.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b
    )
    assert access.same_key(KEY, KEY) and not access.same_key("ü", KEY)
    assert {len(one) for pair in compared for one in pair} == {32}


async def _echo(websocket):
    await websocket.accept(subprotocol=websocket.scope[access.SUBPROTOCOL])
    await websocket.send_text("in")
    await websocket.close(1000)


async def _hello(request):
    return PlainTextResponse("hello")


def echo_app(service):
    routes = [
        WebSocketRoute("/v1/echo", _echo),
        Route("/v1/hello", _hello, methods=["GET", "POST"]),
    ]
    middleware = [
        Middleware(RequestLog, service=service, paths={"/v1/echo", "/v1/hello"}),
        Middleware(Checks, service=service, check=check_access),
    ]
    return Starlette(routes=routes, middleware=middleware)


@pytest.fixture(scope="module")
def echoing():
    service = still_service(key=KEY)
    with serving(service, echo_app(service)) as running:
        yield running


@pytest.mark.parametrize("scheme", ["token", "bearer", None])
def test_browsers_send_the_key_as_a_subprotocol_others_as_a_header(echoing, scheme):
    given = {"subprotocols": [scheme, KEY]}
    if scheme is None:
        given = {"additional_headers": {"Authorization": f"Token {KEY}"}}
    with connect(f"{echoing.ws}/v1/echo", **given) as socket:
        assert socket.recv() == "in" and socket.subprotocol == scheme


@pytest.mark.parametrize(
    "offered", [None, ["token"], ["token", "wrong"], ["other", KEY]]
)
def test_a_handshake_without_the_key_is_refused_in_words(echoing, offered, caplog):
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{echoing.ws}/v1/echo", subprotocols=offered)
    response = refused.value.response
    assert response.status_code == 401
    assert json.loads(response.body)["error"]["code"] == "invalid_api_key"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "origin, host, same",
    [
        ("http://a.example", "a.example", True),
        ("https://a.example", "a.example:443", True),  # a proxy ends TLS
        ("http://a.example:8000", "a.example:8000", True),
        ("http://A.example", "a.EXAMPLE", True),
        ("http://[::1]:80", "[::1]", True),
        ("http://a.example:8000", "a.example:8001", False),
        ("http://a.example:8000", "a.example", False),
        ("http://a.example.evil", "a.example", False),
        ("null", "a.example", False),
        ("", "", False),
        ("http://a.example:x", "a.example:x", False),
        ("http://[", "[", False),
    ],
)
def test_same_origin(origin, host, same):
    assert is_same_origin(origin, host) == same


def test_pages_of_others_are_refused(locked):
    headers = {"Authorization": f"Bearer {KEY}"}
    for origin, status in [
        (locked.url, 200),
        ("https://other.example", 200),
        ("https://other.example.evil", 403),
        ("null", 403),
    ]:
        answer = httpx.get(
            f"{locked.url}/metrics", headers={**headers, "Origin": origin}
        )
        assert answer.status_code == status, origin
        if status == 403:
            assert error_of(answer)["code"] == "origin_not_allowed"
            assert "--origin" in error_of(answer)["message"]


@pytest.fixture(scope="module")
def named():
    hosts = ("localhost", "127.0.0.1", "::1", "example.org")
    with serving(still_service(hosts=hosts, origins=("*",))) as running:
        yield running


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1", True),
        ("localhost:1234", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("example.org", True),
        ("evil.example", False),
        ("example.org.evil.example:8000", False),
        ("192.0.2.1", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_other_hosts_are_refused(named, host, is_known):
    """DNS rebinding: a page of that name would be of the server's own origin."""
    for path in ("/", "/ready", "/metrics", "/v1/models"):
        answer = httpx.get(named.url + path, headers={"Host": host})
        assert answer.status_code == (200 if is_known else 421), path
    if not is_known:
        error = error_of(answer)
        assert error["code"] == "host_not_allowed"
        assert "--host-name" in error["message"]
        page = {"Origin": f"http://{host}", "Access-Control-Request-Method": "POST"}
        url = f"{named.url}/v1/audio/transcriptions"
        asked = httpx.options(url, headers={**page, "Host": host})
        assert asked.status_code == 421
        assert "access-control-allow-origin" not in asked.headers
    answer = httpx.get(f"{named.url}/health", headers={"Host": host})
    assert answer.status_code == 200


def test_handshakes_for_other_hosts_are_refused(named):
    status, body = raw(named.port, f"GET /v1/listen HTTP/1.1\r\n{UPGRADE}")
    assert status == 421 and b"--host-name" in body


def test_probes_of_http_1_0_name_no_host(named):
    with socket.create_connection(("127.0.0.1", named.port), 10) as connection:
        connection.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_server_on_all_addresses_takes_any_address_and_no_name():
    with serving(still_service(hosts=("localhost", "0.0.0.0"))) as running:
        for host, status in (("192.0.2.1:80", 200), ("[2001:db8::1]", 200), ("a", 421)):
            answer = httpx.get(f"{running.url}/ready", headers={"Host": host})
            assert answer.status_code == status, host


def test_sockets_of_other_pages_are_refused(echoing):
    given = {"additional_headers": {"Authorization": f"Token {KEY}"}}
    with connect(f"{echoing.ws}/v1/echo", origin=echoing.url, **given) as socket:
        assert socket.recv() == "in"
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{echoing.ws}/v1/echo", origin="http://evil", **given)
    assert refused.value.response.status_code == 403


def test_listed_pages_may_ask_with_a_key(locked):
    """Preflights carry no key, and are answered all the same."""
    asked = {
        "Origin": "https://other.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    url = f"{locked.url}/v1/audio/transcriptions"
    answer = httpx.options(url, headers=asked)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://other.example"
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert "POST" in answer.headers["access-control-allow-methods"]
    answer = httpx.options(url, headers={**asked, "Origin": "https://evil"})
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers
    refused = httpx.get(f"{locked.url}/v1/models", headers={"Origin": asked["Origin"]})
    assert refused.status_code == 401  # which the page can read
    assert refused.headers["access-control-allow-origin"] == asked["Origin"]


def test_a_star_lets_all_pages_in():
    with serving(still_service(origins=("*",))) as running:
        answer = httpx.get(f"{running.url}/ready", headers={"Origin": "http://any"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "*"


def words_of(length):
    return "keyterm=" + "x" * (length - len("keyterm="))


@pytest.mark.parametrize("length", [20_000, 100_000, 130_000])
def test_long_addresses_are_served(echoing, length):
    """`websockets` reads 8,192 bytes of a line; longer ones were left unanswered."""
    url = f"{echoing.ws}/v1/echo?{words_of(length)}"
    headers = {"Authorization": f"Token {KEY}"}
    with connect(url, additional_headers=headers) as socket:
        assert socket.recv() == "in"


@pytest.mark.parametrize("length", [140_000, 190_000, 300_000, 3_000_000])
def test_longer_addresses_are_refused_in_words(echoing, length):
    for path, upgrade in (("/v1/hello", ""), ("/v1/echo", UPGRADE)):
        status, body = raw(
            echoing.port, f"GET {path}?{words_of(length)} HTTP/1.1\r\n{upgrade}"
        )
        assert status in (414, 431)
        assert "--max-url-bytes" in json.loads(body)["error"]["message"]


def test_many_headers_are_read_or_refused(echoing):
    for number in (200, 3000, 30_000):
        lines = "".join(f"x-{i}: y\r\n" for i in range(number))
        for path, upgrade in (("/v1/hello", ""), ("/v1/echo", UPGRADE)):
            status, _ = raw(echoing.port, f"GET {path} HTTP/1.1\r\n{upgrade}{lines}")
            assert status in (101, 200, 431), (path, number)


UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def raw(port, head):
    head += f"Host: x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        try:
            connection.sendall(head.encode())
        except OSError:  # it was answered, and closed, before all was sent
            pass
        got = b""
        while b"\r\n\r\n" not in got and (part := connection.recv(65536)):
            got += part
        head, _, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        while length and len(body) < int(length[1]):
            body += connection.recv(65536)
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    "sent", [b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"HELO x\r\n" * 5, b"\x16\x03\x01\x02"]
)
def test_what_is_no_request_is_refused_in_words(server, sent):
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(sent + b"\r\n\r\n")
        got = connection.makefile("rb").read()
    assert got.startswith(b"HTTP/1.1 400 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_half_a_request_is_not_waited_for():
    """Byte after byte does not keep a connection, nor does silence."""
    with serving(still_service(Limits(idle_s=0.3))) as running:
        with socket.create_connection(("127.0.0.1", running.port), 10) as connection:
            connection.settimeout(0.1)
            ended = False
            for byte in b"GET / HTTP/1.1\r\nx: " + b"y" * 60:
                try:
                    connection.sendall(bytes([byte]))
                    ended = connection.recv(100) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    break
            assert ended
        with socket.create_connection(("127.0.0.1", running.port), 5) as connection:
            assert connection.recv(100) == b""


def test_bodies_that_nobody_reads_are_refused(server):
    answer = httpx.request("GET", f"{server.url}/health", content=b"x" * 100_000)
    assert answer.status_code == 413 and error_of(answer)["message"]


def counted(text):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_measures_are_read_and_counted():
    service = still_service(key=KEY)
    with serving(service) as running:
        headers = {"Authorization": f"Bearer {KEY}"}
        metrics = service.metrics
        metrics.round_streams.observe(3)
        metrics.queue.observe(0.03)
        metrics.audio.inc(2.5)
        metrics.errors.labels("audio").inc()
        httpx.get(f"{running.url}/v1/models")
        httpx.get(f"{running.url}/a-secret-path", headers=headers)
        service.shared.set("streams", 7)
        answer = httpx.get(f"{running.url}/metrics", headers=headers)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        found = counted(answer.text)
    assert found["wfstdec_streams",] == 7 and found["wfstdec_ready",] == 1
    assert found["wfstdec_round_streams_sum",] == 3
    assert found["wfstdec_queue_seconds_bucket", "0.05"] == 1
    assert found["wfstdec_queue_seconds_bucket", "0.025"] == 0
    assert found["wfstdec_audio_seconds_total",] == 2.5
    assert found["wfstdec_errors_total", "audio"] == 1
    assert found["wfstdec_refused_total", "key"] == 1
    assert found["wfstdec_request_seconds_count", "404", "other"] == 1
    assert "a-secret-path" not in answer.text


def test_the_log_has_neither_keys_nor_queries(echoing, caplog):
    headers = {"Authorization": f"Token {KEY}"}
    with caplog.at_level(logging.DEBUG):
        httpx.get(f"{echoing.url}/v1/hello?keyterm=Frau+Geheim", headers=headers)
        httpx.get(f"{echoing.url}/v1/hello%0aforged?token=t0ken", headers=headers)
        with connect(
            f"{echoing.ws}/v1/echo?token=t0ken", subprotocols=["token", KEY]
        ) as socket:
            socket.recv()
        wait_until(lambda: "WS /v1/echo 1000" in caplog.text)
        ours = [r for r in caplog.records if r.name.startswith(("wfstdec", "uvicorn"))]
    lines = "\n".join(record.getMessage() for record in ours)
    assert "GET /v1/hello 200" in lines and "WS /v1/echo 1000" in lines
    assert r"/v1/hello\nforged 404" in lines
    for secret in (KEY, "Geheim", "t0ken"):
        assert secret not in lines
