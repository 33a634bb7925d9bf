"""Which backends the decoders without a graph have; nothing else chooses."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from wfstdec.beam.network import Network
from wfstdec.decoder import Backend
from wfstdec.errors import BackendError

BACKENDS = {
    "reference": ("wfstdec.beam.reference", "ReferenceBackend"),
    "cpu": ("wfstdec.beam.cpu", "CpuBackend"),
}
"""Of the trie beam decoder: name to module and class."""

GREEDY_BACKENDS = {
    "reference": ("wfstdec.beam.greedy_reference", "ReferenceBackend"),
    "cpu": ("wfstdec.beam.greedy_cpu", "CpuBackend"),
}
"""Of the greedy decoder."""


def make_backend(
    name: str,
    network: Network,
    backends: Mapping[str, tuple[str, str]] = BACKENDS,
) -> Backend[Any]:
    """The backend of that name for a network; `"auto"` is the CPU.

    Raises:
        BackendError: No such backend.
    """
    if name == "auto":
        name = "cpu"
    if name not in backends:
        known = ", ".join(map(repr, ("auto", *backends)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, kind = backends[name]
    return getattr(importlib.import_module(module), kind)(network)
