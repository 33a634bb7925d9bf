"""Attention decoders, and the parts that they share with transducers."""

import importlib
from typing import Any

from wfstdec.errors import needs

_NAMES = {"transducer": "transducers", "attention": "attention decoders"}


def open_decoder(kind: str, **given: Any) -> Any:
    """Open a model with its encoder as a decoder of features; `kind` is its package.

    Raises:
        BackendError: torch is not installed.
    """
    with needs(f"{_NAMES[kind]} need torch", ": pip install torch"):
        import torch  # noqa: F401
    return importlib.import_module(f"wfstdec.{kind}.decoder").open_decoder(**given)
