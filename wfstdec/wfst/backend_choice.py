"""Backends of the WFST decoder, and their pace, by which `"auto"` chooses.

The CPU's times are measured (one core of a server, LibriSpeech); those of the GPU are a
model that was made before any GPU ran the kernels. The rule is in `gpu/choice.py`.
"""

from __future__ import annotations

import math

from wfstdec.gpu.choice import Pace

BACKENDS = {
    "reference": "wfstdec.wfst.reference_backend:ReferenceBackend",
    "cpu": "wfstdec.wfst.cpu.backend:CpuBackend",
    "cuda": "wfstdec.wfst.gpu.cuda:backend_for",
}
"""Name to module, and what makes the backend of a graph there. When `"auto"` takes
`"cuda"`, `gpu.choice` says."""
CPU_US, CPU_GROWTH = 1.0, 0.256
"""Microseconds of a frame on one core at beam 8, and how they grow with a nat more."""
GPU_US, GPU_GROWTH = 9.5, 0.153
"""Predicted, of a frame and block up to beam 13, and how they grow above."""
ROOM = "wfstdec.wfst.gpu"
"""The search on a GPU."""


def pace_of(beam: float) -> Pace:
    """Pace of the search at a beam.

    Args:
        beam: Nats; may be infinite.
    """
    finite = min(beam, 40.0)
    return Pace(
        CPU_US * math.exp(CPU_GROWTH * (finite - 8.0)),
        GPU_US * math.exp(GPU_GROWTH * max(0.0, finite - 13.0)),
        f"beam {beam:g}",
    )
