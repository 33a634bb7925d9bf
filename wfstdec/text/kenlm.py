"""Reader of KenLM's binary files: header, words, and n-grams of the trie format.

The probing format has hashes instead of n-grams, which cannot be listed.
"""

import math
import mmap
import os
import struct
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import ArpaError, FormatError
from wfstdec.jit import jit
from wfstdec.text.arpa_model import LARGEST, MAX_ORDER, ArpaModel, NgramTable
from wfstdec.text.files import PathLike, composed, reading

_MAGIC = b"mmap lm http://kheafield.com/code"
_VERSION_5 = _MAGIC + b" format version 5\n\0\0"
_TEST_VALUES = struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 0xFFFFFFFF, 0, 1)
_FIXED = struct.Struct("<B3xfIB3xI")
_FIRST = 56 + len(_TEST_VALUES)
KINDS = (
    *("probing", "rest probing", "trie", "quantised trie"),
    *("array-compressed trie", "quantised array-compressed trie"),
)
_NATS = -math.log(10)
_SIGN = np.uint64(1 << 31)


class KenlmHeader(NamedTuple):
    """Header of a KenLM file."""

    kind: str  # one of `KINDS`
    counts: tuple[int, ...]  # n-grams of each order, including those added by KenLM
    multiplier: float  # buckets of a probing table for each entry
    has_words: bool  # the words are at its end
    size: int  # bytes before the search tables

    @property
    def is_trie(self) -> bool:
        """Whether its n-grams can be listed."""
        return self.kind.endswith("trie")


def read_kenlm_header(path: PathLike) -> KenlmHeader | None:
    """Return the header of a binary file; None for any other file."""
    with reading(path), open(path, "rb") as file:
        start = file.read(_FIRST + _FIXED.size + 8 * 256)
        size = os.fstat(file.fileno()).st_size
    if not start.startswith(b"mmap lm"):
        return None
    if start.startswith(_MAGIC + b" incomplete"):
        raise _refused(path, "a KenLM binary never finished, expected a whole one")
    if len(start) < _FIRST + _FIXED.size:
        raise _damaged(path, f"it ends after {len(start)} bytes, within its header")
    if not start.startswith(_VERSION_5):
        found = start[:60].split(b"\n")[0].decode("ascii", "replace")
        raise _refused(path, f"{found!r}, expected format version 5")
    # KenLM writes some numbers in machine format, for this test.
    if start[56:_FIRST] != _TEST_VALUES:
        found = "a KenLM binary of another machine (byte order or word size), expected "
        raise _refused(path, found + "little-endian, 64 bits")
    order, multiplier, kind, has_words, version = _FIXED.unpack_from(start, _FIRST)
    counts_at = _FIRST + _FIXED.size
    if len(start) < counts_at + 8 * order:
        raise _damaged(path, f"it ends after {size} bytes, within its header")
    counts = struct.unpack_from(f"<{order}Q", start, counts_at)
    if kind == 0 and not 1 < multiplier < 1e3:
        raise _damaged(path, f"{multiplier} buckets for each entry")
    if kind >= len(KINDS) or version > 1 or has_words > 1:
        raise _damaged(path, f"model type {kind}, search version {version}")
    if not 2 <= order <= MAX_ORDER:
        raise _refused(path, f"order {order}, expected 2 to {MAX_ORDER}")
    # An n-gram takes at least a bit: damaged counts would exhaust memory.
    if max(counts) > size * 8:
        raise _damaged(path, f"{max(counts)} n-grams in {size} bytes")
    end = -(-(counts_at + 8 * order) // 8) * 8
    return KenlmHeader(KINDS[kind], counts, multiplier, bool(has_words), end)


def read_kenlm_words(path: PathLike) -> tuple[str, ...]:
    """Return the words of a binary file by KenLM's ids; `<unk>` is the first."""
    header = _header_of(path)
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        start = data.rfind(b"<unk>\0", header.size)
        return _words_of(data[start:] if start >= 0 else b"", header, path)


def _header_of(path: PathLike) -> KenlmHeader:
    header = read_kenlm_header(path)
    if header is None:
        raise FormatError(f"{os.fspath(path)}: not a KenLM binary")
    return header


def check_probing(path: PathLike, header: KenlmHeader) -> None:
    """Check the size of a probing file and its table of words, which KenLM trusts."""
    # The n-grams after them are hashes, and are not checked.
    data = np.memmap(path, np.uint8, "r")
    # KenLM computes buckets in single precision, with at least one free.
    buckets = [
        max(count + 1, int(np.float32(header.multiplier) * np.float32(count)))
        for count in header.counts
    ]
    sizes = [16] * (len(buckets) - 2) + [12]
    tables = sum(n * size for n, size in zip(buckets[1:], sizes, strict=True))
    begin = header.size + 8
    end = begin + 12 * buckets[0]
    words_at = end + 8 * (header.counts[0] + 1) + tables
    if words_at > len(data) or (len(data) > words_at) != header.has_words:
        raise _damaged(path, f"{len(data)} bytes, expected {words_at} and the words")
    ids = data[begin:end].view([("key", "<u8"), ("word", "<u4")])["word"]
    if (ids >= header.counts[0]).any() or (ids > 0).sum() != header.counts[0] - 1:
        raise _damaged(path, "its table of words has ids out of range")


def _words_of(data: bytes, header: KenlmHeader, path: PathLike) -> tuple[str, ...]:
    if not header.has_words:
        raise _refused(path, "a KenLM binary without its words, expected them")
    with reading(path, "list of words", "UTF-8"):
        words = data.decode().split("\0")
    # Each word ends with a 0, so the last piece is empty.
    if words.pop() or len(words) != header.counts[0] or words[0] != "<unk>":
        found = f"{len(words)} whole words at its end, not {header.counts[0]}"
        raise _damaged(path, found)
    return composed(words)


def _damaged(path: PathLike, found: str) -> FormatError:
    what = "a truncated or damaged KenLM binary, expected a whole one"
    return _refused(path, f"{found}: {what}")


def _refused(path: PathLike, found: str) -> FormatError:
    rebuild = "build it again with KenLM's build_binary"
    return FormatError(f"{os.fspath(path)}: {found}; {rebuild}")


def read_kenlm_trie(path: PathLike) -> ArpaModel:
    """Return all n-grams of a file in the trie format, with KenLM's costs."""
    header = _header_of(path)
    if not header.is_trie:
        raise ArpaError(
            f"{os.fspath(path)}: a KenLM binary of the {header.kind} format, which "
            "keeps hashes in place of n-grams, expected one that can be listed: an "
            "ARPA file or the trie format (build_binary trie); the trie decoder takes "
            "it as it is"
        )
    return _TrieReader(path, header).read()


class _TrieReader:
    def __init__(self, path: PathLike, header: KenlmHeader) -> None:
        self.path, self.data = path, np.memmap(path, np.uint8, "r")
        self.header, self.counts = header, header.counts
        self.order = len(header.counts)
        self.pos = header.size
        # Tables of quantised values by order, from 2 on, float32 log10; empty without.
        self.probs: list[np.ndarray] = []
        self.backoffs: list[np.ndarray] = []

    def read(self) -> ArpaModel:
        """Read order by order: rows of one are the ends of those of the next."""
        self.take(8 + 8 * self.counts[0])  # hashes of the words
        if "quantised" in self.header.kind:
            self.read_quantised()
        table, children = self.unigrams()
        tables = [table]
        for order in range(2, self.order + 1):
            table, children = self.longer(order, table.words, children)
            tables.append(table)
        words = _words_of(self.data[self.pos :].tobytes(), self.header, self.path)
        tables[-1].backoff[:] = 0
        return ArpaModel(words, tuple(tables))

    def take(self, size: int) -> np.ndarray:
        start, self.pos = self.pos, self.pos + size
        if self.pos > len(self.data):
            found = f"{len(self.data)} bytes, at least {self.pos} by its header"
            raise _damaged(self.path, found)
        return self.data[start : self.pos]

    def read_quantised(self) -> None:
        version, prob_bits, backoff_bits = self.take(8)[:3].tolist()
        if version != 2 or max(prob_bits, backoff_bits) > 25:
            bits = f"{prob_bits} and {backoff_bits} bits"
            found = f"quantisation of version {version}, {bits}, expected version 2"
            raise _refused(self.path, found)
        for order in range(2, self.order + 1):
            self.probs.append(self.take(4 << prob_bits).view("<f4"))
            if order < self.order:
                self.backoffs.append(self.take(4 << backoff_bits).view("<f4"))
        self.backoffs.append(np.zeros(1, np.float32))  # stored in no bits

    def unigrams(self) -> tuple[NgramTable, np.ndarray]:
        """Return the table, and the starts of their children, int64 [N + 1]."""
        count = self.counts[0]
        record = np.dtype([("prob", "<f4"), ("backoff", "<f4"), ("next", "<u8")])
        found = self.take((count + 2) * record.itemsize).view(record)
        words = np.arange(count, dtype=np.int32)[:, np.newaxis]
        table = self.table(words, found["prob"][:count], found["backoff"][:count])
        return table, self.checked_children(1, found["next"][: count + 1])

    def longer(
        self, order: int, ends: np.ndarray, children: np.ndarray
    ) -> tuple[NgramTable, np.ndarray]:
        """Return the n-grams of an order, and the starts of their children."""
        # `ends`: int32 [M, n - 1], the n-grams of the previous order, with `children`.
        count, is_longest = self.counts[order - 1], order == self.order
        next_bits, upper = (0, np.uint64(0)) if is_longest else self.pointers(order)
        word_bits = self.counts[0].bit_length()
        # Bits of probability and back-off; quantised ones are in reverse order.
        tables: Any = None
        sizes = 31, 0 if is_longest else 32
        if self.probs:
            tables = self.backoffs[order - 2], self.probs[order - 2]
            sizes = len(tables[0]).bit_length() - 1, len(tables[1]).bit_length() - 1
        stride = word_bits + sum(sizes) + next_bits
        # One more record, whose pointer ends the last one's children, and room for a
        # read of 64 bits.
        bits = self.take(((1 + count) * stride + 7) // 8 + 8)

        def field(first: int, length: int, number: int = count) -> np.ndarray:
            found = np.empty(number, np.uint64)
            _read_bits(bits, stride, first, length, found)
            return found

        first_word = field(0, word_bits)
        if (first_word >= self.counts[0]).any():
            found = f"word {first_word.max()} of {self.counts[0]} in a {order}-gram"
            raise _damaged(self.path, found)
        words = np.empty((count, order), np.int32)
        words[:, 0] = first_word
        words[:, 1:] = np.repeat(ends, np.diff(children), axis=0)
        first = field(word_bits, sizes[0])
        second = field(word_bits + sizes[0], sizes[1])
        if tables is None:
            prob = (first | _SIGN).astype(np.uint32).view(np.float32)
            backoff = second.astype(np.uint32).view(np.float32)
        else:
            backoff, prob = tables[0][first], tables[1][second]
        after = upper | field(stride - next_bits, next_bits, count + 1)
        table = self.table(words, prob, backoff)
        return table, after if is_longest else self.checked_children(order, after)

    def pointers(self, order: int) -> tuple[int, Any]:
        """Return the bits of pointers in records; the rest, uint64 [N + 1] or 0."""
        count, largest = self.counts[order - 1], self.counts[order]
        required = largest.bit_length()
        if "array-compressed" not in self.header.kind:
            return required, np.uint64(0)
        version, most = self.data[self.pos : self.pos + 2].tolist() or (None, 0)
        if order == 2:
            if version != 0:
                found = f"array compression of version {version}, expected 0"
                raise _refused(self.path, found)
            self.most_chopped = most
        # The number of separate upper bits that minimises the file.
        change = [
            (largest >> (required - bits)) * 64 - (count + 1) * bits
            for bits in range(min(required, self.most_chopped) + 1)
        ]
        chopped = change.index(min(change))
        size = (largest >> (required - chopped)) + 1
        start = -(-self.pos // 8) * 8 + 8
        self.take(8 * (1 + size) + 7)
        begins = self.data[start : start + 8 * size].view("<u8").astype(np.int64)
        if begins[0] or (np.diff(begins) < 0).any():
            raise _damaged(self.path, f"compressed pointers of {order}-grams")
        # The file has the first record of each value of the upper bits: they follow
        # from a record's position.
        upper = np.searchsorted(begins, np.arange(count + 1), side="right") - 1
        inline = required - chopped
        return inline, upper.astype(np.uint64) << np.uint64(inline)

    def checked_children(self, order: int, begins: np.ndarray) -> np.ndarray:
        """Return validated pointers, 0 to the number of n-grams of the next order."""
        begins, count = begins.astype(np.int64), self.counts[order]
        if begins[0] or begins[-1] != count or (np.diff(begins) < 0).any():
            raise _damaged(self.path, f"pointers of {order}-grams, not 0 to {count}")
        return begins

    def table(
        self, words: np.ndarray, prob: np.ndarray, backoff: np.ndarray
    ) -> NgramTable:
        possible = (np.abs(prob) < LARGEST) | np.isneginf(prob)
        if not (possible.all() and (np.abs(backoff) < LARGEST).all()):
            raise _damaged(self.path, f"values of {words.shape[1]}-grams")
        # + 0: no -0.0
        cost, backed = (
            (np.asarray(values, np.float64) * _NATS).astype(np.float32) + 0
            for values in (prob, backoff)
        )
        return NgramTable(words, cost, backed)


@jit
def _read_bits(data, stride, first, length, found):
    # A field may begin at any of a byte's 8 bits: 64 bits from that byte on contain it
    # if its `length` is below 58. The data have 8 bytes more than records.
    mask = (np.uint64(1) << np.uint64(length)) - np.uint64(1)
    for i in range(len(found)):
        bit = i * stride + first
        byte = bit >> 3
        value = np.uint64(0)
        for k in range(8):
            value |= np.uint64(data[byte + k]) << np.uint64(8 * k)
        found[i] = (value >> np.uint64(bit & 7)) & mask
