"""Parts that transducers and attention decoders share: models that hear tokens."""

from __future__ import annotations

from wfstdec.errors import BackendError


def need_torch(who: str = "transducers") -> None:
    """Raise where torch is not installed.

    Args:
        who: Needs it, for the error.

    Raises:
        BackendError: It is not.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BackendError(f"{who} need torch ({error}): pip install torch") from error
