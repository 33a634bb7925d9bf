"""Train the small transducer of graphs/transducer_demo: RNN-T and TDT, one encoder.

    pip install -e '.[tools,torch]'
    python -m tools.data.train_transducer                       # build/transducer
    python -m tools.data.train_transducer --steps 100 --out build/small

Input are the log-probs of a phone CTC model, output are 256 word pieces. Writes
model.npz (float16), tokens.txt, bpe.model and training.json, a few utterances of the
held-out speakers (logprobs.npz, refs.txt), and prints the WER of greedy decoding on all
of these. The same arguments give the same files on the same machine.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from torch import Tensor, nn

from tools.data.make_synthetic import train_pieces
from tools.data.transducer_data import (
    Batch,
    Pieces,
    Source,
    Speech,
    by_speaker,
    collate,
    load_speech,
    training_sentences,
)
from tools.data.transducer_greedy import evaluate, table
from tools.data.transducer_loss import rnnt_loss, tdt_loss
from wfstdec.compare.speech import evenly_spaced
from wfstdec.io.text import write_text
from wfstdec.text.files import atomic_write, read_lines
from wfstdec.transducer.torch_model import (
    HeadConfig,
    TransducerConfig,
    TransducerNet,
    load_net,
)

BOOKS = "standardebooks_9.1Mwords.txt.gz"
PIECES = 256
DURATIONS = (0, 1, 2, 3, 4)
SIGMA = 0.02
"""Under-normalisation of the TDT loss."""
ARCHITECTURE = {"encoder": "conv", "width": 224, "layers": 5, "kernel": 9, "dim": 192}
BATCH_FRAMES = 6_000
"""Of 20 ms."""
PEAK_RATE = 1.5e-3
WARM_UP = 300
WEIGHT_DECAY = 0.01
CLIP = 5.0
AVERAGE = 0.998
"""Of the moving average of the weights, which is what is kept."""
KEPT = 6
"""Utterances of each held-out speaker that are kept with the weights."""


def make_pieces(sentences: Sequence[Sequence[str]], out: Path, seed: int) -> bytes:
    """Train the pieces on a part of the sentences; write the model."""
    order = np.random.default_rng([seed, 1]).permutation(len(sentences))[:100_000]
    texts = [" ".join(sentences[i]) for i in order]
    model = train_pieces(texts, PIECES + 1)  # <unk> is one of them
    with atomic_write(out / "bpe.model") as file:
        file.write(model)
    return model


def speller(model: bytes) -> tuple[tuple[str, ...], Pieces]:
    """Names of the tokens, without `<unk>`, and the tokens of a word."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    names = tuple(processor.id_to_piece(i) for i in range(1, len(processor)))

    @cache
    def spell(word: str) -> list[int]:
        return [piece - 1 for piece in processor.encode(word)]

    return names, spell


def configuration(names: tuple[str, ...]) -> TransducerConfig:
    """The architecture."""
    heads = (
        HeadConfig("rnnt", "lstm"),
        HeadConfig("tdt", "lstm", DURATIONS),
    )
    return TransducerConfig(tokens=names, heads=heads, **ARCHITECTURE)


def losses(net: TransducerNet, batch: Batch) -> dict[str, Tensor]:
    """Nats per token of each head."""
    frames, _ = net.encoder(batch.features, batch.lengths)
    count = batch.lattice.sizes.sum()
    found = {}
    for name, head in net.heads.items():
        g = head.predictor.sequence(batch.targets)
        starts = batch.lattice.starts
        width = min(g.shape[1], batch.band)
        said = (starts[:, :, None] + torch.arange(width)).clamp(max=g.shape[1] - 1)
        rows = torch.arange(len(g))[:, None, None]
        logits, durations = head.joiner.logits(frames[:, :, None], g[rows, said])
        logprobs = logits.log_softmax(-1, dtype=torch.float32)
        if durations is None:
            costs = rnnt_loss(logprobs, batch.targets, batch.lattice)
        else:
            costs = tdt_loss(
                logprobs,
                durations.log_softmax(-1, dtype=torch.float32),
                batch.targets,
                batch.lattice,
                values=head.config.durations,
                sigma=SIGMA,
            )
        found[name] = torch.where(costs.isfinite(), costs, 0.0).sum() / count
    return found


def rate_at(step: int, steps: int) -> float:
    """Warm-up, then half a cosine."""
    done = max(0, step - WARM_UP) / max(1, steps - WARM_UP)
    return (
        PEAK_RATE * min(1.0, (step + 1) / WARM_UP) * (0.5 + 0.5 * np.cos(np.pi * done))
    )


class Smooth:
    """Losses as they are told: each a moving average of its own."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def add(self, losses: dict[str, Tensor]) -> None:
        """Take those of a step."""
        for name, one in losses.items():
            self._means[name] = (
                0.98 * self._means.get(name, one.item()) + 0.02 * one.item()
            )

    def __str__(self) -> str:
        return " ".join(f"{name} {mean:.3f}" for name, mean in self._means.items())


def has_halves() -> bool:
    """Tell whether bfloat16 serves: oneDNN has no LSTM in it without AVX-512."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


@torch.no_grad()
def follow(average: nn.Module, net: nn.Module, step: int) -> None:
    """Move the average of the weights towards those of now, after so many steps."""
    keep = min(AVERAGE, step / (step + 10))
    for mean, now in zip(average.parameters(), net.parameters(), strict=True):
        mean.lerp_(now, 1.0 - keep)


def train(net: TransducerNet, source: Source, args: argparse.Namespace) -> nn.Module:
    """Train; the average of the weights."""
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others}]
    optimizer = torch.optim.AdamW(
        groups, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0
    )
    average = copy.deepcopy(net)
    started, seconds, told = time.perf_counter(), 0.0, Smooth()
    batches = source.batches(BATCH_FRAMES, pool=400)
    for step, examples in zip(range(args.steps), batches, strict=False):
        net.train()
        batch = collate(examples, net.config.stride)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, args.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=has_halves()):
            found = losses(net, batch)
        optimizer.zero_grad()
        torch.stack(list(found.values())).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        follow(average, net, step + 1)
        seconds += 0.02 * int(batch.lengths.sum())
        told.add(found)
        if (step + 1) % args.report == 0:
            wall = time.perf_counter() - started
            print(f"{step + 1} {wall:.0f} s {seconds / 3600:.1f} h {told}", flush=True)
        if (step + 1) % args.check == 0:
            average.save(args.out / "model.npz")
            print(table(evaluate(average, source.speech, 60)), flush=True)
    return average


def make_parser(
    description: str | None, out: str, check: int
) -> argparse.ArgumentParser:
    """Flags of a training: those of one of these tools, by its defaults."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=Path("../shared/data"), help="development data")
    add("--out", type=Path, default=Path(out), help="folder to write to")
    add("--seed", type=int, default=1)
    add("--report", type=int, default=100, help="steps between lines of losses")
    add("--check", type=int, default=check, help="steps between error rates")
    return parser


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, "build/transducer", 2000)
    parser.add_argument("--steps", type=int, default=8500)
    return parser.parse_args(argv)


def write_tokens(path: Path, names: Sequence[str]) -> None:
    """Write `token id` lines, the blank last, as the joiners have it."""
    with atomic_write(path, "w") as file:
        file.writelines(f"{name} {i}\n" for i, name in enumerate([*names, "<blank>"]))


def write_held_out(speech: Speech, out: Path) -> None:
    """Keep a few utterances of each held-out speaker, evenly over what each reads."""
    kept = []
    for own in by_speaker(speech.held_out).values():
        kept += evenly_spaced(own, KEPT)
    with atomic_write(out / "logprobs.npz") as file:
        np.savez_compressed(file, **{name: speech.logprobs[name] for name in kept})
    write_text(out / "refs.txt", {name: speech.references[name] for name in kept})


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, write."""
    args, started = parse_arguments(argv), time.perf_counter()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    speech = load_speech(args.data)
    write_held_out(speech, args.out)
    sentences = training_sentences(read_lines(args.data / "text" / BOOKS), speech)
    names, spell = speller(make_pieces(sentences, args.out, args.seed))
    write_tokens(args.out / "tokens.txt", names)
    source = Source(speech, sentences, spell, seed=args.seed)
    net = TransducerNet(configuration(names))
    print(f"{sum(p.numel() for p in net.parameters())} weights", flush=True)
    average = train(net, source, args)
    average.save(args.out / "model.npz")
    found = evaluate(load_net(args.out / "model.npz"), speech)
    print(table(found))
    notes = {
        "steps": args.steps,
        "seed": args.seed,
        "seconds": round(time.perf_counter() - started),
        "torch": torch.__version__,
        "sentences": len(sentences),
        "training utterances": len(speech.training),
        "greedy WER % on held-out speakers": found,
    }
    with atomic_write(args.out / "training.json", "w") as file:
        file.write(json.dumps(notes, indent=2) + "\n")


if __name__ == "__main__":
    main()
