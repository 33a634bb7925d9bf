"""What `import cupy` finds where this folder is on the path: a GPU that is none.

STAND_IN_FAULT has it go wrong at the first search: "hang", "crash", "wrong" (bits) or
"memory".
"""

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402
from cupy_stand_in import Kernel, stand_in  # noqa: E402

FAULT = os.environ.get("STAND_IN_FAULT")
run = Kernel.__call__


def spoiled(kernel, grid, block, arguments, *, shared_mem):
    """A launch, with the fault that is asked for."""
    if FAULT == "hang":
        print("an endless kernel", flush=True)
        time.sleep(3600)
    if FAULT == "crash":
        os.abort()
    if FAULT == "memory":
        raise MemoryError("cudaErrorMemoryAllocation: out of memory")
    if FAULT == "wrong":
        arguments[0]["lm_scale"] *= np.float32(0.5)
    run(kernel, grid, block, arguments, shared_mem=shared_mem)


Kernel.__call__ = spoiled
module = stand_in()
sys.modules[__name__] = module
