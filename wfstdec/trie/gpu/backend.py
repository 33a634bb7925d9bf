"""The trie search on a device: batches, cut to its memory; what it leaves to the CPU.

    backend = DeviceBackend(space, make_device)
    backend.decode(utterances, options, boosts)       # paths per utterance
    session = backend.start(options, boosts[0])       # or as they come in

`boosts` is one `CompiledBoosts` per utterance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import OptionError
from wfstdec.gpu.batch import advance_together
from wfstdec.gpu.device import BlockShape, Device, shape_for
from wfstdec.gpu.logprobs import Chunk
from wfstdec.gpu.parts import decode_parts, parts_that_fit
from wfstdec.lm.on_demand import LazyLM
from wfstdec.search.contract import MEMORY_PLANS, Read
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.scheduling import ALONE, Workers
from wfstdec.trie.cpu.backend import CpuBackend
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.batch import (
    DeviceBatch,
    DeviceSession,
    utterance_bytes,
)
from wfstdec.trie.gpu.device_space import FIRST_ENTRIES, DeviceSpace, FormFor
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace

_LOGPROB_BYTES = 4


def why_not_space(space: SearchSpace) -> str | None:
    """Why a space is not searched on a device; None where it is.

    Args:
        space: The space.
    """
    if isinstance(space.automaton, LazyLM):
        return (
            "a language model that is asked as the search goes, expected one whose "
            "n-grams can be listed, or none"
        )
    if space.open.is_open:
        return "an open vocabulary, expected none"
    most = int(np.diff(space.trie.node_pron_splits).max(initial=0))
    if most > d.MAX_WORDS_OF_NODE:
        return (
            f"{most:,} words that are said alike, expected at most "
            f"{d.MAX_WORDS_OF_NODE:,}"
        )
    return None


def why_not(options: TrieOptions, boosts: CompiledBoosts | None = None) -> str | None:
    """Why options or boosts are not for a device; None where they are.

    Args:
        options: Of the search.
        boosts: Of an utterance.
    """
    if options.beam_size > d.MAX_BEAM_SIZE:
        return f"beam_size={options.beam_size}, expected at most {d.MAX_BEAM_SIZE}"
    if boosts is not None and boosts.added is not None:
        return f"OOV word {boosts.added.words[0]!r}, expected none"
    return None


def _refuse(why: str | None, utterance: int | None = None) -> None:
    """Raise where there is a reason.

    Raises:
        OptionError: Names the CPU.
    """
    if why is not None:
        error = OptionError(f"backend 'cuda': {why}; use backend='cpu'")
        error.utterance = utterance
        raise error


class DeviceBackend:
    """A search space on a device.

    Args:
        space: The space.
        make_device: Makes the device for blocks of a form.
        first_entries: Entries of frontiers that scratch has room for at first.
        form_for: Chooses the form for a beam size and a number of tokens.

    Raises:
        DeviceMemoryError: The space does not fit.
        OptionError: It has what only the CPU does.
    """

    can = frozenset({MEMORY_PLANS})

    def __init__(
        self,
        space: SearchSpace,
        make_device: Callable[[d.Form], Device],
        first_entries: int = FIRST_ENTRIES,
        form_for: FormFor = d.form_for,
    ) -> None:
        _refuse(why_not_space(space))
        self.space, self._cpu = space, CpuBackend(space)
        self.device_space = DeviceSpace(space, make_device, first_entries, form_for)
        self.device = self.device_space.device

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[Chunk]:
        """Check log-probs, as `Backend.inputs`; arrays may stay on the device."""
        return as_utterances(logprobs, lengths, self.space.num_tokens)

    def prepare(self, options: TrieOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts for the host; they go to the device with the first batch."""
        self._cpu.prepare(options, boosts)

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> DeviceSession:
        """Begin an utterance that comes in chunks.

        Raises:
            OptionError: Options or boosts ask for what only the CPU does.
        """
        assert not record
        _refuse(why_not(options, boosts))
        return DeviceSession(self.device_space, self._cpu, options, boosts)

    def advance(
        self,
        searches: Sequence[DeviceSession],
        chunks: Sequence[Chunk],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Pass sessions of one decoder through a chunk each, in one launch.

        Raises:
            DeviceMemoryError: The device's memory does not suffice.
            LogprobError: A number is no log-prob; no session has moved.
        """
        advance_together(searches, chunks, names)

    def decode(
        self,
        utterances: Sequence[Chunk],
        options: TrieOptions,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, [T, V], in as many parts as memory asks for.

        Raises:
            OptionError: Options or boosts ask for what only the CPU does.
            DeviceMemoryError: Not even one utterance fits.
            LogprobError: A number is no log-prob: the first utterance that has one.
            DeviceError: The device failed; has the paths of the parts that were done.
        """
        assert not record
        for i, one in enumerate(boosts):
            _refuse(why_not(options, one), i)

        def decode(part: Sequence[int]) -> list[Any]:
            chunks, given = [utterances[i] for i in part], [boosts[i] for i in part]
            lengths = [len(chunk) for chunk in chunks]
            batch = DeviceBatch(self.device_space, self._cpu, options, given, lengths)
            batch.advance(chunks)
            return batch.finish()

        lengths = [len(one) for one in utterances]
        return decode_parts(self.device, self._parts(lengths, options), decode, read)

    def memory_plan(
        self, num_utterances: int, num_frames: int | None, options: TrieOptions
    ) -> dict[str, int]:
        """Plan the memory of a batch, bytes; see `Decoder.memory_plan`."""
        work = self.device_space.work(options.beam_size)
        pool, shape = work.scratch, self.shape(num_utterances, options)
        blocks = min(num_utterances, shape.num_blocks)
        frame = self.space.num_tokens * _LOGPROB_BYTES
        plan = {
            "graph": self.device_space.num_bytes,
            "scratch": pool.layout.num_bytes(blocks, pool.entries),
            "utterances": num_utterances * utterance_bytes(work.form, num_frames),
            "logprobs": num_utterances * (num_frames or 0) * frame,
        }
        return plan | {"total": sum(plan.values()), "limit": work.device.budget.limit}

    def shape(self, num_utterances: int, options: TrieOptions) -> BlockShape:
        """Blocks that search so many utterances: those of the beam's form."""
        work = self.device_space.work(options.beam_size)
        return shape_for(work.device.shapes, num_utterances)

    def _parts(self, lengths: list[int], options: TrieOptions) -> Any:
        """Utterances that fit side by side by the plan, the longest first."""
        work = self.device_space.work(options.beam_size)
        pool, frame = work.scratch, self.space.num_tokens * _LOGPROB_BYTES
        return parts_that_fit(
            lengths,
            work.device.budget.left + pool.num_bytes,
            lambda n: utterance_bytes(work.form, n) + n * frame,
            pool.layout.num_bytes(1, pool.entries),
            self.shape(len(lengths), options).num_blocks,
        )
