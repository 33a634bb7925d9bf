"""Writers of lattices for other tools: OpenFst files, Kaldi archives, drawings.

    write_lattice_fst(lattice, "one.fst")       # for kaldifst, pynini, OpenFst tools

    with KaldiLatticeWriter("dev.ark", words="words.txt") as write:
        for utterance, lattice in open_lattices("dev.lat").items():
            write(utterance, lattice)                       # determinized
    lattice_1best ark:dev.ark ...                           # Kaldi, from there on

State 0 is the start. An entry of an archive is the id of the utterance, a space, and an
OpenFst file of type vector, or a line end and its text. The graph cost of an arc is the
scaled sum of all costs except the acoustic one, which is unscaled: Kaldi's acoustic
scale is that of the search. Labels, token + 1 for each frame, replace transition ids.
"""

import json
import struct
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from wfstdec.errors import LatticeError, OptionError
from wfstdec.fst.openfst import FstContent, format_fst, header_of
from wfstdec.graph.arcs import LABEL_MASK, REPEAT, FstArrays
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.compact import CompactLattice, Weight, compact_lattice
from wfstdec.lattice.file import GrowingFile
from wfstdec.text.files import PathLike, atomic_write
from wfstdec.text.tokens import EPSILON, TokenTable, token_of


def lattice_fst(lattice: Lattice) -> FstArrays:
    """Return a lattice as an FST: tokens to words, costs scaled and summed."""
    arcs = lattice.arcs
    splits = np.searchsorted(arcs["state"], np.arange(lattice.num_states + 1))
    return FstArrays(
        start=0,
        final_cost=lattice.final_costs().astype(np.float32),
        state_arc_splits=splits,
        ilabel=(arcs["ilabel"] & LABEL_MASK).astype(np.int32),
        olabel=arcs["olabel"].astype(np.int32),
        nextstate=arcs["nextstate"].astype(np.int32),
        cost=lattice.arc_costs().astype(np.float32),
    )


def write_lattice_fst(lattice: Lattice, path: PathLike) -> None:
    """Write a lattice as an OpenFst file of type vector, over the tropical semiring."""
    data = format_fst(FstContent(lattice_fst(lattice)), "vector")
    with atomic_write(path) as file:
        file.write(data)


_COMPACT = "compactlattice44"
_NO_COSTS = struct.pack("<ff", np.inf, np.inf)


class KaldiLatticeWriter(GrowingFile):
    """`GrowingFile` of lattices determinized over words.

    Args:
        path: The archive.
        text: As `ark,t` and not as `ark`.
        words: File for the words by number, like Kaldi's `words.txt`, or None.

    Raises:
        FormatError: A file cannot be written.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        text: bool = False,
        words: PathLike | None = None,
    ) -> None:
        super().__init__(path)
        self._text, self._words_path = text, words
        self._numbers: dict[str, int] = {}
        self._own: Sequence[str] | None = None
        self._kept: list[str] = []
        self.note: list[str] = []  # OOV words of the last lattice

    def begin(self, file: IO[bytes], notes: Sequence[Any] = ()) -> None:
        """Append to a file; see `GrowingFile`."""
        self._file = file
        self._kept = [word for words in notes for word in words]
        if self._own is not None:
            self.number(self._own)

    def finish(self) -> None:
        """Write the file of words; see `GrowingFile`."""
        if self._words_path is not None:
            with atomic_write(self._words_path, "w") as file:
                file.writelines(f"{word} {i}\n" for word, i in self._numbers.items())

    def number(self, words: Sequence[str]) -> None:
        """Number the words of the graph, before the first lattice does."""
        self._own = words
        self._numbers = {word: i for i, word in enumerate(words)}
        for word in self._kept:
            self._numbers.setdefault(word, len(self._numbers))

    def __call__(self, utterance: str, lattice: Lattice) -> CompactLattice:
        """Write a lattice; return its compact form."""
        # OOV words are numbered after those of the graph, in order of occurrence.
        if len(utterance.split()) != 1 or utterance != utterance.strip():
            raise LatticeError("an id of an archive, expected one word", utterance)
        numbers = self._number(utterance, lattice)
        made = compact_lattice(lattice)
        numbered = (
            [arc._replace(word=int(numbers[arc.word])) for arc in row]
            for row in made.arcs
        )
        made = CompactLattice([*numbered], made.final, made.beam)
        data = compact_text(made).encode() if self._text else _compact_bytes(made)
        self._file.write(f"{utterance} ".encode() + data)
        return made

    def _number(self, utterance: str, lattice: Lattice) -> np.ndarray:
        own = lattice.vocabulary.own.words
        if self._own is None:
            self.number(own)
        if own is not self._own and own != self._own:
            raise LatticeError("is of another graph, expected one a file", utterance)
        self.note = list(lattice.words[len(own) :])
        for word in self.note:
            self._numbers.setdefault(word, len(self._numbers))
        others = [self._numbers[word] for word in self.note]
        return np.append(np.arange(len(own)), np.array(others, np.int64))


def compact_text(lattice: CompactLattice) -> str:
    """Return a compact lattice in Kaldi's text format, without id."""
    lines = ["\n"]
    for state, row in enumerate(lattice.arcs):
        for word, to, weight in row:
            lines.append(f"{state}\t{to}\t{word}\t{_text_of(weight)}\n")
        final = lattice.final[state]
        if final is not None:
            lines.append(f"{state}\t{_text_of(final)}\n")
    return "".join([*lines, "\n"])


def _text_of(weight: Weight) -> str:
    labels = "_".join(map(str, weight.labels))
    return f"{weight.graph_cost:.7g},{weight.acoustic_cost:.7g},{labels}"


def _compact_bytes(lattice: CompactLattice) -> bytes:
    parts = [header_of("vector", _COMPACT, (0, lattice.num_states, 0))]
    for row, final in zip(lattice.arcs, lattice.final, strict=True):
        parts.append(_weight_bytes(final) + struct.pack("<q", len(row)))
        for word, to, weight in row:
            parts.append(struct.pack("<ii", word, word) + _weight_bytes(weight))
            parts.append(struct.pack("<i", to))
    return b"".join(parts)


def _weight_bytes(weight: Weight | None) -> bytes:
    if weight is None:
        return _NO_COSTS + struct.pack("<i", 0)
    graph, acoustic, labels = weight
    return struct.pack(f"<ffi{len(labels)}i", graph, acoustic, len(labels), *labels)


MOST_ARCS = 500


def graph_dot(graph: PackedGraph) -> str:
    """Return a graph for dot: `token:word/cost` on arcs, `+token` is a repeat."""
    if graph.num_arcs > MOST_ARCS:
        raise OptionError(
            f"the graph has {graph.num_arcs} arcs, expected at most {MOST_ARCS} to draw"
        )
    lines = []
    for state, cost in enumerate(graph.final_cost.tolist()):
        if np.isfinite(cost):
            name = quoted(f"{state}/{cost:.3g}" if cost else str(state))
            lines.append(f"  {state} [shape=doublecircle label={name}];")
    lines.append("  0 [style=bold];")
    for state, arc in zip(graph.unpack().arc_state(), graph.arcs, strict=True):
        cost = f"/{arc['cost']:.3g}" if arc["cost"] else ""
        label = quoted(_arc_labels(arc, graph.tokens, graph.words) + cost)
        lines.append(f"  {state} -> {arc['nextstate']} [label={label}];")
    head = ["digraph wfstdec {", "  rankdir=LR; node [shape=circle];"]
    return "\n".join([*head, *lines, "}"]) + "\n"


def _arc_labels(arc: np.void, tokens: TokenTable, words: Sequence[str]) -> str:
    ilabel, olabel = int(arc["ilabel"]) & LABEL_MASK, int(arc["olabel"])
    token = "-" if ilabel == EPSILON else tokens.names[token_of(ilabel)]
    repeat = "+" if int(arc["ilabel"]) & REPEAT else ""
    word = "" if olabel == EPSILON else f":{words[olabel]}"
    return f"{repeat}{token}{word}"


def quoted(text: str) -> str:
    """Return a text quoted for dot."""
    return json.dumps(text, ensure_ascii=False)
