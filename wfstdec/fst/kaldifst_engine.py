"""The engine on kaldifst: OpenFst and Kaldi's graph operations, 1.5 MB.

kaldifst reads and writes files only, so arrays pass through a temporary one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import kaldifst

from wfstdec.errors import GraphError
from wfstdec.fst.engine import too_many_states
from wfstdec.fst.openfst_binary import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays


def determinize(fst: FstArrays, max_states: int, *, log: bool = True) -> FstArrays:
    """See `engine.Engine`; Kaldi's determinize_star, which removes epsilons too.

    At its limit of states it either raises or returns True and a partial result.
    """
    changed = load(fst)
    try:
        partial = kaldifst.determinize_star(changed, max_states=max_states, use_log=log)
    except RuntimeError as error:
        if "not functional" in str(error):
            raise GraphError(
                "cannot determinize: some string has two outputs, expected one"
            ) from None
        if "Determinization aborted" not in str(error):
            raise
        partial = True
    if partial:
        raise too_many_states(max_states)
    return unload(changed)


def load(fst: FstArrays) -> Any:
    """Make a `StdVectorFst` from arrays."""
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        path.write_bytes(format_fst(FstContent(fst), "vector"))
        return kaldifst.StdVectorFst.read(str(path))


def unload(fst: Any) -> FstArrays:
    """Make arrays from a `StdVectorFst`."""
    with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
        path = Path(folder) / "arrays.fst"
        if not fst.write(str(path)):
            raise GraphError(f"{path}: the engine cannot write this file")
        return parse_fst(path.read_bytes(), str(path)).fst
