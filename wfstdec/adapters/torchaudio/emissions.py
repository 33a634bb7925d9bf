"""Emissions and their lengths, from torch or NumPy, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from wfstdec.errors import LogprobError, ShapeError
from wfstdec.jit import read_only


def as_emissions(emissions: Any, axes: str, num_tokens: int) -> np.ndarray:
    """The emissions as an array of the same memory.

    Args:
        emissions: float32, a tensor of torch's on the CPU or an array.
        axes: What its axes are, such as `"B, T, V"`.
        num_tokens: V, blank included.

    Raises:
        ShapeError: Of another type, on a device, or of another shape.
    """
    device = getattr(emissions, "device", "cpu")
    if getattr(device, "type", str(device)) != "cpu":
        raise ShapeError(
            f"emissions are on {device}, expected a tensor on the CPU; call .cpu()"
        )
    if hasattr(emissions, "detach"):
        emissions = emissions.detach()
    dtype = str(getattr(emissions, "dtype", type(emissions).__name__))
    if dtype.removeprefix("torch.") != "float32":
        raise ShapeError(f"emissions are {dtype}, expected float32")
    array = np.asarray(emissions)
    if array.ndim != len(axes.split(",")):
        raise ShapeError(
            f"emissions have {array.ndim} axes {array.shape}, expected [{axes}]"
        )
    if array.shape[-1] != num_tokens:
        raise ShapeError(
            f"emissions have V={array.shape[-1]} tokens, expected the {num_tokens} of "
            "the decoder's list, blank included"
        )
    return array


def as_lengths(lengths: Any, emissions: np.ndarray) -> list[int]:
    """The frames of each utterance; all where `lengths` is None.

    Raises:
        ShapeError: Another number of utterances, no integers, or more than there are.
    """
    size, frames = emissions.shape[:2]
    if lengths is None:
        return [frames] * size
    device = getattr(lengths, "device", "cpu")
    if getattr(device, "type", str(device)) != "cpu":
        raise ShapeError(
            f"lengths are on {device}, expected a tensor on the CPU; call .cpu()"
        )
    counts = np.asarray(lengths)
    if counts.shape != (size,) or (size and counts.dtype.kind not in "iu"):
        raise ShapeError(
            f"lengths are {counts.dtype} {counts.shape}, expected {size} integers"
        )
    for utterance, count in enumerate(counts.tolist()):
        if not 0 <= count <= frames:
            raise ShapeError(f"length {count}, expected 0 to T={frames}", utterance)
    return [int(count) for count in counts]


def check_frames(frames: np.ndarray, utterance: int | None = None) -> np.ndarray:
    """The frames of an utterance, float32 [T, V] in C order, read-only.

    Raises:
        LogprobError: NaN, or plus infinity.
    """
    if frames.size and not frames.max() < np.inf:  # NaN is not less either
        t, n = np.argwhere(~(frames < np.inf))[0].tolist()
        raise LogprobError(
            f"{float(frames[t, n])} in frame {t}, token {n}, expected a number or -inf",
            utterance,
        )
    return read_only(frames.view())
