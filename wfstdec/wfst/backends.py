"""Which backends the WFST decoder has; nothing else chooses."""

from __future__ import annotations

import importlib

from wfstdec.decoder import Backend
from wfstdec.errors import BackendError
from wfstdec.graph import PackedGraph
from wfstdec.wfst.path import BestPath

BACKENDS = {
    "reference": ("wfstdec.wfst.reference", "ReferenceBackend"),
    "cpu": ("wfstdec.wfst.cpu", "CpuBackend"),
    "cuda": ("wfstdec.wfst.cuda", "backend_for"),
}
"""Name to module, and what makes the backend of a graph there."""


def make_backend(name: str, graph: PackedGraph) -> Backend[BestPath]:
    """The backend of that name for a graph; `"auto"` is the CPU.

    `"cuda"` has to be asked for by name: its kernels have run in emulation only.

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
