"""Backends of the WFST decoder, and their pace, by which `"auto"` chooses.

The CPU's times are measured (one core of a server, LibriSpeech); those of the GPU are a
model that was made before any GPU ran the kernels. The rule is in
`search/backend_choice.py`.
"""

from __future__ import annotations

import math

from wfstdec.search.backend_choice import Pace

BACKENDS = {
    "reference": "wfstdec.wfst.reference_backend:ReferenceBackend",
    "cpu": "wfstdec.wfst.cpu.backend:CpuBackend",
    "cuda": "wfstdec.wfst.gpu.cuda:backend_for",
}
"""Name to module, and what makes the backend of a graph there. When `"auto"` takes
`"cuda"`, `search.backend_choice` says."""
CPU_US, CPU_GROWTH = 1.0, 0.256
"""Microseconds of a frame on one core at beam 8, and how they grow with a nat more."""
GPU_US, GPU_GROWTH = 9.5, 0.153
"""Predicted, of a frame and block up to beam 13, and how they grow above."""
GPU_THREADS, GPU_ARCS, TURN_US = 512, 977, 0.5
"""Threads of that block, arcs of such a frame, and what all threads take for a turn
over arcs (`tools/gpu/model.py`): fewer threads take more turns."""
ROOM = "wfstdec.wfst.gpu"
"""The search on a GPU."""


def pace_of(beam: float, threads: int | None = None) -> Pace:
    """Pace of the search at a beam.

    Args:
        beam: Nats; may be infinite.
        threads: Of a block on a GPU; None for the largest.
    """
    finite = min(beam, 40.0)
    turns = GPU_ARCS / (threads or GPU_THREADS) - GPU_ARCS / GPU_THREADS
    return Pace(
        CPU_US * math.exp(CPU_GROWTH * (finite - 8.0)),
        (GPU_US + TURN_US * turns) * math.exp(GPU_GROWTH * max(0.0, finite - 13.0)),
        f"beam {beam:g}",
    )
