"""Heads on Whisper's encoder: CTC over two vocabularies, RNN-T and TDT.

net = load_heads(Path("graphs/whisper_heads"))
logprobs = net.ctc_logprobs(frames, 256)              # [T', 257], blank last
model = load_transducer("graphs/whisper_heads/model.npz", "tdt")

Whisper's frames [T, 384], 20 ms -> two convolutions of stride 2, blocks of
convolutions -> [T', 192], 80 ms -> a linear layer, or a predictor and a joiner
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wfstdec.attention.encoder import HeadConfig, TransducerConfig
from wfstdec.text.files import atomic_write
from wfstdec.transducer.torch_model import TransducerNet, load_transducer

SIZES = (256, 1024)
"""Pieces of the two vocabularies of CTC."""
DURATIONS = (0, 1, 2, 3, 4)
WIDTH, PHONES = 192, 43
"""Of the features; phones that they must tell."""


def configuration(tokens: Sequence[str]) -> TransducerConfig:
    """The encoder on Whisper's, and the transducers."""
    heads = HeadConfig("rnnt", "lstm"), HeadConfig("tdt", "lstm", DURATIONS)
    return TransducerConfig(
        tokens=tuple(tokens),
        heads=heads,
        input_dim=WIDTH,
        input_is_log=False,
        encoder="conv",
        width=224,
        layers=3,
        dim=192,
    )


class HeadsNet(nn.Module):
    """Features, a transducer's net on them, and CTC's layers on the same encoder."""

    def __init__(self, transducer: TransducerNet) -> None:
        super().__init__()
        self.front = nn.ModuleDict(
            {
                "first": nn.Conv1d(384, 256, 5, padding=2),
                "second": nn.Conv1d(256, WIDTH, 5, padding=2),
                "phones": nn.Linear(WIDTH, PHONES),
            }
        )
        self.transducer = transducer
        self.dropout = nn.Dropout(0.15)
        dim = transducer.config.dim
        self.ctc = nn.ModuleDict({str(n): nn.Linear(dim, n + 1) for n in SIZES})

    def forward(self, frames: Tensor) -> Tensor:
        """Frames [B, T, 384] to features [B, T, 192]; padding is zeros."""
        inner = F.silu(self.front["first"](frames.transpose(1, 2)))
        return F.silu(self.front["second"](self.dropout(inner))).transpose(1, 2)

    @torch.inference_mode()
    def features(self, frames: np.ndarray) -> Tensor:
        """Features [T, 192] of an utterance's frames."""
        return self(torch.from_numpy(np.asarray(frames, np.float32))[None])[0]

    @torch.inference_mode()
    def ctc_logprobs(self, frames: np.ndarray, size: int) -> np.ndarray:
        """Natural log-probs float32 [T', size + 1] of an utterance's frames."""
        features = self.features(frames)[None]
        lengths = torch.tensor([len(frames)])
        encoded, _ = self.transducer.encoder(features, lengths)
        return self.ctc[str(size)](encoded[0]).log_softmax(-1).numpy()

    def save(self, folder: Path) -> None:
        """Write model.npz, and the rest as rest.npz; weights in float16."""
        self.transducer.save(folder / "model.npz")
        state = self.state_dict().items()
        rest = {n: w for n, w in state if not n.startswith("transducer.")}
        with atomic_write(folder / "rest.npz") as file:
            arrays = {n: w.numpy().astype(np.float16) for n, w in rest.items()}
            np.savez_compressed(file, **arrays)


def load_heads(folder: Path) -> HeadsNet:
    """What `HeadsNet.save` wrote, in evaluation mode."""
    net = HeadsNet(load_transducer(folder / "model.npz").net)
    with np.load(folder / "rest.npz") as file:
        arrays = {name: torch.from_numpy(file[name]).float() for name in file.files}
    net.load_state_dict(arrays, strict=False)
    return net.eval()
