"""Reader and writer of OpenFst files: binary `const` and `vector`, and text.

Layout, little-endian: header, symbol tables, then the body. A string is its length
(int32) and its bytes.

    header   magic, type, arc type, version (int32), flags (int32), properties (uint64),
             start, states, arcs (int64 each)
    symbols  magic, name, free key, size (int64 each), size times: symbol, key (int64)
    const    all states (20 bytes each), then all arcs (16 bytes each)
    vector   per state: final weight (float32), arcs (int64), its arcs
"""

import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, OptionError
from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit, read_only
from wfstdec.jit.records import record
from wfstdec.text.files import (
    PathLike,
    atomic_write,
    composed,
    read_bytes,
    read_lines,
    reading,
)
from wfstdec.text.tokens import (
    EPSILON,
    EPSILON_WORD,
    TokenTable,
    ilabel_of,
    read_tokens,
    token_table,
)
from wfstdec.text.vocabulary import Vocabulary

FST_MAGIC = 2125659606
SYMBOLS_MAGIC = 2125658996
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED, _MUTABLE = 1, 2
_ARC = record("i4 ilabel olabel", "f4 cost", "i4 nextstate")
_HEAD = record("f4 final", "i8 num_arcs")
_CONST_STATE = record("f4 final", "u4 pos num_arcs num_ieps num_oeps")
Symbols = dict[int, str]


@dataclass(frozen=True, eq=False)
class FstContent:
    """Content of an OpenFst file."""

    fst: FstArrays
    isymbols: Symbols | None = None  # Names of the input labels, if any
    osymbols: Symbols | None = None  # Names of the output labels, if any


def parse_fst(data: bytes | memoryview, place: str) -> FstContent:
    """Parse a `const` or `vector` file of standard or log arcs."""
    return parse_next(Cursor(memoryview(data), place))


def parse_next(cursor: "Cursor") -> FstContent:
    """Parse the FST at a cursor's position."""
    place = cursor.place
    fst_type, arc_type, version, flags, *counts = cursor.header()
    start, num_states, num_arcs = counts
    if fst_type not in ("const", "vector") or arc_type not in ("standard", "log"):
        raise FormatError(
            f"{place}: an FST of type {fst_type!r} with {arc_type!r} arcs, expected "
            "'const' or 'vector' with 'standard' or 'log' arcs; convert it with "
            "OpenFst's fstconvert or fstmap"
        )
    isymbols = cursor.symbols() if flags & _HAS_ISYMBOLS else None
    osymbols = cursor.symbols() if flags & _HAS_OSYMBOLS else None
    if fst_type == "const":
        # Version 1 was always aligned, without a flag.
        aligned = version == 1 or bool(flags & _IS_ALIGNED)
        fst = _const_body(cursor, start, num_states, num_arcs, aligned)
    else:
        fst = _vector_body(cursor, start, num_states)
    if not 0 <= start < fst.num_states:
        found = f"start state {start} of {fst.num_states} states"
        raise FormatError(f"{place}: {found}, expected one of them")
    return FstContent(fst, isymbols, osymbols)


def format_fst(content: FstContent, fst_type: str = "const") -> bytes:
    """Return the bytes of a `const` or `vector` file of standard arcs."""
    fst = content.fst
    flags = _HAS_ISYMBOLS * (content.isymbols is not None)
    flags |= _HAS_OSYMBOLS * (content.osymbols is not None)
    counts = (fst.start, fst.num_states, fst.num_arcs)
    parts = [header_of(fst_type, "standard", counts, flags)]
    for table, name in ((content.isymbols, "input"), (content.osymbols, "output")):
        if table is not None:
            parts.append(_symbols(table, name))
    parts.append((_format_const if fst_type == "const" else _format_vector)(fst))
    return b"".join(parts)


def header_of(
    fst_type: str, arc_type: str, counts: tuple[int, int, int], flags: int = 0
) -> bytes:
    """Return a header; `counts` are the start state, states and arcs."""
    properties = _EXPANDED if fst_type == "const" else _EXPANDED | _MUTABLE
    names = _string(fst_type) + _string(arc_type)
    numbers = struct.pack("<iiQqqq", 2, flags, properties, *counts)
    return struct.pack("<i", FST_MAGIC) + names + numbers


class Cursor:
    """Forward reader of the bytes of a file."""

    def __init__(self, data: memoryview, place: str, pos: int = 0) -> None:
        self.data, self.place, self.pos = data, place, pos

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        left = len(self.data) - self.pos
        if not 0 <= size <= left:
            raise FormatError(
                f"{self.place}: truncated or damaged: {left} bytes are left at byte "
                f"{self.pos}, expected {size} more"
            )
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Return the numbers of a layout of `struct`."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def number(self, layout: str) -> int:
        """Return one number."""
        return self.numbers(layout)[0]

    def header(self) -> tuple[Any, ...]:
        """Return types of FST and arcs, version, flags; start, states, arcs."""
        if self.number("<i") != FST_MAGIC:
            raise FormatError(f"{self.place}: not a binary OpenFst file")
        kinds = self.string(), self.string()
        version, flags, _, *counts = self.numbers("<iiQqqq")
        return *kinds, version, flags, *counts

    def string(self) -> str:
        """Return a string with a length prefix."""
        raw = self.take(self.number("<i"))
        with reading(f"{self.place}: byte {self.pos}", "name", "UTF-8"):
            return bytes(raw).decode()

    def symbols(self) -> Symbols:
        """Return a symbol table."""
        if self.number("<i") != SYMBOLS_MAGIC:
            raise FormatError(f"{self.place}: damaged symbol table")
        self.string()
        self.number("<q")
        table = {}
        for _ in range(self.number("<q")):
            symbol = self.string()
            table[self.number("<q")] = symbol
        return table

    def records(self, dtype: np.dtype, count: int) -> np.ndarray:
        """Return an array of records."""
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)


def _const_body(
    cursor: Cursor, start: int, num_states: int, num_arcs: int, aligned: bool
) -> FstArrays:
    alignment = 16 if aligned else 1
    cursor.take(-cursor.pos % alignment)
    states = cursor.records(_CONST_STATE, num_states)
    cursor.take(-cursor.pos % alignment)
    arcs = cursor.records(_ARC, num_arcs)
    splits = np.zeros(num_states + 1, np.int64)
    np.cumsum(states["num_arcs"], out=splits[1:])
    if splits[-1] != num_arcs or (states["pos"] != splits[:-1]).any():
        raise FormatError(
            f"{cursor.place}: damaged: its states have {splits[-1]} arcs in a row, "
            f"expected {num_arcs}"
        )
    return _from_records(start, states["final"], splits, arcs)


def _vector_body(cursor: Cursor, start: int, num_states: int) -> FstArrays:
    """Read states up to the end of the file if their number is unknown (-1)."""
    body = cursor.take(len(cursor.data) - cursor.pos)
    words = np.frombuffer(body[: len(body) // 4 * 4], "<u4")
    words = read_only(np.require(words, requirements="A"))
    most = len(words) // 3
    splits, end = _scan_states(
        words, min(num_states, most) if num_states >= 0 else most
    )
    num_found = len(splits) - 1
    if num_found != num_states if num_states >= 0 else 4 * end != len(body):
        raise FormatError(
            f"{cursor.place}: truncated or damaged: it ends in state {num_found} of "
            f"{num_states}"
        )
    cursor.pos += 4 * end - len(body)
    heads, words = _heads(splits), words[:end]
    final, arcs = words[heads].view(_HEAD)["final"], words[~heads].view(_ARC)
    return _from_records(start, final, splits, arcs)


@jit
def _scan_states(words: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Return splits of arcs, up to a truncated state, and the words read."""
    splits, at = np.zeros(most + 1, np.int64), 0
    for state in range(most):
        if at + 3 > len(words):
            return splits[: state + 1], at
        num_arcs: Any = np.int64(words[at + 1]) | np.int64(words[at + 2]) << 32
        if num_arcs < 0 or num_arcs > (len(words) - at - 3) // 4:
            return splits[: state + 1], at
        at += 3 + 4 * num_arcs
        splits[state + 1] = splits[state] + num_arcs
    return splits, at


def _heads(splits: np.ndarray) -> np.ndarray:
    """Return which 32-bit words of a `vector` body are heads of states, bool."""
    count = len(splits) - 1
    first = 3 * np.arange(count) + 4 * splits[:-1]
    heads = np.zeros(3 * count + 4 * int(splits[-1]), bool)
    heads[first[:, None] + np.arange(3)] = True
    return heads


def _from_records(
    start: int, final: np.ndarray, splits: np.ndarray, arcs: np.ndarray
) -> FstArrays:
    columns = {name: np.ascontiguousarray(arcs[name]) for name in _ARC.names or ()}
    return FstArrays(start, np.array(final, np.float32), splits, **columns)


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
    for name in _ARC.names or ():
        arcs[name] = getattr(fst, name)
    return arcs


def _format_const(fst: FstArrays) -> bytes:
    splits = fst.state_arc_splits
    states = np.zeros(fst.num_states, _CONST_STATE)
    states["final"], states["pos"] = fst.final_cost, splits[:-1]
    states["num_arcs"] = np.diff(splits)
    for name, label in (("num_ieps", fst.ilabel), ("num_oeps", fst.olabel)):
        before = np.concatenate([[0], np.cumsum(label == 0)])
        states[name] = before[splits[1:]] - before[splits[:-1]]
    return states.tobytes() + _records(fst).tobytes()


def _format_vector(fst: FstArrays) -> bytes:
    heads = _heads(fst.state_arc_splits)
    words, head = np.empty(len(heads), "<u4"), np.empty(fst.num_states, _HEAD)
    head["final"], head["num_arcs"] = fst.final_cost, np.diff(fst.state_arc_splits)
    words[heads], words[~heads] = head.view("<u4"), _records(fst).view("<u4")
    return words.tobytes()


_K2_FINAL = -1
_MOST_LABEL, _MOST_COST = 2**31 - 1, 1e20
_Arc = tuple[int, int, int, int, float]
_Row = tuple[int, list[str]]  # line number and fields


def parse_text(
    lines: Iterable[str],
    place: str,
    isymbols: Symbols | None = None,
    osymbols: Symbols | None = None,
) -> FstContent:
    """Parse text of AT&T or k2; the state of the first line is the start."""
    # An arc of three fields makes it an acceptor, and so do arcs whose fourth is always
    # a number after a name. Without symbols labels are numbers, or names numbered from
    # 1 in order.
    rows = [(i, line.split()) for i, line in enumerate(lines, start=1) if line.split()]
    arcs = [fields for _, fields in rows if len(fields) > 2]
    # Only k2 has labels of -1, on all arcs to its final state.
    if any(fields[2] == str(_K2_FINAL) for fields in arcs):
        return FstContent(_assemble(rows, place, _read_k2_arc))
    inputs = _Labels([fields[2] for fields in arcs], isymbols)
    # The fourth field is a cost or an output label.
    outputs, at = inputs, 2
    if not _is_acceptor(arcs, inputs.numeric):
        outputs, at = _Labels([fields[3] for fields in arcs], osymbols), 3

    def read_arc(fields: list[str]) -> _Arc:
        labels = inputs.find(fields[2]), outputs.find(fields[at])
        return int(fields[0]), int(fields[1]), *labels, _cost(fields[at + 1 :])

    return FstContent(_assemble(rows, place, read_arc), inputs.symbols, outputs.symbols)


def format_text(content: FstContent) -> Iterator[str]:
    """Yield the lines of AT&T text, the start state first."""
    # Labels are names if there are symbols; one with a space remains a number.
    fst = content.fst
    isymbols, osymbols = _printable(content.isymbols), _printable(content.osymbols)
    # Readers take the first line's state as the start.
    order = [fst.start, *(s for s in range(fst.num_states) if s != fst.start)]
    columns = (fst.nextstate, fst.ilabel, fst.olabel, fst.cost)
    nextstate, ilabel, olabel, cost = (column.tolist() for column in columns)
    splits, final_cost = fst.state_arc_splits.tolist(), fst.final_cost.tolist()
    for state in order:
        for arc in range(splits[state], splits[state + 1]):
            i, o = ilabel[arc], olabel[arc]
            labels = f"{isymbols.get(i, i)}\t{osymbols.get(o, o)}"
            yield f"{state}\t{nextstate[arc]}\t{labels}\t{cost[arc]:.9g}\n"
        if final_cost[state] < np.inf:
            yield f"{state}\t{final_cost[state]:.9g}\n"
        # A non-final start without arcs would have no line.
        elif state == fst.start and splits[state] == splits[state + 1]:
            yield f"{state}\tInfinity\n"


def _printable(symbols: Symbols | None) -> Symbols:
    return {i: name for i, name in (symbols or {}).items() if len(name.split()) == 1}


class _Labels:
    def __init__(self, column: list[str], symbols: Symbols | None) -> None:
        self.numeric = symbols is None and all(text.isdecimal() for text in column)
        if symbols is None and not self.numeric:
            symbols = dict(enumerate(dict.fromkeys([EPSILON_WORD, *column])))
        self.symbols = symbols
        self.ids = {name: label for label, name in (symbols or {}).items()}

    def find(self, text: str) -> int:
        if text in self.ids:
            return self.ids[text]
        if not text.isdecimal():
            raise ValueError(f"label {text!r} is not in the symbol table")
        if int(text) > _MOST_LABEL:
            raise ValueError(f"label {text} above {_MOST_LABEL}")
        return int(text)


def _is_acceptor(arcs: list[list[str]], numeric: bool) -> bool:
    lengths = {len(fields) for fields in arcs}
    if 3 in lengths or not lengths:
        return True
    return lengths == {4} and not numeric and all(_is_number(f[3]) for f in arcs)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cost(fields: list[str]) -> float:
    """Parse the cost in an optional last field; OpenFst writes `Infinity`."""
    if len(fields) > 1:
        raise ValueError(f"{fields[1]!r} after the cost")
    cost = float(fields[0]) if fields else 0.0
    if not cost > -math.inf or _MOST_COST < abs(cost) < math.inf:
        raise ValueError(f"cost {fields[0]}")
    return cost


def _read_k2_arc(fields: list[str]) -> _Arc:
    if len(fields) != 5:
        raise ValueError("k2's arcs have five fields")
    state, nextstate, label, aux = map(int, fields[:4])
    if label < _K2_FINAL or aux < _K2_FINAL:
        raise ValueError("a label below -1")
    ilabel = label if label == _K2_FINAL else ilabel_of(label)
    if max(ilabel, aux) > _MOST_LABEL:
        raise ValueError(f"label above {_MOST_LABEL}")
    return state, nextstate, ilabel, max(aux, 0), 0.0 - _cost(fields[4:])


def _assemble(
    rows: list[_Row], place: str, read_arc: Callable[[list[str]], _Arc]
) -> FstArrays:
    if not rows:
        raise FormatError(f"{place}: it is empty, expected the text of an FST")
    arcs: list[_Arc] = []
    finals: list[tuple[int, float]] = []
    for number, fields in rows:
        try:
            if len(fields) > 2:
                arcs.append(read_arc(fields))
            else:
                finals.append((int(fields[0]), _cost(fields[1:])))
        except (ValueError, IndexError) as error:
            raise FormatError(
                f"{place}:{number}: found {' '.join(fields)!r} ({error}), "
                "expected 'state next-state label(s) [cost]' or 'state [cost]'"
            ) from None
    # k2 has one final state, and final costs on its incoming arcs.
    if any(arc[2] == _K2_FINAL for arc in arcs):
        finals = [(arc[0], arc[4]) for arc in arcs if arc[2] == _K2_FINAL]
        arcs = [arc for arc in arcs if arc[2] != _K2_FINAL]
    # States are renumbered from 0, in order.
    start = int(rows[0][1][0])
    arc = np.array(arcs, np.float64).reshape(-1, 5)
    final = np.array(finals, np.float64).reshape(-1, 2)
    states = np.unique(np.concatenate([[start], arc[:, 0], arc[:, 1], final[:, 0]]))
    final_cost = np.full(len(states), np.inf)
    final_cost[np.searchsorted(states, final[:, 0])] = final[:, 1]
    parts = arcs_of(
        state=np.searchsorted(states, arc[:, 0]),
        ilabel=arc[:, 2].astype(np.int64),
        olabel=arc[:, 3].astype(np.int64),
        nextstate=np.searchsorted(states, arc[:, 1]),
        cost=arc[:, 4],
    )
    return fst_of([parts], int(np.searchsorted(states, start)), final_cost)


FORMS = ("const", "vector", "text")


def read_fst(
    path: PathLike, isymbols: Symbols | None = None, osymbols: Symbols | None = None
) -> FstContent:
    """Read an FST file: OpenFst binary (const, vector), AT&T text, or k2's text."""
    with reading(path, "FST", "a binary OpenFst file or text"):
        data = read_bytes(path)
        if data.startswith(FST_MAGIC.to_bytes(4, "little")):
            return parse_fst(data, os.fspath(path))
        lines = data.decode().splitlines()
        return parse_text(lines, os.fspath(path), isymbols, osymbols)


def write_fst(path: PathLike, content: FstContent, form: str | None = None) -> None:
    """Write an FST file atomically."""
    # `form`: `"const"`, `"vector"` or `"text"`; None for text if the name ends in
    # `.txt`, else const.
    form = form or ("text" if os.fspath(path).endswith(".txt") else "const")
    if form not in FORMS:
        raise OptionError(f"form {form!r} of an FST file, expected one of {FORMS}")
    with atomic_write(path, "w" if form == "text" else "wb") as file:
        if form == "text":
            file.writelines(format_text(content))
        else:
            file.write(format_fst(content, form))


def from_openfst(
    path: PathLike,
    *,
    tokens: PathLike | TokenTable | None = None,
    words: PathLike | Sequence[str] | None = None,
    blank: int | str | None = None,
) -> PackedGraph:
    """Pack a graph of other tools: a TLG, HLG or the like.

    Args:
        path: An OpenFst or text file; input label token + 1, output label word id.
        tokens: Token table; None takes the file's input symbols. A leading `<eps>`, as
            in Kaldi's tables, is ignored.
        words: A file of `word id` lines, or the words by id, `<eps>` first; None takes
            the file's output symbols.
        blank: The blank by name or index; None to recognise it.

    Raises:
        FormatError: A file cannot be read or is damaged, or tables are missing, or the
            words differ from those of the file.
        TokenTableError: A malformed token table.
        GraphError: The graph breaks an invariant of `PackedGraph`.
    """
    if words is not None and isinstance(words, (str, os.PathLike)):
        words = read_words(words)
    content = read_fst(path, osymbols=dict(enumerate(words)) if words else None)
    if words is None:
        words = _words_of(content.osymbols, f"{path}: no output symbols")
    for i, name in (content.osymbols or {}).items():
        if i >= len(words) or words[i] != name:
            theirs = repr(words[i]) if i < len(words) else "nothing"
            raise FormatError(
                f"{path}: word {i} is {name!r} in its own table and {theirs} in the "
                "one given, expected the same"
            )
    table = _tokens_of(tokens, content.isymbols, blank, str(path))
    vocabulary = Vocabulary(table, tuple(words))
    with reading(path, "graph"):
        check_fst(content.fst, None, len(table), len(words))
        return PackedGraph.pack(content.fst, _repeats(content.fst, table), vocabulary)


def _repeats(fst: FstArrays, tokens: TokenTable) -> np.ndarray:
    """Infer the arcs that repeat a token, bool [A]; OpenFst has no flag for them."""
    # A repeat is a self-loop of a token other than blank, without word and cost, at a
    # state whose other incoming arcs of such tokens have the same token.
    source = fst.arc_state()
    has_token = (fst.ilabel != EPSILON) & (fst.ilabel != ilabel_of(tokens.blank))
    free = (fst.olabel == EPSILON) & (fst.cost == 0)
    loop = has_token & free & (fst.nextstate == source)
    label = np.zeros(fst.num_states, np.int64)
    label[source[loop]] = fst.ilabel[loop]
    others = has_token & ~loop
    differs = fst.ilabel[others] != label[fst.nextstate[others]]
    mixed = np.zeros(fst.num_states, np.bool_)
    mixed[fst.nextstate[others][differs]] = True
    return loop & ~mixed[source]


def to_openfst(graph: PackedGraph, path: PathLike, form: str | None = None) -> None:
    """Write a graph with its token and word tables; see `write_fst`.

    Repeats have the label of their token.
    """
    names = enumerate(graph.tokens.names)
    isymbols = {EPSILON: EPSILON_WORD} | {ilabel_of(t): name for t, name in names}
    osymbols = dict(enumerate(graph.words))
    write_fst(path, FstContent(graph.unpack(), isymbols, osymbols), form)


def read_words(path: PathLike) -> tuple[str, ...]:
    """Read a word table: `word id` lines, ids from 0, `<eps>` is 0."""
    table: Symbols = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        if not fields:
            continue
        with reading(f"{path}:{number}", "line", "'word id'"):
            if len(fields) != 2 or int(fields[1]) in table:
                raise FormatError(f"found {line!r}, expected 'word id', each id once")
            table[int(fields[1])] = fields[0]
    return _words_of(table, str(path))


def _words_of(table: Symbols | None, place: str) -> tuple[str, ...]:
    if not table:
        raise FormatError(f"{place}, expected words by id: give words=")
    is_whole = table.keys() == {*range(len(table))}
    if table.get(EPSILON) != EPSILON_WORD or not is_whole:
        raise FormatError(
            f"{place}: ids {min(table)} to {max(table)} for {len(table)} words, the "
            f"first {table[min(table)]!r}, expected {EPSILON_WORD!r} as 0 and no gaps"
        )
    return composed(table[i] for i in range(len(table)))


def _tokens_of(
    tokens: PathLike | TokenTable | None,
    isymbols: Symbols | None,
    blank: int | str | None,
    place: str,
) -> TokenTable:
    """Return the token table; Kaldi's begin with `<eps>` and end with `#0 #1 ...`."""
    if isinstance(tokens, TokenTable):
        return tokens
    if tokens is not None:
        names = read_tokens(tokens, blank=0).names
        if names[0] != EPSILON_WORD:
            return read_tokens(tokens, blank)
    elif isymbols:
        top = max(isymbols)
        missing = sorted(set(range(top)) - isymbols.keys())
        if missing:
            absent = f"no input symbol for label {missing[0]} of {top}"
            raise FormatError(f"{place}: {absent}, expected all; give tokens=")
        names = tuple(isymbols[label] for label in range(top + 1))
        while names and re.fullmatch(r"#\d+", names[-1]):
            names = names[:-1]
    else:
        raise FormatError(f"{place}: no input symbols, expected tokens: give tokens=")
    return token_table(names[1:], blank)
