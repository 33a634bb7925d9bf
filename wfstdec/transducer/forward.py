"""Costs of whole texts by a transducer, summed over their alignments.

costs = text_costs(model, frames, [[3, 7], [3, 8, 1]])      # frames [T, D]

Texts share their common prefixes: the predictor and the joiner run once per prefix.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.jit import jit
from wfstdec.transducer.model import (
    CheckedModel,
    TransducerModel,
    check_model,
    take_rows,
)
from wfstdec.transducer.pricing import in_floats, normalized

_ROWS = 2048
"""Approximate number of joiner rows per call."""


class _Prefixes(NamedTuple):
    parent: np.ndarray  # int64 [P]
    token: np.ndarray  # int64 [P]: the last one
    of_text: np.ndarray  # int64 [N]: the prefix that is the whole text
    levels: list[int]  # the first prefix of each length, and P


def _prefixes_of(texts: Sequence[Sequence[int]]) -> _Prefixes:
    known: dict[tuple[int, ...], int] = {(): 0}
    parent, token, levels = [0], [0], [0, 1]
    for length in range(1, max(map(len, texts), default=0) + 1):
        for text in texts:
            prefix = tuple(text[:length])
            if len(text) >= length and prefix not in known:
                known[prefix] = len(parent)
                parent.append(known[prefix[:-1]])
                token.append(prefix[-1])
        levels.append(len(parent))
    of_text = np.array([known[tuple(text)] for text in texts])
    return _Prefixes(np.array(parent), np.array(token), of_text, levels)


class TextModel:
    """A transducer as a model for `wfstdec.rescore`, with costs of whole texts."""

    def __init__(self, model: TransducerModel) -> None:
        self._model, self.tokens = model, tuple(model.tokens)
        self.token_table = check_model(model)
        self.tokenizer = getattr(model, "tokenizer", None)

    def text_costs(self, frames: Tensor, texts: Sequence[Sequence[int]]) -> list[float]:
        """Return costs of texts of one utterance, nats."""
        return text_costs(self._model, frames, texts)


@torch.no_grad()
def text_costs(
    model: TransducerModel, frames: Tensor, texts: Sequence[Sequence[int]]
) -> list[float]:
    """Return costs of an utterance's texts, nats, over all their alignments.

    A token or blank of a TDT whose duration exceeds the end ends the text, as in the
    search. The number of tokens per frame is unlimited.

    Raises:
        ShapeError, LogprobError: The model returns other rows, or no log-probs.
    """
    if not texts:
        return []
    if not len(frames):
        return [0.0 if not text else float("inf") for text in texts]
    prefixes, asked = _prefixes_of(texts), CheckedModel(model)
    g = _predicted(asked, prefixes, frames.device)
    num_frames, num = len(frames), len(prefixes.parent)
    durations = np.array(asked.durations or (0, 1), np.int64)
    blank = np.empty((num_frames, num))
    spoken = np.empty((num_frames, num))  # the last token, after its parent
    lasts = np.zeros((num_frames, num, len(durations)))  # of tokens
    waits = np.zeros_like(lasts)  # of blanks
    if not asked.durations:
        lasts[..., 1], waits[..., 0] = -np.inf, -np.inf
    parent = torch.from_numpy(prefixes.parent).to(frames.device)
    token = torch.from_numpy(prefixes.token + (prefixes.token >= asked.blank))
    token = token.to(frames.device)
    step, moving = max(1, _ROWS // num), durations > 0
    for t in range(0, num_frames, step):
        some = frames[t : t + step]
        rows = some.repeat_interleave(num, 0)
        again = g.repeat(len(some), *[1] * (g.ndim - 1))
        logprobs, of_durations = in_floats(asked.join(rows, again))
        logprobs = logprobs.view(len(some), num, -1)
        blank[t : t + step] = _float64(logprobs[..., asked.blank])
        of_parents = logprobs.index_select(1, parent)
        at = token.expand(len(some), num)[..., None]
        spoken[t : t + step] = _float64(of_parents.gather(2, at)[..., 0])
        if of_durations is not None:
            lasts[t : t + step] = _float64(of_durations).reshape(len(some), num, -1)
            waiting = np.full((len(rows), len(durations)), -np.inf)
            waiting[:, moving] = _float64(normalized(of_durations[:, moving]))
            waits[t : t + step] = waiting.reshape(len(some), num, -1)
    total = _sum_alignments(prefixes.parent, blank, spoken, lasts, waits, durations)
    return (-total[prefixes.of_text] + 0.0).tolist()


def _float64(x: Tensor) -> np.ndarray:
    return x.double().cpu().numpy()


def _predicted(asked: CheckedModel, prefixes: _Prefixes, device: Any) -> Any:
    """Return the predictor's g of each prefix, [P, ...], computed by length."""
    state, first = asked.start(1)
    found, levels = [first], prefixes.levels
    for begin, end, behind in zip(levels, levels[1:], levels[2:], strict=False):
        rows = torch.from_numpy(prefixes.parent[end:behind] - begin).to(device)
        labels = torch.from_numpy(prefixes.token[end:behind]).to(device)
        g, state = asked.predict(labels, take_rows(state, rows))
        found.append(g)
    return torch.cat(found)


@jit
def _sum_alignments(parent, blank, spoken, lasts, waits, durations):
    """Return the total of each prefix as a whole text, natural log, float64 [P]."""
    num_frames, num = blank.shape
    reached = np.full((num_frames + 1, num), -np.inf)
    reached[0, 0] = 0.0
    for t in range(num_frames):
        for n in range(1, num):
            for k in range(len(durations)):
                if durations[k] == 0:  # parents come first
                    gain = reached[t, parent[n]] + (
                        spoken[t, n] + lasts[t, parent[n], k]
                    )
                    reached[t, n] = np.logaddexp(reached[t, n], gain)
        for n in range(num):
            for k in range(len(durations)):
                to = min(t + durations[k], num_frames)
                if durations[k] > 0:
                    gain = reached[t, n] + (blank[t, n] + waits[t, n, k])
                    reached[to, n] = np.logaddexp(reached[to, n], gain)
                    if n > 0:
                        gain = reached[t, parent[n]] + (
                            spoken[t, n] + lasts[t, parent[n], k]
                        )
                        reached[to, n] = np.logaddexp(reached[to, n], gain)
    return reached[num_frames]
