"""The CUDA backend of the trie search: `backend.py` on an NVIDIA GPU, by CuPy.

    backend = CudaBackend(space)                     # the current CUDA device
    backend.decode(utterances, options, boosts)

Arrays on the GPU are taken as they are, as `wfst/gpu/cuda.py` takes them.
"""

from __future__ import annotations

from typing import Any

from wfstdec.gpu.cuda_arrays import TakesGpuArrays
from wfstdec.gpu.cupy_device import CupyDevice, free_shared, load_cupy
from wfstdec.gpu.logprobs import FLOAT32
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.backend import DeviceBackend
from wfstdec.trie.search_space import SearchSpace


class CudaBackend(TakesGpuArrays, DeviceBackend):
    """A search space on the current CUDA device.

    Args:
        space: The space.

    Raises:
        BackendError: CuPy or a GPU is missing, or the space does not fit.
        OptionError: It has what only the CPU does.
    """

    def __init__(self, space: SearchSpace) -> None:
        super().__init__(space, device_of)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the space: it goes to the device of whoever loads it."""
        return backend_for, (self.space,)


def backend_for(space: SearchSpace) -> CudaBackend:
    """The space on the current CUDA device.

    Args:
        space: The space.

    Raises:
        BackendError: See `CudaBackend`.
        OptionError: Likewise.
    """
    return CudaBackend(space)


def device_of(form: d.Form) -> CupyDevice:
    """The current CUDA device, for blocks of a form.

    Their arrays are in its global memory where its shared memory has no room for them.

    Args:
        form: The form.
    """
    program = d.program(form.threads)
    limits = load_cupy().cuda.Device().attributes
    room = free_shared(limits, program.own_bytes, 1)
    shared_bytes = form.shared_bytes if form.shared_bytes <= room else 0
    variant = d.Variant(form.threads, FLOAT32)
    return CupyDevice(program, form.threads, shared_bytes, variant.macros)
