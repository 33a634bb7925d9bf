"""Train an attention head and a CTC head together, on the transducer demo's encoder.

    pip install -e '.[tools,torch]'
    python -m tools.data.train_attention --minutes 90       # build/attention

Starts from the kept weights of graphs/transducer_demo, so its pieces, data and split
are those; the CTC loss makes attention monotonic early. Sentences that follow each
other are said together, up to 90 words: attention fails on texts longer than those it
was trained on, and a held-out utterance has up to 81 words. The learning rate falls by
the clock, over --minutes of all runs together. Writes state.pt (all that is needed to
go on: the same command again) and model.npz (float16, the moving average) every --check
steps and at the end, and prints losses and the greedy WER of the attention head on some
held-out utterances. A first trial with the encoder frozen was too weak to judge a
search by: 37.7 % WER.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tools.data.train_transducer import (
    BATCH_FRAMES,
    BOOKS,
    CLIP,
    PEAK_RATE,
    WARM_UP,
    WEIGHT_DECAY,
    Smooth,
    follow,
    has_halves,
    make_parser,
    speller,
)
from tools.data.transducer_data import (
    Batch,
    Source,
    Speech,
    collate,
    load_speech,
    training_sentences,
)
from tools.data.transducer_greedy import words_of
from wfstdec.attention.decoder import AttentionDecoder
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.torch_model import AttentionSizes, JointAttention, JointNet
from wfstdec.compare.speech import evenly_spaced
from wfstdec.metrics import score_texts
from wfstdec.text.files import atomic_write, read_lines
from wfstdec.transducer.torch_model import TransducerNet, load_net

DEMO = Path("graphs/transducer_demo")
CTC_WEIGHT = 0.3
SMOOTHING = 0.1
LAYERS = 3
LONGEST = 90
"""Words of a simulated utterance at most."""
ENCODER_RATE = 0.3
"""The encoder's learning rate in those of the heads: it is trained already."""
ENCODER_FROM = 0.45
"""The share of the time before which the encoder stays as it is: what heads that know
nothing yet would teach it is worth nothing, and a step takes a third of the time."""


def joined(sentences: Sequence[list[str]], seed: int) -> Iterator[list[str]]:
    """Sentences that follow each other, together of 1 to `LONGEST` words."""
    rng = np.random.default_rng(seed)
    words: list[str] = []
    wanted = rng.integers(1, LONGEST + 1)
    for sentence in sentences:
        if words and len(words) + len(sentence) > wanted:
            yield words
            words, wanted = [], rng.integers(1, LONGEST + 1)
        words = words + sentence
    if words:
        yield words


def rate_by(step: int, done: float) -> float:
    """Warm-up by steps, then half a cosine over the share of the time that is over."""
    falling = 0.5 + 0.5 * np.cos(np.pi * min(1.0, done))
    return PEAK_RATE * min(1.0, (step + 1) / WARM_UP) * float(falling)


def net_from(demo: TransducerNet) -> JointNet:
    """Both heads on a transducer's encoder, which is trained on."""
    config = replace(demo.config, heads=())
    sizes = AttentionSizes(
        *(len(config.tokens) + 1, config.dim, config.dim), layers=LAYERS
    )
    net = JointNet(config, sizes)
    net.encoder.load_state_dict(demo.encoder.state_dict())
    return net


def losses(net: JointNet, batch: Batch) -> dict[str, Tensor]:
    """Nats per token of each head."""
    frames, lengths = net.encoder(batch.features, batch.lengths)
    sizes, targets = batch.lattice.sizes, batch.targets
    eos = net.ctc.out_features - 1
    inside = torch.arange(targets.shape[1]) < sizes[:, None]
    labels = torch.where(inside, targets, eos)
    end = torch.full((len(labels), 1), eos)
    logits = net.attention(frames, lengths, torch.cat([end, labels], 1))
    wanted = torch.cat([labels, end], 1)
    counts = torch.arange(wanted.shape[1]) <= sizes[:, None]
    wanted = torch.where(counts, wanted, -100)
    attention = nn.functional.cross_entropy(
        logits.float().flatten(0, 1), wanted.flatten(), label_smoothing=SMOOTHING
    )
    logprobs = net.ctc(frames).log_softmax(-1, dtype=torch.float32)
    ctc = nn.functional.ctc_loss(
        *(logprobs.transpose(0, 1), labels, lengths, sizes),
        blank=eos,
        reduction="sum",
        zero_infinity=True,
    )
    return {"attention": attention, "ctc": ctc / sizes.sum()}


def greedy_errors(net: JointNet, speech: Speech, count: int) -> float:
    """WER % of the attention head, greedy, no more than 8 tokens a second."""
    kept = evenly_spaced(list(speech.held_out), count)
    options = AttentionOptions(beam_size=1, max_tokens_per_s=8.0)
    decoder = AttentionDecoder(
        JointAttention(net), options=options, input="features", frame_shift_s=0.08
    )
    names = net.config.tokens
    said = {}
    for name in kept:
        (hyp,) = decoder.decode([speech.logprobs[name].astype(np.float32)])
        said[name] = words_of([names[token] for token in hyp.token_ids])
    return score_texts({name: speech.references[name] for name in kept}, said).wer


def train(net: JointNet, source: Source, args: argparse.Namespace) -> int:
    """Train for so many minutes, going on from what was kept; the steps done.

    Leaves the average of the weights in `net`.
    """
    optimizer = torch.optim.AdamW(groups_of(net), betas=(0.9, 0.98))
    average = copy.deepcopy(net)
    state, step, before = args.out / "state.pt", 0, 0.0
    if state.is_file():
        kept = torch.load(state, weights_only=True)
        net.load_state_dict(kept["net"])
        average.load_state_dict(kept["average"])
        optimizer.load_state_dict(kept["optimizer"])
        step, before = int(kept["step"]), float(kept["seconds"])
        print(f"goes on at step {step}, {before:.0f} s", flush=True)

    def keep(step: int) -> None:
        parts = {"net": net, "average": average, "optimizer": optimizer}
        whole = {name: one.state_dict() for name, one in parts.items()}
        with atomic_write(state) as file:
            torch.save(whole | {"step": step, "seconds": seconds}, file)
        average.save(args.out / "model.npz")

    began, seconds, told = time.perf_counter(), before, Smooth()
    for examples in source.batches(BATCH_FRAMES, pool=400):
        seconds = before + time.perf_counter() - began
        if seconds > 60 * args.minutes:
            break
        net.train()
        batch = collate(examples, net.config.stride)
        done = seconds / (60 * args.minutes)
        net.encoder.requires_grad_(done >= ENCODER_FROM)
        for group in optimizer.param_groups:
            group["lr"] = group["share"] * rate_by(step, done)
        with torch.autocast("cpu", torch.bfloat16, enabled=has_halves()):
            found = losses(net, batch)
        loss = (1 - CTC_WEIGHT) * found["attention"] + CTC_WEIGHT * found["ctc"]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        step += 1
        follow(average, net, step)
        told.add(found)
        if step % args.report == 0:
            print(f"{step} {seconds:.0f} s {told}", flush=True)
        if step % args.check == 0:
            keep(step)
            wer = greedy_errors(average, source.speech, 24)
            print(f"WER {wer:.1f} %", flush=True)
    keep(step)
    net.load_state_dict(average.state_dict())
    return step


def groups_of(net: JointNet) -> list[dict[str, Any]]:
    """Weights by their rate and whether they decay."""
    groups = []
    for part, share in ((net.encoder, ENCODER_RATE), (net.attention, 1), (net.ctc, 1)):
        for matrices, decay in ((True, WEIGHT_DECAY), (False, 0.0)):
            own = [p for p in part.parameters() if (p.ndim > 1) == matrices]
            groups.append({"params": own, "share": share, "weight_decay": decay})
    return groups


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, "build/attention", 1000)
    parser.add_argument(
        "--minutes", type=float, default=90.0, help="of the whole training"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, or go on; evaluate; write."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    speech = load_speech(args.data)
    lines = read_lines(args.data / "text" / BOOKS)
    longer = joined(training_sentences(lines, speech), args.seed)
    # Once more: six words in a row may go from one sentence into the next.
    texts = (" ".join(words) for words in longer)
    sentences = training_sentences(texts, speech, LONGEST)
    _, spell = speller((DEMO / "bpe.model").read_bytes())
    net = net_from(load_net(DEMO / "model.npz")).float()
    state, done = args.out / "state.pt", 0
    if state.is_file():  # a run that goes on draws other examples than the one before
        done = int(torch.load(state, weights_only=True)["step"])
    source = Source(speech, sentences, spell, seed=args.seed + 1000 * done)
    print(f"{sum(p.numel() for p in net.parameters())} weights", flush=True)
    step = train(net, source, args)
    found = greedy_errors(net, speech, len(speech.held_out))
    notes = {"steps": step, "greedy WER % of the attention head": round(found, 2)}
    with atomic_write(args.out / "training.json", "w") as file:
        file.write(json.dumps(notes, indent=2) + "\n")
    print(notes)


if __name__ == "__main__":
    main()
