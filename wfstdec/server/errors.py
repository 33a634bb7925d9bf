"""Errors of HTTP requests, in the words of OpenAI's protocol.

    HTTP/1.1 400 Bad Request
    {"error": {"message": "...", "type": "invalid_request_error",
               "param": "response_format", "code": null}}

A handler raises, and the app answers. OpenAI's clients make an exception of the status,
and retry at 408, 409, 429 and from 500 on, after `Retry-After` where it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.responses import JSONResponse

_Value = TypeVar("_Value")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Types by status, where it is none of the two common ones."""


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

    def response(self) -> JSONResponse:
        """Make the answer."""
        return JSONResponse(self.body, self.status, self.headers)


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
