"""Backends of models alike: frames checked, features encoded, boosts read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError, ShapeError
from wfstdec.search.logprobs import check_lengths, split_batch


class ModelBackend:
    """A model on one device, and the utterances that it is given.

    Args:
        model: Of a transducer or an attention decoder.
        device: Where it is.
        batch_size: Utterances decoded side by side, and encoded.
        encodes: Whether features come, and the model's encoder goes first.
    """

    can: frozenset[str] = frozenset()

    def __init__(
        self, model: Any, device: torch.device | str, batch_size: int, encodes: bool
    ) -> None:
        self.model, self.device = model, torch.device(device)
        self.batch_size, self.encodes = batch_size, encodes

    def inputs(self, frames: Any, lengths: Any) -> list[Any]:
        """Check the encoder's frames: [T, D] for each utterance, on the device.

        Args:
            frames: [B, T, D] or a sequence of [T, D], torch or NumPy; of features,
                which are encoded, where that is what is decoded.
            lengths: [B] frames of each; None for all.

        Raises:
            ShapeError: Axes, D or lengths are wrong.
        """
        if self.encodes:
            return self.encode(frames, lengths)
        given = self._tensors(frames, lengths)
        size = getattr(self.model, "frame_dim", None)
        for i, one in enumerate(given):
            if size not in (None, one.shape[1]):
                raise ShapeError(
                    f"frames have D={one.shape[1]}, expected D={size} as the model's "
                    "encoder gives them",
                    i,
                )
        return given

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any) -> list[Tensor]:
        """Frames of the model's encoder; see `ModelDecoder.encode`."""
        given = self._tensors(features, lengths)
        for i, one in enumerate(given):
            if one.shape[1] != self.model.input_dim:
                raise ShapeError(
                    f"features have F={one.shape[1]} numbers a frame, the model "
                    f"expects F={self.model.input_dim}",
                    i,
                )
        # Of like length together: padding is computed too.
        order = sorted(range(len(given)), key=lambda i: len(given[i]))
        found: list[Tensor] = [torch.empty(0)] * len(given)
        for first in range(0, len(order), self.batch_size):
            group = order[first : first + self.batch_size]
            sizes = torch.tensor([len(given[i]) for i in group])
            batch = torch.nn.utils.rnn.pad_sequence(
                [given[i].float() for i in group], batch_first=True
            )
            frames, counts = self.model.encode(batch, sizes.to(batch.device))
            for i, row, count in zip(group, frames, counts.tolist(), strict=True):
                found[i] = row[:count]
        return found

    def _tensors(self, frames: Any, lengths: Any) -> list[Tensor]:
        def as_tensor(array: Any) -> Tensor:
            if isinstance(array, Tensor):
                return array.detach().to(self.device)
            return torch.from_numpy(np.array(array)).to(self.device)

        arrays = split_batch(frames, as_tensor)
        counts = check_lengths(lengths, len(arrays))
        found = []
        for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            if array.ndim != 2 or not array.is_floating_point():
                raise ShapeError(
                    f"frames are {array.dtype} {tuple(array.shape)}, expected "
                    "floating-point [T, D] of the encoder",
                    i,
                )
            if count is not None and not 0 <= count <= len(array):
                raise ShapeError(f"length {count}, expected 0 to {len(array)}", i)
            if array.shape[1] != (expected := arrays[0].shape[1]):
                raise ShapeError(
                    f"frames have D={array.shape[1]}, expected D={expected} as of "
                    "the first utterance",
                    i,
                )
            found.append(array[:count])
        return found


def phrases_of(boosts: Sequence[CompiledBoosts]) -> list[PhraseBoosts | None]:
    """The phrases of each utterance.

    Raises:
        BoostError: Boosts of words, which a search over tokens cannot follow.
    """
    for i, one in enumerate(boosts):
        if one.words or (one.phrases is not None and not one.of_tokens):
            raise BoostError("boosts of words, expected phrases of tokens", i)
    return [one.phrases for one in boosts]
