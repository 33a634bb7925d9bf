"""Choosing a backend by name: only the module of the one that is chosen is imported.

BACKENDS = {"cpu": "wfstdec.wfst.cpu.backend:CpuBackend", ...}   # of a decoder
backend = make_backend(BACKENDS, "auto", graph)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from wfstdec.errors import BackendError

AUTO = "auto"


def make_backend(backends: Mapping[str, str], name: str, searched: Any) -> Any:
    """Make the backend of that name; `"auto"` is the CPU."""
    if name == AUTO:
        name = "cpu"
    if name not in backends:
        known = ", ".join(map(repr, (AUTO, *backends)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, _, maker = backends[name].partition(":")
    return getattr(importlib.import_module(module), maker)(searched)
