"""The emulation itself: what CUDA code means in it, and what it refuses."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, compile_kernels

from wfstdec.gpu.device import Grid

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")

KERNELS = """
struct Words { unsigned *out, *counter; };

// Each thread reads what another wrote before a barrier.
extern "C" __global__ void turn_around(const __grid_constant__ Words words) {
    __shared__ unsigned shared[256];
    shared[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const unsigned other = shared[blockDim.x - 1 - threadIdx.x];
    words.out[blockIdx.x * blockDim.x + threadIdx.x] = other;
}

extern "C" __global__ void shuffles(const __grid_constant__ Words words) {
    unsigned sum = threadIdx.x;
    for (unsigned step = 1; step < 32; step *= 2) {
        const unsigned other = __shfl_up_sync(~0u, sum, step);
        if (threadIdx.x % 32 >= step) sum += other;
    }
    words.out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void atomics(const __grid_constant__ Words words) {
    const unsigned before = atomicAdd(words.counter, 1u);
    words.out[before] = before;
    atomicMin(&words.out[blockDim.x * gridDim.x], threadIdx.x + 5);
    if (atomicCAS(&words.counter[1], 0u, 1u) == 0) words.counter[2] += 1;
}

// What shared memory holds before anything is written there.
extern "C" __global__ void untouched(const __grid_constant__ Words words) {
    __shared__ unsigned shared[64];
    DYNAMIC_SHARED(unsigned, dynamic);
    unsigned* of_block = words.out + blockIdx.x * blockDim.x;
    const unsigned* words_of = threadIdx.x % 2 ? shared : dynamic;
    of_block[threadIdx.x] = words_of[threadIdx.x];
    __syncthreads();
    shared[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

// Halves of a warp that go apart and meet again.
extern "C" __global__ void halves(const __grid_constant__ Words words) {
    __shared__ unsigned shared[256];
    const unsigned other = threadIdx.x ^ 16;
    if (threadIdx.x & 16) shared[threadIdx.x] = threadIdx.x;
    __syncwarp();
    if (!(threadIdx.x & 16)) shared[threadIdx.x] = shared[other];
    __syncwarp();
    words.out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x | 16];
}

// Wrong without preemption too, but only other schedules show it.
extern "C" __global__ void lost_updates(const __grid_constant__ Words words) {
    for (int i = 0; i < 8; ++i) {
        const unsigned old = peek(words.counter);
        atomicExch(words.counter, old + 1);
    }
}

// Nothing orders the two words before the barrier.
extern "C" __global__ void stale(const __grid_constant__ Words words) {
    if (threadIdx.x == 0) atomicAdd(words.counter, 1u);
    const unsigned others = atomicAdd(words.counter + 1, 1u);
    const unsigned first = peek(words.counter), again = peek(words.counter);
    if (others && !first) atomicAdd(words.counter + 2, 1u);
    const bool back = first && !again, own = threadIdx.x == 0 && !first;
    __syncthreads();
    words.out[threadIdx.x] = back || own || !peek(words.counter);
}

extern "C" __global__ void different_barriers(const __grid_constant__ Words) {
    if (threadIdx.x % 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

extern "C" __global__ void early_return(const __grid_constant__ Words) {
    if (threadIdx.x == 3) return;
    __syncthreads();
}

extern "C" __global__ void endless(const __grid_constant__ Words words) {
    if (threadIdx.x == 0) return;
    __shfl_up_sync(~0u, *words.counter, 1);
}
"""
NAMES = (
    "turn_around shuffles atomics untouched halves lost_updates stale "
    "different_barriers early_return endless"
).split()


def launch(name, blocks=2, threads=64, **options):
    """(out, counter) after a launch."""
    library = compile_kernels(KERNELS, NAMES)
    device = EmulatedDevice(threads, library=library, **options)
    out = np.full(blocks * threads + 1, 99, np.uint32)
    counter = np.zeros(3, np.uint32)
    task = np.array([out.ctypes.data, counter.ctypes.data], np.uint64)
    device.launch(Grid(name, blocks, 4 * threads), task)
    return out, counter


@pytest.mark.parametrize("preempt", [0, 1, 3])
@pytest.mark.parametrize("threads", [32, 96, 256])
@pytest.mark.parametrize("os_threads", [1, 2])
def test_the_language(preempt, threads, os_threads):
    options = {"threads": threads, "preempt": preempt, "os_threads": os_threads}
    out, _ = launch("turn_around", **options)
    assert out[:-1].tolist() == [*range(threads - 1, -1, -1)] * 2
    out, _ = launch("shuffles", **options)
    per_warp = np.arange(threads).reshape(-1, 32).cumsum(axis=1).ravel()
    assert out[:-1].tolist() == per_warp.tolist() * 2
    out, _ = launch("halves", **options)
    assert out[:-1].tolist() == [t | 16 for t in range(threads)] * 2
    out, counter = launch("atomics", **options)
    assert out[:-1].tolist() == list(range(2 * threads))
    assert (out[-1], *counter) == (5, 2 * threads, 1, 1)


def test_nothing_can_depend_on_what_memory_held():
    for os_threads in (1, 2):
        for _ in range(2):
            out, _ = launch("untouched", blocks=3, os_threads=os_threads)
            assert set(out[:-1].tolist()) == {0xA5A5A5A5}


def test_preemption_makes_other_schedules():
    counts = {
        (preempt, seed): int(
            launch("lost_updates", 1, preempt=preempt, seed=seed)[1][0]
        )
        for preempt, seed in [(0, 1), (2, 1), (2, 2), (2, 1)]
    }
    assert counts[0, 1] == 8 * 64
    assert counts[2, 1] < 8 * 64 and counts[2, 2] < 8 * 64
    again = int(launch("lost_updates", 1, preempt=2, seed=1)[1][0])
    assert again == counts[2, 1], "a seed is a schedule"


def test_words_may_be_as_they_were_at_the_last_barrier():
    """But never one's own, nor again what was seen to be gone."""
    for seed in range(20):
        out, counter = launch("stale", 1, threads=128, preempt=9, seed=seed)
        assert not out[:128].any()
        assert 20 < counter[2] < 100
    out, counter = launch("stale", 1, threads=128)
    assert not out[:128].any() and counter[2] == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("different_barriers", "threads at different barriers"),
        ("early_return", "barrier"),
        ("endless", "barrier after some threads returned"),
    ],
)
def test_what_would_hang_or_break_on_a_gpu_is_refused(name, message):
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from test_emulation import launch; launch({name!r}, 1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.returncode < 0  # a signal
    assert done.stderr.startswith("emulation: ") and message in done.stderr
