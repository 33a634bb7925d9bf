"""Attention decoders, and the parts that they share with transducers."""

import importlib
import os
from typing import Any

from wfstdec.errors import needs

_NAMES = {"transducer": "transducers", "attention": "attention decoders"}


def open_decoder(kind: str, *, model: Any, **given: Any) -> Any:
    """Open a model as a decoder; `kind` is its package.

    `model`: a path, of features and with its encoder; or a `SpeechModel`, of frames.

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
