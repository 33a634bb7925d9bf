"""The GPU as a benchmark sees it: arrays on it, times by its clock, its bandwidth.

gpu = Gpu()                                          # tests have one that is none
batch = gpu.upload(arrays, "float32")                # padded, [B, T, V]
timing = gpu.time(lambda: decoder.decode(*batch), repeats=5)
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from tools.bench.report import Row
from tools.peers.riva import pad
from wfstdec.gpu.cupy_device import CupyDevice
from wfstdec.graph.packed import PackedGraph
from wfstdec.trie.gpu.backend import DeviceBackend as TrieBackend
from wfstdec.trie.gpu.backend import backend_for
from wfstdec.trie.search_space import SearchSpace
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.gpu.backend import CudaBackend
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM
from wfstdec.wfst.options import WfstOptions

COPIED_MIB = 1024


class Padded(NamedTuple):
    """A batch as acoustic models give it: [B, T, V] on the GPU, [B] on the host."""

    logprobs: Any
    lengths: np.ndarray


class Timing(NamedTuple):
    """Seconds of every repetition, by CUDA events and on the wall."""

    event_s: list[float]
    wall_s: list[float]

    @property
    def median_s(self) -> float:
        """The median by events."""
        return median(self.event_s)


class Gpu:
    """The current CUDA device, by CuPy.

    Raises:
        BackendError: There is none, or it does not load the kernels. That is known
            before a graph is built.
    """

    def __init__(self) -> None:
        self._cupy = CupyDevice(PROGRAM, macros=PLAIN.macros).cupy
        self._backends: dict[tuple[int, int], CudaBackend] = {}
        self._tries: dict[int, TrieBackend] = {}

    def describe(self) -> Row:
        """Facts that figures depend on, the bandwidth of a copy measured."""
        cupy, runtime = self._cupy, self._cupy.cuda.runtime
        found = runtime.getDeviceProperties(cupy.cuda.Device().id)
        source = cupy.zeros(COPIED_MIB << 20, cupy.uint8)
        target = cupy.empty_like(source)
        timing = self.time(lambda: cupy.copyto(target, source), 10)
        return {
            "gpu": found["name"].decode(),
            "multiprocessors": found["multiProcessorCount"],
            "compute_capability": f"{found['major']}.{found['minor']}",
            "memory_gib": round(found["totalGlobalMem"] / 2**30, 1),
            "l2_mib": round(found["l2CacheSize"] / 2**20, 1),
            "driver": runtime.driverGetVersion(),
            "cuda": runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
            "copy_gb_per_s": round(2 * source.nbytes / timing.median_s / 1e9, 1),
        }

    def decoder(
        self,
        graph: PackedGraph,
        options: WfstOptions,
        *,
        frame_shift_s: float,
        threads: int,
    ) -> WfstDecoder:
        """Ours, by the number of threads in a block."""
        # One that lays nothing out: the backend is put in its place.
        decoder = WfstDecoder(graph, options, "cpu", frame_shift_s=frame_shift_s)
        key = id(graph), threads
        if key not in self._backends:
            self._backends[key] = CudaBackend(graph, threads)
        decoder._backend = self._backends[key]
        return decoder

    def trie_backend(self, space: SearchSpace) -> Any:
        """The trie's backend of a space, made once."""
        if id(space) not in self._tries:
            self._tries[id(space)] = backend_for(space)  # has the space: its id stays
        return self._tries[id(space)]

    def tensor(self, array: Any) -> Any:
        """Numbers as a tensor of torch's on the device, for peers."""
        torch = importlib.import_module("torch")
        found = torch.as_tensor(array).cuda()
        torch.cuda.synchronize()
        return found

    def upload(self, arrays: Sequence[np.ndarray], dtype: str) -> Padded:
        """A padded batch; done when it returns."""
        batch = padded(arrays, dtype)
        on_gpu = self._cupy.asarray(batch.logprobs)
        self._cupy.cuda.Device().synchronize()
        return batch._replace(logprobs=on_gpu)

    def time(self, run: Callable[[], Any], repeats: int) -> Timing:
        """Run once to warm up, then time."""
        event = self._cupy.cuda.Event
        run()
        timing = Timing([], [])
        for _ in range(repeats):
            gc.collect()
            self._cupy.cuda.Device().synchronize()
            start, end = event(), event()
            begin = time.perf_counter()
            start.record()
            run()
            end.record()
            end.synchronize()
            timing.wall_s.append(time.perf_counter() - begin)
            timing.event_s.append(self._cupy.cuda.get_elapsed_time(start, end) / 1e3)
        return timing

    def release(self) -> None:
        """Give the memory back that we and CuPy keep, for another decoder."""
        self._backends.clear()
        self._tries.clear()
        gc.collect()
        self._cupy.get_default_memory_pool().free_all_blocks()


def padded(arrays: Sequence[np.ndarray], dtype: str) -> Padded:
    """A batch of a type, on the host."""
    logprobs, lengths = pad(arrays)
    return Padded(logprobs.astype(dtype), lengths)
