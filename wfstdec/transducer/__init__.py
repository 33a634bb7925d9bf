"""RNN-T and TDT: searches on torch tensors, over the models of `lm/` and `boost/`."""

from __future__ import annotations

from wfstdec.errors import BackendError


def need_torch() -> None:
    """Raise where torch is not installed.

    Raises:
        BackendError: It is not.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BackendError(
            f"transducers need torch ({error}): pip install torch"
        ) from error
