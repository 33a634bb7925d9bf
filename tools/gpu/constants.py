"""Time of a search's parts on a GPU: the constants of `tools.gpu.model`.

for name, measure in MEASURES.items():
    figures = measure(machine, cupy)         # by name; AssertionError: it did not work

Each kernel leaves an answer besides its times, so that what is timed was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tools.gpu.probe_program import (
    LINE,
    OF_L1,
    OF_L2,
    OF_SHARED,
    SMALL,
    TASK,
    TIMED,
    Machine,
)
from wfstdec.gpu.device import Grid, launch, upload

Figures = dict[str, float]
"""What was measured, in the unit that its name ends in, by name."""
BLOCKS = (32, 64, 128, 256, 512)
GRAPH_KERNELS = 70
"""Those of a frame of the peer's search, one after the other."""
COPIED = {"4 KiB": 4 << 10, "16 MiB": 16 << 20}
_BARRIERS, _LOADS, _ATOMICS, _LINES = 20_000, 4096, 500, 8192
_REPEATS = 50


def barriers(machine: Machine, cupy: Any) -> Figures:
    """A barrier of a block, by its threads."""
    figures: Figures = {}
    for threads in BLOCKS:
        back = {"times": np.zeros(2, np.uint64)}
        found = machine.run("time_barriers", threads, back, steps=_BARRIERS)["times"]
        figures[f"{threads} threads, ns"] = _each(found[1], _BARRIERS)
        figures[f"{threads} threads, cycles"] = _each(found[0], _BARRIERS)
    return figures


def loads(machine: Machine, cupy: Any) -> Figures:
    """A load that waits for the one before: shared memory, L1, L2 and memory."""
    number = cupy.cuda.Device().id
    l2_bytes = cupy.cuda.runtime.getDeviceProperties(number)["l2CacheSize"]
    sizes = {
        "shared": (SMALL, OF_SHARED),
        "L1": (SMALL, OF_L1),
        "L2": (1 << 18, OF_L2),
        "memory": (l2_bytes, OF_L2),  # words: four times the cache
    }
    figures: Figures = {}
    for name, (count, place) in sizes.items():
        chain = _chain(count, LINE if place == OF_L2 else 1)
        cycles, ns, last = _walk(machine, chain, place, name == "memory")
        assert last == _end_of(chain, _LOADS), f"{name}: another way was gone"
        figures[f"{name}, ns"] = _each(ns, _LOADS)
        figures[f"{name}, cycles"] = _each(cycles, _LOADS)
    return figures


def _chain(count: int, stride: int) -> np.ndarray:
    """Words [count], each the index of another: one way through all at a stride."""
    order = np.random.default_rng(7).permutation(count // stride).astype(np.uint32)
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0])) * np.uint32(stride)
    chain = np.zeros(count, np.uint32)
    chain[order] = np.roll(order, -1)
    return chain


def _end_of(chain: np.ndarray, steps: int) -> int:
    at = 0
    for _ in range(steps):
        at = int(chain[at])
    return at


def _walk(
    machine: Machine, chain: np.ndarray, place: int, cold: bool
) -> tuple[int, int, int]:
    """Cycles and nanoseconds of a walk, and where it ends.

    A cold one finds other words in the cache; else it is gone twice, and the second
    one counts.
    """
    device = machine.device(32)
    words = upload(device, chain)
    other_words = np.zeros_like(chain if cold else chain[:1])
    others = upload(device, other_words)  # lives on, so that it is not given out again
    device.wait()
    task = np.zeros(1, TASK)
    task["words"], task["count"] = device.address(words), len(chain)
    task["steps"], task["place"] = _LOADS, place
    back = {"times": np.zeros(2, np.uint64), "found": np.zeros(1, np.uint32)}
    for _ in range(1 if cold else 2):
        found = launch(device, Grid("time_loads", 1), task, back)
    del others
    return int(found["times"][0]), int(found["times"][1]), int(found["found"][0])


def lines(machine: Machine, cupy: Any) -> Figures:
    """A load of a line of L2, near and far: the cache has two halves on large GPUs."""
    count = _LINES * LINE
    back = {
        "words": np.zeros(count, np.uint32),
        "times": np.zeros(2 + _LINES, np.uint64),
        "found": np.ones(1, np.uint32),
    }
    found = machine.run("time_lines", 32, back, count=count)
    assert found["found"][0] == 0, "a load that was not of the lines"
    cycles, ns = (float(x) for x in found["times"][:2])
    each = np.sort(found["times"][2:].astype(np.float64)) / TIMED
    figures: Figures = {}
    for name, share in {"near": 0.1, "median": 0.5, "far": 0.9}.items():
        at = float(each[int(share * _LINES)])
        figures[f"{name}, cycles"] = round(at, 1)
        figures[f"{name}, ns"] = round(at * ns / cycles, 2) if cycles else 0.0
    return figures


def atomics(machine: Machine, cupy: Any) -> Figures:
    """An atomic on one word of shared memory that all threads of a block lower."""
    figures: Figures = {}
    for threads in BLOCKS:
        back = {"times": np.zeros(4, np.uint64), "found": np.ones(2, np.uint32)}
        found = machine.run("time_atomics", threads, back, steps=_ATOMICS)
        assert not found["found"].any(), "a word is not the least that was put there"
        for name, ns in {"u64": found["times"][1], "u32": found["times"][3]}.items():
            figures[f"{name}, {threads} threads, ns"] = _each(ns, _ATOMICS * threads)
    return figures


def launches(machine: Machine, cupy: Any) -> Figures:
    """An empty launch: with its wait, one of many, and in a graph of 70 in a row."""
    device, task = machine.device(32), np.zeros(1, TASK)
    grid, many = Grid("nothing", 1), 200

    def launch_many() -> None:
        for _ in range(many):
            device.launch(grid, task)

    alone = _host_us(device, lambda: device.launch(grid, task))
    in_a_row = _host_us(device, launch_many, 5) / many
    stream = cupy.cuda.Stream(non_blocking=True)
    with device.on_stream(stream):
        stream.begin_capture()
        for _ in range(GRAPH_KERNELS):
            device.launch(grid, task)
        graph = stream.end_capture()
        whole = _host_us(device, lambda: graph.launch(stream))
    return {
        "launch and wait, us": round(alone, 2),
        f"launch, one of {many}, us": round(in_a_row, 2),
        f"graph of {GRAPH_KERNELS} and wait, us": round(whole, 2),
        "a kernel of it, us": round(whole / GRAPH_KERNELS, 3),
    }


def copies(machine: Machine, cupy: Any) -> Figures:
    """A copy with its wait, from and to pinned memory of the host."""
    device, cuda = machine.device(32), cupy.cuda
    figures: Figures = {}
    for name, size in COPIED.items():
        there = device.empty(size, np.dtype(np.uint8))
        address = device.address(there)
        with device.staging(size) as memory:
            host = memory[:size]
            host[:] = np.arange(size, dtype=np.uint64).astype(np.uint8)
            ways = {
                "to": (address, host.ctypes.data, cuda.runtime.memcpyHostToDevice),
                "from": (host.ctypes.data, address, cuda.runtime.memcpyDeviceToHost),
            }
            for way, (target, source, kind) in ways.items():
                arguments = target, source, size, kind, cuda.get_current_stream().ptr
                us = _host_us(device, partial(cuda.runtime.memcpyAsync, *arguments))
                figures[f"{name} {way}, us"] = round(us, 2)
                if way == "to":
                    host[:] = 0
            ramp = np.arange(size, dtype=np.uint64).astype(np.uint8)
            assert (host == ramp).all(), "a copy is not what was copied"
        figures[f"{name} from, GB/s"] = round(size / 1e3 / us, 2)
    return figures


def _host_us(device: Any, run: Callable[[], Any], repeats: int = _REPEATS) -> float:
    """The median of the host's microseconds until all is done."""
    found = []
    for _ in range(repeats + 3):
        device.wait()
        begin = time.perf_counter()
        run()
        device.wait()
        found.append(1e6 * (time.perf_counter() - begin))
    return median(found[3:])


def _each(total: Any, count: int) -> float:
    return round(float(total) / count, 3)


MEASURES: dict[str, Callable[[Machine, Any], Figures]] = {
    "a barrier": barriers,
    "a dependent load": loads,
    "a line of L2": lines,
    "a contended atomic in shared memory": atomics,
    "an empty kernel": launches,
    "a copy": copies,
}
"""All of them, by what is told of them."""
