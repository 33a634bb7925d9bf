"""The engine on pynini (OpenFst's Python bindings), an extra: an independent check."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from wfstdec.fst.engine import too_many_states
from wfstdec.fst.openfst_binary import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays

pynini: Any = importlib.import_module("pynini")  # its types lack what is used here


def determinize(fst: FstArrays, max_states: int, *, log: bool = True) -> FstArrays:
    """See `engine.Engine`; epsilons are removed before.

    OpenFst counts states only for acceptors in the tropical semiring, and looks for
    shortest paths then, which negative cycles do not have: all others go on to the end.
    They have one: the lexicon's token strings can be read in one way, and grammars are
    deterministic.
    """
    if log:
        changed = pynini.arcmap(load(fst), map_type="to_log")
        changed = pynini.determinize(changed.rmepsilon())
        return unload(pynini.arcmap(changed, map_type="to_std"))
    if fst.olabel.any() or (fst.cost < 0).any():
        return unload(pynini.determinize(load(fst).rmepsilon()))
    acceptor = load(replace(fst, olabel=fst.ilabel)).rmepsilon()
    found = unload(pynini.determinize(acceptor, nstate=max_states + 1))
    if found.num_states > max_states:
        raise too_many_states(max_states)
    return replace(found, olabel=found.olabel * 0)


def load(fst: FstArrays) -> Any:
    """Make a pynini `Fst` from arrays."""
    return pynini.Fst.read_from_string(format_fst(FstContent(fst), "vector"))


def unload(fst: Any) -> FstArrays:
    """Make arrays from a pynini `Fst`."""
    return parse_fst(fst.write_to_string(), "pynini's FST").fst
