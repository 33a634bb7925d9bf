"""Second pass: n-best lists of any decoder, reordered by an attention model.

lists = WfstDecoder(graph, options).decode_nbest(logprobs)
better = rescore(model, frames, lists, weight=0.5)
better[0][0].hypothesis.text, better[0][0].attention_cost
other = reweighed(better, weight=0.3)              # without running the model

lists = [lattice_hypotheses(lattice, 16) for lattice in lattices]      # or from these
log_probs = text_log_probs(model, frames[0])
rescore_texts(lists[:1], log_probs, lm_scale=0.5)
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.ctc import NO_CTC, CtcPrefixes, CtcUnits
from wfstdec.attention.model import AttentionModel, checked_rows, checked_table
from wfstdec.attention.model_decoder import cutter
from wfstdec.errors import OptionError, ShapeError
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_numpy
from wfstdec.text.tokens import TokenTable

Spell = Callable[[str], Sequence[int] | None]
"""Function from text to its tokens, or None."""


class Rescored(NamedTuple):
    """A hypothesis of a second pass."""

    hypothesis: Hypothesis  # of the first pass, unchanged
    # of its text and the end by the model, nats; infinite if the text has no tokens
    attention_cost: float
    ctc_cost: float  # of its text by CTC, nats; 0 without CTC
    total_cost: float  # sort key of the list


def rescore(
    model: AttentionModel,
    frames: Sequence[Any],
    lists: Sequence[Sequence[Hypothesis]],
    *,
    weight: float,
    spell: Spell | None = None,
    first_weight: float = 1.0,
    ctc_weight: float = 0.0,
    ctc: Sequence[Any] | None = None,
    ctc_tokens: TokenTable | None = None,
    reverse: bool = False,
) -> list[list[Rescored]]:
    """Reorder hypotheses by an attention model or transducer; ties keep their order.

        total = first_weight * total_cost of the first pass
                + weight * (attention_cost + ctc_weight * (ctc_cost - attention_cost))

    Args:
        model: A model; its method `score(frames, lengths, prompts, labels, sizes)`,
            with a row for each text, is used instead of steps, if it exists. Or a
            `wfstdec.transducer.forward.TextModel` of a transducer.
        frames: [T, D] of each utterance, of the encoder; tensors or arrays.
        lists: Hypotheses of each, as from `decode_nbest` or `lattice_hypotheses`.
        weight: Of the model.
        spell: Converts text to tokens, in the case and punctuation of the model; None
            uses the model's `tokenizer`, with the text unchanged.
        first_weight: Of the first pass.
        ctc_weight: 0 to 1, weight of CTC relative to attention.
        ctc: CTC log-probs of each utterance, [T, C]; None uses the model's head.
        ctc_tokens: As in `AttentionDecoder`.
        reverse: Whether the model reads from right to left.

    Raises:
        OptionError: A weight is not a finite number, CTC has a weight but no log-probs,
            or no tokenizer is available.
        FormatError: The model's tokenizer file is not a SentencePiece model.
        ShapeError: Another number of utterances than lists, or rows of another shape.
        LogprobError: The model returns no log-probs.
    """
    weights = {"weight": weight, "first_weight": first_weight, "ctc_weight": ctc_weight}
    _check_weights(**weights)
    num = len(lists)
    given = [None] * num if ctc is None else ctc
    for what, many in (("", frames), ("CTC log-probs of ", given)):
        if len(many) != num:
            raise ShapeError(f"{what}{len(many)} utterances, expected {num} as lists")
    if ctc_weight and hasattr(model, "text_costs"):
        raise OptionError(f"ctc_weight={ctc_weight!r} with a transducer, expected 0")
    spell, costs_of = spell or spelling_of(model), _text_costs_of(model)
    found = []
    tensors = map(torch.as_tensor, frames)
    for one, hyps, rows in zip(tensors, lists, given, strict=True):
        # Hypotheses may differ only in times: each text is scored once.
        known = _spelt(spell, [hyp.text for hyp in hyps])
        spelled = [*known.values()]
        in_order = [s[:: -1 if reverse else 1] for s in spelled]
        priced, unspelt = [0.0] * len(known), (math.inf, 0.0)
        if ctc_weight:
            priced = ctc_costs(model, one, spelled, logprobs=rows, tokens=ctc_tokens)
            unspelt = math.inf, math.inf
        pairs = zip(costs_of(one, in_order), priced, strict=True)
        costs = dict(zip(known, pairs, strict=True))
        found.append(
            [Rescored(h, *costs.get(h.text, unspelt), h.total_cost) for h in hyps]
        )
    return reweighed(found, **weights)


def reweighed(
    lists: Sequence[Sequence[Rescored]],
    *,
    weight: float,
    first_weight: float = 1.0,
    ctc_weight: float = 0.0,
) -> list[list[Rescored]]:
    """Reorder lists of `rescore` by other weights, without running the model.

    A `ctc_weight` requires lists that were computed with one above 0.

    Raises:
        OptionError: A weight is not a finite number.
    """
    _check_weights(weight=weight, first_weight=first_weight, ctc_weight=ctc_weight)

    def priced(one: Rescored) -> Rescored:
        total = first_weight * one.hypothesis.total_cost
        parts = ((1 - ctc_weight, one.attention_cost), (ctc_weight, one.ctc_cost))
        total += weight * sum(share * cost for share, cost in parts if share)
        return one._replace(total_cost=math.inf if math.isnan(total) else total)

    return [sorted(map(priced, one), key=lambda one: one.total_cost) for one in lists]


def _check_weights(**weights: float) -> None:
    for name, value in weights.items():
        if not math.isfinite(value):
            raise OptionError(f"{name}={value!r}, expected a finite number")
    if not 0 <= weights["ctc_weight"] <= 1:
        raise OptionError(f"ctc_weight={weights['ctc_weight']!r}, expected 0 to 1")


def text_log_probs(
    model: AttentionModel, frames: Tensor, spell: Spell | None = None
) -> Callable[[list[str]], list[float]]:
    """Return a function of one utterance's texts, for `rescore_texts`.

    It returns natural log-probabilities of texts with their ends; -inf for texts
    without tokens. Arguments and errors are those of `rescore`.
    """
    spelled, costs_of = spell or spelling_of(model), _text_costs_of(model)

    def log_probs(texts: list[str]) -> list[float]:
        known = _spelt(spelled, texts)
        priced = costs_of(frames, [*known.values()])
        costs = dict(zip(known, priced, strict=True))
        return [-costs.get(text, math.inf) for text in texts]

    return log_probs


def _spelt(spell: Spell, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    spelt = {text: spell(text) for text in dict.fromkeys(texts)}
    return {text: tuple(tokens) for text, tokens in spelt.items() if tokens is not None}


def spelling_of(model: AttentionModel) -> Spell:
    """Return the function from text to tokens of a model's tokenizer."""
    table = getattr(model, "token_table", None) or checked_table(model)
    ids = {name: i for i, name in enumerate(model.tokens)}
    tokenizer = getattr(model, "tokenizer", None)
    cut = None if tokenizer is None else cutter(tokenizer, table)
    if cut is None:
        expected = "expected spell=, a function from text to token ids"
        raise OptionError(f"the model has no tokenizer that cuts text, {expected}")

    def spell(text: str) -> list[int] | None:
        names = cut(text)
        known = [ids[name] for name in names if name in ids]
        return known if len(known) == len(names) else None

    return spell


@torch.no_grad()
def ctc_costs(
    model: AttentionModel,
    frames: Tensor,
    texts: Sequence[Sequence[int]],
    *,
    logprobs: Any = None,
    tokens: TokenTable | None = None,
) -> list[float]:
    """Return costs of an utterance's texts by CTC, nats, over all their alignments."""
    units = CtcUnits.of(model, tokens)
    head: Any = getattr(model, "ctc", None)
    if logprobs is None and head is None:
        raise OptionError(NO_CTC)
    given = head(frames).float() if logprobs is None else logprobs
    rows = units.check(as_numpy(given), len(frames))
    prefixes = CtcPrefixes([rows], units, weight=1.0, width=1)
    return (-prefixes.texts(texts) + 0.0).tolist()


def _text_costs_of(model: Any) -> Callable[..., list[float]]:
    """Return the function for costs of texts: the model's own, or `text_costs`."""
    return getattr(model, "text_costs", None) or partial(text_costs, model)


@torch.no_grad()
def text_costs(
    model: AttentionModel, frames: Tensor, texts: Sequence[Sequence[int]]
) -> list[float]:
    """Return costs of an utterance's texts and their ends by a model, nats."""
    if not texts:
        return []
    num_tokens = len(model.tokens)
    for text in texts:
        if bad := [token for token in text if not 0 <= token < num_tokens]:
            raise ShapeError(f"token {bad[0]}, expected 0 to {num_tokens - 1}")
    sizes = np.array([len(text) for text in texts])
    labels = np.full((len(texts), int(sizes.max()) + 1), model.eos)
    for row, text in zip(labels, texts, strict=True):
        row[: len(text)] = text
    rows = _by_steps if getattr(model, "score", None) is None else _by_score
    steps = rows(model, frames, labels, sizes)
    counts = np.arange(labels.shape[1]) <= sizes[:, None]
    return (-np.where(counts, steps, 0.0).sum(1) + 0.0).tolist()


def _by_steps(
    model: AttentionModel, frames: Tensor, labels: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    num, num_tokens = len(labels), len(model.tokens)
    device = frames.device
    prompt = torch.tensor([model.prompt], device=device)
    length = torch.tensor([len(frames)], device=device)
    state, first = model.start(frames[None], length, prompt)
    rows = checked_rows(first, 1, num_tokens, is_first=True).repeat(num, 0)
    # Encoder frames only once: all texts are of one utterance.
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
    num, device = len(labels), frames.device
    logprobs = model.score(
        frames[None].expand(num, -1, -1),
        torch.full((num,), len(frames), device=device),
        torch.tensor([model.prompt], device=device).expand(num, -1),
        torch.from_numpy(labels).to(device),
        torch.from_numpy(sizes).to(device),
    )
    if (shape := tuple(logprobs.shape)) != labels.shape:
        raise ShapeError(f"the model's score gives {shape}, expected {labels.shape}")
    return logprobs.double().cpu().numpy()
