"""Limits of the server, each an option, and errors of requests.

    HTTP/1.1 400 Bad Request
    {"error": {"message": "...", "type": "invalid_request_error",
               "param": "response_format", "code": null}}

A handler raises, and the app answers in the words of OpenAI's protocol. Its clients
make an exception of the status, and retry at 408, 409, 429 and from 500 on, after
`Retry-After` where it is given. Files of Deepgram's protocol are answered in its own:

    {"err_code": "Bad Request", "err_msg": "...", "request_id": "..."}
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from wfstdec.search.options import CheckedOptions

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

_Value = TypeVar("_Value")

LISTEN = "/v1/listen"
"""Path of Deepgram's protocol, whose errors have another form."""

ENDPOINT_FLOOR_S = 0.4
"""Least silence after a good end that ends an utterance, where clients ask for less."""


def _limit(default: Any, text: str) -> Any:
    """Make a field with the help of its flag."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Limits(CheckedOptions):
    """Limits on what clients ask; errors name the flag that raises a limit."""

    streams: int = _limit(256, "streams at once")
    buffered_s: float = _limit(
        10.0,
        "seconds of a stream's audio that wait for the search; it is then read no "
        "faster",
    )
    message_bytes: int = _limit(1 << 20, "bytes of a message of a stream")
    body_bytes: int = _limit(200 << 20, "bytes of a request with a file")
    file_s: float = _limit(4 * 3600.0, "seconds of a request's audio")
    boosts: int = _limit(20_000, "entries of a boost list")
    boost_chars: int = _limit(64, "characters of an entry of a boost list")
    idle_s: float = _limit(
        10.0, "seconds without a message after which a stream is closed"
    )
    silent_s: float = _limit(
        600.0, "seconds without audio after which a stream is closed"
    )
    unread_s: float = _limit(
        10.0, "seconds that a client may leave its messages unread"
    )
    requests: int = _limit(64, "requests with files that are worked on or wait")
    connections: int = _limit(4096, "connections, also of clients that ask nothing yet")
    per_client: int | None = _limit(
        None,
        "streams and files of an address (/64 of IPv6) (default: 64 with "
        "--proxy-headers, else no limit)",
    )
    uploads: int = _limit(256, "requests whose files are being received")
    least_upload_rate: int = _limit(
        50_000, "bytes a second of a file, below which its request is given up"
    )
    drain_s: float = _limit(
        30.0, "seconds from the first signal to stop until streams are cut off"
    )
    url_bytes: int = _limit(128 << 10, "bytes of an address, with its query")

    @staticmethod
    def flag(name: str) -> str:
        """Name the flag of `wfstdec serve` that sets a limit, for errors."""
        prefix = "" if name.startswith("least_") else "max_"
        return "--" + (prefix + name).replace("_", "-")

    @classmethod
    def remedy(cls, name: str) -> str:
        """Say what raises a limit, for errors."""
        return f"the server's {cls.flag(name)} allows more"

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name.endswith("_s"):
                self.check(name, lambda x: x > 0, "seconds, above 0")
            else:
                self.check_count(name, optional=name == "per_client")


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Types by status, where it is none of the two common ones."""
_ERR_CODES = {401: "INVALID_AUTH", 429: "TOO_MANY_REQUESTS"}
"""Deepgram's codes that are not the name of the status."""


class RequestError(Exception):
    """A request that is wrong, or cannot be served now; `param` is the wrong field."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """Body of the answer, as JSON has it."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, usual),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, path: str = "") -> JSONResponse:
        """Make the answer to a request for a path."""
        from starlette.responses import JSONResponse  # the command line has none

        body: dict[str, Any] = self.body
        if path == LISTEN:
            request_id = str(uuid.uuid4())
            err_code = _ERR_CODES.get(self.status, HTTPStatus(self.status).phrase)
            body = {"err_code": err_code, "err_msg": self.message}
            body["request_id"] = self.headers["dg-request-id"] = request_id
        return JSONResponse(body, self.status, self.headers)


def wrong_value(
    name: str, found: str, expected: str, code: str | None = None
) -> RequestError:
    """Make the error of a field or parameter; what was found may be long."""
    found = found if len(found) <= 100 else found[:100] + "...'"
    text = f"{name}: found {found}, expected {expected}"
    return RequestError(400, text, name, code=code)


def read_value(
    name: str,
    text: str,
    read: Callable[[str], _Value],
    expected: str,
    code: str | None = None,
) -> _Value:
    """Read the text of a field or parameter; `read` raises what is no such value."""
    try:
        return read(text)
    except (KeyError, ValueError):
        raise wrong_value(name, repr(text), expected, code) from None
