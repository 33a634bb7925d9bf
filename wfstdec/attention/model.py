"""Protocol of an attention decoder's model.

    state, logprobs = model.start(frames, lengths, prompts)    # after the prompt
    logprobs, state = model.step(labels, state)                # one token further
    state = model.take(state, rows)                            # repeat, drop rows
    model.limit(num_frames)                                    # most tokens

Outputs of a model are validated: errors are the package's and name both sizes.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from wfstdec.errors import LogprobError, OptionError, ShapeError
from wfstdec.text.tokens import BLANK_NAME, TokenTable, token_table

SUM_TOLERANCE = 1e-2
"""Tolerance of the sum of a row's probabilities."""


@runtime_checkable
class AttentionModel(Protocol):
    """An attention decoder; N rows at a time, all on one device.

    Keys and values of cross-attention belong to the utterance: `take` should not copy
    them for every row.

    Attributes:
        tokens: The V outputs, with different names.
        prompt: The decoder's default prompt.
        eos: The output that ends a text.
        neutral: Outputs without text, such as timestamps: language models and
            boosts do not step on them, and they cost nothing.
    """

    tokens: Sequence[str]
    prompt: tuple[int, ...]
    eos: int
    neutral: frozenset[int]

    def start(
        self, frames: Tensor, lengths: Tensor, prompts: Tensor
    ) -> tuple[Any, Tensor]:
        """Return the decoder after its prompts.

        Args:
            frames: [B, T, D] of the encoder; frames after an utterance's end must be
                ignored.
            lengths: int64 [B].
            prompts: int64 [B, P], all of one length.

        Returns:
            The state, of B rows, and natural log-probs of the next token, [B, V].
        """

    def step(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Step the decoder by one token.

        Args:
            labels: int64 [N].
            state: Of N rows.

        Returns:
            Log-probs [N, V], and the new state.
        """

    def take(self, state: Any, rows: Tensor) -> Any:
        """Select rows of the state, int64 [N]; each may occur any number of times."""

    def limit(self, num_frames: int) -> int:
        """Return the largest number of tokens in `num_frames` frames."""


def checked_table(model: AttentionModel) -> TokenTable:
    """Return the tokens of a model, followed by a blank that it does not have."""
    names = tuple(model.tokens)
    blank = BLANK_NAME
    while blank in names:
        blank = f"<{blank}>"
    named = {"eos": [model.eos], "neutral": model.neutral, "prompt": model.prompt}
    for name, tokens in named.items():
        for token in tokens:
            if not (isinstance(token, int) and 0 <= token < len(names)):
                expected = f"expected outputs, 0 to {len(names) - 1}"
                raise OptionError(f"{name} has {token!r}, {expected}")
    return token_table((*names, blank), len(names))


def checked_rows(
    logprobs: Any, num_rows: int, num_tokens: int, *, is_first: bool
) -> np.ndarray:
    """Validate log-probs of a model; return float32 [N, V] on the host."""
    shape, expected = tuple(getattr(logprobs, "shape", ())), (num_rows, num_tokens)
    kind = "" if isinstance(logprobs, Tensor) else f"{type(logprobs).__name__}, no "
    if kind or shape != expected:
        what = f"{kind}log-probs {shape}, expected {expected}"
        raise ShapeError(f"the model gives {what}")
    rows = np.ascontiguousarray(logprobs.detach().float().cpu().numpy())
    bad = ~(rows.max(1) < np.inf)  # includes NaN
    if bad.any():
        text = "the model gives NaN or +inf, expected logs of probabilities"
        raise LogprobError(text, int(bad.argmax()))
    if is_first:
        sums = np.exp(rows.astype(np.float64)).sum(1)
        off = np.abs(sums - 1) > SUM_TOLERANCE
        if off.any():
            row = int(off.argmax())
            what = f"exp of a row of the model's log-probs adds up to {sums[row]:.4g}"
            raise LogprobError(f"{what}, expected 1: are they logits?", row)
    return rows


def tree_map(function: Any, *trees: Any) -> Any:
    """Apply a function to the arrays of model states, pytrees of one structure."""
    first = trees[0]
    if isinstance(first, Tensor | np.ndarray):
        return function(*trees)
    if isinstance(first, dict):
        return {key: tree_map(function, *(t[key] for t in trees)) for key in first}
    if isinstance(first, list | tuple):
        parts = [tree_map(function, *part) for part in zip(*trees, strict=True)]
        return first._make(parts) if hasattr(first, "_make") else type(first)(parts)
    return first


@runtime_checkable
class EncoderModel(Protocol):
    """A model that includes its encoder."""

    input_dim: int  # numbers per frame of features
    stride: int  # frames of features per frame of the encoder

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode features [B, T, input_dim]: frames [B, T', D] and counts [B]."""


_METHODS = ("encode", "start", "predict", "join", "step", "take", "score", "ctc")
"""Timed methods."""


class TimedModel:
    """Wrapper that measures a model: CPU seconds of this process in its methods."""

    def __init__(self, model: Any) -> None:
        names = [name for name in dir(model) if not name.startswith("_")]
        vars(self).update({name: getattr(model, name) for name in names})
        for name in {*_METHODS} & {*names}:
            setattr(self, name, partial(self._timed, getattr(model, name)))
        self.model, self.cpu_s = model, 0.0

    def _timed(self, method: Callable[..., Any], *given: Any) -> Any:
        begin = time.process_time()
        found = method(*given)
        self.cpu_s += time.process_time() - begin
        return found
