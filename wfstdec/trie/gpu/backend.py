"""Trie search on a CUDA device by CuPy; options that only the CPU supports.

backend = CudaBackend(space)                      # the current CUDA device
backend.decode(utterances, options, boosts)       # paths per utterance
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import OptionError
from wfstdec.gpu.backend import BatchingBackend
from wfstdec.gpu.cuda_arrays import TakesGpuArrays
from wfstdec.gpu.cupy_device import CupyDevice, free_shared, load_cupy
from wfstdec.gpu.device import Device, ScratchPool
from wfstdec.gpu.logprobs import FLOAT32, Chunk
from wfstdec.lm.on_demand import OnDemandLM
from wfstdec.search.threads import ALONE, MEMORY_PLANS, Read, Workers
from wfstdec.trie.cpu.backend import CpuBackend
from wfstdec.trie.gpu.batch import DeviceBatch, DeviceSession, utterance_bytes
from wfstdec.trie.gpu.layout import (
    FIRST_ENTRIES,
    MAX_BEAM_SIZE,
    MAX_SOURCES,
    MAX_WORDS_OF_NODE,
    DeviceSpace,
    FormFor,
    TrieBlockShape,
    Variant,
    form_for,
    program,
)
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace


def why_not_space(space: SearchSpace) -> str | None:
    """Return why a device cannot search a space; None where it can."""
    if isinstance(space.automaton, OnDemandLM):
        return (
            "a language model that is queried during the search, expected one whose "
            "n-grams can be listed, or none"
        )
    if space.open.is_open:
        return "an open vocabulary, expected none"
    most = int(np.diff(space.trie.node_pron_splits).max(initial=0))
    if most > MAX_WORDS_OF_NODE:
        return f"{most:,} homophones, expected at most {MAX_WORDS_OF_NODE:,}"
    return None


def why_not(options: TrieOptions, boosts: CompiledBoosts | None = None) -> str | None:
    """Return why a device does not support options or boosts; None where it does."""
    if options.beam_size > MAX_BEAM_SIZE:
        return f"beam_size={options.beam_size}, expected at most {MAX_BEAM_SIZE}"
    has_texts = options.merge == "sum" or options.nbest > 1
    if has_texts and 2 * options.nbest * options.beam_size > MAX_SOURCES:
        most = MAX_SOURCES // (2 * options.beam_size)
        return (
            f"nbest={options.nbest} with beam_size={options.beam_size}, "
            f"expected nbest of at most {most}"
        )
    if boosts is not None and boosts.oov is not None:
        return f"OOV word {boosts.oov.words[0]!r}, expected none"
    return None


def _refuse(why: str | None, utterance: int | None = None) -> None:
    if why is not None:
        error = OptionError(f"backend 'cuda': {why}; use backend='cpu'")
        error.utterance = utterance
        raise error


class DeviceBackend(BatchingBackend):
    """A search space on a device."""

    can = frozenset({MEMORY_PLANS})

    def __init__(
        self,
        space: SearchSpace,
        make_device: Callable[[TrieBlockShape], Device],
        first_entries: int = FIRST_ENTRIES,
        form_for: FormFor = form_for,
    ) -> None:
        _refuse(why_not_space(space))
        self.space, self._cpu = space, CpuBackend(space)
        self.num_tokens = space.num_tokens
        self.device_space = DeviceSpace(space, make_device, first_entries, form_for)
        self.device = self.device_space.device
        self.model_bytes = self.device_space.num_bytes

    def prepare(self, options: TrieOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts for the host; the first batch copies them to the device."""
        self._cpu.prepare(options, boosts)

    def start(
        self, options: TrieOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> DeviceSession:
        """Begin an utterance that arrives in chunks."""
        assert not record
        _refuse(why_not(options, boosts))
        return DeviceSession(self.device_space, self._cpu, options, boosts)

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
        """Decode whole utterances, if a device supports all of them."""
        for i, one in enumerate(boosts):
            _refuse(why_not(options, one), i)
        return super().decode(utterances, options, boosts, record=record, read=read)

    def batch(
        self,
        options: TrieOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int],
        record: bool,
    ) -> DeviceBatch:
        """Create a batch of whole utterances."""
        assert not record
        return DeviceBatch(self.device_space, self._cpu, options, boosts, lengths)

    def pool(self, options: TrieOptions) -> ScratchPool:
        """Return the scratch for the beam size."""
        return self.device_space.work(options.beam_size).scratch

    def utterance_bytes(
        self, num_frames: int | None, options: TrieOptions, record: bool = False
    ) -> int:
        """Return bytes of an utterance for the beam size."""
        return utterance_bytes(
            self.device_space.work(options.beam_size).form, num_frames
        )


class CudaBackend(TakesGpuArrays, DeviceBackend):
    """A search space on the current CUDA device."""

    def __init__(self, space: SearchSpace) -> None:
        super().__init__(space, device_of)

    def __reduce__(self) -> tuple[Any, ...]:
        return backend_for, (self.space,)


def backend_for(space: SearchSpace) -> CudaBackend:
    """Return the space on the current CUDA device."""
    return CudaBackend(space)


def device_of(form: TrieBlockShape) -> CupyDevice:
    """Return the current CUDA device, for blocks of a form."""
    # Their arrays are in global memory if they do not fit in shared memory.
    kernels = program(form.threads)
    limits = load_cupy().cuda.Device().attributes
    room = free_shared(limits, kernels.own_bytes, 1)
    shared_bytes = form.shared_bytes if form.shared_bytes <= room else 0
    variant = Variant(form.threads, FLOAT32)
    return CupyDevice(kernels, form.threads, shared_bytes, variant.macros)
