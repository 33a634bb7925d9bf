"""Problems that a client is told of over HTTP, in the words of OpenAI's protocol.

    raise Problem(400, "response_format 'xml', expected 'json', ...", "response_format")

    HTTP/1.1 400 Bad Request
    {"error": {"message": "...", "type": "invalid_request_error",
               "param": "response_format", "code": null}}

A handler raises, and the app answers. OpenAI's clients make of the
status an exception (`BadRequestError`, ...), and ask again by themselves at 408, 409,
429 and from 500 on, after `Retry-After` where it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import JSONResponse

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Types of problems by status, where it is none of the two common ones."""


class Problem(Exception):
    """Problem of a request: what is wrong, or why it cannot be served now.

    `param`: the parameter that it is about; None where it is about no single one.
    `type`: kind of problem in OpenAI's words; None follows from the status.

    Attributes:
        status, message, param, type, code, headers: As given; `headers` with
            `Retry-After`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        type: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        usual = "server_error" if status >= 500 else "invalid_request_error"
        self.type = type or _TYPES.get(status, usual)
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """Body of the answer, as JSON has it."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """Make the answer that says it."""
        return JSONResponse(self.body, self.status, self.headers)
