"""FST files: OpenFst binary or AT&T text, graphs from elsewhere and for elsewhere.

    graph = from_openfst("TLG.fst", tokens="tokens.txt", words="words.txt")
    to_openfst(graph, "TLG.fst")            # const; also "vector", "text"

A graph from Kaldi, k2 or NeMo scripts has input labels token + 1 and word ids on its
output side. It does not say which arcs repeat a token, nor how words are pronounced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from wfstdec.errors import FormatError, GraphError, OptionError
from wfstdec.fst.att_text import format_text, parse_text
from wfstdec.fst.openfst_binary import (
    FST_MAGIC,
    FstContent,
    Symbols,
    format_fst,
    parse_fst,
)
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.files import atomic_write, read_bytes, read_lines
from wfstdec.text.symbols import (
    EPSILON,
    EPSILON_WORD,
    TokenTable,
    ilabel_of,
    read_tokens,
    token_table,
)
from wfstdec.text.vocabulary import Vocabulary

FORMS = ("const", "vector", "text")
_DISAMBIGUATION = re.compile(r"#\d+")
_MAGIC = FST_MAGIC.to_bytes(4, "little")

Path = str | os.PathLike[str]


def read_fst(
    path: Path, isymbols: Symbols | None = None, osymbols: Symbols | None = None
) -> FstContent:
    """Read an FST file: OpenFst binary (const, vector), AT&T text, or k2's text.

    Args:
        path: The file, plain or gzip.
        isymbols: Names of input labels, for text whose labels are names.
        osymbols: Names of output labels, likewise.

    Raises:
        FormatError: The file cannot be read, is damaged or of another form.
    """
    data = read_bytes(path)
    if data.startswith(_MAGIC):
        return parse_fst(data, os.fspath(path))
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise FormatError(
            f"{path}: neither a binary OpenFst file nor text, expected one of them"
        ) from None
    return parse_text(lines, os.fspath(path), isymbols, osymbols)


def write_fst(path: Path, content: FstContent, form: str | None = None) -> None:
    """Write an FST file, whole or not at all.

    Args:
        path: The file.
        content: The FST, with the symbol tables that go into the file.
        form: `"const"`, `"vector"` or `"text"`; None for text where the name ends in
            `.txt`, else const.

    Raises:
        OptionError: Another form.
        FormatError: The file cannot be written.
    """
    if form is None:
        form = "text" if os.fspath(path).endswith(".txt") else "const"
    if form not in FORMS:
        expected = ", ".join(map(repr, FORMS))
        raise OptionError(f"form {form!r} of an FST file, expected one of {expected}")
    with atomic_write(path, "w" if form == "text" else "wb") as file:
        if form == "text":
            file.writelines(format_text(content))
        else:
            file.write(format_fst(content, form))


def from_openfst(
    path: Path,
    *,
    tokens: Path | TokenTable | None = None,
    words: Path | Sequence[str] | None = None,
    blank: int | str | None = None,
) -> PackedGraph:
    """Pack a graph that other tools made: a TLG, HLG or the like.

    Args:
        path: An OpenFst or text file; input label token + 1, output label word id.
        tokens: The token table; None to take it from the file's input symbols. A
            leading `<eps>`, as in Kaldi's tables, is left out.
        words: A file of `word id` lines, or the words by id, `<eps>` first; None to
            take them from the file's output symbols.
        blank: The blank by name or index; None to recognise it.

    Raises:
        FormatError: A file cannot be read or is damaged, or tables are missing.
        TokenTableError: A malformed token table.
        GraphError: The graph breaks an invariant of `PackedGraph`.
    """
    if words is not None and isinstance(words, (str, os.PathLike)):
        words = read_words(words)
    content = read_fst(path, osymbols=dict(enumerate(words)) if words else None)
    if words is None:
        words = _words_of(content.osymbols, f"{path}: no output symbols")
    table = _tokens_of(tokens, content.isymbols, blank, str(path))
    vocabulary = Vocabulary(table, tuple(words))
    try:
        return PackedGraph.pack(content.fst, None, vocabulary)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def to_openfst(graph: PackedGraph, path: Path, form: str | None = None) -> None:
    """Write a graph with its token and word tables; see `write_fst`.

    Repeats of a token get the label of the token.
    """
    names = enumerate(graph.tokens.names)
    isymbols = {EPSILON: EPSILON_WORD} | {ilabel_of(t): name for t, name in names}
    osymbols = dict(enumerate(graph.words))
    write_fst(path, FstContent(graph.unpack(), isymbols, osymbols), form)


def read_words(path: Path) -> tuple[str, ...]:
    """Read a word table: `word id` lines, ids from 0, `<eps>` is 0.

    Raises:
        FormatError: A malformed line, or ids that are not all there once.
    """
    table: Symbols = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdecimal() or int(fields[1]) in table:
            raise FormatError(
                f"{path}:{number}: found {line!r}, expected 'word id', each id once"
            )
        table[int(fields[1])] = fields[0]
    return _words_of(table, str(path))


def _words_of(table: Symbols | None, place: str) -> tuple[str, ...]:
    if not table:
        raise FormatError(f"{place}, expected words by id: give words=")
    if table.get(EPSILON) != EPSILON_WORD or max(table) != len(table) - 1:
        raise FormatError(
            f"{place}: ids {min(table)} to {max(table)} for {len(table)} words, the "
            f"first {table[min(table)]!r}, expected {EPSILON_WORD!r} as 0 and no gaps"
        )
    return tuple(table[i] for i in range(len(table)))


def _tokens_of(
    tokens: Path | TokenTable | None,
    isymbols: Symbols | None,
    blank: int | str | None,
    place: str,
) -> TokenTable:
    """The token table; those of Kaldi begin with `<eps>` and end with `#0 #1 ...`."""
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
            raise FormatError(
                f"{place}: no input symbol for label {missing[0]} of {top}, expected "
                "all; give tokens="
            )
        names = tuple(isymbols[label] for label in range(top + 1))
        while names and _DISAMBIGUATION.fullmatch(names[-1]):
            names = names[:-1]
    else:
        raise FormatError(f"{place}: no input symbols, expected tokens: give tokens=")
    return token_table(names[1:], blank)
