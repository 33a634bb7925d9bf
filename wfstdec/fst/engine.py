"""Determinization of users' grammars: the only importer of an FST library here.

    acceptor = determinize(acceptor, max_states=10_000)

Arrays go in and come out, through temporary files. Composition and minimization in
arrays are 3 and 10 times as fast as those of the library.
"""

import importlib
import tempfile
from pathlib import Path
from typing import Any

from wfstdec.errors import GraphError, needs
from wfstdec.fst.openfst import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst


def _kaldifst() -> Any:
    with needs("a grammar needs kaldifst", ": pip install kaldifst"):
        return importlib.import_module("kaldifst")


def determinize(acceptor: FstArrays, max_states: int) -> FstArrays:
    """Remove epsilons and determinize in the tropical semiring."""
    # At its limit of states it either raises or returns True and a partial result.
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
        raise GraphError(
            f"determinizing needs more than {max_states} states, expected fewer: some "
            "strings can be read in several ways whose costs drift apart"
        )
    return from_kaldifst(changed)


def to_kaldifst(fst: FstArrays) -> Any:
    """Make a `StdVectorFst` of arrays, which the library does not check."""
    check_fst(fst)
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        path.write_bytes(format_fst(FstContent(fst), "vector"))
        return _kaldifst().StdVectorFst.read(str(path))


def from_kaldifst(fst: Any) -> FstArrays:
    """Make arrays of a `StdVectorFst`."""
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        if not fst.write(str(path)):
            raise GraphError(f"{path}: kaldifst cannot write this file")
        return parse_fst(path.read_bytes(), str(path)).fst
