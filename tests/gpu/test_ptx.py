"""PTX in the emulation: what it means there, and the faults that it shows."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, compile_ptx
from cuda_emulation.ptx import UntranslatedError, translate

from wfstdec.gpu.compiling import join_includes
from wfstdec.gpu.device import Grid
from wfstdec.gpu.records import KERNELS

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.nvrtc,
]
MEANT = """
struct Words { u32 *out, *counter; };
constexpr u32 WHOLE = 0xffffffffu;

extern "C" __global__ void language(const __grid_constant__ Words words) {
    __shared__ u32 turned[256];
    DYNAMIC_SHARED(u32, sums);
    turned[threadIdx.x] = threadIdx.x;
    __syncthreads();
    sums[threadIdx.x] = inclusive_warp_sum(turned[blockDim.x - 1 - threadIdx.x]);
    __syncwarp();
    const u32 lane = threadIdx.x % WARP, first = threadIdx.x - lane;
    const u32 above = __shfl_xor_sync(WHOLE, sums[first + lane], 1);
    const u32 least = __reduce_min_sync(WHOLE, above);
    const u32 odd = __ballot_sync(WHOLE, above & 1);
    atomicMin(words.counter, threadIdx.x + 5);
    atomicAdd(words.counter + 1, 1u);
    u32* const mine = words.out + 4 * threadIdx.x;
    if (threadIdx.x == 0)
        words.counter[2] = words.counter[2] % 100 + words.counter[3] / blockDim.x;
    mine[0] = above;
    mine[1] = least + __shfl_sync(WHOLE, above, 3);
    mine[2] = odd;
    mine[3] = peek(&turned[threadIdx.x ^ 1]);
}

extern "C" __global__ void numbers(const __grid_constant__ Words words) {
    const float* given = reinterpret_cast<const float*>(words.out);
    const float a = given[2 * threadIdx.x], b = given[2 * threadIdx.x + 1];
    __syncthreads();
    float* const mine = reinterpret_cast<float*>(words.out) + 8 * threadIdx.x;
    words.counter[threadIdx.x] = a < b || a == b;
    mine[512] = a + b;
    mine[513] = a * b + a;
    mine[514] = a / b;
    mine[515] = ceilf(a);
    mine[516] = fminf(a, b);
    mine[517] = static_cast<float>(static_cast<u32>(fmaxf(b, 0.0f)));
    mine[518] = -a;
}
"""
FAULTS = {
    "a misaligned vector store": (
        "struct alignas(16) Quad { u32 a, b, c, d; };"
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " *reinterpret_cast<Quad*>(words.out + 1) = Quad{1, 2, 3, threadIdx.x}; }",
        "a misaligned address",
    ),
    "shared memory read as global": (
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " DYNAMIC_SHARED(u32, sums);"
        " u32* const of_either = words.counter[0] == 99 ? words.out : sums;"
        " of_either[threadIdx.x] = 1; __syncthreads();"
        " words.out[0] = in_global(of_either)[0]; }",
        "shared memory that is taken for global",
    ),
    "shared memory read past its end": (
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " DYNAMIC_SHARED(u32, sums); sums[threadIdx.x + words.counter[1]] = 1;"
        " __syncthreads(); words.out[0] = sums[0]; }",
        "an address outside shared memory",
    ),
    "a null pointer": (
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " u32* const none = reinterpret_cast<u32*>((u64)words.counter[1]);"
        " none[threadIdx.x] = 1; }",
        "a null address",
    ),
    "a part of a warp": (
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " words.out[threadIdx.x] = __shfl_sync(words.counter[2], threadIdx.x, 3); }",
        "a part of a warp",
    ),
    "a barrier that some have left": (
        "extern C __global__ void fault(const __grid_constant__ Words words) {"
        " if (threadIdx.x == words.counter[2]) return;"
        " __syncthreads(); words.out[0] = 1; }",
        "barrier",
    ),
}
HEAD = '#line 1 "head.cu"\nstruct Words { u32 *out, *counter; };\n#line 1 "fault.cu"\n'


@pytest.fixture(autouse=True)
def nvrtc():
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")


def launch(source, kernel, out, counter, threads=64, **options):
    """Run a kernel made of shared headers and a source, by its PTX."""
    whole = "".join(join_includes(name, KERNELS) for name in ("block.cuh",))
    device = EmulatedDevice(threads, library=compile_ptx(whole + source), **options)
    task = np.array([out.ctypes.data, counter.ctypes.data], np.uint64)
    device.launch(Grid(kernel, 1, 4 * threads), task)


@pytest.mark.parametrize("preempt", [0, 2])
def test_the_language(preempt):
    threads = 96
    out, counter = (
        np.zeros((threads, 4), np.uint32),
        np.array([99, 0, 742, 1000], np.uint32),
    )
    launch(MEANT, "language", out, counter, threads, preempt=preempt, seed=3)
    turned = np.arange(threads)[::-1]
    above = turned.reshape(-1, 32).cumsum(axis=1)[:, np.arange(32) ^ 1]
    assert out[:, 0].tolist() == above.ravel().tolist()
    expected = np.repeat(above.min(axis=1) + above[:, 3], 32)
    assert out[:, 1].tolist() == expected.tolist()
    odd = ((above & 1) << np.arange(32)).sum(axis=1)
    assert out[:, 2].tolist() == np.repeat(odd, 32).tolist()
    assert out[:, 3].tolist() == [t ^ 1 for t in range(threads)]
    assert counter.tolist() == [5, threads, 42 + 1000 // threads, 1000]


def test_numbers_are_those_of_every_other_backend():
    threads = 64
    rng = np.random.default_rng(1)
    given = (
        rng.normal(size=(threads, 2)) * 10.0 ** rng.integers(-44, 20, (64, 2))
    ).astype(np.float32)
    given[:4] = [[np.nan, 1], [1e-42, 1e-43], [-0.0, 0.0], [np.inf, 5e9]]
    out = np.zeros(512 + 8 * threads, np.float32)
    out[: 2 * threads], counter = given.ravel(), np.zeros(threads, np.uint32)
    launch(MEANT, "numbers", out, counter, threads)
    found = out[512:].reshape(threads, 8).T
    a, b = given.T
    with np.errstate(all="ignore"):
        assert counter.tolist() == ((a < b) | (a == b)).tolist()
        for one, expected in zip(
            found, (a + b, a * b + a, a / b, np.ceil(a), np.fmin(a, b)), strict=False
        ):
            same = (one == expected) | (np.isnan(one) & np.isnan(expected))
            assert same.all()
        whole = np.minimum(np.trunc(np.fmax(b, 0)), np.float32(4294967295))
        assert found[5].tolist() == whole.tolist()
        assert (found[6].view(np.uint32) == (-a).view(np.uint32)).all()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.share(keep=2)
def test_a_fault_is_found(fault):
    """In a process of its own: the emulation ends it, with the line of the source."""
    kernel, message = FAULTS[fault]
    source = HEAD + kernel.replace("extern C", 'extern "C"')
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import numpy as np; from test_ptx import launch\n"
        "counter = np.array([1, 64, 5], np.uint32)\n"
        f"launch({source!r}, 'fault', np.zeros(256, np.uint32), counter)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.returncode < 0, done.stderr  # a signal
    assert done.stderr.startswith("emulation: ") and message in done.stderr
    if "barrier" not in message:
        assert done.stderr.rstrip().endswith("fault.cu:1")


def entry(instruction):
    return (
        ".visible .entry one(\n\t.param .align 8 .b8 one_param_0[8]\n)\n{\n"
        f"\t.reg .f32 %f<4>;\n\t.reg .b32 %r<9>;\n\t{instruction};\n\tret;\n}}\n"
    )


@pytest.mark.parametrize(
    "instruction",
    [
        "fma.rn.f32 %f1, %f2, %f3, %f1",
        "add.rn.ftz.f32 %f1, %f2, %f3",
        "div.approx.f32 %f1, %f2, %f3",
        "add.f32 %f1, %f2, %f3",
        "nanosleep.u32 %r1",
        "bar.sync 1",
        ".local .align 4 .b8 stack[16]",
    ],
)
def test_what_kernels_may_not_have_is_not_translated(instruction):
    assert "f1 = f2 + f3" in translate(entry("add.rn.f32 %f1, %f2, %f3"))
    with pytest.raises(UntranslatedError, match="one: "):
        translate(entry(instruction))
