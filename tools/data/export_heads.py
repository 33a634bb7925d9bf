"""Export the heads on Whisper to ONNX: CTC from waveforms, transducers from frames.

    pip install onnx
    python -m tools.data.export_heads --out build/export
    wfstdec transcribe build/export/ctc-1024 talk.mp3 --graph own.npz

ctc-256 and ctc-1024 are folders as `load_model` takes them: log-mel energies, Whisper's
encoder and the head are in the graph. rnnt and tdt have decoder.onnx, joiner.onnx
(sherpa-onnx's names), decoder_joint-model.onnx (onnx-asr's) and tokens.txt, for an
`OnnxTransducer`; their features are Whisper's, so that no layout has an encoder for
them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.data.head_set import HEADS
from tools.data.train_heads import PIECES_256, Pieces
from tools.data.whisper import SAMPLE_RATE, SILENCE, load_whisper
from tools.data.whisper_heads import SIZES, HeadsNet, load_heads
from wfstdec.text.files import atomic_write

FFT, HOP, STEP = 400, 160, 1280  # samples: a window, a frame of Whisper, one of ours


class Waveform(nn.Module):
    """Waveforms [B, N] of one length to log-probs [B, T', V]."""

    def __init__(self, whisper: Any, mel: np.ndarray, net: HeadsNet, size: int) -> None:
        super().__init__()
        angles = 2 * np.pi * np.outer(np.arange(FFT // 2 + 1), np.arange(FFT)) / FFT
        window = np.hanning(FFT + 1)[:-1]
        waves = np.concatenate([np.cos(angles), np.sin(angles)]) * window
        self.register_buffer("waves", torch.from_numpy(waves[:, None]).float())
        self.register_buffer("mel", torch.from_numpy(mel).float())
        self.whisper, self.net, self.size = whisper, net, str(size)

    def forward(self, waveform: Tensor) -> Tensor:
        """As `tools.data.whisper.encode` and the head behind it."""
        padded = F.pad(waveform, (0, SILENCE))
        padded = F.pad(padded[:, None], (FFT // 2, FFT // 2), mode="reflect")
        real, imaginary = F.conv1d(padded, self.waves, stride=HOP).chunk(2, 1)
        power = (real**2 + imaginary**2)[:, :, :-1]
        logs = (self.mel.T @ power).clamp(min=1e-10).log10()
        logs = torch.maximum(logs, logs.amax((1, 2), keepdim=True) - 8.0)
        x = F.gelu(self.whisper.conv1((logs + 4.0) / 4.0))
        x = F.gelu(self.whisper.conv2(x)).transpose(1, 2)
        x = x + self.whisper.embed_positions.weight[: x.shape[1]]
        for layer in self.whisper.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
        features = self.net(self.whisper.layer_norm(x))
        lengths = torch.ones_like(features[:, 0, 0], dtype=torch.long)
        encoder = self.net.transducer.encoder
        encoded, _ = encoder(features, lengths * features.shape[1])
        count = (waveform.shape[1] + STEP - 1) // STEP
        return self.net.ctc[self.size](encoded[:, :count]).log_softmax(-1)


class Predictor(nn.Module):
    """The predictor as NeMo exports it, an LSTM."""

    def __init__(self, predictor: Any) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, targets: Tensor, target_length: Tensor, s1: Tensor, s2: Tensor):
        """Tokens [B, U] and states to g [B, D, U], lengths and states."""
        predictor = self.predictor
        out, (n1, n2) = predictor.lstm(predictor.embedding(targets.long()), (s1, s2))
        return predictor.project(out).transpose(1, 2), target_length + 0, n1, n2


class Joiner(nn.Module):
    """The joiner as NeMo exports it; a TDT's durations behind the tokens."""

    def __init__(self, joiner: Any) -> None:
        super().__init__()
        self.joiner = joiner

    def forward(self, encoder_outputs: Tensor, decoder_outputs: Tensor) -> Tensor:
        """Frames [B, D, T] and g [B, D, U] to logits [B, T, U, V + 1 + durations]."""
        frames, g = encoder_outputs.transpose(1, 2), decoder_outputs.transpose(1, 2)
        inner = torch.tanh(frames[:, :, None] + g[:, None])
        if self.joiner.durations is None:
            return self.joiner.tokens(inner)
        parts = self.joiner.tokens(inner), self.joiner.durations(inner)
        return torch.cat(parts, -1)


class Both(nn.Module):
    """Predictor and joiner in one."""

    def __init__(self, predictor: Any, joiner: Any) -> None:
        super().__init__()
        self.predictor, self.joiner = Predictor(predictor), Joiner(joiner)

    def forward(self, encoder_outputs: Tensor, *given: Tensor):
        """See the two."""
        g, *states = self.predictor(*given)
        return self.joiner(encoder_outputs, g), *states


def export(
    path: Path, module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str]
) -> Path:
    """Write a module; axes of size 2 in the inputs are free, and long ones."""
    free = {
        name: {
            i: f"{name}{i}"
            for i, size in enumerate(one.shape)
            if size == 2 or size == SAMPLE_RATE
        }
        for name, one in inputs.items()
    }
    given = tuple(inputs.values())
    names = {"input_names": list(inputs), "output_names": list(outputs)}
    more: dict[str, Any] = {"dynamic_axes": free, "opset_version": 17, "dynamo": False}
    torch.onnx.export(module.eval(), given, str(path), **names, **more)
    return path


def export_transducer(net: Any, folder: Path) -> tuple[Path, Path, Path]:
    """Write a head's predictor, joiner, and both in one; `net` is a loaded head."""
    predictor, joiner, dim = net._predictor, net._joiner, net.frame_dim
    width = predictor.lstm.hidden_size
    labels = {"targets": torch.zeros(2, 1, dtype=torch.int32)}
    labels["target_length"] = torch.ones(2, dtype=torch.int32)
    labels |= {name: torch.zeros(1, 2, width) for name in ("s1", "s2")}
    frames = {"encoder_outputs": torch.zeros(2, dim, 2)}
    g = {"decoder_outputs": torch.zeros(2, dim, 1)}
    states = ["prednet_lengths", "next1", "next2"]
    decoder, both = folder / "decoder.onnx", folder / "decoder_joint-model.onnx"
    outputs = ["decoder_outputs", *states]
    joined = ["outputs", *states]
    return (
        export(decoder, Predictor(predictor), labels, outputs),
        export(folder / "joiner.onnx", Joiner(joiner), frames | g, ["outputs"]),
        export(both, Both(predictor, joiner), frames | labels, joined),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write all folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=Path, default=HEADS)
    parser.add_argument("--out", type=Path, default=Path("build/export"))
    args = parser.parse_args(argv)
    from wfstdec import load_transducer

    (model, extractor, _), net = load_whisper(), load_heads(args.heads)
    models = {256: PIECES_256, 1024: args.heads / "bpe1024.model"}
    names = {n: Pieces(models[n].read_bytes()).names for n in SIZES}
    for size in SIZES:
        folder = make_folder(args.out / f"ctc-{size}", names[size], models[size])
        module = Waveform(model.get_encoder(), extractor.mel_filters, net, size)
        given = {"waveform": torch.zeros(2, SAMPLE_RATE)}
        path = export(folder / "model.onnx", module, given, ["log_probs"])
        stored = onnx.load(path)
        notes = {
            "sample_rate": SAMPLE_RATE,
            "frame_shift_s": STEP / SAMPLE_RATE,
            "blank": size,
        }
        onnx.helper.set_model_props(stored, {k: str(v) for k, v in notes.items()})
        onnx.save(stored, path)
    for head in ("rnnt", "tdt"):
        folder = make_folder(args.out / head, names[256], models[256])
        export_transducer(load_transducer(args.heads / "model.npz", head), folder)


def make_folder(folder: Path, names: Sequence[str], model: Path) -> Path:
    """A folder with its tokens and their SentencePiece model."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "tokens.txt", "w") as file:
        lines = (f"{name} {i}\n" for i, name in enumerate([*names, "<blank>"]))
        file.writelines(lines)
    with atomic_write(folder / "bpe.model") as file:
        file.write(model.read_bytes())
    return folder


if __name__ == "__main__":
    main()
