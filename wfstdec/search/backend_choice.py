"""The backend that `"auto"` takes for a batch; the results have the same bits.

CUDA for log-probs on a GPU, and for batches of a size for which it was measured to be
faster than the CPU; the CPU for all others, and where no GPU can search them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from wfstdec.boost.compile import BoostCompiler
from wfstdec.errors import BackendError, WfstdecError
from wfstdec.search.backend import AUTO, make_backend
from wfstdec.search.decoder import Decoder

CPU, CUDA = "cpu", "cuda"
SMALL_V = 64
MIN_BATCH = {("wfst", True): 32, ("trie", False): 32}
"""Utterances from which CUDA was faster than 16 threads of the CPU, by search and
whether V is at most `SMALL_V`: one H200, 2026-11-26 (docs/gpu.md). Others: the CPU."""
_DLPACK_CUDA = 2


class BackendChoice(NamedTuple):
    """Decision of `"auto"`: `"cpu"` or `"cuda"`, and the rule that decided."""

    backend: str
    why: str


class _OnGpu:
    """The model on the GPU, put there when it is first used."""

    def __init__(self, room: str, searched: Any) -> None:
        self.room, self.searched = room, searched

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: another machine may have a GPU or none."""
        return _OnGpu, (self.room, self.searched)

    @functools.cached_property
    def backend(self) -> Any:
        """The backend on the GPU, or the reason that there is none."""
        try:
            module = importlib.import_module(f"{self.room}.backend")
            return module.backend_for(self.searched)
        except WfstdecError as error:
            return error


_Chunk = TypeVar("_Chunk")
_Found = TypeVar("_Found")


class ChoosingDecoder(Decoder[_Chunk, _Found]):
    """A decoder for which `"auto"` chooses the backend of each batch.

    Attributes:
        last_choice: What `"auto"` chose for the last batch, and why; None before.
    """

    _backends: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        options: Any,
        backend: str,
        searched: Any,
        boosts: BoostCompiler,
        **others: Any,
    ) -> None:
        made = make_backend(self._backends, backend, searched)
        super().__init__(options, made, boosts, **others)
        self._gpu: _OnGpu | None = None
        if backend == AUTO:
            self._gpu = _OnGpu(self._backends[CUDA].rpartition(".")[0], searched)
        self.last_choice: BackendChoice | None = None

    def choose_backend(
        self, num_utterances: int, *, on_gpu: bool = False
    ) -> BackendChoice:
        """The backend that `"auto"` takes for a batch, and why; decodes nothing.

        Args:
            num_utterances: Utterances of the batch.
            on_gpu: Whether their log-probs are on the GPU.

        Raises:
            BackendError: The decoder was made with a backend by name.
        """
        if self._gpu is None:
            raise BackendError(
                "this decoder has a backend by name, expected backend='auto' for a "
                "choice"
            )
        return self._choice(self._gpu, num_utterances, on_gpu, lambda: [])

    def _choice(
        self, gpu: _OnGpu, count: int, on_gpu: bool, boosts: Callable[[], Any]
    ) -> BackendChoice:
        search, small = gpu.room.split(".")[1], len(self.tokens) <= SMALL_V
        least = MIN_BATCH.get((search, small))
        if not on_gpu and (least is None or count < least):
            wanted = "no batch" if least is None else f"batches of {least} or more"
            return BackendChoice(
                CPU,
                f"{count} utterances with V={len(self.tokens)}: CUDA was measured to "
                f"be faster for {wanted}",
            )
        if isinstance(gpu.backend, WfstdecError):
            return BackendChoice(CPU, str(gpu.backend))
        if (why := self._why_not_on_gpu(boosts())) is not None:
            return BackendChoice(CPU, f"backend 'cuda': {why}")
        where = "log-probs on the GPU" if on_gpu else f"a batch of {count}"
        return BackendChoice(CUDA, where)

    def _why_not_on_gpu(self, boosts: Any) -> str | None:
        """Why no GPU searches with the options and boosts; None where one does."""
        return None

    def _taken(self, logprobs: Any, lengths: Any, boosts: Any) -> tuple[Any, Any]:
        if self._gpu is None:
            return self._backend, logprobs
        if not isinstance(logprobs, list | tuple) and not hasattr(logprobs, "shape"):
            logprobs = list(logprobs)
        count, on_gpu = batch_of(logprobs)
        self.last_choice = self._choice(
            self._gpu, count, on_gpu, lambda: self._compiled(boosts, count)
        )
        is_cpu = self.last_choice.backend == CPU
        return self._backend if is_cpu else self._gpu.backend, logprobs


def batch_of(logprobs: Any) -> tuple[int, bool]:
    """The number of utterances of a batch, and whether they are on a GPU."""
    arrays = list(logprobs) if isinstance(logprobs, list | tuple) else [logprobs]
    count = len(arrays)
    if count == 1 and len(getattr(arrays[0], "shape", ())) == 3:
        count = arrays[0].shape[0]
    device = getattr(arrays[0], "__dlpack_device__", None) if arrays else None
    return count, device is not None and device()[0] == _DLPACK_CUDA
