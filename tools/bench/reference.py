"""The plain-Python specification of the tests, as a backend of the decoders."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

FOLDER = "tests/reference"


def load(name: str = "reference_backends", checkout: Path | None = None) -> Any:
    """Import a module of the specification; backends are registered by the default."""
    folder = str((checkout or Path(__file__).parents[2]) / FOLDER)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
