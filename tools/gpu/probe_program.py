"""The kernels of the probe, and a device that launches them at any number of threads.

    machine = Machine(make_device)               # `CupyDevice`s; tests: the emulation
    back = machine.run("exchange", 64, {"words": words, "found": found})

Nothing of this needs numba or a graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from wfstdec.gpu.compiling import Program
from wfstdec.gpu.device import Device, Grid, launch
from wfstdec.gpu.records import KERNELS, read_struct

FOLDER = Path(__file__).parent / "kernels"
_SOURCE = FOLDER / "probe.cu"
GIVEN = read_struct(_SOURCE, "Given")
TASK = read_struct(_SOURCE, "ProbeTask")
LOGPROBS = read_struct(KERNELS / "logprobs.cuh", "Logprobs")
IN_GLOBAL, IN_SHARED = range(2)
"""Where a word lies that threads change."""
SMALL, LEASTS = 2048, 4
"""As in `probe.cu`: slots of a table in shared memory, words that threads lower."""

PROBE = Program(
    "probe.cu",
    FOLDER,
    kernels=(
        *("fill_shared", "give_back", "least_keys", "claim_slots"),
        *("peek_at_words", "read_quads", "exchange", "reduce", "calculate"),
        *("widen_halves", "add_logs"),
    ),
    own_bytes=0,
    shared_bytes=lambda room: max(0, room),
    structs={"Given": GIVEN, "ProbeTask": TASK, "Logprobs": LOGPROBS},
    constants={
        **{"IN_GLOBAL": IN_GLOBAL, "IN_SHARED": IN_SHARED},
        **{"SMALL": SMALL, "LEASTS": LEASTS},
    },
)
"""The kernels; the first has no shared memory of its own and may ask for all."""


SEARCH = Program(
    "search.cu",
    KERNELS.parents[1] / "wfst" / "gpu" / "kernels",
    kernels=("search_chunk", "best_paths"),
    own_bytes=0,
    shared_bytes=lambda room: 0,
    structs={},
    constants={},
)
"""The WFST search's kernels, to be loaded and not launched: the package that has their
records needs numba."""
PLAIN = ("PHRASES", 0), ("LOGPROB_TYPE", 0)
"""What the search is compiled for most."""


class Machine:
    """A device that launches kernels at any number of threads.

    Args:
        make: Makes it, for blocks of that number of threads.
        most_shared: Bytes of shared memory that a block may ask for.
        capability: Of the device, 90 for 9.0.
    """

    def __init__(
        self, make: Callable[[int], Device], most_shared: int, capability: int
    ) -> None:
        self.device = functools.cache(make)
        self.most_shared, self.capability = most_shared, capability

    def run(
        self,
        kernel: str,
        threads: int,
        arrays: Mapping[str, np.ndarray],
        *,
        blocks: int = 1,
        shared_bytes: int = 0,
        **fields: int,
    ) -> dict[str, np.ndarray]:
        """Launch a kernel over arrays that go there and back.

        Args:
            kernel: Its name.
            threads: Of a block.
            arrays: By the field of the task that points to them.
            blocks: Of the launch.
            shared_bytes: Of a block, in addition to its own variables.
            **fields: Others of the task.

        Returns:
            The arrays as the kernel left them.
        """
        task = np.zeros(1, TASK)
        for name, value in fields.items():
            task[name] = value
        device = self.device(threads)
        grid = Grid(kernel, blocks, shared_bytes)
        return launch(device, grid, task, arrays)
