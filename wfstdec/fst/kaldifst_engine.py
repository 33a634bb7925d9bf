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


class KaldifstEngine:
    """See `engine.Engine`."""

    def load(self, fst: FstArrays) -> Any:
        """Make a `StdVectorFst`."""
        with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
            path = Path(folder) / "arrays.fst"
            path.write_bytes(format_fst(FstContent(fst), "vector"))
            return kaldifst.StdVectorFst.read(str(path))

    def unload(self, fst: Any) -> FstArrays:
        """Make arrays."""
        with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
            path = Path(folder) / "arrays.fst"
            if not fst.write(str(path)):
                raise GraphError(f"{path}: the engine cannot write this file")
            return parse_fst(path.read_bytes(), str(path)).fst

    def size(self, fst: Any) -> tuple[int, int]:
        """States and arcs."""
        return fst.num_states, sum(fst.num_arcs(s) for s in range(fst.num_states))

    def determinize(self, fst: Any, max_states: int, log: bool = True) -> Any:
        """Kaldi's determinize_star; at its limit it raises, or returns True."""
        try:
            partial = kaldifst.determinize_star(fst, max_states=max_states, use_log=log)
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
        return fst


ENGINE = KaldifstEngine()
