"""Which backends the WFST decoder has; nothing else chooses."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wfstdec.boost.words import WordBoosts
from wfstdec.errors import BackendError
from wfstdec.graph import PackedGraph
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath

BACKENDS = {
    "reference": ("wfstdec.wfst.reference", "ReferenceBackend"),
    "cpu": ("wfstdec.wfst.cpu", "CpuBackend"),
    "cuda": ("wfstdec.wfst.cuda", "CudaBackend"),
}
"""Name to module and class."""


class Search(Protocol):
    """One utterance under way."""

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""

    def finish(self) -> BestPath:
        """End the utterance."""


class Backend(Protocol):
    """A graph, laid out for one kind of machine."""

    def start(self, options: DecodeOptions, boosts: WordBoosts) -> Search:
        """Begin an utterance."""


class Batch(Protocol):
    """Utterances under way side by side."""

    def advance(self, chunks: Sequence[Any]) -> None:
        """Pass each utterance through its chunk, float32 [T, V]."""

    def finish(self) -> list[BestPath]:
        """End all utterances."""


@runtime_checkable
class BatchBackend(Protocol):
    """A backend that takes many utterances at a time, arrays on its device."""

    def as_utterances(self, logprobs: Any, lengths: Any, num_tokens: int) -> list[Any]:
        """As `wfstdec.inputs.as_utterances`; arrays may stay on the device."""

    def start_batch(
        self, options: DecodeOptions, boosts: Sequence[WordBoosts]
    ) -> Batch:
        """Begin utterances, each with its own boosts."""

    def decode_batch(
        self,
        utterances: Sequence[Any],
        options: DecodeOptions,
        boosts: Sequence[WordBoosts],
    ) -> list[BestPath]:
        """Whole utterances."""


def make_backend(name: str, graph: PackedGraph) -> Backend:
    """The backend of that name for a graph; `"auto"` is the CPU.

    `"cuda"` has to be asked for by name: its kernels have run in emulation only.

    Raises:
        BackendError: No such backend.
    """
    if name == "auto":
        name = "cpu"
    if name not in BACKENDS:
        known = ", ".join(map(repr, ("auto", *BACKENDS)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, kind = BACKENDS[name]
    return getattr(importlib.import_module(module), kind)(graph)
