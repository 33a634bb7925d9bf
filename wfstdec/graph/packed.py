"""The search graph as arrays: what every decoder backend runs on.

A `PackedGraph` is a TLG (or any decoding graph) in rows: the arcs of a state stand
together, its epsilon arcs first. It carries its token table, its words and their
pronunciations, so that a graph file alone is enough to decode. No kernel ever sees a
bad graph: packing and loading check every invariant listed at `PackedGraph`.

    FstArrays --pack--> PackedGraph --save/load--> .npz
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, GraphError
from wfstdec.graph import graph_checks
from wfstdec.graph.arcs import (
    ARC,
    CARRIES_WORD,
    LABEL_MASK,
    LEADS_TO_EPSILON,
    REPEAT,
    FstArrays,
)
from wfstdec.graph.tables import GraphTables, Pronunciations
from wfstdec.text.atomic import atomic_write
from wfstdec.text.symbols import EPSILON, TokenTable

__all__ = [
    "ARC",
    "CARRIES_WORD",
    "LABEL_MASK",
    "LEADS_TO_EPSILON",
    "REPEAT",
    "FstArrays",
    "GraphTables",
    "PackedGraph",
    "Pronunciations",
    "load_graph",
]

FORMAT_VERSION = 2
_UNREADABLE = (  # what NumPy and zipfile are known to raise on files of all kinds
    OSError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
)


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """A decoding graph as arrays; made by `pack` or `load_graph`, never by hand.

    Invariants, checked by both: the start state is 0; rows are sorted by (label,
    repeat flag, nextstate, olabel, cost), so that epsilon arcs come first; token
    labels are at most V; word labels are in the table; costs are -1e20 or more, those
    of arcs finite; nextstates exist; the flags of an arc say what is there; a final
    state can be reached; no cycle of epsilon arcs; tables agree with each other.

    Attributes:
        arcs: `ARC` [A].
        state_arc_splits: uint32 [S + 1], the row of each state.
        state_num_epsilons: uint32 [S], how many arcs of the row are epsilons.
        final_cost: float32 [S], nats; `inf` where a state is not final.
        epsilon_rank: int32 [S], the longest chain of epsilon arcs that leads into a
            state: closing in this order visits each state once.
        tables: What the labels mean.
    """

    arcs: np.ndarray
    state_arc_splits: np.ndarray
    state_num_epsilons: np.ndarray
    final_cost: np.ndarray
    epsilon_rank: np.ndarray
    tables: GraphTables

    @property
    def num_states(self) -> int:
        """The number of states, S."""
        return len(self.final_cost)

    @property
    def num_arcs(self) -> int:
        """The number of arcs, A."""
        return len(self.arcs)

    @property
    def tokens(self) -> TokenTable:
        """The token table of the acoustic model."""
        return self.tables.tokens

    @property
    def words(self) -> tuple[str, ...]:
        """The words by id; id 0 is `<eps>`."""
        return self.tables.words

    @property
    def topology(self) -> str:
        """The name of the CTC topology, or "" where it is not known."""
        return self.tables.topology

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words) if i != EPSILON}

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits over arcs, final costs and tables: equal means the same."""
        digest = hashlib.sha256()  # processors have instructions for it
        for name, array in sorted(_arrays_of(self).items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()[:32]

    @staticmethod
    def pack(
        fst: FstArrays, repeat: np.ndarray | None, tables: GraphTables
    ) -> PackedGraph:
        """Pack an FST whose ilabels are token + 1 and whose olabels are word ids.

        Arcs of infinite cost are left out.

        Args:
            fst: The graph; states are renumbered so that its start becomes 0.
            repeat: bool [A], which arcs repeat a token; `None` for none.
            tables: What the labels mean.

        Raises:
            GraphError: An invariant of `PackedGraph` does not hold.
        """
        graph_checks.check_fst(fst, repeat, len(tables.tokens), len(tables.words))
        state, arcs = _arcs_of(fst, repeat)
        usable = arcs["cost"] < np.inf
        if not usable.all():
            state, arcs = state[usable], arcs[usable]
        order = graph_checks.row_order(state, arcs)
        state, arcs = state[order], arcs[order]
        num_states = fst.num_states
        epsilon = arcs["ilabel"] & LABEL_MASK == EPSILON
        counts = np.bincount(state[epsilon], minlength=num_states).astype(np.uint32)
        arcs["ilabel"] |= _flag(counts[arcs["nextstate"]] > 0, LEADS_TO_EPSILON)
        final_cost = _start_first(np.asarray(fst.final_cost, np.float32), fst.start)
        splits = np.zeros(num_states + 1, np.uint32)
        np.cumsum(np.bincount(state, minlength=num_states), out=splits[1:])
        return _checked(arcs, splits, final_cost, tables)

    def unpack(self) -> FstArrays:
        """The graph as plain arrays, flags removed (the inverse of `pack`)."""
        return FstArrays(
            start=0,
            final_cost=self.final_cost,
            state_arc_splits=self.state_arc_splits.astype(np.int64),
            ilabel=(self.arcs["ilabel"] & LABEL_MASK).astype(np.int32),
            olabel=self.arcs["olabel"].astype(np.int32),
            nextstate=self.arcs["nextstate"].astype(np.int32),
            cost=np.ascontiguousarray(self.arcs["cost"]),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph as `.npz`, whole or not at all.

        Raises:
            FormatError: The file cannot be written.
        """
        header = {"format": "wfstdec.graph", "version": FORMAT_VERSION}
        header["fingerprint"] = self.fingerprint
        parts: dict[str, Any] = {"header": _bytes(json.dumps(header))}
        parts.update(_arrays_of(self))
        with atomic_write(path) as file:
            np.savez(file, **parts)


def load_graph(path: str | os.PathLike[str]) -> PackedGraph:
    """Read a graph that `PackedGraph.save` wrote, and check it.

    Raises:
        FormatError: The file cannot be read or is no graph of wfstdec.
        GraphError: It is of another version, damaged, or breaks an invariant.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except _UNREADABLE as error:
        raise FormatError(
            f"{path}: not a readable graph file ({error}), expected what "
            "`wfstdec build` writes; build it again, or `wfstdec convert` a graph "
            "of another format"
        ) from None
    return _from_arrays(arrays, str(path))


def _arcs_of(
    fst: FstArrays, repeat: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The arcs as `ARC` records and the states they leave, the start state first."""
    rename = _start_first(np.arange(fst.num_states), fst.start)
    rename = np.argsort(rename) if fst.start else rename
    arcs = np.zeros(fst.num_arcs, ARC)
    arcs["ilabel"] = fst.ilabel
    if repeat is not None:
        arcs["ilabel"] |= _flag(repeat, REPEAT)
    arcs["olabel"] = fst.olabel
    arcs["ilabel"] |= _flag(arcs["olabel"] != EPSILON, CARRIES_WORD)
    arcs["nextstate"] = rename[fst.nextstate]
    arcs["cost"] = np.asarray(fst.cost, np.float32) + np.float32(0.0)  # no -0.0
    return rename[fst.arc_state()], arcs


def _flag(where: np.ndarray, flag: int) -> np.ndarray:
    return np.where(where, np.uint32(flag), np.uint32(0))


def _start_first(per_state: np.ndarray, start: int) -> np.ndarray:
    """Reorder an array over states so that the start state comes first."""
    return np.concatenate(
        [per_state[start : start + 1], per_state[:start], per_state[start + 1 :]]
    )


def _checked(
    arcs: np.ndarray, splits: np.ndarray, final_cost: np.ndarray, tables: GraphTables
) -> PackedGraph:
    """Check all invariants, rank the epsilons, and make the graph."""
    graph_checks.check_tables(tables)
    counts = graph_checks.check_rows(arcs, splits, final_cost, tables)
    rank = graph_checks.epsilon_ranks(arcs, splits, counts)
    graph_checks.check_reachable(arcs, splits, final_cost)
    return PackedGraph(arcs, splits, counts, final_cost, rank, tables)


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _arrays_of(graph: PackedGraph) -> dict[str, np.ndarray]:
    """What a graph file holds, by name; derived arrays are left out."""
    tables, pronunciations = graph.tables, graph.tables.pronunciations
    meta: dict[str, Any] = {
        "blank": tables.tokens.blank,
        "fillers": list(tables.fillers),
        "separated": tables.separated,
        "topology": tables.topology,
        "marks_repeats": tables.marks_repeats,
    }
    return {
        "arcs": graph.arcs,
        "state_arc_splits": graph.state_arc_splits,
        "final_cost": graph.final_cost,
        "tokens": _bytes(json.dumps(tables.tokens.names)),
        "words": _bytes("\n".join(tables.words)),
        "pronunciation_word": pronunciations.word,
        "pronunciation_splits": pronunciations.splits,
        "pronunciation_tokens": pronunciations.tokens,
        "pronunciation_cost": pronunciations.cost,
        "meta": _bytes(json.dumps(meta, sort_keys=True)),
    }


def _from_arrays(arrays: dict[str, np.ndarray], place: str) -> PackedGraph:
    """Make the graph from a file's arrays; `place` heads the errors."""
    try:
        header = json.loads(arrays["header"].tobytes())
        kind, version, fingerprint = (
            header[key] for key in ("format", "version", "fingerprint")
        )
    except (KeyError, ValueError, TypeError):
        kind = None
    if kind != "wfstdec.graph":
        raise FormatError(
            f"{place}: has no wfstdec graph header, expected what `wfstdec build` "
            "writes"
        )
    if version != FORMAT_VERSION:
        raise GraphError(
            f"{place}: graph format version {version!r}, this wfstdec reads version "
            f"{FORMAT_VERSION}; build the graph again"
        )
    try:
        graph = _graph_of(arrays)
    except GraphError as error:
        raise GraphError(f"{place}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise GraphError(f"{place}: a part is missing or damaged: {error}") from None
    if graph.fingerprint != fingerprint:
        raise GraphError(
            f"{place}: fingerprint {graph.fingerprint!r}, the header says "
            f"{fingerprint!r}: the file is damaged; build the graph again"
        )
    return graph


def _graph_of(arrays: dict[str, np.ndarray]) -> PackedGraph:
    meta = json.loads(arrays["meta"].tobytes())
    names = json.loads(arrays["tokens"].tobytes())
    tables = GraphTables(
        tokens=TokenTable(tuple(names), meta["blank"]),
        words=tuple(arrays["words"].tobytes().decode().split("\n")),
        pronunciations=Pronunciations(
            arrays["pronunciation_word"],
            arrays["pronunciation_splits"],
            arrays["pronunciation_tokens"],
            arrays["pronunciation_cost"],
        ),
        fillers=tuple(meta["fillers"]),
        separated=meta["separated"],
        topology=meta["topology"],
        marks_repeats=meta["marks_repeats"],
    )
    graph_checks.check_dtypes(arrays)
    return _checked(
        arrays["arcs"], arrays["state_arc_splits"], arrays["final_cost"], tables
    )
