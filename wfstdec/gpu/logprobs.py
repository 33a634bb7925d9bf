"""Log-probs in a form that kernels can read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.gpu.device import Device, Share, upload_joined
from wfstdec.gpu.records import KERNELS, NONE, read_structs
from wfstdec.search.logprobs import MAX_LOGPROB

FLOAT32, FLOAT16, BFLOAT16, MIXED = range(4)
"""`LOGPROBS.type`; of chunks of several types: `MIXED`."""
STRUCTS = read_structs(KERNELS / "logprobs.cuh")
LOGPROBS = STRUCTS["Logprobs"]
CONSTANTS: dict[str, int | float] = {
    **{"FLOAT32": FLOAT32, "FLOAT16": FLOAT16, "BFLOAT16": BFLOAT16, "MIXED": MIXED},
    "MAX_LOGPROB": float(MAX_LOGPROB),
}


@dataclass(slots=True)
class DeviceLogprobs:
    """Log-probs of one utterance, [T, V], for kernels."""

    buffer: Any  # owner of the memory
    address: int  # of the first number
    type: int  # of the numbers: `FLOAT32`, `FLOAT16` or `BFLOAT16`
    frame_stride: int  # numbers from frame to frame, at least V
    num_frames: int  # T
    # stream of pending work on them; None if they are complete
    stream: Any = None

    def __len__(self) -> int:
        return self.num_frames


Chunk = np.ndarray | DeviceLogprobs
"""Log-probs [T, V] on the host, float32 in C order, or on the device."""


def stream_of(chunks: Sequence[Chunk]) -> Any:
    """Return the stream of pending work on chunks; None if they are complete."""
    streams = (getattr(chunk, "stream", None) for chunk in chunks)
    return next((one for one in streams if one is not None), None)


def to_device(
    device: Device, share: Share, chunks: Sequence[Chunk]
) -> list[DeviceLogprobs]:
    """Return chunks for kernels; those of the host in one copy, completed."""
    on_host = [chunk for chunk in chunks if isinstance(chunk, np.ndarray)]
    buffer, address = None, 0
    if sum(chunk.size for chunk in on_host):
        share.take(sum(chunk.nbytes for chunk in on_host))
        buffer = upload_joined(device, on_host)
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
    """Return LOGPROBS [B]."""
    records = np.zeros(len(chunks), LOGPROBS)
    for name in ("address", "type", "frame_stride", "num_frames"):
        records[name] = [getattr(chunk, name) for chunk in chunks]
    records["bad_frame"] = NONE
    return records


def type_of(chunks: Sequence[DeviceLogprobs]) -> int:
    """Return the type of all chunks, `MIXED` if they differ."""
    kinds = {chunk.type for chunk in chunks if chunk.num_frames}
    return kinds.pop() if len(kinds) == 1 else MIXED if kinds else FLOAT32


def download_frame(
    device: Device, chunk: DeviceLogprobs, frame: int, num_tokens: int
) -> np.ndarray:
    """Return a frame of a chunk, float32 [V]."""
    kind = np.dtype(np.float32 if chunk.type == FLOAT32 else np.uint16)
    row = device.empty(num_tokens, kind)
    source = chunk.address + frame * chunk.frame_stride * kind.itemsize
    device.copy(device.address(row), source, num_tokens * kind.itemsize)
    bits = device.download(row, kind)
    if chunk.type == FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    if chunk.type == BFLOAT16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits
