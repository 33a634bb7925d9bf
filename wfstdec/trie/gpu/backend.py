"""The trie search on a device; what it leaves to the CPU.

backend = DeviceBackend(space, make_device)
backend.decode(utterances, options, boosts)       # paths per utterance
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import OptionError
from wfstdec.gpu.backend import BatchingBackend
from wfstdec.gpu.device import Device
from wfstdec.gpu.logprobs import Chunk
from wfstdec.lm.on_demand import LazyLM
from wfstdec.search.contract import MEMORY_PLANS, Read
from wfstdec.search.scheduling import ALONE, Workers
from wfstdec.trie.cpu.backend import CpuBackend
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.batch import DeviceBatch, DeviceSession, utterance_bytes
from wfstdec.trie.gpu.device_space import FIRST_ENTRIES, DeviceSpace, FormFor, Work
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace


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


class DeviceBackend(BatchingBackend):
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
        self.num_tokens = space.num_tokens
        self.device_space = DeviceSpace(space, make_device, first_entries, form_for)
        self.device = self.device_space.device

    @property
    def model_bytes(self) -> int:
        """Bytes that the space takes."""
        return self.device_space.num_bytes

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
        """Decode whole utterances, once none asks for what only the CPU does."""
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
        """Make a batch of whole utterances."""
        assert not record
        return DeviceBatch(self.device_space, self._cpu, options, boosts, lengths)

    def blocks(self, options: TrieOptions) -> Work:
        """Blocks of the beam's form."""
        return self.device_space.work(options.beam_size)

    def utterance_bytes(
        self, num_frames: int | None, options: TrieOptions, record: bool = False
    ) -> int:
        """Bytes of an utterance, by the beam's form."""
        return utterance_bytes(self.blocks(options).form, num_frames)
