"""Which backends the WFST decoder has; nothing else chooses."""

from __future__ import annotations

import importlib
from typing import Protocol

import numpy as np

from wfstdec.boost.words import WordBoosts
from wfstdec.errors import BackendError
from wfstdec.graph import PackedGraph
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath

BACKENDS = {
    "reference": ("wfstdec.wfst.reference", "ReferenceBackend"),
    "cpu": ("wfstdec.wfst.cpu", "CpuBackend"),
}
"""Name to module and class."""


class Search(Protocol):
    """One utterance under way."""

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""

    def finish(self) -> BestPath:
        """End the utterance."""


class Backend(Protocol):
    """A graph, laid out for one kind of machine."""

    def start(self, options: DecodeOptions, boosts: WordBoosts) -> Search:
        """Begin an utterance."""


def make_backend(name: str, graph: PackedGraph) -> Backend:
    """The backend of that name for a graph; `"auto"` takes the fastest there is.

    Raises:
        BackendError: No such backend.
    """
    if name == "auto":
        name = "cpu"
    if name not in BACKENDS:
        known = ", ".join(map(repr, ("auto", *BACKENDS)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, kind = BACKENDS[name]
    return getattr(importlib.import_module(module), kind)(graph)
