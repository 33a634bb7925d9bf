"""Forms with a file, as requests send them: read in bounded memory, off the loop.

The body is counted while it comes in, fields apart from the file, and a client that
sends nothing for too long is given up.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from typing import IO, Any, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from wfstdec.server.errors import RequestError
from wfstdec.server.limits import Limits
from wfstdec.server.service import Job

FILE = "file"
"""The name of the file among the fields."""
_IN_MEMORY = 1 << 20
_OTHER_FIELDS = 200  # fields that may come next to those of a boost list


class FormData(NamedTuple):
    """File, and names and values of all other fields, in order."""

    file: IO[bytes]
    fields: list[tuple[str, str]]


async def read_form(request: Request, job: Job, limits: Limits) -> FormData:
    """Read a request's form; the file is closed with the job."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body_bytes:
        raise _too_large(f"{int(length)} bytes", limits)
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        raise RequestError(
            415,
            f"content type {kind.decode('latin-1', 'replace')!r}, expected "
            "'multipart/form-data' with a field 'file'",
        )
    if not options.get(b"boundary"):
        text = "a form without a boundary, expected one in Content-Type"
        raise RequestError(400, text)
    receiver = _Receiver(options[b"boundary"], job, limits)
    body, size = request.stream(), 0
    close = {"Connection": "close"}
    while True:
        try:
            async with asyncio.timeout(limits.idle_s):
                chunk = await anext(body, None)
        except TimeoutError:
            raise RequestError(
                408,
                f"nothing came for {limits.idle_s:g} s, expected the rest of the "
                f"request; {limits.remedy('idle_s')}",
                headers=close,
            ) from None
        if chunk is None:
            return receiver.finish()
        size += len(chunk)
        if size > limits.body_bytes:  # of unknown length: the rest may have no end
            raise _too_large(f"more than {limits.body_bytes} bytes", limits, close)
        if chunk:
            await asyncio.to_thread(receiver.write, chunk)


def _too_large(
    what: str, limits: Limits, headers: dict[str, str] | None = None
) -> RequestError:
    return RequestError(
        413,
        f"a request of {what}, expected at most {limits.body_bytes}; "
        f"{limits.remedy('body_bytes')}",
        FILE,
        code="file_too_large",
        headers=headers,
    )


class _Receiver:
    """Parts of a form as they come; one thread at a time uses it."""

    def __init__(self, boundary: bytes, job: Job, limits: Limits) -> None:
        self._job, self._limits = job, limits
        self._max_fields = limits.boosts + _OTHER_FIELDS
        # A full boost list may need so much, and some.
        self._max_bytes = _IN_MEMORY + limits.boosts * (4 * limits.boost_chars + 64)
        self._file: Any = None
        self._fields: list[tuple[str, str]] = []
        self._num_bytes = 0  # of fields, which are kept in memory
        self._is_over = False
        self._begin_part()
        callbacks: Any = {
            "on_part_begin": self._begin_part,
            "on_header_field": partial(self._take_header, 0),
            "on_header_value": partial(self._take_header, 1),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_data,
            "on_part_data": self._take_data,
            "on_part_end": self._end_part,
            "on_end": lambda: setattr(self, "_is_over", True),
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise RequestError(400, f"a malformed form: {error}") from None

    def write(self, chunk: bytes) -> None:
        """Take what came in, which may end anywhere."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise RequestError(400, f"a malformed form: {error}") from None
        except OSError as error:
            text = f"no room for the file ({error.strerror})"
            raise RequestError(503, text, FILE, retry_after_s=10) from error

    def finish(self) -> FormData:
        """Give the form, when all has come."""
        if not self._is_over:
            text = "a form that was cut short, expected its last boundary"
            raise RequestError(400, text)
        if self._file is None:
            raise RequestError(400, "no file, expected one in the field 'file'", FILE)
        self._file.seek(0)
        return FormData(self._file, self._fields)

    def _begin_part(self) -> None:
        self._header = [b"", b""]
        self._disposition = b""
        self._name = ""
        self._data = bytearray()
        self._is_file = False

    def _take_header(self, part: int, data: bytes, start: int, end: int) -> None:
        """Take some of a header's name, its part 0, or of its value."""
        self._header[part] += data[start:end]

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = [b"", b""]

    def _begin_data(self) -> None:
        """Find out what a part is, when its headers are there."""
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            text = "a part without a name, expected 'name=' for each field"
            raise RequestError(400, text)
        self._name = _text(options[b"name"], "the name of a field")
        self._is_file = b"filename" in options
        if not self._is_file:
            # Names count too: a form of nothing but names fills memory.
            self._count(len(self._name))
            if len(self._fields) >= self._max_fields:
                raise self._too_many("fields", self._max_fields)
        elif self._name != FILE:
            text = f"a file in the field {self._name!r}, expected it in 'file'"
            raise RequestError(400, text, FILE)
        elif self._file is not None:
            text = "two files, expected one: a request for each"
            raise RequestError(400, text, FILE)
        else:
            self._file = self._job.keep(tempfile.SpooledTemporaryFile(_IN_MEMORY))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file.write(data[start:end])
        else:
            self._count(end - start)
            self._data += data[start:end]

    def _end_part(self) -> None:
        """Keep a field with its value; a file was written while its data came."""
        if self._is_file:
            return
        if self._name == FILE:
            text = "the field 'file' without a file name, expected a file"
            raise RequestError(400, text, FILE)
        value = _text(self._data, f"the field {self._name!r}", self._name)
        self._fields.append((self._name, value))

    def _count(self, size: int) -> None:
        self._num_bytes += size
        if self._num_bytes > self._max_bytes:
            raise self._too_many("bytes next to the file", self._max_bytes)

    def _too_many(self, what: str, most: int) -> RequestError:
        return RequestError(
            413,
            f"more than {most} {what}, expected {most} or fewer; "
            f"{self._limits.remedy('boosts')}",
            code="form_too_large",
        )


def _text(data: bytes | bytearray, what: str, param: str | None = None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = f"{what} is no UTF-8 ({error}), expected it"
        raise RequestError(400, text, param) from None
