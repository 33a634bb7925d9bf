"""Models by their paths: a saved net, or a folder of an ONNX export; decoders of them.

model = open_model("model.npz", head="tdt")
model = open_model("zipformer")            # encoder.onnx, decoder.onnx, joiner.onnx
decoder = open_decoder("model.npz", lm="pieces.arpa")       # of features
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from wfstdec.autoregressive.decoder import torch_device
from wfstdec.errors import OptionError
from wfstdec.lm.loading import AnyLM
from wfstdec.transducer.decoder import TransducerDecoder
from wfstdec.transducer.model import TransducerModel
from wfstdec.transducer.onnx_model import load_onnx_transducer
from wfstdec.transducer.torch_model import load_transducer


def open_model(
    path: str | os.PathLike[str],
    head: str | None = None,
    *,
    device: str | torch.device = "cpu",
) -> TransducerModel:
    """Load a model with its encoder.

    Args:
        path: What `TransducerNet.save` wrote, or a folder with `encoder.onnx`,
            `decoder.onnx`, `joiner.onnx` and `tokens.txt`.
        head: Of a net with several; None for the first.
        device: Where a net runs.

    Raises:
        OptionError: A head of an ONNX export, or one that is not there.
        InputError: As of `load_transducer` and `load_onnx_transducer`.
    """
    folder = Path(path)
    if not folder.is_dir():
        return load_transducer(path, head, device=device)
    if head is not None:
        raise OptionError(f"head {head!r} of an ONNX export, expected None: it has one")
    names = ("encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt")
    return load_onnx_transducer(*(folder / name for name in names))


def open_decoder(
    model: str | os.PathLike[str],
    *,
    head: str | None = None,
    lm: AnyLM | None = None,
    backend: str = "auto",
    frame_shift_s: float = 0.02,
    threads: int | None = None,
    **more: Any,
) -> TransducerDecoder:
    """A decoder of features, with its encoder.

    Args:
        model: As in `open_model`.
        head: As in `open_model`.
        lm: Over the model's tokens.
        backend: `"auto"` (the CPU), or a device of torch: `"cpu"`, `"cuda"`.
        frame_shift_s: Seconds per frame of features.
        threads: Of torch; None leaves them as they are.
        **more: Other arguments of `TransducerDecoder`.

    Raises:
        BackendError: There is no such device.
        InputError: As of `open_model` and `TransducerDecoder`.
    """
    device = torch_device(backend, threads)
    loaded: Any = open_model(model, head, device=device)
    return TransducerDecoder(
        loaded,
        lm=lm,
        input="features",
        frame_shift_s=frame_shift_s * loaded.stride,
        device=device,
        **more,
    )
