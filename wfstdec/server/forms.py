"""Forms with a file, as requests send them: read in bounded memory, off the loop.

The body is counted while it comes in, fields apart from the file, and a client that
sends nothing for too long is given up.
"""

from __future__ import annotations

import asyncio
import tempfile
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
_FIELD_BYTES = 64  # that a field counts for next to its name and value


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
        # A full boost list may need so much, and some.
        entry = 4 * limits.boost_chars + 2 * _FIELD_BYTES
        self._max_bytes = _IN_MEMORY + limits.boosts * entry
        self._file: Any = None
        self._fields: list[tuple[str, str]] = []
        self._num_bytes = 0  # of fields, which are kept in memory
        self._is_over = False
        names = [name for name in dir(self) if name.startswith("on_")]
        callbacks: Any = {name: getattr(self, name) for name in names}
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

    # What the parser calls, by the names that it has for it.
    def on_part_begin(self) -> None:
        self._header = self._value = self._disposition = b""
        self._data = bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def on_headers_finished(self) -> None:
        """Find out what a part is, when its headers are there."""
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            text = "a part without a name, expected 'name=' for each field"
            raise RequestError(400, text)
        self._name = _text(options[b"name"], "the name of a field")
        self._is_file = b"filename" in options
        if not self._is_file:
            # Names count too: a form of nothing but names fills memory.
            self._count(_FIELD_BYTES + len(self._name))
        elif self._name != FILE:
            text = f"a file in the field {self._name!r}, expected it in 'file'"
            raise RequestError(400, text, FILE)
        elif self._file is not None:
            text = "two files, expected one: a request for each"
            raise RequestError(400, text, FILE)
        else:
            self._file = self._job.keep(tempfile.SpooledTemporaryFile(_IN_MEMORY))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file.write(data[start:end])
        else:
            self._count(end - start)
            self._data += data[start:end]

    def on_part_end(self) -> None:
        """Keep a field with its value; a file was written while its data came."""
        if self._is_file:
            return
        if self._name == FILE:
            text = "the field 'file' without a file name, expected a file"
            raise RequestError(400, text, FILE)
        value = _text(self._data, f"the field {self._name!r}", self._name)
        self._fields.append((self._name, value))

    def on_end(self) -> None:
        self._is_over = True

    def _count(self, size: int) -> None:
        self._num_bytes += size
        if self._num_bytes > (most := self._max_bytes):
            raise RequestError(
                413,
                f"more than {most} bytes next to the file, expected {most} or fewer; "
                f"{self._limits.remedy('boosts')}",
                code="form_too_large",
            )


def _text(data: bytes | bytearray, what: str, param: str | None = None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = f"{what} is no UTF-8 ({error}), expected it"
        raise RequestError(400, text, param) from None
