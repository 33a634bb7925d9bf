"""Models by their paths: a saved net, or a folder of an ONNX export; decoders of them.

model = open_model("model.npz", head="tdt")
model = open_model("zipformer")            # encoder.onnx, decoder.onnx, joiner.onnx
decoder = open_decoder("model.npz", lm="pieces.arpa")       # of features
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wfstdec.errors import BackendError, OptionError
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
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        device = torch.device("cpu" if backend == "auto" else backend)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BackendError(
            f"backend {backend!r}, expected 'auto' or a device of torch ({error})"
        ) from error
    loaded: Any = open_model(model, head, device=device)
    return TransducerDecoder(
        loaded,
        lm=lm,
        input="features",
        frame_shift_s=frame_shift_s * loaded.stride,
        device=device,
        **more,
    )


class TimedModel:
    """A model that measures itself: CPU seconds of this process in its methods.

    Args:
        model: With an encoder; all else is asked of it.

    Attributes:
        cpu_s: Seconds so far.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cpu_s = 0.0
        self.tokens, self.blank = model.tokens, model.blank
        self.durations = model.durations
        self.input_dim, self.stride = model.input_dim, model.stride
        self.tokenizer = getattr(model, "tokenizer", None)
        self.frame_dim = getattr(model, "frame_dim", None)
        self.encode = self._timed(model.encode)
        self.start = self._timed(model.start)
        self.predict = self._timed(model.predict)
        self.join = self._timed(model.join)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            begin = time.process_time()
            found = method(*given)
            self.cpu_s += time.process_time() - begin
            return found

        return run
