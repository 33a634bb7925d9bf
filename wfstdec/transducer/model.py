"""Protocol of a transducer model as searches use it, for RNN-T and TDT.

    frames, lengths = model.encode(features, lengths)     # where there is an encoder
    state, g = model.start(num)                           # after no token
    g, state = model.predict(labels, state)               # one token further
    logprobs = model.join(frames, g)                      # RNN-T
    logprobs, durations = model.join(frames, g)           # TDT

`TorchTransducer` and `OnnxTransducer` are such models, and so is any object with
these names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

Joined: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""What `join` gives: log-probs, and for TDT those of the durations too."""


@runtime_checkable
class TransducerModel(Protocol):
    """A predictor and a joiner; N rows at a time, all on one device.

    Attributes:
        tokens: The V output tokens, the blank not among them.
        blank: Where the joiner's V + 1 outputs have the blank.
        durations: For TDT, how many frames each output of the duration head stands
            for: the values, not their positions. Empty for RNN-T.

    A model may have two attributes more: `frame_dim`, D of the frames that it joins,
    and `tokenizer`, what cuts text into the names of its tokens, so that phrases are
    cut as it was trained (see `wfstdec.autoregressive.tokenizers`).
    """

    tokens: Sequence[str]
    blank: int
    durations: tuple[int, ...]

    def start(self, num: int) -> tuple[Any, Tensor]:
        """The predictor after no token.

        Args:
            num: N rows.

        Returns:
            The state, a pytree of tensors with N rows each, and g, [N, ...].
        """

    def predict(self, labels: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The predictor one token further.

        Args:
            labels: int64 [N], positions in `tokens`: 0..V-1.
            state: As `start` or `predict` gave it.

        Returns:
            g, [N, ...], and the new state.
        """

    def join(self, frames: Tensor, g: Tensor) -> Joined:
        """Log-probs of the next symbol.

        Args:
            frames: [N, D], of the encoder.
            g: [N, ...], of the predictor.

        Returns:
            Natural log-probs [N, V + 1], each row a distribution; for TDT also those
            of the durations, [N, len(durations)].
        """


def tree_map(function: Any, *trees: Any) -> Any:
    """Apply a function to the tensors of pytrees of one form: the states of models.

    Args:
        function: Of as many tensors as there are trees.
        trees: Tensors, or tuples, lists or dicts of pytrees.
    """
    first = trees[0]
    if isinstance(first, Tensor):
        return function(*trees)
    if isinstance(first, dict):
        return {key: tree_map(function, *(t[key] for t in trees)) for key in first}
    if isinstance(first, list | tuple):
        parts = [tree_map(function, *part) for part in zip(*trees, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*parts)
        return type(first)(parts)
    return first


def leaves(tree: Any) -> list[Any]:
    """All that a pytree holds, in order, tensors or not."""
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def take_rows(tree: Any, rows: Tensor) -> Any:
    """Take rows, int64 [M], of all tensors of a pytree."""
    return tree_map(lambda tensor: torch.index_select(tensor, 0, rows), tree)


def choose_rows(mask: Tensor, there: Any, here: Any) -> Any:
    """Rows of `there` where the mask is true, else of `here`; bool [N]."""

    def choose(new: Tensor, old: Tensor) -> Tensor:
        shape = (-1,) + (1,) * (old.ndim - 1)
        return torch.where(mask.view(shape), new, old)

    return tree_map(choose, there, here)
