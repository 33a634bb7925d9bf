"""Log-probs where kernels can read them.

chunks = to_device(device, share, chunks)          # those of the host in one copy
utterances["logprobs"] = logprob_records(chunks)
bad = first_bad(device, chunks, num_tokens)        # NaN, +inf: utterance and frame
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.gpu.budget import Share
from wfstdec.gpu.device import Device
from wfstdec.gpu.launch import Grid, launch, upload
from wfstdec.gpu.records import KERNELS, NONE, read_struct
from wfstdec.search.logprobs import MAX_LOGPROB

FLOAT32, FLOAT16, BFLOAT16 = range(3)
"""`LOGPROBS.type`."""
LOGPROBS = read_struct(KERNELS / "logprobs.cuh", "Logprobs")
CHECK = read_struct(KERNELS / "logprobs.cuh", "LogprobCheck")
CHECK_KERNEL = "check_logprobs"
STRUCTS = {"Logprobs": LOGPROBS, "LogprobCheck": CHECK}
CONSTANTS: dict[str, int | float] = {
    "FLOAT32": FLOAT32,
    "FLOAT16": FLOAT16,
    "BFLOAT16": BFLOAT16,
    "MAX_LOGPROB": float(MAX_LOGPROB),
}


@dataclass(frozen=True)
class DeviceLogprobs:
    """Log-probs of one utterance, [T, V], where kernels can read them.

    Attributes:
        buffer: What owns the memory.
        address: Of the first number.
        type: Of the numbers: `FLOAT32`, `FLOAT16` or `BFLOAT16`.
        frame_stride: Numbers from frame to frame, at least V.
        num_frames: T.
        stream: The stream on which they were made; None where they are complete.
    """

    buffer: Any
    address: int
    type: int
    frame_stride: int
    num_frames: int
    stream: Any = None

    def __len__(self) -> int:
        return self.num_frames


Chunk = np.ndarray | DeviceLogprobs
"""Log-probs [T, V] on the host, float32 in C order, or on the device."""


def stream_of(chunks: Sequence[Chunk]) -> Any:
    """The stream on which they were made; None where they are complete."""
    streams = (getattr(chunk, "stream", None) for chunk in chunks)
    return next((one for one in streams if one is not None), None)


def to_device(
    device: Device, share: Share, chunks: Sequence[Chunk]
) -> list[DeviceLogprobs]:
    """Chunks where kernels can read them; those of the host in one copy, done.

    Args:
        device: Where to.
        share: What the copy is taken from.
        chunks: [T, V] each.
    """
    on_host = [chunk for chunk in chunks if isinstance(chunk, np.ndarray)]
    flat = np.concatenate([np.zeros(0, np.float32), *(x.ravel() for x in on_host)])
    share.take(flat.nbytes)
    buffer = upload(device, flat)
    if len(flat):
        device.wait()
    address = device.address(buffer)
    placed: list[DeviceLogprobs] = []
    for chunk in chunks:
        if isinstance(chunk, np.ndarray):
            frames, stride = chunk.shape
            placed.append(DeviceLogprobs(buffer, address, FLOAT32, stride, frames))
            address += chunk.nbytes
        else:
            placed.append(chunk)
    return placed


def logprob_records(chunks: Sequence[DeviceLogprobs]) -> np.ndarray:
    """LOGPROBS [B]."""
    records = np.zeros(len(chunks), LOGPROBS)
    for name in ("address", "type", "frame_stride", "num_frames"):
        records[name] = [getattr(chunk, name) for chunk in chunks]
    records["bad_frame"] = NONE
    return records


def first_bad(
    device: Device, chunks: Sequence[DeviceLogprobs], num_tokens: int
) -> tuple[int, int] | None:
    """The first utterance, and its first frame, with a number that is no log-prob.

    Args:
        device: One whose program has `CHECK_KERNEL`.
        chunks: [T, V] each.
        num_tokens: V.
    """
    records = logprob_records(chunks)
    if not records["num_frames"].any():
        return None
    check = np.zeros(1, CHECK)
    check["num_utterances"], check["num_tokens"] = len(records), num_tokens
    grid = Grid(CHECK_KERNEL, min(len(records), device.num_blocks))
    frames = launch(device, grid, check, {"batch": records})["batch"]["bad_frame"]
    bad = np.flatnonzero(frames != NONE)
    return (int(bad[0]), int(frames[bad[0]])) if len(bad) else None
