"""Determinization for users' grammars: the only importer of an FST library here.

    lg = get_engine("kaldifst").determinize(lg, max_states=1_000_000)

Arrays go in and come out; a library is imported when its engine is made. Composition
and minimization in arrays are 3 and 10 times as fast as those of the libraries.
"""

import importlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from wfstdec.errors import BackendError, GraphError, needs
from wfstdec.fst.openfst import FstContent, format_fst, parse_fst
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst


class Kaldifst:
    """Determinization by kaldifst, which takes arrays through temporary files only."""

    def __init__(self) -> None:
        with needs("engine 'kaldifst' needs kaldifst", ": pip install kaldifst"):
            self._library = importlib.import_module("kaldifst")

    def determinize(
        self, fst: FstArrays, max_states: int, *, log: bool = True
    ) -> FstArrays:
        """Remove epsilons and determinize on the input side: `determinize_star`."""
        # At its limit of states it either raises or returns True and a partial result.
        changed, run = self.load(fst), self._library.determinize_star
        try:
            partial = run(changed, max_states=max_states, use_log=log)
        except RuntimeError as error:
            if "not functional" in str(error):
                raise GraphError(
                    "cannot determinize: some string has two outputs, expected one"
                ) from None
            if "Determinization aborted" not in str(error):
                raise
            partial = True
        if partial:
            raise _too_many_states(max_states)
        return self.unload(changed)

    def load(self, fst: FstArrays) -> Any:
        """Make a `StdVectorFst` from arrays."""
        with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
            path = Path(folder) / "arrays.fst"
            path.write_bytes(_as_vector_fst(fst))
            return self._library.StdVectorFst.read(str(path))

    def unload(self, fst: Any) -> FstArrays:
        """Make arrays from a `StdVectorFst`."""
        with tempfile.TemporaryDirectory(prefix="wfstdec.") as folder:
            path = Path(folder) / "arrays.fst"
            if not fst.write(str(path)):
                raise GraphError(f"{path}: the engine cannot write this file")
            return parse_fst(path.read_bytes(), str(path)).fst


class Pynini:
    """Determinization by pynini."""

    def __init__(self) -> None:
        with needs("engine 'pynini' needs pynini", ": pip install pynini"):
            self._library = importlib.import_module("pynini")

    def determinize(
        self, fst: FstArrays, max_states: int, *, log: bool = True
    ) -> FstArrays:
        """Remove epsilons, then determinize on the input side."""
        # OpenFst counts states only for acceptors without negative cycles in the
        # tropical semiring. All others have an end: the lexicon's token strings can be
        # read in one way, and grammars are deterministic.
        library = self._library
        if log:
            changed = library.arcmap(self.load(fst), map_type="to_log")
            changed = library.determinize(changed.rmepsilon())
            return self.unload(library.arcmap(changed, map_type="to_std"))
        if fst.olabel.any() or (fst.cost < 0).any():
            return self.unload(library.determinize(self.load(fst).rmepsilon()))
        # A string becomes an acceptor to OpenFst only by projection.
        acceptor = self.load(replace(fst, olabel=fst.ilabel)).project("input")
        acceptor.rmepsilon()
        found = self.unload(library.determinize(acceptor, nstate=max_states + 1))
        if found.num_states > max_states:
            raise _too_many_states(max_states)
        return replace(found, olabel=found.olabel * 0)

    def load(self, fst: FstArrays) -> Any:
        """Make a pynini `Fst` from arrays."""
        return self._library.Fst.read_from_string(_as_vector_fst(fst))

    def unload(self, fst: Any) -> FstArrays:
        """Make arrays from a pynini `Fst`."""
        return parse_fst(fst.write_to_string(), "pynini's FST").fst


Engine = Kaldifst | Pynini
ENGINES: dict[str, type[Engine]] = {"kaldifst": Kaldifst, "pynini": Pynini}
"""Engines by the name of their library."""


def check_engine(name: str) -> None:
    """Check the name of an engine."""
    if name not in ENGINES:
        expected = " or ".join(map(repr, ENGINES))
        raise BackendError(f"engine {name!r}, expected {expected}")


def get_engine(name: str) -> Engine:
    """Make the engine of that name."""
    check_engine(name)
    return ENGINES[name]()


def _as_vector_fst(fst: FstArrays) -> bytes:
    """Check arrays, which the libraries do not, and write them as OpenFst."""
    check_fst(fst)
    return format_fst(FstContent(fst), "vector")


def _too_many_states(max_states: int) -> GraphError:
    return GraphError(
        f"determinizing needs more than {max_states} states, expected fewer: some "
        "strings can be read in several ways whose costs or outputs drift apart"
    )
