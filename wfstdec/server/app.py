"""The app: all routes over one service, as ASGI servers run it.

GET  /                        the page
GET  /health                  200 while the loop runs
GET  /ready                   200, or 503 and why: warming, draining, full
GET  /metrics                 measures, for Prometheus
POST /v1/audio/transcriptions, GET /v1/models
WS   /v1/listen

app = make_app(service)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from wfstdec.server import deepgram as listen
from wfstdec.server import transcriptions
from wfstdec.server.access import Access, RequestLog
from wfstdec.server.page import read_page
from wfstdec.server.problems import Problem
from wfstdec.server.service import Service, in_thread

_STOP_S = 5.0
_METHODS = ("GET", "POST", "OPTIONS")
_EXPOSED = ("dg-request-id", "retry-after", "x-request-id")
"""Headers of answers that pages of other origins may read."""

_log = logging.getLogger(__name__)


def make_app(service: Service, *, page: bool = True) -> Starlette:
    """Make the app; it starts the engine, and stops it in the end."""
    service.measures.watch(
        streams=lambda: len(service.engine),
        ready=lambda: float(service.unready is None),
    )
    routes: list[BaseRoute] = [
        Route("/health", _health),
        Route("/ready", _ready),
        Route("/metrics", _metrics),
        *transcriptions.routes(),
        *listen.routes(),
    ]
    if page:
        routes.append(Route("/", _page))
    paths = frozenset(getattr(route, "path", "") for route in routes)
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestLog, service=service, paths=paths),
            Middleware(
                CORSMiddleware,
                allow_origins=service.origins,
                allow_methods=_METHODS,
                allow_headers=("*",),
                expose_headers=_EXPOSED,
            ),
            Middleware(Access, service=service),
        ],
        exception_handlers=dict.fromkeys((Problem, HTTPException, Exception), _answer),
        lifespan=_running,
    )
    app.state.service = service
    return app


@contextlib.asynccontextmanager
async def _running(app: Starlette) -> AsyncIterator[None]:
    """Run the engine as long as the app; the threads of files end with it."""
    service: Service = app.state.service
    service.hand_over.loop = asyncio.get_running_loop()
    service.engine.start()
    try:
        yield
    finally:
        try:
            await asyncio.wait_for(in_thread(service.stop), _STOP_S)
        except TimeoutError:  # a kernel is compiled, or a model does not answer
            _log.warning("a thread does not stop; it is left alone")
        service.hand_over.loop = None


async def _health(request: Request) -> Response:
    """Tell that the loop runs."""
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    """Tell whether new streams are taken, for balancers."""
    service: Service = request.app.state.service
    reason = service.unready
    said = {
        "ready": reason is None,
        "reason": reason,
        "streams": len(service.engine),
        "max_streams": service.limits.streams,
    }
    return JSONResponse(said, 200 if reason is None else 503)


async def _metrics(request: Request) -> Response:
    """Give all measures."""
    service: Service = request.app.state.service
    body, kind = service.measures.text(request.headers.get("accept"))
    return Response(body, media_type=kind)


async def _page(request: Request) -> Response:
    """Give the page, which may load nothing from elsewhere."""
    page = read_page()
    return HTMLResponse(page.body, headers=page.headers)


def _answer(request: Request, error: Exception) -> Response:
    """Say in one form what handlers raise, and what Starlette finds: no such path."""
    if isinstance(error, HTTPException):
        error = Problem(error.status_code, error.detail, headers=error.headers)
    elif not isinstance(error, Problem):
        error = Problem(500, "the server failed; its log says why")
    return error.response()
