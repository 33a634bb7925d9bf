"""The engine on pynini (OpenFst's Python bindings), an extra: an independent check."""

from __future__ import annotations

import importlib
from typing import Any

from wfstdec.fst.openfst_binary import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays

pynini: Any = importlib.import_module("pynini")  # its types lack what is used here


class PyniniEngine:
    """See `engine.Engine`."""

    def load(self, fst: FstArrays) -> Any:
        """Make an `Fst`."""
        return pynini.Fst.read_from_string(format_fst(FstContent(fst), "vector"))

    def unload(self, fst: Any) -> FstArrays:
        """Make arrays."""
        return parse_fst(fst.write_to_string(), "pynini's FST").fst

    def size(self, fst: Any) -> tuple[int, int]:
        """States and arcs."""
        return fst.num_states(), sum(fst.num_arcs(s) for s in range(fst.num_states()))

    def determinize(self, fst: Any, max_states: int, log: bool = True) -> Any:
        """Remove epsilons and determinize; it cannot stop at a number of states.

        It ends all the same: the lexicon's token strings can be read in one way, and
        grammars are deterministic.
        """
        if log:
            fst = pynini.arcmap(fst, map_type="to_log")
        fst = pynini.determinize(fst.rmepsilon())
        return pynini.arcmap(fst, map_type="to_std") if log else fst


ENGINE = PyniniEngine()
