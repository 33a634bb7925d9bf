"""Limits of the server, one option each, and errors of requests.

    HTTP/1.1 400 Bad Request
    {"error": {"message": "...", "type": "invalid_request_error",
               "param": "response_format", "code": null}}

A handler raises, and the app answers in the format of OpenAI. Its clients raise an
exception for the status, and retry at 408, 409, 429 and from 500 on, after
`Retry-After` if present. Files of Deepgram's protocol have its format:

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

LISTEN = "/v1/listen"  # Path of Deepgram's protocol, whose errors have another format

ENDPOINT_FLOOR_S = 0.4
"""Shortest silence after a good end that ends an utterance, if clients request less."""


def _limit(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Limits(CheckedOptions):
    """Limits on requests of clients; errors name the flag that raises a limit."""

    streams: int = _limit(256, "streams at once")
    buffered_s: float = _limit(
        10.0,
        "seconds of a stream's audio that may wait for the search; more is throttled",
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
    requests: int = _limit(64, "running and waiting requests with files")
    connections: int = _limit(4096, "connections, including idle ones")
    per_client: int | None = _limit(
        None,
        "streams and files of an address (/64 of IPv6) (default: 64 with "
        "--proxy-headers, else no limit)",
    )
    uploads: int = _limit(256, "requests whose files are being received")
    least_upload_rate: int = _limit(
        50_000, "bytes per second of a file, below which its request is aborted"
    )
    drain_s: float = _limit(
        30.0, "seconds from the first signal to stop until streams are cut off"
    )
    url_bytes: int = _limit(128 << 10, "bytes of an address, with its query")

    @staticmethod
    def flag(name: str) -> str:
        """Return the flag of `wfstdec serve` that sets a limit."""
        prefix = "" if name.startswith("least_") else "max_"
        return "--" + (prefix + name).replace("_", "-")

    @classmethod
    def remedy(cls, name: str) -> str:
        """Return the hint on how to raise a limit, for errors."""
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
"""Error types by status, except the two common ones."""
_ERR_CODES = {401: "INVALID_AUTH", 429: "TOO_MANY_REQUESTS"}
"""Deepgram's codes that differ from the name of the status."""


class RequestError(Exception):
    """Invalid request, or one that cannot be served now; `param` is the wrong field."""

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
        """Return the JSON body of the response."""
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
        """Return the response to a request for a path."""
        # the command line does not need it
        from starlette.responses import JSONResponse

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
    """Return the error of a field or parameter; `found` is shortened."""
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
    """Parse the text of a field or parameter; `read` raises for a wrong value."""
    try:
        return read(text)
    except (KeyError, ValueError):
        raise wrong_value(name, repr(text), expected, code) from None
