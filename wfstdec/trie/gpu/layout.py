"""Records of `kernels/layout.cuh` as NumPy types, the `Program`, data on the device.

`DeviceSpace` is a search space on a device, with the memory shared by its batches.
"""

import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.boosts import DevicePhrases, automaton_arrays
from wfstdec.gpu.compiling import Macros, Program
from wfstdec.gpu.device import Device, DeviceArrays, ScratchLayout, ScratchPool
from wfstdec.gpu.records import NONE, WARP, fill_options, read_structs
from wfstdec.jit.records import WeakCache
from wfstdec.trie.cpu.arrays import ENTRY as CPU_ENTRY
from wfstdec.trie.cpu.arrays import TRACE_NODE, SearchParams
from wfstdec.trie.search_space import SearchSpace

KERNELS = Path(__file__).parent / "kernels"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, PAUSED = range(5)
"""Values of `UTTERANCE.status` after a launch."""
PHASES = ("stay", "expand", "merge", "rank", "settle", "other")
"""Phases of a frame, timed by kernels compiled for it."""
MAX_BEAM_SIZE = 256
"""Larger beams run on the CPU only."""
MAX_SOURCES = (1 << 16) - 1
"""The order of a candidate has 16 bits for its source entry."""
FRAMES_PER_LAUNCH = 2000
"""Most frames of an utterance per launch: it can be cancelled between launches."""
NARROW, WIDE = WARP, 4 * WARP
"""Threads of a block."""
NARROW_BEAM_SIZE, NARROW_TOKENS = 64, 256
"""Up to both, one warp searches an utterance; above, four do."""
OWN_BYTES, OWN_BYTES_OF_THREAD = 512, 45
"""Largest shared memory of a block's variables, and of each thread's, bytes."""
CANDIDATES_PER_ENTRY, FEWEST_TOKENS = 4, 256
MAX_WORDS_OF_NODE = (1 << 15) - 4
"""Most words that end at one node: limited by the order of a candidate."""

STRUCTS = read_structs(KERNELS / "layout.cuh", **logprobs.STRUCTS, **boosts.STRUCTS)
"""Records shared by host and kernels, by their names there."""
ENTRY, NODE, UTTERANCE = STRUCTS["Entry"], STRUCTS["Node"], STRUCTS["Utterance"]
COUNTS = ("frames", "active", "candidates", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: active entries, candidates, entries built, frames
with their arrays in shared memory, frames that left it."""
_U4: np.dtype = np.dtype("u4")
# The host ends utterances by the CPU's code, so the records must be equal.
for _ours, _theirs in ((ENTRY, CPU_ENTRY), (NODE, TRACE_NODE)):
    assert _ours.names == _theirs.names and _ours.itemsize == _theirs.itemsize


class TrieBlockShape(NamedTuple):
    """Threads of a block, and the lengths of its arrays in shared memory."""

    threads: int
    entries: int  # of a frontier; 0 if all arrays are in global memory
    candidates: int  # a power of two
    tokens: int  # that may begin

    @property
    def shared_bytes(self) -> int:
        """Size of these arrays in bytes."""
        shared = arrays_of(self.entries, self.candidates, self.tokens)
        return sum(length * dtype.itemsize for _, length, dtype in shared)


def form_for(beam_size: int, num_tokens: int) -> TrieBlockShape:
    """Choose the form of blocks for a beam size."""
    narrow = beam_size <= NARROW_BEAM_SIZE and num_tokens <= NARROW_TOKENS
    threads = NARROW if narrow else WIDE
    entries = max(WARP, 1 << (beam_size - 1).bit_length())
    candidates = CANDIDATES_PER_ENTRY * entries
    tokens = min(2 * num_tokens, max(candidates, FEWEST_TOKENS))
    return TrieBlockShape(threads, entries, candidates, tokens)


def arrays_of(
    entries: int, candidates: int, tokens: int
) -> list[tuple[str, int, np.dtype]]:
    """Return name, length and type of the arrays of a block, in their order."""
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
    """Compile-time features of a launch's kernels."""

    threads: int = NARROW  # of a block
    logprob_type: int = logprobs.MIXED  # of all chunks, or `MIXED`
    times: bool = False  # whether phases are timed

    @property
    def macros(self) -> Macros:
        """The compiler's macros."""
        flags = (("THREADS", self.threads), ("LOGPROB_TYPE", self.logprob_type))
        return flags + (("TIMES", 1),) * self.times


@functools.cache
def program(threads: int) -> Program:
    """Return the kernels of the search in blocks of `threads` threads."""
    return Program(
        "advance.cu",
        KERNELS,
        kernels=("advance_chunk", "gather_states"),
        own_bytes=OWN_BYTES + OWN_BYTES_OF_THREAD * threads,
        shared_bytes=lambda room: max(0, room),
        structs=STRUCTS,
        constants=logprobs.CONSTANTS
        | {
            "OK": OK,
            "GROW_SCRATCH": GROW_SCRATCH,
            "GROW_FRONTIER": GROW_FRONTIER,
            "GROW_TRACE": GROW_TRACE,
            "PAUSED": PAUSED,
            "NUM_TIMES": len(PHASES),
        },
    )


def task_of(params: SearchParams) -> np.ndarray:
    """Return TASK [1] with the options filled in."""
    task = np.zeros(1, STRUCTS["Task"])
    task["most_frames"] = FRAMES_PER_LAUNCH
    task["sums"], task["by_text"] = params.sums, params.by_text
    names = ("lm_scale", "word_insertion", "token_insertion")
    credits = ("begin_credit", "inside_credit", "end_credit", "instalment")
    counts = "beam_size", "token_top_k", "nbest"
    fill_options(task, params, counts, names + credits)
    return task


NARROWER = "lower beam_size or the beam"
"""Advice in the error for too little memory."""

FIRST_ENTRIES = 256
"""Initial capacity of a frontier in scratch."""
FormFor = Callable[[int, int], TrieBlockShape]


class Work(NamedTuple):
    """Blocks of one shape on a device, and the scratch of idle ones."""

    device: Device
    form: TrieBlockShape
    scratch: ScratchPool


class DeviceSpace:
    """Search space on a device; batches share scratch memory and phrases."""

    def __init__(
        self,
        space: SearchSpace,
        make_device: Callable[[TrieBlockShape], Device],
        first_entries: int = FIRST_ENTRIES,
        form_for: FormFor = form_for,
    ) -> None:
        self.space, self._make, self._first = space, make_device, first_entries
        self._form_for = form_for
        self._works: dict[TrieBlockShape, Work] = {}
        self.device = device = self.work(1).device
        self.phrases: WeakCache[PhraseBoosts, DevicePhrases]
        self.phrases = WeakCache(partial(DevicePhrases, device))
        self._arrays = DeviceArrays(
            device,
            _lexicon_arrays(space) | automaton_arrays(space.automaton),
            f"a trie of {space.trie.num_nodes} nodes and a language model of "
            f"{len(space.automaton.arc_cost)} n-grams",
            "prune the language model",
        )
        self.num_bytes = self._arrays.num_bytes

    def work(self, beam_size: int) -> Work:
        """Return blocks for a beam size; cached."""
        form = self._form_for(beam_size, self.space.num_tokens)
        if form not in self._works:
            device, counts = self._make(form), partial(_counts, self.space.num_tokens)
            layout = ScratchLayout(lambda n: arrays_of(*counts(n).values()), counts)
            pool = ScratchPool(device, layout, self._first, NARROWER)
            self._works[form] = Work(device, form, pool)
        return self._works[form]

    def fill_in(self, task: np.ndarray) -> None:
        """Set the fields of a TASK that describe the space."""
        space, automaton = self.space, self.space.automaton
        self._arrays.fill_in(task["lexicon"])
        self._arrays.fill_in(task["automaton"])
        task["lexicon"]["uses_history"] = space.lookahead.uses_history
        task["automaton"]["num_labels"] = automaton.model_label_splits[1]
        task["automaton"]["default_cost"] = automaton.model_default_cost[0]
        task["start_state"] = automaton.model_start[0]
        for name in ("num_tokens", "blank", "start_node", "has_lexicon"):
            task[name] = getattr(space, name)
        task["separator"] = space.separator & NONE
        task["separator_optional"] = space.separator_optional
        task["word_floor"] = space.word_floor


def _counts(num_tokens: int, entries: int) -> dict[str, int]:
    return {
        "entry_capacity": entries,
        "candidate_capacity": CANDIDATES_PER_ENTRY * (1 << (entries - 1).bit_length()),
        "token_capacity": 2 * num_tokens,  # half of them may be for the first entry
    }


def _lexicon_arrays(space: SearchSpace) -> dict[str, np.ndarray]:
    trie, lookahead = space.trie, space.lookahead
    integers = {
        "node_child_splits": trie.node_child_splits,
        "child_token": trie.child_token,
        "child_node": trie.child_node,
        "node_pron_splits": trie.node_pron_splits,
        "pron_word": trie.pron_word,
        "node_token": space.node_token,
        "root_child": space.root_child,
        "row_splits": lookahead.row_splits,
        "row_node": lookahead.rows["node"],
    }
    # -1 becomes `NONE`.
    return {
        name: x.astype(np.int64).astype(np.uint32) for name, x in integers.items()
    } | {
        "pron_cost": trie.pron_cost,
        "row_cost": np.ascontiguousarray(lookahead.rows["cost"]),
        "unigram_cost": lookahead.unigram_cost,
        "state_cost": lookahead.state_cost,
    }
