"""Which backends the trie beam decoder has; nothing else chooses."""

from __future__ import annotations

import importlib

from wfstdec.beam.network import Network
from wfstdec.beam.path import BeamPath
from wfstdec.decoder import Backend
from wfstdec.errors import BackendError

BACKENDS = {
    "reference": ("wfstdec.beam.reference", "ReferenceBackend"),
    "cpu": ("wfstdec.beam.cpu", "CpuBackend"),
}
"""Name to module and class."""


def make_backend(name: str, network: Network) -> Backend[list[BeamPath]]:
    """The backend of that name for a network; `"auto"` is the CPU.

    Raises:
        BackendError: No such backend.
    """
    if name == "auto":
        name = "cpu"
    if name not in BACKENDS:
        known = ", ".join(map(repr, ("auto", *BACKENDS)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, kind = BACKENDS[name]
    return getattr(importlib.import_module(module), kind)(network)
