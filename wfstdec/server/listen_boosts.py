"""Boosts of a stream of `WS /v1/listen`, as its query and `Configure` messages say.

    boosts = StreamBoosts(query, limits)
    stream.change_boosts(boosts.asked(message))     # Configure
    boosts.settled(event)                           # BoostsChanged: it holds, or not

Keyterms, keywords and boosts are replaced each by itself; together they are the list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import OptionError
from wfstdec.server.boosts import requested_boosts
from wfstdec.server.events import BoostsChanged
from wfstdec.server.limits import Limits
from wfstdec.server.listen_messages import Answers, Configure, Json
from wfstdec.server.listen_query import Query


@dataclass(frozen=True)
class _Lists:
    keyterms: Any = ()
    keywords: Any = ()
    boosts: Any = None

    def changed(self, message: Configure) -> _Lists:
        """Replace what the message has; None keeps what there is."""
        given = {name: getattr(message, name) for name in self.__dataclass_fields__}
        return replace(self, **{k: v for k, v in given.items() if v is not None})


class StreamBoosts:
    """Boosts of a stream, and the change to them that is under way: one at a time.

    Args:
        query: What the stream was opened with.
        limits: Of lists.
    """

    def __init__(self, query: Query, limits: Limits) -> None:
        self._limits = limits
        self._lists = _Lists(query.keyterms, query.keywords)
        self._asked: tuple[_Lists, Configure] | None = None

    def asked(self, message: Configure) -> BoostsLike:
        """Make the list that a message asks for; `settled` says what came of it.

        Raises:
            BoostError, OptionError: As of `requested_boosts`; all stays as it was.
        """
        lists = self._lists.changed(message)
        boosts = requested_boosts(
            keyterms=lists.keyterms,
            keywords=lists.keywords,
            boosts=lists.boosts,
            limits=self._limits,
        )
        self._asked = lists, message
        return boosts

    def settled(self, event: BoostsChanged, answers: Answers) -> Json:
        """Note what the engine made of what was asked for; what the client is told."""
        assert self._asked is not None
        (lists, message), self._asked = self._asked, None
        if event.error is not None:
            return refusal(event.error, answers)
        self._lists = lists
        ignored = [f"{name!r} is not changed here" for name in message.ignored]
        return answers.configured(
            None if message.keyterms is None else lists.keyterms,
            now=event.from_now,
            warnings=[*event.warnings, *ignored],
        )


def refusal(error: Exception, answers: Answers) -> Json:
    """Tell why a list is not taken, with Deepgram's code where there is one."""
    code = "CONFIGURE_INVALID"
    if isinstance(error, OptionError):
        code = "CONFIGURE_KEYTERM_LIMIT_EXCEEDED"
    elif not isinstance(error, ValueError):
        code = "CONFIGURE_INTERNAL_ERROR"
    return answers.not_configured(code, str(error))
