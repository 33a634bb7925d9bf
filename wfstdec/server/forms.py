"""Forms with a file, as requests send them: read in bounded memory, off the loop.

    form = await read_form(request.headers, request.stream(), place, limits)
    form.file                    # a temporary file, at its beginning
    form.fields                  # [("model", "hama"), ("keywords[]", "quilter"), ...]

The body is counted while it comes in, fields apart from the file, and a client that
sends nothing for too long is given up.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from wfstdec.server.jobs import Place
from wfstdec.server.limits import Limits
from wfstdec.server.problems import Problem

FILE = "file"
"""The name of the file among the fields."""
_MULTIPART = b"multipart/form-data"
_IN_MEMORY = 1 << 20
_OTHER_FIELDS = 200
"""Fields that may come beside those of a boost list."""


@dataclass
class Form:
    """Fields and file that a request sent.

    Attributes:
        file: The file.
        fields: Names and values of all else, in order.
    """

    file: IO[bytes]
    fields: list[tuple[str, str]] = field(default_factory=list)


async def read_form(
    headers: Mapping[str, str],
    body: AsyncIterator[bytes],
    place: Place,
    limits: Limits,
) -> Form:
    """Read a request's form."""
    said = headers.get("content-length", "")
    if said.isdecimal() and int(said) > limits.body_bytes:
        raise _too_large(f"{int(said)} bytes", limits)
    kind, options = parse_options_header(headers.get("content-type"))
    if kind != _MULTIPART:
        raise Problem(
            415,
            f"content type {kind.decode('latin-1', 'replace')!r}, expected "
            "'multipart/form-data' with a field 'file'",
        )
    if not options.get(b"boundary"):
        raise Problem(400, "a form without a boundary, expected one in Content-Type")
    receiver = _Receiver(options[b"boundary"], place, limits)
    size = 0
    async for chunk in _not_idle(body, limits):
        size += len(chunk)
        if size > limits.body_bytes:  # by nobody's word: the rest may have no end
            raise _too_large(f"more than {limits.body_bytes} bytes", limits, close=True)
        if chunk:
            await asyncio.to_thread(receiver.write, chunk)
    return receiver.finish()


def _too_large(what: str, limits: Limits, *, close: bool = False) -> Problem:
    return Problem(
        413,
        f"a request of {what}, expected at most {limits.body_bytes}; "
        f"{limits.remedy('body_bytes')}",
        FILE,
        code="file_too_large",
        headers={"Connection": "close"} if close else None,
    )


async def _not_idle(body: AsyncIterator[bytes], limits: Limits) -> AsyncIterator[bytes]:
    """Pass a body on; raise where nothing comes."""
    while True:
        try:
            async with asyncio.timeout(limits.idle_s):
                chunk = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Problem(
                408,
                f"nothing came for {limits.idle_s:g} s, expected the rest of the "
                f"request; {limits.remedy('idle_s')}",
                headers={"Connection": "close"},
            ) from None
        yield chunk


class _Receiver:
    """Parts of a form as they come; one thread at a time uses it."""

    def __init__(self, boundary: bytes, place: Place, limits: Limits) -> None:
        self._place, self._limits = place, limits
        self._most_fields = limits.boosts + _OTHER_FIELDS
        # A full boost list may need so much, and some.
        self._most_bytes = _IN_MEMORY + limits.boosts * (4 * limits.boost_chars + 64)
        self._file: Any = None
        self._fields: list[tuple[str, str]] = []
        self._room = self._most_bytes
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
            raise Problem(400, f"a malformed form: {error}") from None

    def write(self, chunk: bytes) -> None:
        """Take what came in, which may end anywhere."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise Problem(400, f"a malformed form: {error}") from None
        except OSError as error:
            raise Problem(
                503, f"no room for the file ({error.strerror})", FILE, retry_after_s=10
            ) from error

    def finish(self) -> Form:
        """Give the form, when all has come."""
        if not self._is_over:
            raise Problem(400, "a form that was cut short, expected its last boundary")
        if self._file is None:
            raise Problem(400, "no file, expected one in the field 'file'", FILE)
        self._file.seek(0)
        return Form(self._file, self._fields)

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
        """See what a part is, when its headers are there."""
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise Problem(400, "a part without a name, expected 'name=' for each field")
        self._name = _text(options[b"name"], "the name of a field")
        self._is_file = b"filename" in options
        # Names count against the room for fields: a form of nothing but names fills
        # memory too.
        if not self._is_file:
            self._spend(len(self._name))
            if len(self._fields) >= self._most_fields:
                raise self._too_many("fields", self._most_fields)
            return
        if self._name != FILE:
            raise Problem(
                400, f"a file in the field {self._name!r}, expected it in 'file'", FILE
            )
        if self._file is not None:
            raise Problem(400, "two files, expected one: a request for each", FILE)
        self._file = self._place.keep(tempfile.SpooledTemporaryFile(_IN_MEMORY))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file.write(data[start:end])
        else:
            self._spend(end - start)
            self._data += data[start:end]

    def _end_part(self) -> None:
        """Keep a field with its value; a file was written while its data came."""
        if self._is_file:
            return
        if self._name == FILE:
            raise Problem(
                400, "the field 'file' without a file name, expected a file", FILE
            )
        value = _text(bytes(self._data), f"the field {self._name!r}", self._name)
        self._fields.append((self._name, value))

    def _spend(self, size: int) -> None:
        """Count the bytes of fields, which are kept in memory."""
        self._room -= size
        if self._room < 0:
            raise self._too_many("bytes beside the file", self._most_bytes)

    def _too_many(self, what: str, most: int) -> Problem:
        return Problem(
            413,
            f"more than {most} {what}, expected {most} or fewer; "
            f"{self._limits.remedy('boosts')}",
            code="form_too_large",
        )


def _text(data: bytes, what: str, param: str | None = None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            400, f"{what} is no UTF-8 ({error}), expected it", param
        ) from None
