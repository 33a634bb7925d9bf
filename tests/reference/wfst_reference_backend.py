"""The WFST search in plain Python as a backend: `reference.py` and its lattices."""

from __future__ import annotations

import numpy as np
from concatenation import Whole, concatenate
from wfst_reference import ReferenceSearch
from wfst_reference_lattice import RecordingSearch

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.graph.arcs import NO_ARCS
from wfstdec.graph.overlay import make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.threads import SEGMENTS, HostBackend
from wfstdec.wfst.options import WfstOptions


class ReferenceBackend(HostBackend):
    can = HostBackend.can | {SEGMENTS}

    def __init__(self, graph: PackedGraph) -> None:
        super().__init__(len(graph.tokens), graph)
        self.graph = graph

    def start(
        self, options: WfstOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> ReferenceSearch:
        whole, oov = self._whole(boosts)
        if record:
            return RecordingSearch(self.graph, whole, oov, options, boosts)
        return ReferenceSearch(whole, options, boosts)

    def _whole(self, boosts: CompiledBoosts) -> tuple[Whole, np.ndarray]:
        """The graph with the words that are added, and their arcs, ARC [A']."""
        graph, oov = self.graph, boosts.oov
        if oov is None:
            arcs = np.arange(graph.num_arcs)
            return Whole(graph, np.zeros(len(arcs), np.float32), arcs), NO_ARCS
        overlay = make_overlay(graph, oov)
        vocabulary = graph.vocabulary.with_oov(oov)
        return concatenate(graph, overlay, vocabulary), overlay.arcs
