"""Attention decoders, and parts shared with transducers."""

import importlib
import os
from typing import Any

from wfstdec.errors import needs

_NAMES = {"transducer": "transducers", "attention": "attention decoders"}


def open_decoder(kind: str, *, model: Any, **given: Any) -> Any:
    """Open a model as a decoder; `kind` is its package.

    `model`: a path, for features with the encoder; or a `SpeechModel`, for frames.

    Raises:
        BackendError: torch is not installed.
    """
    with needs(f"{_NAMES[kind]} need torch", ": pip install torch"):
        import torch
    module = importlib.import_module(f"wfstdec.{kind}.decoder")
    if isinstance(model, str | os.PathLike):
        return module.open_decoder(model=model, **given)
    if (threads := given.pop("threads", None)) is not None:
        torch.set_num_threads(threads)
    return getattr(module, f"{kind.title()}Decoder")(model, **given)
