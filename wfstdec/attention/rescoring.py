"""A second pass: n-best lists of any decoder in the order of an attention model.

lists = WfstDecoder(graph, options).decode_nbest(logprobs)
better = rescore(model, frames, lists, weight=0.5, spell=tokenizer.encode)
better[0][0].hypothesis.text, better[0][0].attention_cost
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.model import AttentionModel, checked_rows, checked_table
from wfstdec.errors import OptionError, ShapeError
from wfstdec.search.hypothesis import Hypothesis

Spell = Callable[[str], Sequence[int] | None]
"""The tokens of a text; None where it has none."""


class Rescored(NamedTuple):
    """A hypothesis of a second pass.

    Attributes:
        hypothesis: Of the first pass, as it was.
        attention_cost: What the model gives for its text and the end, nats; infinite
            where the text cannot be spelt.
        total_cost: What the list is ordered by.
    """

    hypothesis: Hypothesis
    attention_cost: float
    total_cost: float


def rescore(
    model: AttentionModel,
    frames: Sequence[Tensor],
    lists: Sequence[Sequence[Hypothesis]],
    *,
    weight: float,
    spell: Spell,
    first_weight: float = 1.0,
    reverse: bool = False,
) -> list[list[Rescored]]:
    """Order hypotheses anew; of equal ones the first stays first.

        total = first_weight * total_cost of the first pass + weight * attention_cost

    Args:
        model: A decoder; where it has a method `score(frames, lengths, prompts, labels,
            sizes)`, with a row for each text, that is asked in place of steps.
        frames: [T, D] of each utterance, of the encoder.
        lists: Hypotheses of each, such as `decode_nbest` gives.
        weight: Of the model.
        spell: Makes tokens of a text, in the case and with the signs that the model
            writes.
        first_weight: Of the first pass.
        reverse: The model is one that reads from right to left.

    Raises:
        OptionError: A weight is no finite number.
        ShapeError: Not as many utterances as lists, or the model gives other rows.
        LogprobError: The model gives no log-probs.
    """
    for name, value in (("weight", weight), ("first_weight", first_weight)):
        if not math.isfinite(value):
            raise OptionError(f"{name}={value!r}, expected a finite number")
    if len(frames) != len(lists):
        raise ShapeError(f"{len(frames)} utterances, expected {len(lists)} as lists")
    checked_table(model)
    found = []
    for one, hyps in zip(frames, lists, strict=True):
        texts = list(dict.fromkeys(hyp.text for hyp in hyps))
        spelt = {text: spell(text) for text in texts}
        known = {
            text: tuple(tokens)[:: -1 if reverse else 1]
            for text, tokens in spelt.items()
            if tokens is not None
        }
        costs = dict(zip(known, text_costs(model, one, [*known.values()]), strict=True))
        again = [
            Rescored(hyp, cost, first_weight * hyp.total_cost + weight * cost)
            for hyp in hyps
            for cost in [costs.get(hyp.text, math.inf)]
        ]
        found.append(sorted(again, key=lambda one: one.total_cost))
    return found


@torch.no_grad()
def text_costs(
    model: AttentionModel, frames: Tensor, texts: Sequence[Sequence[int]]
) -> list[float]:
    """What a model gives for texts of an utterance and their ends, nats.

    Args:
        model: The decoder.
        frames: [T, D].
        texts: Tokens of each.

    Raises:
        ShapeError: A token that the model does not have, or it gives other rows.
        LogprobError: The model gives no log-probs.
    """
    if not texts:
        return []
    num_tokens = len(model.tokens)
    for text in texts:
        bad = [token for token in text if not 0 <= token < num_tokens]
        if bad:
            raise ShapeError(f"token {bad[0]}, expected 0 to {num_tokens - 1}")
    sizes = np.array([len(text) for text in texts])
    labels = np.full((len(texts), int(sizes.max()) + 1), model.eos)
    for row, text in zip(labels, texts, strict=True):
        row[: len(text)] = text
    score: Any = getattr(model, "score", None)
    rows = _by_score if score is not None else _by_steps
    steps = rows(model, frames, labels, sizes)
    place = np.arange(labels.shape[1])
    counts = place <= sizes[:, None]
    return (-np.where(counts, steps, 0.0).sum(1) + 0.0).tolist()


def _by_steps(
    model: AttentionModel, frames: Tensor, labels: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Log-probs of each label, float64 [N, U], one step after the other."""
    num, num_tokens = len(labels), len(model.tokens)
    device = frames.device
    prompt = torch.tensor([model.prompt], device=device)
    length = torch.tensor([len(frames)], device=device)
    state, first = model.start(frames[None], length, prompt)
    rows = checked_rows(first, 1, num_tokens, is_first=True).repeat(num, 0)
    state = model.take(state, torch.zeros(num, dtype=torch.int64, device=device))
    found = np.zeros(labels.shape)
    for place in range(labels.shape[1]):
        given = labels[:, place]
        found[:, place] = rows[np.arange(num), given]
        if place + 1 < labels.shape[1]:
            logprobs, state = model.step(torch.from_numpy(given).to(device), state)
            rows = checked_rows(logprobs, num, num_tokens, is_first=False)
    return found


def _by_score(
    model: Any, frames: Tensor, labels: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The same by one call: teacher forcing."""
    num, device = len(labels), frames.device
    logprobs = model.score(
        frames[None].expand(num, -1, -1),
        torch.full((num,), len(frames), device=device),
        torch.tensor([model.prompt], device=device).expand(num, -1),
        torch.from_numpy(labels).to(device),
        torch.from_numpy(sizes).to(device),
    )
    if tuple(logprobs.shape) != labels.shape:
        raise ShapeError(
            f"the model's score gives {tuple(logprobs.shape)}, expected {labels.shape}"
        )
    return logprobs.double().cpu().numpy()
