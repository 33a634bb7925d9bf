"""OpenFst's binary files, `const` and `vector`, to arrays and back.

    content = parse_fst(data, "TLG.fst")      # FstContent: arrays and symbol tables
    data = format_fst(content)

Layout, little-endian: header, symbol tables, then the body. A string is its length
(int32) and its bytes.

    header   magic, type, arc type, version (int32), flags (int32), properties (uint64),
             start, states, arcs (int64 each)
    symbols  magic, name, free key, size (int64 each), size times: symbol, key (int64)
    const    all states (20 bytes each), then all arcs (16 bytes each)
    vector   per state: final weight (float32), arcs (int64), its arcs
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.graph.arcs import FstArrays
from wfstdec.jit import jit
from wfstdec.jit.records import record

FST_MAGIC = 2125659606
SYMBOLS_MAGIC = 2125658996
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED, _MUTABLE = 1, 2
_ALIGNMENT = 16
_ARC = record("i4 ilabel olabel", "f4 cost", "i4 nextstate")
_CONST_STATE = record("f4 final", "u4 pos num_arcs num_ieps num_oeps")
Symbols = dict[int, str]


@dataclass(frozen=True, eq=False)
class FstContent:
    """Content of an OpenFst file.

    Attributes:
        fst: The FST.
        isymbols: Names of the input labels, if the file has them.
        osymbols: Names of the output labels, if the file has them.
    """

    fst: FstArrays
    isymbols: Symbols | None = None
    osymbols: Symbols | None = None


def parse_fst(data: bytes | memoryview, place: str) -> FstContent:
    """Read the bytes of a `const` or `vector` file of standard or log arcs.

    Args:
        data: The whole file.
        place: Its name, for errors.

    Raises:
        FormatError: Another format, another type of FST or arc, damaged, truncated,
            or without a start state.
    """
    cursor = _Cursor(memoryview(data), place)
    if cursor.number("<i") != FST_MAGIC:
        raise FormatError(f"{place}: not a binary OpenFst file")
    fst_type, arc_type = cursor.string(), cursor.string()
    version, flags, _ = cursor.numbers("<iiQ")
    start, num_states, num_arcs = cursor.numbers("<qqq")
    if fst_type not in ("const", "vector") or arc_type not in ("standard", "log"):
        raise FormatError(
            f"{place}: an FST of type {fst_type!r} with {arc_type!r} arcs, expected "
            "'const' or 'vector' with 'standard' or 'log' arcs; convert it with "
            "OpenFst's fstconvert or fstmap"
        )
    isymbols = cursor.symbols() if flags & _HAS_ISYMBOLS else None
    osymbols = cursor.symbols() if flags & _HAS_OSYMBOLS else None
    if fst_type == "const":
        # Version 1 was always aligned, and has no flag for it.
        aligned = version == 1 or bool(flags & _IS_ALIGNED)
        fst = _const_body(cursor, start, num_states, num_arcs, aligned)
    else:
        fst = _vector_body(cursor, start, num_states)
    if not 0 <= start < fst.num_states:
        raise FormatError(
            f"{place}: start state {start} of {fst.num_states} states, expected one of "
            "them"
        )
    return FstContent(fst, isymbols, osymbols)


def format_fst(content: FstContent, fst_type: str = "const") -> bytes:
    """The bytes of a file of standard arcs, `const` or `vector`."""
    fst = content.fst
    flags = _HAS_ISYMBOLS * (content.isymbols is not None)
    flags |= _HAS_OSYMBOLS * (content.osymbols is not None)
    properties = _EXPANDED if fst_type == "const" else _EXPANDED | _MUTABLE
    counts = (fst.start, fst.num_states, fst.num_arcs)
    parts = [
        struct.pack("<i", FST_MAGIC) + _string(fst_type) + _string("standard"),
        struct.pack("<iiQqqq", 2, flags, properties, *counts),
    ]
    parts += [
        _symbols(table, name)
        for table, name in ((content.isymbols, "input"), (content.osymbols, "output"))
        if table is not None
    ]
    parts += _format_const(fst) if fst_type == "const" else _format_vector(fst)
    return b"".join(parts)


class _Cursor:
    """Reads forward through the bytes of a file."""

    def __init__(self, data: memoryview, place: str) -> None:
        self.data = data
        self.place = place
        self.pos = 0

    def take(self, size: int) -> memoryview:
        left = len(self.data) - self.pos
        if not 0 <= size <= left:
            raise FormatError(
                f"{self.place}: truncated or damaged: {left} bytes are left at byte "
                f"{self.pos}, expected {size} more"
            )
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def number(self, layout: str) -> int:
        return self.numbers(layout)[0]

    def string(self) -> str:
        raw = self.take(self.number("<i"))
        try:
            return bytes(raw).decode()
        except UnicodeDecodeError:
            raise FormatError(
                f"{self.place}: {bytes(raw)!r} before byte {self.pos}, expected UTF-8"
            ) from None

    def symbols(self) -> Symbols:
        if self.number("<i") != SYMBOLS_MAGIC:
            raise FormatError(f"{self.place}: damaged symbol table")
        self.string()
        self.number("<q")
        table = {}
        for _ in range(self.number("<q")):
            symbol = self.string()
            table[self.number("<q")] = symbol
        return table

    def align(self) -> None:
        self.take(-self.pos % _ALIGNMENT)

    def records(self, dtype: np.dtype, count: int) -> np.ndarray:
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)


def _const_body(
    cursor: _Cursor, start: int, num_states: int, num_arcs: int, aligned: bool
) -> FstArrays:
    if aligned:
        cursor.align()
    states = cursor.records(_CONST_STATE, num_states)
    if aligned:
        cursor.align()
    arcs = cursor.records(_ARC, num_arcs)
    splits = np.zeros(num_states + 1, np.int64)
    np.cumsum(states["num_arcs"], out=splits[1:])
    if splits[-1] != num_arcs or (states["pos"] != splits[:-1]).any():
        raise FormatError(
            f"{cursor.place}: damaged: its states have {splits[-1]} arcs in a row, "
            f"expected {num_arcs}"
        )
    return _from_records(start, states["final"], splits, arcs)


def _vector_body(cursor: _Cursor, start: int, num_states: int) -> FstArrays:
    """States until the end of the file if their number (-1) is not known."""
    body = np.frombuffer(cursor.take(len(cursor.data) - cursor.pos), np.uint8)
    most = num_states if num_states >= 0 else len(body) // 12
    offsets, num_found = _scan_states(body, min(most, len(body) // 12))
    if num_found < 0 or (num_states >= 0 and num_found != num_states):
        raise FormatError(
            f"{cursor.place}: truncated or damaged: it ends in state "
            f"{len(offsets) if num_found < 0 else num_found} of {num_states}"
        )
    offsets = offsets[: num_found + 1]
    is_head = np.zeros(len(body) // 4, bool)
    heads = offsets[:-1, None] // 4 + np.arange(3)
    is_head[heads] = True
    words = body[: offsets[-1]].view("<u4")
    final = words[offsets[:-1] // 4].view("<f4")
    arcs = words[~is_head[: len(words)]].view(_ARC)
    splits = (offsets - 12 * np.arange(num_found + 1)) // _ARC.itemsize
    return _from_records(start, final, splits, arcs)


@jit
def _scan_states(body: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Find the offset of each state, and their number; -1 if one is cut off."""
    offsets = np.zeros(most + 1, np.int64)
    pos = 0
    for state in range(most):
        if pos == len(body):
            return offsets[: state + 1], state
        if pos + 12 > len(body):
            return offsets[:state], -1
        num_arcs = 0
        for byte in range(8):
            num_arcs |= int(body[pos + 4 + byte]) << (8 * byte)
        if num_arcs < 0 or num_arcs > (len(body) - pos - 12) // 16:
            return offsets[:state], -1
        pos += 12 + 16 * num_arcs
        offsets[state + 1] = pos
    return offsets, most


def _from_records(
    start: int, final: np.ndarray, splits: np.ndarray, arcs: np.ndarray
) -> FstArrays:
    return FstArrays(
        start=start,
        final_cost=np.array(final, np.float32),
        state_arc_splits=splits,
        ilabel=np.ascontiguousarray(arcs["ilabel"]),
        olabel=np.ascontiguousarray(arcs["olabel"]),
        nextstate=np.ascontiguousarray(arcs["nextstate"]),
        cost=np.ascontiguousarray(arcs["cost"]),
    )


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<i", len(raw)) + raw


def _symbols(table: Symbols, name: str) -> bytes:
    head = struct.pack("<i", SYMBOLS_MAGIC) + _string(name)
    head += struct.pack("<qq", max(table, default=-1) + 1, len(table))
    rows = [_string(symbol) + struct.pack("<q", key) for key, symbol in table.items()]
    return head + b"".join(rows)


def _records(fst: FstArrays) -> np.ndarray:
    arcs = np.empty(fst.num_arcs, _ARC)
    for name in ("ilabel", "olabel", "cost", "nextstate"):
        arcs[name] = getattr(fst, name)
    return arcs


def _format_const(fst: FstArrays) -> list[bytes]:
    splits = fst.state_arc_splits
    states = np.zeros(fst.num_states, _CONST_STATE)
    states["final"], states["pos"] = fst.final_cost, splits[:-1]
    states["num_arcs"] = np.diff(splits)
    for name, label in (("num_ieps", fst.ilabel), ("num_oeps", fst.olabel)):
        before = np.concatenate([[0], np.cumsum(label == 0)])
        states[name] = before[splits[1:]] - before[splits[:-1]]
    return [states.tobytes(), _records(fst).tobytes()]


def _format_vector(fst: FstArrays) -> list[bytes]:
    words = np.empty(3 * fst.num_states + 4 * fst.num_arcs, "<u4")
    heads = 3 * np.arange(fst.num_states) + 4 * fst.state_arc_splits[:-1]
    is_head = np.zeros(len(words), bool)
    is_head[heads[:, None] + np.arange(3)] = True
    head = np.empty(fst.num_states, [("final", "<f4"), ("num_arcs", "<i8")])
    head["final"], head["num_arcs"] = fst.final_cost, np.diff(fst.state_arc_splits)
    words[is_head] = np.frombuffer(head.tobytes(), "<u4")
    words[~is_head] = _records(fst).view("<u4")
    return [words.tobytes()]
