"""The records of `kernels/layout.cuh` as NumPy types, and the search's `Program`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.program import Macros, Program
from wfstdec.gpu.records import NONE, WARP, read_structs
from wfstdec.trie.cpu import arrays as k

KERNELS = Path(__file__).parent / "kernels"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE = range(4)
"""Values of `UTTERANCE.status` after a launch."""
PHASES = ("stay", "expand", "merge", "rank", "settle", "other")
"""The phases of a frame whose times a build for them takes."""
MAX_BEAM_SIZE = 256
"""Entries are put in order by comparing all of them: more are for the CPU."""
NARROW, WIDE = WARP, 4 * WARP
"""Threads of a block."""
NARROW_BEAM_SIZE = 64
"""Up to this a warp takes an utterance, above it four."""
OWN_BYTES, OWN_BYTES_OF_THREAD = 512, 45
"""Shared memory that the variables of a block take at most, and more by its threads."""
CANDIDATES_PER_ENTRY = 4
MAX_WORDS_OF_NODE = (1 << 15) - 4
"""The order of a candidate has room for so many words that end at one node."""

STRUCTS = read_structs(KERNELS / "layout.cuh", **logprobs.STRUCTS, **boosts.STRUCTS)
"""The records that host and kernels share, by their names there."""
ENTRY, NODE, UTTERANCE = STRUCTS["Entry"], STRUCTS["Node"], STRUCTS["Utterance"]
COUNTS = ("frames", "active", "candidates", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: entries gone on from, candidates, entries made,
frames with their arrays in shared memory, frames that left it."""
_U4: np.dtype = np.dtype("u4")
# The host ends utterances by the CPU's own code: its records are these.
for _ours, _theirs in ((ENTRY, k.ENTRY), (NODE, k.TRACE_NODE)):
    assert _ours.names == _theirs.names and _ours.itemsize == _theirs.itemsize


class Form(NamedTuple):
    """Form of a block, and what its arrays in shared memory hold.

    Attributes:
        threads: Of a block.
        entries: Of a frontier; 0 where all arrays are in global memory.
        candidates: So many, a power of two.
        tokens: That may begin.
    """

    threads: int
    entries: int
    candidates: int
    tokens: int

    @property
    def shared_bytes(self) -> int:
        """Bytes of these arrays."""
        return sum(
            length * dtype.itemsize
            for _, length, dtype in arrays_of(
                self.entries, self.candidates, self.tokens
            )
        )


def form_for(beam_size: int, num_tokens: int) -> Form:
    """Choose the form of blocks for a beam size.

    Args:
        beam_size: Places that a frame goes on from.
        num_tokens: V.
    """
    threads = NARROW if beam_size <= NARROW_BEAM_SIZE else WIDE
    entries = max(WARP, 1 << (beam_size - 1).bit_length())
    candidates = CANDIDATES_PER_ENTRY * entries
    return Form(threads, entries, candidates, min(num_tokens + 1, candidates))


def arrays_of(
    entries: int, candidates: int, tokens: int
) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of a block, in their order.

    Args:
        entries: Of a frontier.
        candidates: So many.
        tokens: That may begin.
    """
    return [
        ("old_entries", entries, ENTRY),
        ("next_entries", entries, ENTRY),
        ("candidates", candidates, STRUCTS["Candidate"]),
        ("new_entries", candidates, STRUCTS["NewEntry"]),
        ("slots", 2 * candidates, _U4),
        ("ranks", candidates, _U4),
        ("marks", candidates, _U4),
        ("tokens", tokens, _U4),
    ]


class Variant(NamedTuple):
    """Variant that the kernels of a launch are compiled for.

    Attributes:
        threads: Of a block.
        logprob_type: Of all chunks, or `MIXED`.
        times: Whether the times of phases are taken.
    """

    threads: int = NARROW
    logprob_type: int = logprobs.MIXED
    times: bool = False

    @property
    def macros(self) -> Macros:
        """Macros as the compiler is told."""
        flags = (("THREADS", self.threads), ("LOGPROB_TYPE", self.logprob_type))
        return flags + (("TIMES", 1),) * self.times


@functools.cache
def program(threads: int) -> Program:
    """The kernels of the search in blocks of so many threads."""
    return Program(
        "advance.cu",
        KERNELS,
        kernels=("advance_chunk",),
        own_bytes=OWN_BYTES + OWN_BYTES_OF_THREAD * threads,
        shared_bytes=lambda room: max(0, room),
        structs=STRUCTS,
        constants=logprobs.CONSTANTS
        | {
            "OK": OK,
            "GROW_SCRATCH": GROW_SCRATCH,
            "GROW_FRONTIER": GROW_FRONTIER,
            "GROW_TRACE": GROW_TRACE,
            "NUM_TIMES": len(PHASES),
        },
    )


PROGRAM = program(NARROW)
"""Program in the smallest blocks: other sizes have the same text."""


def task_of(params: k.SearchParams) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, STRUCTS["Task"])
    for name in ("beam_size", "token_top_k", "nbest"):
        task[name] = min(int(getattr(params, name)), NONE)
    task["sums"], task["by_text"] = params.sums, params.by_text
    names = ("lm_scale", "word_insertion", "token_insertion")
    credits = ("begin_credit", "inside_credit", "end_credit", "instalment")
    for name in names + credits:
        task[name] = getattr(params, name)
    for name, value in params.pricing._asdict().items():
        task[name] = value
    task["beam"] = params.beam + np.float32(0)  # no -0.0: kernels compare integers
    return task
