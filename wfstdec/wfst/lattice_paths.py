"""Paths through lattices, read as the paths of a search are: tokens, words, times.

found = nbest_paths(lattice, 10)
paths = read_paths(lattice, found)
hyps = hypotheses_of(lattice, found)             # also of a lattice from a file
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import ARC, NO_ARCS
from wfstdec.jit import read_only
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import NbestPaths
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.search.paths.word_cut import Aligner
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.hypotheses import HypothesisBatch, Reader
from wfstdec.wfst.options import WfstOptions

if TYPE_CHECKING:
    from wfstdec.boost.compile import CompiledBoosts


class NbestList(list[Hypothesis]):
    """Hypotheses of different texts, best first.

    Attributes:
        is_exact: Whether there is none between them that is missing. False where the
            search for them was stopped.
    """

    def __init__(self, hypotheses: Iterable[Hypothesis], is_exact: bool) -> None:
        super().__init__(hypotheses)
        self.is_exact = is_exact


def read_paths(lattice: Lattice, found: NbestPaths) -> list[BestPath]:
    """What paths say and cost.

    Args:
        lattice: What they go through.
        found: The paths.
    """
    history = History(rule_of_lattice(lattice), lattice.first_frame)
    died = -1 if lattice.died_at_frame is None else lattice.died_at_frame
    paths = []
    for positions, excess in zip(found.arcs, found.excess, strict=True):
        end = int(lattice.arcs["nextstate"][positions[-1]]) if len(positions) else 0
        acoustic = lattice.arcs["acoustic_cost"][positions]
        path = BestPath(
            said=history.read(0, positions, acoustic),
            final_cost=float(lattice.states["final_cost"][end]),
            search_cost=lattice.search_cost + excess,
            reached_final=lattice.reached_final,
            num_frames=lattice.num_frames,
            died_at_frame=died,
        )
        paths.append(path)
    return paths


def rule_of_lattice(lattice: Lattice) -> Rule:
    """How paths are read that are given by positions in `Lattice.arcs`."""
    arcs = np.empty(lattice.num_arcs, ARC)
    for name in ("ilabel", "olabel", "nextstate"):
        arcs[name] = lattice.arcs[name]
    arcs["cost"] = lattice.arcs["graph_cost"]
    blank = uint32(ilabel_of(lattice.tokens.blank))
    return Rule(read_only(arcs), blank, lattice.info.marks_repeats, read_only(NO_ARCS))


def hypotheses_of(
    lattice: Lattice,
    found: NbestPaths,
    boosts: CompiledBoosts | None = None,
    reader: Reader | None = None,
) -> NbestList:
    """The hypotheses of paths through a lattice.

    Args:
        lattice: What they go through.
        found: The paths.
        boosts: Those of the search, for its own account of them; None takes what
            stands on the arcs.
        reader: That of the decoder; None makes one.
    """
    paths = read_paths(lattice, found)
    reader = reader or reader_of(lattice)
    credited: Sequence[CompiledBoosts]
    if boosts is not None:
        credited = [boosts] * len(paths)
    else:
        on_arcs = [_OnArcs(lattice, arcs) for arcs in found.arcs]
        credited = cast("list[CompiledBoosts]", on_arcs)
    batch = HypothesisBatch(reader, paths, credited)
    return NbestList(map(batch.hypothesis, range(len(paths))), found.is_exact)


def reader_of(lattice: Lattice) -> Reader:
    """What reads the paths of a lattice: its tables stand for the graph's."""
    scales = lattice.scales
    options = WfstOptions(
        acoustic_scale=scales.acoustic_scale,
        lm_scale=scales.lm_scale,
        word_insertion=scales.word_insertion,
    )
    tables = lattice.tables
    return Reader(tables, Aligner(tables), options, lattice.frame_shift_s)


class _OnArcs:
    """Boosts as a path through a lattice was credited them."""

    def __init__(self, lattice: Lattice, arcs: np.ndarray) -> None:
        end = int(lattice.arcs["nextstate"][arcs[-1]]) if len(arcs) else 0
        total = lattice.arcs["boost_cost"][arcs].sum(dtype=np.float64)
        self._cost = float(total) + float(lattice.states["final_boost_cost"][end])

    def cost(self, _words: Sequence[int], _tokens: Sequence[int]) -> float:
        """As `CompiledBoosts.cost`."""
        return self._cost + 0.0
