"""ASGI app: all routes over one service, and the checks of every request.

A request passes the log (one line without query and key), the checks of `Host` and
`Origin` (against pages of other sites), the key, and, for paths below `/v1/`, whether
the server accepts work.
"""

import asyncio
import base64
import contextlib
import functools
import gc
import hashlib
import hmac
import ipaddress
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wfstdec.server import deepgram, deepgram_files, openai, realtime
from wfstdec.server.engine import Metrics
from wfstdec.server.limits import RequestError
from wfstdec.server.service import Service, in_thread

OPEN_PATHS = ("/", "/health", "/ready")
"""Paths that need no key: the page asks for one, and probes have none."""
WORK = "/v1/"
"""Prefix of the paths that are refused while the server warms up or drains."""
SUBPROTOCOL = "wfstdec.subprotocol"
"""Key in a WebSocket's scope: subprotocol to accept with; may be None."""
_EVERY = frozenset(("0.0.0.0", "::"))  # Wildcard addresses
_PORTS = {"http": 80, "https": 443}
_PROBES = ("/health", "/ready", "/metrics")
_REASONS = {
    401: "key",
    403: "origin",
    413: "body",
    414: "url",
    421: "host",
    429: "client",
}
"""Reason in the metrics, by status of a refusal."""
_SUBPROTOCOLS = ("token", "bearer")
_REALTIME, _REALTIME_KEY = "realtime", "openai-insecure-api-key."
"""Subprotocols of OpenAI's clients in browsers; the second is followed by the key."""
_UNREAD_BYTES = 1 << 16  # of the body of a request whose body is not read
_STOP_S, _MEASURED_S = 5.0, 0.05
_EXPOSED = ("dg-request-id", "retry-after", "x-request-id")
"""Response headers that pages of other origins may read."""

_log = logging.getLogger("wfstdec.server.requests")


def make_app(service: Service, *, page: bool = True) -> Starlette:
    """Return the ASGI app; its lifespan starts and stops the engine."""
    service.metrics.show_counts(service.shared, lambda: service.unready is None)
    routes: list[BaseRoute] = [
        Route("/health", _health),
        Route("/ready", _ready),
        Route("/metrics", _metrics),
        *openai.routes(),
        *deepgram.routes(),
        *deepgram_files.routes(),
        *realtime.routes(),
    ]
    if page:
        routes.append(Route("/", _page))
    paths = frozenset(getattr(route, "path", "") for route in routes)
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestLog, service=service, paths=paths),
            Middleware(Checks, service=service, check=check_host),
            Middleware(
                CORSMiddleware,
                allow_origins=service.origins,
                allow_methods=("GET", "POST", "OPTIONS"),
                allow_headers=("*",),
                expose_headers=_EXPOSED,
            ),
            Middleware(Checks, service=service, check=check_access),
        ],
        exception_handlers=dict.fromkeys(
            (RequestError, HTTPException, Exception), _answer
        ),
        lifespan=_running,
    )
    app.state.service = service
    return app


@contextlib.asynccontextmanager
async def _running(app: Starlette) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.engine.start()
    measuring = asyncio.create_task(_measure(service.metrics))
    try:
        yield
    finally:
        measuring.cancel()
        try:
            await asyncio.wait_for(in_thread(service.stop), _STOP_S)
        except TimeoutError:  # a kernel is compiled, or a model does not answer
            _log.warning("a thread does not stop; it is left alone")


async def _measure(metrics: Metrics) -> None:
    seconds, began = deque[float](maxlen=1000), 0.0

    def note(phase: str, info: object) -> None:
        nonlocal began
        now = time.perf_counter()
        if phase == "start":
            began = now
        else:
            seconds.append(now - began)

    gc.callbacks.append(note)
    try:
        while True:
            due = time.perf_counter() + _MEASURED_S
            await asyncio.sleep(_MEASURED_S)
            metrics.gil_wait.observe(max(0.0, time.perf_counter() - due))
            while seconds:
                metrics.gc.observe(seconds.popleft())
    finally:
        gc.callbacks.remove(note)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    service: Service = request.app.state.service
    reason = service.unready
    state = {
        "ready": reason is None,
        "reason": reason,
        "streams": len(service.engine),
        "max_streams": service.limits.streams,
    }
    return JSONResponse(state, 200 if reason is None else 503)


async def _metrics(request: Request) -> Response:
    metrics = request.app.state.service.metrics
    body, kind = metrics.text(request.headers.get("accept", ""))
    return Response(body, media_type=kind)


async def _page(request: Request) -> Response:
    body, headers = read_page()
    return HTMLResponse(body, headers=headers)


def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, error.detail, headers=error.headers)
    elif not isinstance(error, RequestError):
        error = RequestError(500, "the server failed; its log says why")
    return error.response(request.url.path)


@functools.cache
def read_page() -> tuple[bytes, dict[str, str]]:
    """Return the page (HTML in UTF-8) and the headers to serve it with."""
    # Browsers load the audio worklet from a `blob:` address only.
    body = (files(__package__) / "page" / "index.html").read_bytes()
    sources = {b"script": "", b"style": ""}
    for kind, text in re.findall(rb"<(script|style)>(.*?)</\1>", body, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        sources[kind] += f" 'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src{sources[b'script']} blob:; "
        f"style-src{sources[b'style']}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return body, {
        "content-security-policy": policy,
        "permissions-policy": "microphone=(self), camera=(), geolocation=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }


class Checks:
    """Middleware that checks a request, and answers a refused one.

    `check` raises RequestError, or returns a context to hold during the request.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        check: Callable[[Service, Scope], AbstractContextManager[None] | None],
    ) -> None:
        self._app, self._service, self._check = app, service, check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check requests and handshakes; pass on other scopes."""
        with contextlib.ExitStack() as stack:
            try:
                if scope["type"] in ("http", "websocket"):
                    held = self._check(self._service, scope)
                    stack.enter_context(held or contextlib.nullcontext())
            except RequestError as error:
                reason = _REASONS.get(error.status, error.code or "")
                self._service.metrics.refused.labels(reason).inc()
                path = scope["path"] if scope["type"] == "http" else ""
                await error.response(path)(scope, receive, send)
                return
            await self._app(scope, receive, send)


def check_host(service: Service, scope: Scope) -> None:
    """Check the host name that the client addressed."""
    # Against DNS rebinding: a page of evil.example, whose address then changes to this
    # machine's, has the server's origin for its browser. Browsers always send a `Host`.
    known, host = service.hosts, Headers(scope=scope).get("host")
    if "*" in known or host is None or scope["path"] == "/health":
        return
    # A server that listens on all addresses accepts any address.
    is_own = not _EVERY.isdisjoint(known) and is_address(host)
    if not is_own and host_name(host) not in known:
        raise RequestError(
            421,
            f"the host {host[:100]!r}, expected the server's address or a name of "
            "it; its --host-name allows others",
            code="host_not_allowed",
        )


def check_access(service: Service, scope: Scope) -> AbstractContextManager[None] | None:
    """Check size, origin and key, whether work is accepted, and the client's limit."""
    # A browser that offers subprotocols closes if none is accepted.
    known = (*_SUBPROTOCOLS, _REALTIME)
    offered = [one for one in scope.get("subprotocols", ()) if one in known]
    scope[SUBPROTOCOL] = offered[0] if offered else None
    headers = Headers(scope=scope)
    address = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    if address > (most := service.limits.url_bytes):
        raise RequestError(
            414,
            f"an address of {address} bytes, expected at most {most}; "
            f"{service.limits.remedy('url_bytes')}, and long lists can be sent by "
            "`Configure`",
        )
    body = headers.get("content-length", "0")
    is_long = body.isdecimal() and int(body) > _UNREAD_BYTES
    if scope.get("method") != "POST" and is_long:
        raise RequestError(413, f"a body of {body} bytes, expected none here")
    # Requests without `Origin` do not come from a page of another origin.
    origin = headers.get("origin")
    if origin is not None and not {"*", origin} & {*service.origins}:
        if not is_same_origin(origin, headers.get("host", "")):
            raise RequestError(
                403,
                f"a page of {origin[:100]!r}, expected the server's own; its "
                "--origin lists others",
                code="origin_not_allowed",
            )
    if scope["path"] not in OPEN_PATHS and service.key is not None:
        given = given_key(headers, scope.get("subprotocols", ()))
        if given is None or not same_key(given, service.key):
            found = "no key" if given is None else "another key"
            raise RequestError(
                401,
                f"{found}, expected the server's: 'Authorization: Bearer KEY' or "
                "'Token KEY', in browsers the WebSocket subprotocols 'token', KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
    # No work while kernels are compiled, or when the server is draining.
    if scope["path"].startswith(WORK) and (service.draining or service.warming):
        code, text = "warming", "the server is starting"
        if service.draining:
            code, text = "draining", "the server is about to stop"
        raise RequestError(503, text, code=code, retry_after_s=5)
    if not scope["path"].startswith(WORK) or scope.get("method", "POST") != "POST":
        return None
    return service.counting(scope["client"][0] if scope.get("client") else "")


def host_name(host: str) -> str | None:
    """Return the name in `name:port`, in lower case; None without a name."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, which no name server can change."""
    try:
        return ipaddress.ip_address(host_name(host) or "") is not None
    except ValueError:
        return False


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether the origin's host is the requested one, by any scheme."""
    # A proxy that ends TLS keeps the host, and not always the scheme.
    try:
        page = urlsplit(origin)
        own, default = urlsplit(f"{page.scheme}://{host}"), _PORTS.get(page.scheme)
        ports = {one.port or default for one in (page, own)}
    except ValueError:  # no address, or no port
        return False
    same_host = page.hostname is not None and page.hostname == own.hostname
    return same_host and len(ports) == 1


def given_key(headers: Mapping[str, str], subprotocols: Sequence[str]) -> str | None:
    """Return the key of a request, from a header or a subprotocol."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return key.strip()
    if len(subprotocols) > 1 and subprotocols[0] in _SUBPROTOCOLS:
        return subprotocols[1]
    keys = (one for one in subprotocols if one.startswith(_REALTIME_KEY))
    return next((key.removeprefix(_REALTIME_KEY) for key in keys), None)


def same_key(given: str, key: str) -> bool:
    """Compare keys in constant time, for any length."""
    one, other = (hashlib.sha256(text.encode()).digest() for text in (given, key))
    return hmac.compare_digest(one, other)


class RequestLog:
    """Middleware that logs a line for each request, and counts it."""

    def __init__(
        self, app: ASGIApp, service: Service, paths: Collection[str] = ()
    ) -> None:
        self._app, self._metrics, self._paths = app, service.metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on, and log the status."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            kind = message["type"]
            if kind.endswith("response.start"):
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close":
                status = message.get("code", 1000) if status == 101 else 403
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = status or 500
            raise
        finally:
            path, seconds = scope["path"], time.perf_counter() - began
            route = path if path in self._paths else "other"
            self._metrics.requests.labels(route, str(status)).observe(seconds)
            client, method = scope.get("client") or ("-",), scope.get("method", "WS")
            level = logging.DEBUG if path in _PROBES else logging.INFO
            # an escaped path cannot start a line
            shown = path[:200].encode("unicode_escape").decode()
            what = client[0], method, shown, status, seconds
            _log.log(level, "%s %s %s %d %.3f s", *what)
