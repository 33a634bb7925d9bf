"""KenLM's binary files: their header, and the words at their end.

    header = read_kenlm_header("lm.bin")            # None: it is no such file
    words = read_kenlm_words("lm.bin")

What stands between depends on the format: `kenlm_trie.py` reads the trie; the probing
format keeps hashes in the place of n-grams, and cannot be listed.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

from wfstdec.errors import FormatError
from wfstdec.text.arpa_model import MAX_ORDER

MAGIC = b"mmap lm http://kheafield.com/code"
_VERSION_5 = b"mmap lm http://kheafield.com/code format version 5\n\0\0"
_TEST_VALUES = struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfIB3xI")
_FIRST = 56 + len(_TEST_VALUES)
KINDS = (
    "probing",
    "rest probing",
    "trie",
    "quantised trie",
    "array-compressed trie",
    "quantised array-compressed trie",
)
REBUILD = "; build it again with KenLM's build_binary"


class KenlmHeader(NamedTuple):
    """Header of a KenLM file.

    Attributes:
        kind: One of `KINDS`.
        counts: The n-grams of each order, those that KenLM adds included.
        has_words: Whether the words stand at its end.
        size: Bytes before the search tables.
    """

    kind: str
    counts: tuple[int, ...]
    has_words: bool
    size: int

    @property
    def is_trie(self) -> bool:
        """Tell whether its n-grams can be listed."""
        return self.kind.endswith("trie")


def read_kenlm_header(path: str | os.PathLike[str]) -> KenlmHeader | None:
    """The header of a binary file; None of any other file.

    Raises:
        FormatError: It cannot be read; it is of another version or byte order, or its
            header is damaged.
    """
    place = os.fspath(path)
    try:
        with open(path, "rb") as file:
            start = file.read(_FIRST + _FIXED.size + 8 * 256)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FormatError(f"{place}: cannot read: {error.strerror}") from None
    if not start.startswith(b"mmap lm"):
        return None
    _check_magic(start, place)
    order, _, kind, has_words, version = _FIXED.unpack_from(start, _FIRST)
    counts_at = _FIRST + _FIXED.size
    if len(start) < counts_at + 8 * order:
        raise damaged(place, f"it ends after {size} bytes, within its header")
    counts = struct.unpack_from(f"<{order}Q", start, counts_at)
    if kind >= len(KINDS) or version > 1 or has_words > 1:
        raise damaged(place, f"model type {kind}, search version {version}")
    if not 2 <= order <= MAX_ORDER:
        raise FormatError(f"{place}: order {order}, expected 2 to {MAX_ORDER}")
    # No n-gram takes less than a bit: damage would otherwise ask for all memory.
    if max(counts) > size * 8:
        raise damaged(place, f"{max(counts)} n-grams in {size} bytes")
    end = -(-(counts_at + 8 * order) // 8) * 8
    return KenlmHeader(KINDS[kind], counts, bool(has_words), end)


def _check_magic(start: bytes, place: str) -> None:
    if start.startswith(MAGIC + b" incomplete"):
        raise FormatError(
            f"{place}: a KenLM binary that was never finished, expected a whole one"
            + REBUILD
        )
    if len(start) < _FIRST + _FIXED.size:
        raise damaged(place, f"it ends after {len(start)} bytes, within its header")
    if not start.startswith(_VERSION_5):
        found = start[:60].split(b"\n")[0]
        raise FormatError(
            f"{place}: {found.decode('ascii', 'replace')!r}, expected format version 5"
            + REBUILD
        )
    # KenLM writes a few numbers as the machine has them, for this.
    if start[56:_FIRST] != _TEST_VALUES:
        raise FormatError(
            f"{place}: a KenLM binary of another machine (byte order or word size), "
            "expected little-endian, 64 bits" + REBUILD
        )


def read_kenlm_words(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The words of a binary file, by KenLM's ids; `<unk>` is the first.

    Raises:
        FormatError: It has none, or is damaged.
    """
    place, header = os.fspath(path), read_kenlm_header(path)
    if header is None:
        raise FormatError(f"{place}: no KenLM binary, expected one")
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        start = data.rfind(b"<unk>\0", header.size)
        return words_of(data[start:] if start >= 0 else b"", header, str(place))


def words_of(data: bytes, header: KenlmHeader, place: str) -> tuple[str, ...]:
    """The words in the bytes at the end of a file; arguments and errors as above."""
    if not header.has_words:
        raise FormatError(
            f"{place}: a KenLM binary without its words, expected them at its end"
            + REBUILD
        )
    try:
        words = data.decode().split("\0")
    except UnicodeDecodeError as error:
        raise FormatError(f"{place}: words, expected UTF-8 ({error})") from None
    # Each word ends with a 0, so that the last piece is empty.
    if words.pop() or len(words) != header.counts[0] or words[0] != "<unk>":
        raise damaged(
            place, f"{len(words)} whole words at its end, not {header.counts[0]}"
        )
    return tuple(words)


def damaged(place: str, found: str) -> FormatError:
    """The error of a file that is not as KenLM wrote it."""
    return FormatError(
        f"{place}: {found}: a truncated or damaged KenLM binary, expected a whole one"
        + REBUILD
    )
