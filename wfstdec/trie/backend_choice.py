"""Pace of the trie search, by which `"auto"` chooses; batches that are for the CPU.

The CPU's times are measured (one core of a server, the demo's speech: 2.2 us a frame at
beam 8 and size 32, 8.2 at 12 and 128); those of the GPU are a model that was made
before any GPU ran the kernels. The rule is in `search/backend_choice.py`.
"""

from __future__ import annotations

import importlib
import math

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.backend_choice import CPU, BackendChoice, Pace
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace

CPU_US, CPU_GROWTH = 2.2, 0.33
"""Microseconds of a frame on one core at beam 8, and how they grow with a nat more."""
SIZE_AT_CPU_US = 8
"""Entries that such a frame goes on from; a frame of n times as many takes n times as
long, however wide the beam."""
GPU_US, WIDE_GPU_US, NARROW_BEAM_SIZE = 2.5, 4.5, 64
"""Predicted, of a frame in a warp and in four; the size up to which one is enough."""
ROOM = "wfstdec.trie.gpu"
"""The search on a GPU."""


def pace_of(options: TrieOptions) -> Pace:
    """Pace of the search.

    Args:
        options: Its options.
    """
    growth = math.exp(CPU_GROWTH * (min(options.beam, 40.0) - 8.0))
    return Pace(
        CPU_US * min(growth, options.beam_size / SIZE_AT_CPU_US),
        GPU_US if options.beam_size <= NARROW_BEAM_SIZE else WIDE_GPU_US,
        f"beam {options.beam:g} and size {options.beam_size}",
    )


def for_the_cpu(
    space: SearchSpace, options: TrieOptions, boosts: list[CompiledBoosts]
) -> BackendChoice | None:
    """Choose the CPU for what no GPU searches; None where one does.

    Args:
        space: The space.
        options: Of the search.
        boosts: Of utterances.
    """
    # Asked only where a GPU has passed the tests: elsewhere nothing of it is imported.
    backend = importlib.import_module(f"{ROOM}.backend")
    reasons = [backend.why_not_space(space), backend.why_not(options)]
    reasons += [backend.why_not(options, one) for one in boosts]
    why = next((one for one in reasons if one is not None), None)
    return None if why is None else BackendChoice(CPU, f"backend 'cuda': {why}")
