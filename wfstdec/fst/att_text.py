r"""OpenFst's text form (AT&T), and k2's, to arrays and back.

    0  1  a  b  0.5      state, next state, input and output label, cost
    0  1  a  0.5         an acceptor's arc: one label
    1  0.25              a final state and its cost; costs of 0 may be left out

Labels are numbers or names. k2 writes `state next label aux score` in numbers: labels
are tokens, scores are log-probs, and arcs with label -1 lead to the only final state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.openfst_binary import FstContent, Symbols
from wfstdec.graph.arcs import FstArrays
from wfstdec.text.symbols import EPSILON_WORD, ilabel_of

_K2_FINAL = -1
_Arc = tuple[int, int, int, int, float]


class _Row(NamedTuple):
    number: int
    fields: list[str]

    @property
    def is_arc(self) -> bool:
        return len(self.fields) > 2


def parse_text(
    lines: Iterable[str],
    place: str,
    isymbols: Symbols | None = None,
    osymbols: Symbols | None = None,
) -> FstContent:
    """Read AT&T text or k2's; the state of the first line is the start.

    An arc of three fields, or arcs whose fourth is always a number behind a name, make
    it an acceptor; a label -1 makes it k2's, whose labels become input labels.

    Args:
        lines: Lines of the file.
        place: Its name, for errors.
        isymbols: Names of input labels. Without them labels are numbers, or names that
            get numbers from 1 in the order they come.
        osymbols: Names of output labels, likewise; an acceptor uses `isymbols`.

    Raises:
        FormatError: A malformed line, an unknown label, or nothing at all.
    """
    split = (_Row(number, line.split()) for number, line in enumerate(lines, start=1))
    rows = [row for row in split if row.fields]
    arcs = [row.fields for row in rows if row.is_arc]
    # Only k2 has labels of -1, and always has them, on arcs to its final state.
    if any(fields[2] == str(_K2_FINAL) for fields in arcs):
        return FstContent(_assemble(rows, place, _read_k2_arc))
    inputs = _Labels([fields[2] for fields in arcs], isymbols)
    # Three columns of numbers tell nothing: the fourth is a cost or an output label.
    if _is_acceptor(arcs, inputs.numeric):

        def read_acceptor_arc(fields: list[str]) -> _Arc:
            label = inputs.find(fields[2])
            return int(fields[0]), int(fields[1]), label, label, _cost(fields[3:])

        fst = _assemble(rows, place, read_acceptor_arc)
        return FstContent(fst, inputs.symbols, inputs.symbols)
    outputs = _Labels([fields[3] for fields in arcs], osymbols)

    def read_arc(fields: list[str]) -> _Arc:
        labels = inputs.find(fields[2]), outputs.find(fields[3])
        return int(fields[0]), int(fields[1]), *labels, _cost(fields[4:])

    return FstContent(_assemble(rows, place, read_arc), inputs.symbols, outputs.symbols)


def format_text(content: FstContent) -> Iterator[str]:
    """The lines of AT&T text, the start state first.

    Labels are names where there are symbols; one with a space in it stays a number.
    """
    fst = content.fst
    isymbols, osymbols = _printable(content.isymbols), _printable(content.osymbols)
    # The first line's state is the start to all who read this.
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
        # A start without arcs, not final, would have no line, and the next be the
        # start.
        elif state == fst.start and splits[state] == splits[state + 1]:
            yield f"{state}\tInfinity\n"


def _printable(symbols: Symbols | None) -> Symbols:
    return {i: name for i, name in (symbols or {}).items() if len(name.split()) == 1}


class _Labels:
    """The labels of one side by their text."""

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
    """The cost that may stand in the last field; OpenFst writes `Infinity`."""
    if len(fields) > 1:
        raise ValueError(f"{fields[1]!r} behind the cost")
    return float(fields[0]) if fields else 0.0


def _read_k2_arc(fields: list[str]) -> _Arc:
    if len(fields) != 5:
        raise ValueError("k2's arcs have five fields")
    state, nextstate, label, aux = map(int, fields[:4])
    if label < _K2_FINAL or aux < _K2_FINAL:
        raise ValueError("a label below -1")
    ilabel = label if label == _K2_FINAL else ilabel_of(label)
    return state, nextstate, ilabel, max(aux, 0), 0.0 - float(fields[4])


def _assemble(
    rows: list[_Row], place: str, read_arc: Callable[[list[str]], _Arc]
) -> FstArrays:
    """The FST of all rows; arcs to k2's final state become final costs."""
    if not rows:
        raise FormatError(f"{place}: it is empty, expected the text of an FST")
    arcs: list[_Arc] = []
    finals: list[tuple[int, float]] = []
    for row in rows:
        try:
            if row.is_arc:
                arcs.append(read_arc(row.fields))
            else:
                finals.append((int(row.fields[0]), _cost(row.fields[1:])))
        except (ValueError, IndexError) as error:
            raise FormatError(
                f"{place}:{row.number}: found {' '.join(row.fields)!r} ({error}), "
                "expected 'state next-state label(s) [cost]' or 'state [cost]'"
            ) from None
    # k2 has one final state, and final costs on the arcs to it.
    if any(arc[2] == _K2_FINAL for arc in arcs):
        finals = [(arc[0], arc[4]) for arc in arcs if arc[2] == _K2_FINAL]
        arcs = [arc for arc in arcs if arc[2] != _K2_FINAL]
    return _numbered(arcs, finals, start=int(rows[0].fields[0]))


def _numbered(
    arcs: list[_Arc], finals: list[tuple[int, float]], start: int
) -> FstArrays:
    """The FST with its states numbered from 0, in the order of their numbers."""
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
