"""FST engines: what graph building takes from a library, which is determinization.

    engine = get_engine("kaldifst")
    lg = engine.determinize(lg, max_states=1_000_000)

An engine is a module with this one function; arrays go in and come out. (Composition
and minimization in arrays are 3 and 10 times as fast as those of the engines, and need
no copies in other forms.)
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from wfstdec.errors import BackendError, GraphError
from wfstdec.graph.arcs import FstArrays

ENGINES = {
    "kaldifst": "wfstdec.fst.kaldifst_engine",
    "pynini": "wfstdec.fst.pynini_engine",
}
"""The engines by name, and the module of each."""


class Engine(Protocol):
    """What the module of an engine offers."""

    def determinize(
        self, fst: FstArrays, max_states: int, *, log: bool = True
    ) -> FstArrays:
        """Remove epsilons and determinize on the input side.

        Args:
            fst: What to determinize.
            max_states: When to give up.
            log: In the log semiring, which looks ahead to all continuations; else in
                the tropical one, which keeps the least cost of each sentence.

        Raises:
            GraphError: There would be more than `max_states` states.
        """


def get_engine(name: str) -> Engine:
    """The engine of that name.

    Raises:
        BackendError: There is none, or its library is not installed.
    """
    if name not in ENGINES:
        expected = " or ".join(map(repr, ENGINES))
        raise BackendError(f"engine {name!r}, expected {expected}")
    try:
        module: Any = importlib.import_module(ENGINES[name])
    except ImportError as error:
        if error.name != name:
            raise
        extra = "" if name == "kaldifst" else f"[{name}]"
        raise BackendError(
            f"engine {name!r} needs {name}, which is not installed: "
            f"pip install wfstdec{extra}"
        ) from error
    return module


def too_many_states(max_states: int) -> GraphError:
    """The error of a determinization that would go on for ever, or nearly."""
    return GraphError(
        f"determinizing needs more than {max_states} states, expected fewer: some "
        "strings can be read in several ways whose costs or outputs drift apart"
    )
