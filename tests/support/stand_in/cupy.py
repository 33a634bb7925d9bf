"""Imitation that `import cupy` finds with this folder on the path: no real GPU.

STAND_IN_FAULT has it go wrong. At the first search: "hang", "crash", "wrong" (bits) or
"memory". Before: "no device"; "no files", a driver that loads kernels from memory
alone; "no loads", one that loads none; "no halves", a GPU that gives the probe another
answer; "no sums", one that hangs in the probe's last kernel.
"""

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402
from cupy_stand_in import CudaDriverError, Kernel, Module, stand_in  # noqa: E402

FAULT = os.environ.get("STAND_IN_FAULT")
run = Kernel.__call__


def spoiled(kernel, grid, block, arguments, *, shared_mem):
    """A launch, with the fault that is asked for."""
    of_search = kernel.name in ("search_chunk", "best_paths")
    if (FAULT == "hang" and of_search) or (
        FAULT == "no sums" and kernel.name == "add_logs"
    ):
        print("an endless kernel", flush=True)
        time.sleep(3600)
    if FAULT == "crash" and of_search:
        os.abort()
    if FAULT == "memory" and of_search:
        raise MemoryError("cudaErrorMemoryAllocation: out of memory")
    if FAULT == "wrong" and of_search:
        arguments[0]["lm_scale"] *= np.float32(0.5)
    if FAULT == "no halves" and kernel.name == "widen_halves":
        arguments[0]["count"] = 5
    run(kernel, grid, block, arguments, shared_mem=shared_mem)


def refuse(*_, **__):
    """Fail like a driver with an image that it cannot make out."""
    raise CudaDriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")


Kernel.__call__ = spoiled
module = stand_in(None if FAULT == "no device" else 1)
if FAULT in ("no files", "no loads"):
    module.RawModule = refuse
if FAULT == "no loads":
    Module.load = refuse
sys.modules[__name__] = module
