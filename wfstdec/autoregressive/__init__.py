"""Parts that transducers and attention decoders share: models that hear tokens."""

from __future__ import annotations

from wfstdec.errors import needs


def need_torch(who: str = "transducers") -> None:
    """Raise where torch is not installed.

    Args:
        who: Needs it, for the error.

    Raises:
        BackendError: It is not.
    """
    with needs(f"{who} need torch", ": pip install torch"):
        import torch  # noqa: F401
