"""Read the head and tail of an audio file: its form, and whether it is whole.

libsndfile reads a cut WAV, Ogg or MP3 as if it were a shorter one, or as if silence
followed; the headers know better.
"""

from __future__ import annotations

import io
import os
from typing import IO, Literal

_TAIL = 70_000  # an Ogg page is at most 65,307 bytes
UNKNOWN_SIZE = 0x7FFF0000
"""Sizes from here on are written by programs that could not know them (a pipe)."""


_OF_AV = (
    (4, b"ftyp", "MP4"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
    (0, b"\xff\xf1", "AAC"),
    (0, b"\xff\xf9", "AAC"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
)
"""Where a form's first bytes are, which they are, and its name."""


def needs_av(head: bytes) -> str | None:
    """Name of a form that libsndfile does not read and FFmpeg does, by 16 bytes."""
    names = (name for at, begin, name in _OF_AV if head.startswith(begin, at))
    return next(names, None)


def cut_short(file: IO[bytes]) -> str | None:
    """Say what a header promises and the file lacks; None where it is whole."""
    place = file.tell()
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(256)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _cut_chunk(file, size, "little", b"data")
        if head[:4] == b"FORM" and head[8:11] == b"AIF":
            return _cut_chunk(file, size, "big", b"SSND")
        if head[:4] == b"OggS":
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            # The last page must be whole, and say that the stream ends.
            page = tail[tail.rfind(b"OggS") :] if b"OggS" in tail else b""
            lacing = page[27 : 27 + page[26]] if len(page) > 26 else b""
            is_whole = len(page) > 26 and len(page) >= 27 + page[26] + sum(lacing)
            if is_whole and page[5] & 4:
                return None
            return "no page says that the stream ends"
        return _cut_mp3(file, head, size)
    finally:
        file.seek(place)


def with_size(file: IO[bytes]) -> IO[bytes]:
    """Return a WAV with the size of its samples filled in, if its header has 0."""
    # Such a file is read into memory, as libsndfile takes 0 for no samples.
    place, head = file.tell(), b""
    file.seek(0)
    head = file.read(4096)
    at = head.find(b"data\0\0\0\0") if head[:4] == b"RIFF" else -1
    rest = file.read() if at >= 0 else b""
    file.seek(place)
    samples = head[at + 8 :] + rest
    if at < 0 or not samples:
        return file
    size = len(samples).to_bytes(4, "little")
    return io.BytesIO(head[: at + 4] + size + samples)


def _cut_chunk(
    file: IO[bytes], size: int, order: Literal["little", "big"], name: bytes
) -> str | None:
    """Find the chunk of samples in RIFF or AIFF, and where it should end."""
    start = 12
    while True:
        file.seek(start)
        head = file.read(8)
        if len(head) < 8:
            return None
        length = int.from_bytes(head[4:], order)
        if head[:4] == name:
            break
        start += 8 + length + length % 2
    there = size - start - 8
    if length >= UNKNOWN_SIZE or length <= there:
        return None
    return f"the header says {length} bytes of samples, {there} are there"


def _cut_mp3(file: IO[bytes], head: bytes, size: int) -> str | None:
    """Compare the file with the size in a Xing or Info header, where it has one."""
    start = 0
    if head[:3] == b"ID3":  # its size has 7 bits in each byte
        start = 10 + sum(byte << 7 * (3 - i) for i, byte in enumerate(head[6:10]))
        file.seek(start)
        head = file.read(256)
    if len(head) < 64 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    at = max(head.find(b"Xing", 0, 64), head.find(b"Info", 0, 64))
    # Flag 2: the header says how many bytes there are.
    if at < 0 or not head[at + 7] & 2:
        return None
    # Flag 1: the number of frames comes before it.
    field = at + 8 + (4 if head[at + 7] & 1 else 0)
    length = int.from_bytes(head[field : field + 4], "big")
    if length <= size - start:
        return None
    return f"the header says {length} bytes, {size - start} are there"
