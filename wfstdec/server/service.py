"""The service: what all handlers of requests share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from wfstdec.models import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.server.engine import Engine, Stream
from wfstdec.server.jobs import Jobs
from wfstdec.server.limits import Limits
from wfstdec.server.measures import Measures
from wfstdec.server.stream import Event

_log = logging.getLogger(__name__)


@dataclass
class Service:
    """A model, a decoder, an engine, and what they may be asked for.

    Attributes:
        name: Of the model, as `GET /v1/models` says it.
        model: Makes log-probs.
        decoder: Over its tokens; used by the engine and by requests with files.
        engine: Advances the streams.
        limits: What clients may ask for.
        measures: Counts and times, as `GET /metrics` gives them.
        key: What clients have to send; None for nothing.
        origins: Other origins whose pages may speak to the server; '*' for any.
        language: What answers say the language is.
        confidence: Whether words of files get confidences where nobody asks for them.
        jobs: Requests with files; the app stops them in the end.
        hand_over: The engine's `post`; the app binds it to its loop.
        warming: Whether kernels are still compiled, and nothing is taken yet.
        draining: Whether the server is about to stop and takes nothing new.
    """

    name: str
    model: Encoder
    decoder: Decoder[Any, Any]
    engine: Engine
    limits: Limits
    measures: Measures
    key: str | None = None
    origins: tuple[str, ...] = ()
    language: str = "en"
    confidence: bool = False
    hand_over: HandOver = field(default_factory=lambda: HandOver())
    warming: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    jobs: Jobs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the places for requests; their threads come with the first ones."""
        self.jobs = Jobs(self.limits)

    @classmethod
    def of(
        cls,
        model: Encoder,
        decoder: Decoder[Any, Any],
        limits: Limits | None = None,
        *,
        name: str = "wfstdec",
        confidence: bool = False,
        nbest: int = 1,
        workers: int | None = None,
        **more: Any,
    ) -> Service:
        """Make a service and its engine.

        `limits`: what clients may ask for; None for the defaults. `workers`: threads of
        the encoder; None is one for each processor.
        """
        limits, measures, hand_over = limits or Limits(), Measures(), HandOver()
        engine = Engine(
            model,
            decoder,
            limits,
            measures,
            post=hand_over,
            confidence=confidence,
            nbest=nbest,
            workers=workers,
        )
        more |= {"confidence": confidence, "hand_over": hand_over}
        return cls(name, model, decoder, engine, limits, measures, **more)

    def stop(self) -> None:
        """Give up all streams and files, and wait until no thread is left."""
        try:
            self.jobs.stop()
        finally:
            self.engine.stop()

    @property
    def unready(self) -> str | None:
        """Why no new stream is taken: 'warming', 'draining', 'full'; else None."""
        if self.draining:
            return "draining"
        if self.warming:
            return "warming"
        return "full" if len(self.engine) >= self.limits.streams else None


class HandOver:
    """Takes events from the engine's thread to the handlers on the loop.

    It is the engine's `post`, made before there is a loop.

    Attributes:
        loop: Of the handlers; None drops all events.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, events: Sequence[tuple[Stream, Event]]) -> None:
        """Have the loop give each event to its stream's handler; waits for nothing."""
        if self.loop is not None and events:
            with contextlib.suppress(RuntimeError):  # it was closed in this moment
                self.loop.call_soon_threadsafe(_deliver, list(events))


def _deliver(events: Sequence[tuple[Stream, Event]]) -> None:
    """Give events to handlers; one that fails costs the others nothing."""
    for stream, event in events:
        try:
            stream.context.take(event)
        except Exception:
            _log.exception("an event could not be handed over")


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run something in a thread that nobody waits for when the program ends."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # it goes on where nobody waits any more

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
