"""Access to the server: who may ask, from which pages, and what is noted of it.

    app = RequestLog(CORSMiddleware(Access(app, service), ...), service)

A request passes the log, which writes one line without query and key; the check of its
`Origin`, so that no other site's page can use a server that its visitor can reach; the
key; and, where it would begin work, the question whether the server takes any.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service

OPEN_PATHS = ("/", "/health", "/ready")
"""Paths that need no key: the page asks for one, and probes have none."""
WORK = "/v1/"
"""Where paths begin that are refused while the server warms up or drains."""
SUBPROTOCOL = "wfstdec.subprotocol"
"""Name in a WebSocket's scope of the subprotocol to accept it with; may be None."""
_REALTIME_KEY = "openai-insecure-api-key."
_PORTS = {"http": 80, "https": 443}
_PROBES = ("/health", "/ready", "/metrics")
_REASONS = {401: "key", 403: "origin", 413: "body", 414: "url"}
"""Words for the measures, by the status that a request is refused with."""
_SUBPROTOCOLS = ("token", "bearer", "realtime")
_BODY_OF_NOTHING = 1 << 16
"""Bytes of a body that nobody reads."""

_log = logging.getLogger("wfstdec.server.requests")


class Access:
    """Middleware that lets a request through, or says why not."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check requests and handshakes; the rest passes."""
        if scope["type"] in ("http", "websocket"):
            # One to accept with: a browser that offers any closes if none is taken.
            offered = [*scope.get("subprotocols", ()), None]
            scope[SUBPROTOCOL] = offered[0] if offered[0] in _SUBPROTOCOLS else None
            try:
                self._check(scope)
            except Problem as problem:
                reason = _REASONS.get(problem.status, problem.code or "")
                self._service.measures.refused(reason)
                # Also a handshake, before it is accepted.
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        check_size(scope, headers, self._service.limits)
        check_origin(headers, self._service.origins)
        if scope["path"] not in OPEN_PATHS:
            subprotocols = scope.get("subprotocols", ())
            check_key(headers, subprotocols, self._service.key)
        if scope["path"].startswith(WORK):
            # No work while kernels are compiled, and when the server is about to stop.
            if self._service.draining or self._service.warming:
                code = "draining" if self._service.draining else "warming"
                text = "about to stop" if code == "draining" else "starting"
                raise Problem(503, f"the server is {text}", code=code, retry_after_s=5)


def check_size(scope: Scope, headers: Headers, limits: Limits) -> None:
    """Refuse an address that is too long, and a body where none is read."""
    address = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    if address > limits.url_bytes:
        raise Problem(
            414,
            f"an address of {address} bytes, expected at most {limits.url_bytes}; "
            f"{limits.remedy('url_bytes')}, and long lists can be sent by `Configure`",
        )
    body = headers.get("content-length", "0")
    if scope.get("method") != "POST" and body.isdecimal():
        if int(body) > _BODY_OF_NOTHING:
            raise Problem(413, f"a body of {body} bytes, expected none here")


def check_origin(headers: Mapping[str, str], origins: Sequence[str]) -> None:
    """Refuse pages of other sites but those that are listed.

    What sends no `Origin` is no page, and may come.
    """
    origin = headers.get("origin")
    if origin is None or "*" in origins or origin in origins:
        return
    if not is_same_origin(origin, headers.get("host", "")):
        raise Problem(
            403,
            f"a page of {origin[:100]!r}, expected the server's own; its --origin "
            "lists others",
            code="origin_not_allowed",
        )


def is_same_origin(origin: str, host: str) -> bool:
    """Tell whether a page comes from the host that it asks, whatever the scheme.

    A proxy that ends TLS keeps the host, and not always the scheme.
    """
    try:
        page, own = urlsplit(origin), urlsplit(f"{urlsplit(origin).scheme}://{host}")
        default = _PORTS.get(page.scheme)
        return page.hostname is not None and (
            (page.hostname, page.port or default) == (own.hostname, own.port or default)
        )
    except ValueError:  # no address, or no port
        return False


def check_key(
    headers: Mapping[str, str], subprotocols: Sequence[str], key: str | None
) -> None:
    """Refuse a request without the key; with none, everybody may come."""
    if key is None:
        return
    given = given_key(headers, subprotocols)
    if given is None or not same_key(given, key):
        found = "no key" if given is None else "another key"
        raise Problem(
            401,
            f"{found}, expected the server's: 'Authorization: Bearer KEY' or "
            "'Token KEY', in browsers the WebSocket subprotocols 'token', KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def given_key(headers: Mapping[str, str], subprotocols: Sequence[str]) -> str | None:
    """The key that a request came with, by header or by subprotocol."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return key.strip()
    if len(subprotocols) > 1 and subprotocols[0] in ("token", "bearer"):
        return subprotocols[1]
    for name in subprotocols:
        if subprotocols[0] == "realtime" and name.startswith(_REALTIME_KEY):
            return name.removeprefix(_REALTIME_KEY)
    return None


def same_key(given: str, key: str) -> bool:
    """Compare in a time that tells neither where they differ, nor how long one is."""
    one, other = (hashlib.sha256(text.encode()).digest() for text in (given, key))
    return hmac.compare_digest(one, other)


class RequestLog:
    """Middleware that writes a line of each request, and counts it.

    Neither queries nor headers are written: names of people are among boosts, and keys
    among queries of clients that know no better. Paths that are not `paths` are one
    route in the measures.
    """

    def __init__(
        self, app: ASGIApp, service: Service, paths: Collection[str] = ()
    ) -> None:
        self._app, self._measures, self._paths = app, service.measures, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; note how it ended."""
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
            self._measures.request_done(route, status, seconds)
            client, method = scope.get("client") or ("-",), scope.get("method", "WS")
            level = logging.DEBUG if path in _PROBES else logging.INFO
            shown = path[:200].encode("unicode_escape").decode()  # no line of its own
            what = client[0], method, shown, status, seconds
            _log.log(level, "%s %s %s %d %.3f s", *what)
