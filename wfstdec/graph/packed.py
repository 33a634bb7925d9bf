"""Packed search graphs: the arrays of every decoder backend.

A `PackedGraph` is a TLG (or any decoding graph) in rows: the arcs of a state are
contiguous, its epsilon arcs first. It includes the token table, words and
pronunciations, so that a graph file is sufficient for decoding. Packing and loading
check every invariant listed at `PackedGraph`, so that kernels can trust graphs.

    FstArrays --pack--> PackedGraph --save/load--> .npz
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.graph import checks as graph_checks
from wfstdec.graph import file as packed_file
from wfstdec.graph.arcs import (
    ARC,
    CARRIES_WORD,
    LABEL_MASK,
    LEADS_TO_EPSILON,
    REPEAT,
    FstArrays,
    GraphInfo,
    OovExits,
)
from wfstdec.graph.product import (
    TO_HUB,
    Product,
    arc_splits,
    compose,
    composed,
    parts_of,
    product_from,
    product_of,
)
from wfstdec.jit import read_only
from wfstdec.text.display import html_table
from wfstdec.text.files import PathLike, fingerprint_of, reading
from wfstdec.text.lexicon import word_ids
from wfstdec.text.tokens import EPSILON, TokenTable, ilabel_of
from wfstdec.text.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """Decoding graph as arrays, created by `pack` or `load_graph`.

    Invariants, checked by both: the start state is 0; rows are sorted by (label, repeat
    flag, nextstate, olabel, cost), so that epsilon arcs come first; token labels are at
    most V; word labels are in the table; costs are -1e20 or more, those of arcs finite;
    nextstates exist; flags match the arcs; a final state can be reached; no cycle of
    epsilon arcs; words, tokens and separators agree.

    Attributes:
        arcs: `ARC` [A].
        state_arc_splits: uint32 [S + 1], the row of each state.
        state_num_epsilons: uint32 [S], number of epsilon arcs of the row.
        final_cost: float32 [S], nats; `inf` for non-final states.
        epsilon_rank: int32 [S], longest chain of epsilon arcs into a state: closing in
            this order visits each state once.
        vocabulary: Tokens and words of the labels.
        info: How it was built.
        oov_exits: States where an OOV word may begin, if any.
    """

    arcs: np.ndarray
    state_arc_splits: np.ndarray
    state_num_epsilons: np.ndarray
    final_cost: np.ndarray
    epsilon_rank: np.ndarray
    vocabulary: Vocabulary
    info: GraphInfo = field(default_factory=GraphInfo)
    oov_exits: OovExits | None = None

    def __repr__(self) -> str:
        topology = f", topology {self.topology!r}" if self.topology else ""
        return (
            f"PackedGraph({self.num_states:,} states, {self.num_arcs:,} arcs, "
            f"{len(self.tokens):,} tokens, {len(self.word_ids):,} words{topology})"
        )

    def _repr_html_(self) -> str:
        return html_table(self.describe().items(), caption="PackedGraph")

    def describe(self) -> dict[str, str]:
        """Return names and values of all facts, as printed by `wfstdec info`."""
        vocabulary, tokens = self.vocabulary, self.tokens
        exits, opened = self.oov_exits, vocabulary.open_word
        between = [repr(tokens.names[token]) for token in vocabulary.separators]
        if between and not vocabulary.separated:
            between.append("or nothing")
        oov, opens = "none: no OOV words", "none"
        if exits is not None:
            cost = f"an OOV word costs {exits.word_cost:.2f} nats"
            oov = f"in {len(exits):,} states, {cost}"
        if opened is not None:
            opens = f"of {opened.kind}, {opened.token_cost:g} nats a token"
        degrees = np.diff(self.state_arc_splits)
        epsilons = int(self.state_num_epsilons.sum())
        finals = int(np.isfinite(self.final_cost).sum())
        share, words = epsilons / max(self.num_arcs, 1), len(self.word_ids)
        return {
            "states": f"{self.num_states:,}, {finals:,} of them final",
            "arcs": f"{self.num_arcs:,} ({self.arcs.nbytes / 2**20:.1f} MiB)",
            "arcs of a state": f"{degrees.mean():.2f} on average, {degrees.max()} at "
            "most",
            "epsilon arcs": f"{epsilons:,} ({share:.1%}), chains of up to "
            f"{self.epsilon_rank.max()}",
            "arcs with a word": f"{np.count_nonzero(self.arcs['olabel']):,}",
            "topology": self.topology or "unknown",
            "repeats marked": "yes" if self.info.marks_repeats else "no",
            "tokens": f"{len(tokens):,}, fingerprint {tokens.fingerprint}",
            "blank": f"{tokens.names[tokens.blank]!r}, token {tokens.blank}",
            "between words": " ".join(between) or "nothing",
            "OOV exits": oov,
            "open words": opens,
            "words": f"{words:,}, {len(vocabulary.pronunciations):,} pronunciations",
            "fingerprint": self.fingerprint,
        }

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.final_cost)

    @property
    def num_arcs(self) -> int:
        """Number of arcs, A."""
        return len(self.arcs)

    @property
    def tokens(self) -> TokenTable:
        """Token table of the acoustic model."""
        return self.vocabulary.tokens

    @property
    def words(self) -> tuple[str, ...]:
        """Words by id; id 0 is `<eps>`."""
        return self.vocabulary.words

    @property
    def topology(self) -> str:
        """Name of the CTC topology, or "" if unknown."""
        return self.info.topology

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """Id of each word."""
        return word_ids(self.words)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of arcs, final costs and words, 32 hex digits; equal if the same."""
        return fingerprint_of(self._arrays())

    @property
    def product(self) -> Product | None:
        """Graph as rows of LG with their topology; None if it is not a product."""
        blank = ilabel_of(self.tokens.blank)
        return product_of(self.arcs, self.state_arc_splits, blank, len(self.tokens))

    @staticmethod
    def pack(
        fst: FstArrays,
        repeat: np.ndarray | None,
        vocabulary: Vocabulary,
        info: GraphInfo | None = None,
        oov_exits: OovExits | None = None,
    ) -> PackedGraph:
        """Pack an FST whose ilabels are token + 1 and whose olabels are word ids.

        Arcs of infinite cost are dropped.

        Args:
            fst: Graph; states are renumbered so that its start becomes 0.
            repeat: bool [A], which arcs repeat a token; `None` for none.
            vocabulary: Tokens and words of the labels.
            info: How it was built; None if unknown.
            oov_exits: Of an FST whose start is state 0.

        Raises:
            GraphError: An invariant of `PackedGraph` does not hold.
        """
        assert oov_exits is None or fst.start == 0
        graph_checks.check_fst(
            fst, repeat, len(vocabulary.tokens), len(vocabulary.words)
        )
        num_states = fst.num_states
        rename = np.arange(num_states)  # the start becomes 0
        rename[: fst.start] += 1
        rename[fst.start] = 0
        final_cost = np.empty(num_states, np.float32)
        final_cost[rename] = fst.final_cost
        state, arcs = _arcs_of(fst, repeat, rename)
        order = _row_order(state, arcs)
        order = order[arcs["cost"][order] < np.inf]
        state, arcs = state[order], arcs[order]
        # The flag makes the search close over a state before reading its row.
        epsilon = arcs["ilabel"] & LABEL_MASK == EPSILON
        counts = np.bincount(state[epsilon], minlength=num_states).astype(np.uint32)
        arcs["ilabel"] |= _flag(counts[arcs["nextstate"]] > 0, LEADS_TO_EPSILON)
        splits = np.zeros(num_states + 1, np.uint32)
        np.cumsum(np.bincount(state, minlength=num_states), out=splits[1:])
        rows = arcs, splits, final_cost
        return _checked(rows, counts, vocabulary, info or GraphInfo(), oov_exits)

    def unpack(self) -> FstArrays:
        """Return the graph as plain arrays without flags (the inverse of `pack`)."""
        return FstArrays(
            start=0,
            final_cost=self.final_cost,
            state_arc_splits=self.state_arc_splits.astype(np.int64),
            ilabel=(self.arcs["ilabel"] & LABEL_MASK).astype(np.int32),
            olabel=self.arcs["olabel"].astype(np.int32),
            nextstate=self.arcs["nextstate"].astype(np.int32),
            cost=np.ascontiguousarray(self.arcs["cost"]),
        )

    def save(self, path: PathLike) -> None:
        """Write the graph as `.npz`, atomically.

        A product of T and rows of LG is written as these, if that is smaller.

        Raises:
            FormatError: The file cannot be written.
        """
        product = self.product
        rows = {} if product is None else product.arrays()
        whole = self.num_arcs * ARC.itemsize + self.state_arc_splits.nbytes
        is_less = 0 < sum(array.nbytes for array in rows.values()) < whole
        arrays = rows | self._other_arrays() if is_less else self._arrays()
        packed_file.write_arrays(path, arrays, self.fingerprint)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return arrays of a file by name, without those that can be derived."""
        rows = {"arcs": self.arcs, "state_arc_splits": self.state_arc_splits}
        return rows | self._other_arrays()

    def _other_arrays(self) -> dict[str, np.ndarray]:
        return {
            "final_cost": self.final_cost,
            **packed_file.table_arrays(self.vocabulary, self.info),
            **packed_file.exit_arrays(self.oov_exits),
        }


class _StoredGraph(PackedGraph):
    """Graph stored as rows of LG, whose arcs are composed on demand."""

    def __init__(
        self, *fields: Any, product: Product | None = None, **named: Any
    ) -> None:
        """Take all fields, as for `dataclasses.replace`, or a product and some."""
        if product is None:
            super().__init__(*fields, **named)
        else:
            self.__dict__.update(named, _product=product)

    @property
    def product(self) -> Product | None:
        return self.__dict__.get("_product") or super().product

    @cached_property
    def arcs(self) -> np.ndarray:
        return compose(self.__dict__["_product"])[0]

    @cached_property
    def state_arc_splits(self) -> np.ndarray:
        return arc_splits(self.__dict__["_product"]).astype(np.uint32)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of T o LG, whose arcs are composed in parts."""
        product = self.__dict__.get("_product")
        if product is None:
            return fingerprint_of(self._arrays())
        arrays: dict[str, Any] = self._other_arrays()
        arrays["state_arc_splits"] = self.state_arc_splits
        arrays["arcs"] = composed(product, arc_splits(product))
        return fingerprint_of(arrays)

    @cached_property
    def num_arcs(self) -> int:
        product = self.__dict__.get("_product")
        return len(self.arcs) if product is None else int(arc_splits(product)[-1])


def load_graph(path: PathLike) -> PackedGraph:
    """Read a graph of `PackedGraph.save`, and validate it.

    Raises:
        FormatError: The file cannot be read or is not a graph of wfstdec.
        GraphError: It is of another version, damaged, or breaks an invariant.
    """
    with reading(path, *packed_file.READABLE):
        arrays, fingerprint = packed_file.read_arrays(path)
        vocabulary, info = packed_file.tables_from(arrays)
        graph_checks.check_dtypes(arrays)
        oov_exits = packed_file.exits_from(arrays)
        if "lg_arcs" in arrays:
            return _stored(arrays, fingerprint, vocabulary, info, oov_exits)
        rows = arrays["arcs"], arrays["state_arc_splits"], arrays["final_cost"]
        graph = _checked(rows, None, vocabulary, info, oov_exits)
    # Invariants hold for many wrong graphs: one changed cost breaks none.
    if graph.fingerprint != fingerprint:
        damaged = "another fingerprint: the file is damaged; build the graph again"
        raise GraphError(f"{path}: {damaged}")
    return graph


def _stored(
    arrays: dict[str, np.ndarray],
    fingerprint: str,
    vocabulary: Vocabulary,
    info: GraphInfo,
    oov_exits: OovExits | None,
) -> PackedGraph:
    """Check rows of LG of a file, and return the graph."""
    blank, num_tokens = ilabel_of(vocabulary.tokens.blank), len(vocabulary.tokens)
    product = product_from(arrays, blank, num_tokens)
    del arrays["lg_arcs"], arrays["lg_epsilons"]  # they were copied into one array
    final_cost = arrays["final_cost"]
    if len(final_cost) != len(product.kind):
        raise GraphError(f"{len(final_cost)} final costs, {len(product.kind)} states")
    facts = vocabulary, info, oov_exits
    return _checked_product(product, final_cost, *facts, fingerprint=fingerprint)


def pack_product(
    product: Product,
    final_cost: np.ndarray,
    vocabulary: Vocabulary,
    info: GraphInfo,
    oov_exits: OovExits | None,
) -> PackedGraph:
    """Sort the arcs of a product, set their flags, and return the graph."""
    has_epsilons = (product.num_epsilons > 0) | (product.kind == TO_HUB)
    parts = {"arcs": product.arcs, "epsilons": product.epsilons}
    counts = np.diff(product.row_splits), product.num_epsilons
    for (name, arcs), lengths in zip(parts.items(), counts, strict=True):
        order = _row_order(np.repeat(np.arange(len(lengths)), lengths), arcs)
        parts[name] = arcs = arcs[order]
        arcs["cost"] += np.float32(0.0)  # no -0.0
        arcs["ilabel"] |= _flag(arcs["olabel"] != EPSILON, CARRIES_WORD)
        arcs["ilabel"] |= _flag(has_epsilons[arcs["nextstate"]], LEADS_TO_EPSILON)
    columns = {name: read_only(getattr(product, name)) for name in Product._fields[:-1]}
    columns |= parts_of(**parts, blank=product.blank, num_tokens=len(vocabulary.tokens))
    product = Product(**columns, blank=product.blank)
    return _checked_product(product, final_cost, vocabulary, info, oov_exits)


def _checked_product(
    product: Product, final_cost: np.ndarray, *facts: Any, **known: Any
) -> PackedGraph:
    """Check a product by a representative part of T o LG; return the graph."""
    reduced = *compose(product, reduced=True), final_cost
    checked = _checked(reduced, None, *facts)
    graph = _StoredGraph(
        product=product,
        final_cost=final_cost,
        state_num_epsilons=checked.state_num_epsilons,
        epsilon_rank=checked.epsilon_rank,
        **dict(zip(("vocabulary", "info", "oov_exits"), facts, strict=True)),
        **known,
    )
    if graph.num_arcs > graph_checks.MAX_ARCS:
        raise GraphError(f"{graph.num_arcs} arcs, expected {graph_checks.MAX_ARCS}")
    return graph


def _arcs_of(
    fst: FstArrays, repeat: np.ndarray | None, rename: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the source states of arcs, renumbered, and arcs as `ARC` records."""
    arcs = np.zeros(fst.num_arcs, ARC)
    arcs["ilabel"] = fst.ilabel
    if repeat is not None:
        arcs["ilabel"] |= _flag(repeat, REPEAT)
    arcs["olabel"] = fst.olabel
    arcs["ilabel"] |= _flag(arcs["olabel"] != EPSILON, CARRIES_WORD)
    arcs["nextstate"] = rename[fst.nextstate]
    arcs["cost"] = np.asarray(fst.cost, np.float32) + np.float32(0.0)  # no -0.0
    return rename[fst.arc_state()], arcs


def _row_order(state: np.ndarray, arcs: np.ndarray) -> np.ndarray:
    """Return the order of arcs in rows; see `PackedGraph` for the keys."""
    repeat = arcs["ilabel"] >> np.uint32(31)
    label = (arcs["ilabel"] & LABEL_MASK).astype(np.uint64)
    key = (state.astype(np.uint64) << np.uint64(32)) | (label << np.uint64(1))
    key |= repeat.astype(np.uint64)
    order = np.argsort(key, kind="stable")
    key = key[order]
    ties = np.flatnonzero(key[1:] == key[:-1])
    if len(ties):  # few: sorting all by all keys would take four times as long
        place = np.union1d(ties, ties + 1)
        some = order[place]
        columns = (arcs[name][some] for name in ("cost", "olabel", "nextstate"))
        order[place] = some[np.lexsort((*columns, key[place]))]
    return order


def _flag(where: np.ndarray, flag: int) -> np.ndarray:
    return np.where(where, np.uint32(flag), np.uint32(0))


def _checked(
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    counts: np.ndarray | None,
    vocabulary: Vocabulary,
    info: GraphInfo,
    oov_exits: OovExits | None,
) -> PackedGraph:
    """Check all invariants and return the graph; rows were checked by counts."""
    arcs, splits, final_cost = rows
    graph_checks.check_vocabulary(vocabulary)
    graph_checks.check_info(info, vocabulary)
    if counts is None:
        counts = graph_checks.check_rows(arcs, splits, final_cost, vocabulary)
    rank = graph_checks.epsilon_ranks(arcs, splits, counts)
    graph_checks.check_reachable(arcs, splits, final_cost)
    if oov_exits is not None:
        graph_checks.check_exits(oov_exits, len(final_cost), len(vocabulary.tokens))
    return PackedGraph(
        arcs, splits, counts, final_cost, rank, vocabulary, info, oov_exits
    )
