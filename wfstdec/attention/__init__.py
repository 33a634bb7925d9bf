"""Attention decoders, and the parts that they share with transducers."""

from __future__ import annotations

from wfstdec.errors import needs


def need_torch(who: str = "transducers") -> None:
    """Raise where torch is not installed."""
    with needs(f"{who} need torch", ": pip install torch"):
        import torch  # noqa: F401
