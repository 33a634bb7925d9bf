"""Determinization of users' grammars: the only importer of FST libraries here.

    acceptor = determinize(acceptor, max_states=10_000)

Arrays pass through temporary files. Composition and minimization in arrays are 3 and 10
times as fast as in the library.
"""

import importlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import GraphError, needs
from wfstdec.fst.openfst import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst

KALDIFST, PYNINI = ENGINES = "kaldifst", "pynini"
"""Libraries that determinize; the first is the default."""


def _kaldifst() -> Any:
    with needs("a grammar needs kaldifst", ": pip install kaldifst"):
        return importlib.import_module("kaldifst")


def determinize(
    acceptor: FstArrays, max_states: int, engine: str = KALDIFST
) -> FstArrays:
    """Remove epsilons and determinize in the tropical semiring."""
    if engine == PYNINI:
        return _determinized_by_pynini(acceptor, max_states)
    # At its limit of states it raises, or returns True and a partial result.
    changed = to_kaldifst(acceptor)
    try:
        partial = _kaldifst().determinize_star(
            changed, max_states=max_states, use_log=False
        )
    except RuntimeError as error:
        if "Determinization aborted" not in str(error):
            raise
        partial = True
    if partial:
        raise _too_many_states(max_states)
    return from_kaldifst(changed)


def _determinized_by_pynini(acceptor: FstArrays, max_states: int) -> FstArrays:
    with needs("engine='pynini' needs pynini", ": pip install pynini"):
        library = importlib.import_module("pynini")
    check_fst(acceptor)
    both = FstContent(replace(acceptor, olabel=acceptor.ilabel))
    changed = library.Fst.read_from_string(format_fst(both, "vector"))
    changed.project("input").rmepsilon()  # the projection marks it as an acceptor
    # OpenFst limits states only without cycles of negative cost.
    counted = {} if (acceptor.cost < 0).any() else {"nstate": max_states + 1}
    made = library.determinize(changed, **counted).write_to_string()
    found = parse_fst(made, "pynini's FST").fst
    if found.num_states > max_states:
        raise _too_many_states(max_states)
    return replace(found, olabel=np.zeros_like(found.olabel))


def _too_many_states(max_states: int) -> GraphError:
    return GraphError(
        f"determinizing needs more than {max_states} states, expected fewer: some "
        "strings can be read in several ways whose costs drift apart"
    )


def to_kaldifst(fst: FstArrays) -> Any:
    """Return a `StdVectorFst` of arrays, which the library does not validate."""
    check_fst(fst)
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        path.write_bytes(format_fst(FstContent(fst), "vector"))
        return _kaldifst().StdVectorFst.read(str(path))


def from_kaldifst(fst: Any) -> FstArrays:
    """Return arrays of a `StdVectorFst`."""
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        if not fst.write(str(path)):
            raise GraphError(f"{path}: kaldifst cannot write this file")
        return parse_fst(path.read_bytes(), str(path)).fst
