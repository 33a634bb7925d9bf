"""Choice of the backend for a batch by `"auto"`: the same bits from each.

    pace = Pace(cpu_us=3.6, gpu_us=9.5, setting="beam 13")     # of a search
    choice = choose(Batch(400, 150_000, 1_800, on_gpu=True), pace, machine)
    choice.backend, choice.why

The CPU, until a GPU has passed the tests on this machine. Then the CPU for a batch
no larger than the cores, and else whoever is predicted to be done first:

    CPU   frames * cpu_us / cores
    GPU   longest * gpu_us * turns + 10 us each
    both  and the log-probs' way to where they are not
"""

from __future__ import annotations

import functools
import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from wfstdec.boost.compile import BoostCompiler
from wfstdec.errors import BackendError
from wfstdec.search.backends import AUTO, make_backend
from wfstdec.search.decoder import Decoder

HOST_US = 10.0
"""Of an utterance after a search on a GPU, on the host."""
BYTES_PER_US = 10_000.0
"""Of log-probs between host and GPU."""
CPU, CUDA = "cpu", "cuda"
_DLPACK_CUDA = 2


class BackendChoice(NamedTuple):
    """Decision of `"auto"`, and why.

    Attributes:
        backend: `"cpu"` or `"cuda"`.
        why: The rule that decided, with its numbers.
    """

    backend: str
    why: str


class Batch(NamedTuple):
    """Size of what is to be decoded.

    Attributes:
        num_utterances: B.
        num_frames: Of all utterances.
        longest: Frames of the longest one.
        num_bytes: Of the log-probs.
        on_gpu: Whether these are on a GPU.
    """

    num_utterances: int
    num_frames: int
    longest: int
    num_bytes: int = 0
    on_gpu: bool = False


@dataclass(frozen=True)
class Machine:
    """Cores and GPU of this machine.

    Attributes:
        cores: Threads that decode side by side on the CPU.
        no_gpu: Why no GPU can be used; None where one can.
        gpu_blocks: Utterances that it searches side by side, in the blocks that a
            batch gets.
    """

    cores: int
    no_gpu: str | None
    gpu_blocks: int = 1


class Pace(NamedTuple):
    """Pace of a search with some options.

    Attributes:
        cpu_us: Microseconds of a frame on one core.
        gpu_us: Predicted, of a frame and block on a GPU.
        setting: The options that decide it, for messages.
    """

    cpu_us: float
    gpu_us: float
    setting: str


def choose(batch: Batch, pace: Pace, machine: Machine) -> BackendChoice:
    """The backend for a batch, and why."""
    if machine.no_gpu is not None:
        return BackendChoice(CPU, machine.no_gpu)
    # No prediction is asked: no thread has more than one utterance, and a thread of the
    # CPU is quicker by the frame.
    if batch.num_utterances <= machine.cores:
        return BackendChoice(
            CPU,
            f"a batch of {batch.num_utterances} is no larger than the {machine.cores} "
            "threads of the CPU, which are quicker by the frame",
        )
    on_cpu, on_gpu = cpu_s(batch, pace, machine), gpu_s(batch, pace, machine)
    better = CUDA if on_gpu < on_cpu else CPU
    where = "on the GPU" if batch.on_gpu else "on the host"
    return BackendChoice(
        better,
        f"{batch.num_utterances} utterances at {pace.setting} with log-probs {where}: "
        f"{1e3 * on_cpu:.1f} ms are predicted on the CPU, {1e3 * on_gpu:.1f} ms on the "
        "GPU",
    )


def cpu_s(batch: Batch, pace: Pace, machine: Machine) -> float:
    """Seconds that a batch is predicted to take on the CPU."""
    side_by_side = max(1, min(machine.cores, batch.num_utterances))
    way = batch.num_bytes / BYTES_PER_US if batch.on_gpu else 0.0
    return (batch.num_frames * pace.cpu_us / side_by_side + way) / 1e6


def gpu_s(batch: Batch, pace: Pace, machine: Machine) -> float:
    """Seconds that a batch is predicted to take on the GPU."""
    turns = max(batch.longest, batch.num_frames / max(1, machine.gpu_blocks))
    way = 0.0 if batch.on_gpu else batch.num_bytes / BYTES_PER_US
    return (pace.gpu_us * turns + HOST_US * batch.num_utterances + way) / 1e6


class AutoBackend:
    """The backends of what a decoder searches, of which each batch takes one.

    Args:
        searched: A graph or a search space.
        cores: Threads that decode side by side on the CPU.
        folder: The room of its search on a device, as a module: its `layout` has a
            `PROGRAM`, its `cuda` makes the backend by `backend_for`; that has `shape`,
            the blocks of a batch.
    """

    def __init__(self, searched: Any, cores: int, folder: str) -> None:
        self._searched, self._cores, self._folder = searched, cores, folder

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it is made of: another machine is looked at anew."""
        return AutoBackend, (self._searched, self._cores, self._folder)

    @functools.cached_property
    def why_no_gpu(self) -> str | None:
        """Why no GPU can be used; None where one has passed the tests."""
        verified = importlib.import_module("wfstdec.gpu.verified")
        layout = importlib.import_module(f"{self._folder}.layout")
        return verified.why_not(layout.PROGRAM)

    @functools.cached_property
    def machine(self) -> Machine:
        """Look what there is; for a GPU when this is asked first."""
        return Machine(self._cores, self.why_no_gpu)

    @functools.cached_property
    def cuda(self) -> Any:
        """The backend on the GPU, where `machine` has one."""
        cuda = importlib.import_module(f"{self._folder}.cuda")
        return cuda.backend_for(self._searched)

    def choose(
        self, batch: Batch, options: Any, pace_of: Callable[[int | None], Pace]
    ) -> BackendChoice:
        """The backend for a batch, by the blocks that it gets; see `choose`.

        Args:
            batch: Its size.
            options: Of the search.
            pace_of: Gives the pace in blocks of so many threads; None: on no GPU.
        """
        machine, threads = self.machine, None
        if machine.no_gpu is None:
            shape = self.cuda.shape(batch.num_utterances, options)
            machine = replace(machine, gpu_blocks=shape.num_blocks)
            threads = shape.threads
        return choose(batch, pace_of(threads), machine)


def batch_of(logprobs: Any, lengths: Any) -> Batch:
    """The size of what `decode` was given, and where it is; nothing is checked."""
    arrays = list(logprobs) if isinstance(logprobs, list | tuple) else [logprobs]
    shapes = [tuple(getattr(array, "shape", ())) for array in arrays]
    if len(arrays) == 1 and len(shapes[0]) == 3:
        counts = [shapes[0][1]] * shapes[0][0]
    else:
        counts = [shape[0] if shape else 0 for shape in shapes]
    if isinstance(lengths, list | tuple):
        counts = [int(one) for one in lengths]
    numbers = sum(math.prod(shape) for shape in shapes)
    size = getattr(getattr(arrays[0], "dtype", None), "itemsize", 4) if arrays else 4
    device = getattr(arrays[0], "__dlpack_device__", None) if arrays else None
    on_gpu = device is not None and device()[0] == _DLPACK_CUDA
    longest = max(counts, default=0)
    return Batch(len(counts), sum(counts), longest, numbers * size, on_gpu)


_Chunk = TypeVar("_Chunk")
_Found = TypeVar("_Found")


class ChoosingDecoder(Decoder[_Chunk, _Found]):
    """A decoder for which `"auto"` chooses the backend of each batch.

    Args:
        options: As of `Decoder`.
        backend: The name of one.
        searched: The graph, or the search space.
        boosts: As of `Decoder`.
        others: As of `Decoder`.

    Attributes:
        last_choice: What `"auto"` chose for the last batch, and why; None before.
    """

    _backends: ClassVar[Mapping[str, str]]
    _room: ClassVar[str]
    """The room of its search on a device; see `AutoBackend`."""

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
        self._auto: AutoBackend | None = None
        if backend == AUTO:
            self._auto = AutoBackend(searched, self.threads, self._room)
        self.last_choice: BackendChoice | None = None

    def choose_backend(
        self,
        num_utterances: int,
        num_frames: int,
        *,
        longest: int | None = None,
        on_gpu: bool = False,
    ) -> BackendChoice:
        """The backend that `"auto"` takes for a batch, and why; decodes nothing.

        The CPU until a GPU has passed the tests on this machine (`pytest -m gpu`); then
        for what no GPU searches, for batches no larger than its threads, and where it
        is predicted to be quicker.

        Args:
            num_utterances: Utterances of the batch.
            num_frames: Frames of all of them.
            longest: Frames of the longest; `None` where all are as long.
            on_gpu: Whether their log-probs are on the GPU.

        Raises:
            BackendError: The decoder was made with a backend by name.
        """
        if self._auto is None:
            raise BackendError(
                "this decoder has a backend by name, expected backend='auto' for a "
                "choice"
            )
        most = longest or -(-num_frames // max(1, num_utterances))
        num_bytes = 4 * num_frames * len(self.tokens)
        batch = Batch(num_utterances, num_frames, most, num_bytes, on_gpu)
        return self._choice(self._auto, batch, lambda: [])

    @abstractmethod
    def _choice(
        self, auto: AutoBackend, batch: Batch, boosts: Callable[[], Any]
    ) -> BackendChoice:
        """Choose the backend of a batch whose `CompiledBoosts` are made when asked."""

    def _taken(self, logprobs: Any, lengths: Any, boosts: Any) -> tuple[Any, Any]:
        """Choose the backend of a batch; `"auto"` leaves it in `last_choice`."""
        if self._auto is None:
            return self._backend, logprobs
        if not isinstance(logprobs, list | tuple) and not hasattr(logprobs, "shape"):
            logprobs = list(logprobs)
        batch = batch_of(logprobs, lengths)
        self.last_choice = self._choice(
            self._auto, batch, lambda: self._compiled(boosts, batch.num_utterances)
        )
        is_cpu = self.last_choice.backend == CPU
        return self._backend if is_cpu else self._auto.cuda, logprobs
