"""Arrays to a device, and launches: records to a kernel and back in one packet.

buffer = upload(device, array)
buffer = upload_joined(device, arrays)    # one after the other
grid = Grid("search_chunk", num_blocks, shared_bytes, threads=threads)
back = launch(device, grid, task, {"utterances": utterances, "queue": queue})
back["utterances"]                        # as the kernel left them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wfstdec.gpu.device import Device, Grid

_ALIGNMENT = 16
_BYTE: np.dtype = np.dtype(np.uint8)


def upload(device: Device, array: np.ndarray) -> Any:
    """A buffer with a copy of an array; the array must live until `device.wait`."""
    buffer = device.empty(array.size, array.dtype)
    device.write(buffer, array)
    return buffer


def upload_joined(device: Device, arrays: Sequence[np.ndarray]) -> Any:
    """A buffer with copies of arrays of one type, one after the other; done."""
    num_bytes = sum(array.nbytes for array in arrays)
    dtype = arrays[0].dtype
    buffer = device.empty(num_bytes // dtype.itemsize, dtype)
    with device.staging(num_bytes) as memory:
        joined = memory[:num_bytes].view(dtype)
        first = 0
        for array in arrays:
            joined[first : first + array.size] = array.reshape(-1)
            first += array.size
        device.write(buffer, joined)
        # The staging memory is somebody else's from here on.
        device.wait()
    return buffer


def launch(
    device: Device, grid: Grid, task: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run a kernel over arrays that travel with its task; returns when it is done.

    Args:
        device: Where.
        grid: What runs.
        task: One record, the kernel's argument, by value. Its fields of the arrays'
            names are set to where these lie on the device.
        arrays: By name, one axis each.

    Returns:
        The arrays as the kernel left them.
    """
    parts = list(arrays.values())
    # One copy there and one back, whatever the number of arrays.
    sizes = [-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in parts]
    starts = np.cumsum([0, *sizes]).tolist()
    packet = device.empty(starts[-1], _BYTE)
    first = device.address(packet)
    places = list(zip(arrays, starts, strict=False))
    for name, start in places:
        task[name] = first + start
    content = np.zeros(starts[-1], _BYTE)
    for part, start in zip(parts, starts, strict=False):
        content[start : start + part.nbytes] = part.view(_BYTE)
    device.write(packet, content)
    device.launch(grid, task)
    back = device.download(packet, _BYTE)
    return {
        name: back[start : start + arrays[name].nbytes].view(arrays[name].dtype)
        for name, start in places
    }
