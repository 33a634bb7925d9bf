"""Greedy decoding of a transducer by a plain loop, and its WER on held-out speakers.

    pip install -e '.[torch]'
    python -m tools.data.transducer_greedy graphs/transducer_demo/model.npz

The best symbol at a time, one utterance at a time: nothing here is of the decoders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch

from tools.bench.command import bare_parser
from tools.data.transducer_data import Speech, by_speaker, load_speech
from wfstdec.metrics import score_texts
from wfstdec.transducer.torch_model import TorchTransducer, TransducerNet, load_net

MAX_SYMBOLS = 10
"""Per frame."""


def words_of(tokens: Iterable[str]) -> list[str]:
    """Words of pieces."""
    return "".join(tokens).replace("\u2581", " ").split()


def greedy(model: TorchTransducer, logprobs: np.ndarray) -> list[str]:
    """Words of one utterance, the best symbol at a time; a plain loop."""
    features = torch.from_numpy(logprobs.astype(np.float32))[None]
    frames, lengths = model.encode(features, torch.tensor([len(logprobs)]))
    state, g = model.start(1)
    said: list[int] = []
    t = run = 0
    while t < int(lengths[0]):
        joined = model.join(frames[:, t], g)
        tokens, durations = joined if isinstance(joined, tuple) else (joined, None)
        label = int(tokens[0].argmax())
        step = 1 if label == model.blank else 0
        if durations is not None:
            values = list(model.durations)
            chances = durations[0].tolist()
            allowed = [i for i, d in enumerate(values) if d > 0 or label != model.blank]
            step = values[max(allowed, key=lambda i: chances[i])]
        if label != model.blank:
            said.append(label)
            g, state = model.predict(torch.tensor([label]), state)
            run += 1
            if run >= MAX_SYMBOLS and step == 0:
                step = 1
        if step:
            t, run = t + step, 0
    return words_of(model.tokens[label] for label in said)


def evaluate(
    net: TransducerNet, speech: Speech, limit: int | None = None
) -> dict[str, dict[str, float]]:
    """WER in percent of each head: of each held-out speaker, and of all.

    Args:
        net: The net.
        speech: Its held-out utterances.
        limit: Only so many of them, evenly.
    """
    names = speech.held_out
    if limit is not None:
        names = names[:: max(1, len(names) // limit)]
    found: dict[str, dict[str, float]] = {}
    for head in net.heads:
        model = TorchTransducer(net, head)
        said = {name: greedy(model, speech.logprobs[name]) for name in names}
        found[head] = {}
        for speaker, own in {**by_speaker(names), "all": names}.items():
            references = {name: speech.references[name] for name in own}
            guesses = {name: said[name] for name in own}
            found[head][speaker] = score_texts(references, guesses).wer
    return found


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Format error rates, a line for each head."""
    return "\n".join(
        f"{head}: " + ", ".join(f"{name} {wer:.2f} %" for name, wer in own.items())
        for head, own in found.items()
    )


def main() -> None:
    """Print the WER of each head."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("model", type=Path, help="what train_transducer wrote")
    add("--data", type=Path, default=Path("../shared/data"), help="development data")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(table(evaluate(load_net(args.model), load_speech(args.data))))


if __name__ == "__main__":
    main()
